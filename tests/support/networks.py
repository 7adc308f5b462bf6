"""Networks that can be cut, slowed and made to lose: what a test of partitions puts between the nodes.

Two do it. `SwitchNetwork` gives every node a network namespace with a TAP device and passes frames itself, so the
kernel's own TCP meets cuts, delay and loss; it needs root. `ProxyNetwork` puts a TCP proxy before every port; it works
for anyone, and cannot lose packets. `best_network` takes the first that works here and says why not the other.

Links have a direction. `CLIENTS` is the place of all clients: `cut_both(CLIENTS, 2)` hides node 2 from them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from support.cluster import free_port_pair
from support.link_rules import CLIENTS, LinkRule, LinkRules
from support.ports import HOST

_HERE = Path(__file__).resolve().parent
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_MTU = 16_000
_PORT = 9_092
_CLIENT_ADDRESS = 254
_NAMESPACE = re.compile(r"drmq-(?P<pid>\d+)-\d+")


class Unavailable(Exception):
    """A tool that this machine does not have, with the reason."""


class FaultyNetwork:
    """Links by rule. A base: subclasses say where nodes are, and start the process that carries the rules out."""

    name: ClassVar[str]
    features: ClassVar[frozenset[str]]
    """Of `cut`, `delay`, `rate`, `loss`, `duplicate`, `hold` and `snapshot`: what it can do."""

    def __init__(self, nodes: int) -> None:
        self.nodes = range(1, nodes + 1)
        self.rules = LinkRules()
        self._helper: subprocess.Popen[bytes] | None = None

    # ---- faults ---------------------------------------------------------------------------------

    def set_rule(self, links: Iterable[tuple[int, int]], rule: LinkRule) -> None:
        """Have these links, each a sender and a receiver, follow a rule; their cuts stay as they are."""
        for link in links:
            self.rules.by_link[link] = replace(rule, cut=rule.cut or self.rules.get(*link).cut)
        self._tell()

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing that `sender` sends reaches `receiver` any more. The other way stays open."""
        self.set_rule([(sender, receiver)], replace(self.rules.get(sender, receiver), cut=True))

    def cut_both(self, one: int, other: int) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, node_id: int, *, from_clients: bool = False) -> None:
        """Cut a node off from all others, and from the clients too if asked."""
        for other in self.nodes:
            if other != node_id:
                self.cut_both(node_id, other)
        if from_clients:
            self.cut_both(node_id, CLIENTS)

    def split(self, one_side: Sequence[int]) -> None:
        """Cut every link between these nodes and the rest."""
        for one in one_side:
            for other in self.nodes:
                if other not in one_side:
                    self.cut_both(one, other)

    def between_nodes(self) -> list[tuple[int, int]]:
        """All links between nodes."""
        return [(one, other) for one in self.nodes for other in self.nodes if one != other]

    def links_of(self, node_id: int) -> list[tuple[int, int]]:
        """All links between a node and the others, both ways."""
        return [link for link in self.between_nodes() if node_id in link]

    def heal(self) -> None:
        """Every link is open again."""
        self.rules = LinkRules()
        self._tell()

    def counts(self) -> tuple[int, int]:
        """What was counted so far: frames that passed and were lost, or bytes of snapshots and held requests."""
        return self._tell()

    def _tell(self) -> tuple[int, int]:
        """Have the rules take effect; what the process has counted."""
        assert self._helper is not None
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.write(self.rules.to_line())
        self._helper.stdin.flush()
        answer = self._helper.stdout.readline().split()
        assert len(answer) == 2, "the network's process has ended"
        return int(answer[0]), int(answer[1])

    def _start_helper(self, script: str, words: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        self._helper = subprocess.Popen(
            [sys.executable, str(_HERE / script), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
        )
        self._tell()

    def close(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            # The end of its input is its sign to end; SIGKILL is for one that hangs.
            assert helper.stdin is not None
            assert helper.stdout is not None
            with contextlib.suppress(OSError):
                helper.stdin.close()
            try:
                helper.wait(2)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()
            helper.stdout.close()


class SwitchNetwork(FaultyNetwork):
    """A namespace and a TAP device per node, and a switch in a process between them."""

    name = "network namespaces with TAP devices"
    features = frozenset({"cut", "delay", "rate", "loss", "duplicate"})

    def __init__(self, nodes: int, seed: int = 1) -> None:
        super().__init__(nodes)
        if os.geteuid() != 0:
            raise Unavailable("making network namespaces needs root")
        if shutil.which("ip") is None:
            raise Unavailable("there is no `ip` (Debian package iproute2)")
        if not os.path.exists("/dev/net/tun"):
            raise Unavailable("there is no /dev/net/tun")
        _remove_leftovers()
        self._pid = os.getpid()
        self._subnet = f"10.213.{self._pid % 250 + 1}"
        self._taps: dict[int, int] = {}
        try:
            for node_id in self.nodes:
                self._make_node(node_id)
            self._make_tap(CLIENTS)
            self._up([], CLIENTS, _CLIENT_ADDRESS)
            words = [str(seed), *(f"{port}:{fd}" for port, fd in self._taps.items())]
            self._start_helper("switch.py", words, list(self._taps.values()))
        except Unavailable:
            self.close()
            raise

    def _device(self, port: int) -> str:
        return f"dq{self._pid % 1_000_000}n{port}"

    def _namespace(self, node_id: int) -> str:
        return f"drmq-{self._pid}-{node_id}"

    def _make_tap(self, port: int) -> None:
        try:
            descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
            self._taps[port] = descriptor
            fcntl.ioctl(
                descriptor, _TUNSETIFF, struct.pack("16sH22x", self._device(port).encode(), _IFF_TAP | _IFF_NO_PI)
            )
        except OSError as error:
            raise Unavailable(f"no TAP device can be made: {error.strerror}") from error

    def _make_node(self, node_id: int) -> None:
        self._make_tap(node_id)
        namespace = self._namespace(node_id)
        _ip("netns", "add", namespace)
        _ip("link", "set", self._device(node_id), "netns", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        self._up(["-n", namespace], node_id, node_id)

    def _up(self, where: list[str], port: int, address: int) -> None:
        device = self._device(port)
        _ip(*where, "link", "set", device, "address", f"02:64:72:6d:71:{port:02x}", "mtu", str(_MTU))
        _ip(*where, "addr", "add", f"{self._subnet}.{address}/24", "dev", device)
        _ip(*where, "link", "set", device, "up")

    def close(self) -> None:
        super().close()
        for descriptor in self._taps.values():
            os.close(descriptor)
        self._taps = {}
        for node_id in self.nodes:
            subprocess.run(["ip", "netns", "del", self._namespace(node_id)], capture_output=True, check=False)

    def host(self, node_id: int) -> str:
        return f"{self._subnet}.{node_id}"

    def port(self, node_id: int) -> int:
        return _PORT

    def bootstrap(self, node_id: int) -> str:
        return f"{self.host(node_id)}:{_PORT}"

    def peer(self, node_id: int) -> str:
        return f"{node_id}:{self.bootstrap(node_id)}"

    def arguments(self, node_id: int) -> list[str]:
        return []

    def prefix(self, node_id: int) -> list[str]:
        # `ip netns exec` becomes the command, so the process id is the node's.
        return ["ip", "netns", "exec", self._namespace(node_id)]


class ProxyNetwork(FaultyNetwork):
    """A TCP proxy before every port of every node. Each node has loopback addresses of its own for that."""

    name = "TCP proxies"
    features = frozenset({"cut", "delay", "rate", "hold", "snapshot"})

    def __init__(self, nodes: int, seed: int = 1) -> None:
        super().__init__(nodes)
        self._ports: dict[int, int] = {}
        for node_id in self.nodes:
            self._ports[node_id] = free_port_pair(self._ports.values())
        words: list[str] = []
        for node_id, port in self._ports.items():
            words.append(f"clients,{node_id},{self._clients_host(node_id)},{port},{HOST}")
            words.append(f"peers,{node_id},{self._peers_host(node_id)},{port + 1_000},{HOST}")
        self._start_helper("proxy.py", words)

    @staticmethod
    def _peers_host(node_id: int) -> str:
        return f"127.0.1.{node_id}"

    @staticmethod
    def _clients_host(node_id: int) -> str:
        return f"127.0.2.{node_id}"

    def host(self, node_id: int) -> str:
        return HOST

    def port(self, node_id: int) -> int:
        return self._ports[node_id]

    def bootstrap(self, node_id: int) -> str:
        return f"{self._clients_host(node_id)}:{self._ports[node_id]}"

    def peer(self, node_id: int) -> str:
        return f"{node_id}:{self._peers_host(node_id)}:{self._ports[node_id]}"

    def arguments(self, node_id: int) -> list[str]:
        return ["--advertise", self.bootstrap(node_id), "--advertised-peer-host", self._peers_host(node_id)]

    def prefix(self, node_id: int) -> list[str]:
        return []


def best_network(nodes: int, seed: int = 1) -> tuple[SwitchNetwork | ProxyNetwork, str]:
    """The network with the most faults that this machine allows, and a sentence about the choice."""
    try:
        return SwitchNetwork(nodes, seed), f"network: {SwitchNetwork.name}"
    except Unavailable as reason:
        return ProxyNetwork(nodes, seed), f"network: {ProxyNetwork.name}, because {reason}; no loss or duplication"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")


def _remove_leftovers() -> None:
    """Namespaces of runs that were killed before they could tidy up."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        found = _NAMESPACE.match(line)
        if found and not os.path.exists(f"/proc/{found['pid']}"):
            subprocess.run(["ip", "netns", "del", found.group()], capture_output=True, check=False)
