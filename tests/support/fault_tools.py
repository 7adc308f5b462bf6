"""Which failures this machine allows. Every tool is tried before it is trusted: a fault tool can be wrong itself."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from support.link_rules import CLIENTS, LinkRule
from support.networks import FaultyNetwork, ProxyNetwork, SwitchNetwork, Unavailable
from support.polling import PATIENCE_S

_SILENCE_S = 0.4
_ECHO = (
    "import contextlib,socket,sys,threading\n"
    "server = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    "print('listening', flush=True)\n"
    "def serve(c):\n"
    "    with contextlib.suppress(OSError):\n"
    "        while data := c.recv(65536): c.sendall(data)\n"
    "while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()\n"
)

_HELD_API = 0
_WORD = b"\0\0\0\4\0\0ok"
"""Looks like a request of API 0."""


class Tool(NamedTuple):
    """A tool, whether it works, and what was seen."""

    name: str
    works: bool
    seen: str


def strace_works() -> Tool:
    """Whether strace can make a system call fail and another one slow."""
    if shutil.which("strace") is None:
        return Tool("strace", False, "not installed (Debian package strace)")
    script = "import os,time; t=time.monotonic(); f=os.open('.', os.O_RDONLY); os.fsync(f); print(time.monotonic()-t)"
    found = []
    for inject in ("fsync:error=EIO", "fsync:delay_enter=300000"):
        command = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", f"inject={inject}"]
        done = subprocess.run([*command, sys.executable, "-c", script], capture_output=True, text=True, check=False)
        found.append(done)
    failed, slow = found
    if "Input/output error" not in failed.stderr:
        return Tool("strace", False, f"a system call that should fail does not: {failed.stderr.strip()[-200:]}")
    if slow.returncode != 0 or float(slow.stdout) < 0.3:
        return Tool("strace", False, f"a system call that should be slow is not: {slow.stdout or slow.stderr}")
    return Tool("strace", True, f"an fsync failed as told, and one took {float(slow.stdout):.2f} s instead of 0")


@contextmanager
def echo_server(network: FaultyNetwork, node_id: int, *, peers: bool = False) -> Iterator[None]:
    """Something that answers where a node would, clients or its peers."""
    command = [*network.prefix(node_id), sys.executable, "-c", _ECHO]  # type: ignore[attr-defined]
    where = [network.host(node_id), str(network.port(node_id) + 1_000 * peers)]  # type: ignore[attr-defined]
    process = subprocess.Popen([*command, *where], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def echo_seconds(network: FaultyNetwork, node_id: int, timeout_s: float = PATIENCE_S) -> float | None:
    """How long it takes to connect, send some bytes and get them back; None if that does not happen in time."""
    host, _, port = network.bootstrap(node_id).rpartition(":")  # type: ignore[attr-defined]
    started = time.monotonic()
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        # A size and as many bytes: a proxy passes requests on whole.
        connection.sendall(_WORD)
        received = b""
        while len(received) < len(_WORD):
            more = connection.recv(len(_WORD) - len(received))
            if not more:
                return None
            received += more
        if received == _WORD:
            return time.monotonic() - started
    return None


def network_works(network: FaultyNetwork) -> Iterator[Tool]:
    """Cut, cut one way, delay, lose: each with its known pattern in and its exact effect out."""
    to_node, from_node = [(CLIENTS, 1)], [(1, CLIENTS)]

    def told(name: str, works: bool, seen: str) -> Tool:
        network.heal()
        return Tool(f"{network.name}: {name}", works, seen)

    with echo_server(network, 1):
        plain = echo_seconds(network, 1)
        yield told("open", plain is not None, "no echo" if plain is None else f"echo in {plain * 1_000:.1f} ms")
        for name, links in (("cut to the node", to_node), ("cut from the node", from_node)):
            network.set_rule(links, LinkRule(cut=True))
            cut = echo_seconds(network, 1, _SILENCE_S)
            network.heal()
            healed = echo_seconds(network, 1)
            yield told(name, cut is None and healed is not None, "silence, and an echo after the heal")
        network.set_rule(to_node + from_node, LinkRule(delay_ms=50))
        slow = echo_seconds(network, 1)
        # A real network delays the handshake too; a proxy only what is sent.
        expected = 0.2 if "loss" in network.features else 0.1
        works = slow is not None and slow >= expected
        seen = "no echo" if slow is None else f"50 ms each way: {slow * 1_000:.0f} ms, at least {expected * 1_000:.0f}"
        yield told("delay", works, seen)
        if "loss" in network.features:
            network.set_rule(to_node, LinkRule(loss=1.0))
            lost = echo_seconds(network, 1, _SILENCE_S)
            yield told("loss", lost is None, "all frames lost, no echo")
        if "hold" in network.features:
            network.set_rule(to_node, LinkRule(held_api=_HELD_API + 1, held_ms=500))
            other = echo_seconds(network, 1)
            network.set_rule(to_node, LinkRule(held_api=_HELD_API, held_ms=500))
            held = echo_seconds(network, 1)
            works = held is not None and held >= 0.5 and network.counts()[1] == 1 and other is not None
            seen = "no echo" if held is None else f"held for 500 ms: {held * 1_000:.0f} ms, and one of another API not"
            yield told("hold", works, seen)


def probe() -> Iterator[Tool]:
    """All tools, tried out."""
    yield Tool("SIGKILL, SIGSTOP, SIGCONT", True, "always there")
    yield strace_works()
    for kind in (SwitchNetwork, ProxyNetwork):
        try:
            network = kind(1)
        except Unavailable as reason:
            yield Tool(kind.name, False, str(reason))
            continue
        try:
            yield from network_works(network)
        finally:
            network.close()
