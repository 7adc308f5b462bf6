"""The external control: the schedule of K1 against another system, whose outcome is known.

A harness that finds nothing may be blind. NATS JetStream acknowledges by default before it syncs, and syncs every two
minutes: when the power fails on all nodes, acknowledged messages must be lost, or the power did not fail. With
`sync_interval: always` nothing may be lost, or something else is broken. Both on the same disks, cut in the same way,
as DRMQ in K1-power-cut-on-all, which runs here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.systems.base import Unavailable as NotInstalled
from bench.systems.nats import NatsSystem

from support.cluster import free_port_pair
from support.ports import HOST
from support.power import PowerDisk, cut_power, try_power

NODES = 3
CUTS = 3
SENDERS = 8
STREAM = "control"
READY_WITHIN_S = 60.0
QUIET_S = 3.0
"""How long a reader waits for messages before it asks again."""


class NatsNode:
    """One server of a NATS cluster on a disk of its own."""

    def __init__(self, program: str, number: int, directory: Path, ports: dict[int, int], *, syncs: bool) -> None:
        self.disk = PowerDisk(directory, f"disk-{number}")
        self.url = f"nats://{HOST}:{ports[number]}"
        self._log = directory / f"nats-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None
        routes = ", ".join(f'"nats://{HOST}:{port + 1_000}"' for port in ports.values())
        config = directory / f"nats-{number}.conf"
        config.write_text(
            f'server_name: "n{number}"\nhost: "{HOST}"\nport: {ports[number]}\n'
            f'jetstream {{\n  store_dir: "{self.disk.path}"\n  max_file_store: 400MB\n'
            f"{'  sync_interval: always' if syncs else ''}\n}}\n"
            f'cluster {{\n  name: "control"\n  host: "{HOST}"\n  port: {ports[number] + 1_000}\n'
            f"  routes: [{routes}]\n}}\n"
        )
        self._command = [program, "-c", str(config)]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def pause(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        self.disk.close()


class NatsRun:
    """Publishers on a replicated stream, power cuts on all nodes, and what is left of what was acknowledged."""

    def __init__(self, nodes: list[NatsNode], seed: int) -> None:
        self.acked: set[bytes] = set()
        self._nodes = nodes
        self._chance = random.Random(seed)
        self._number = 0

    async def run(self) -> set[bytes]:
        """What was acknowledged and was not there after one of the cuts."""
        lost: set[bytes] = set()
        for node in self._nodes:
            node.start()
        await self._ready(is_new=True)
        # The stream itself is to stay. What is lost then are messages, and can be counted.
        for node in self._nodes:
            node.disk.sync()
        for number in range(1, CUTS + 1):
            seconds = self._chance.uniform(1, 4)
            await self._publish(seconds)
            print(f"  {len(self.acked)} acknowledged; power cut {number} on all nodes", flush=True)
            for node in self._nodes:
                node.start()
            if not await self._ready(is_new=False):
                # Perhaps it is lost, perhaps it only takes longer: nothing is counted that was not looked at.
                print(f"  the stream does not come back within {READY_WITHIN_S:g} s", flush=True)
                break
            lost |= self.acked - await self._read()
        return lost

    async def _connect(self) -> Any:
        import nats

        return await nats.connect(
            [node.url for node in self._nodes], connect_timeout=1, max_reconnect_attempts=3, error_cb=_quiet
        )

    async def _ready(self, *, is_new: bool) -> bool:
        """Until the stream is there and takes messages; False if it stays away."""
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                client = await self._connect()
                try:
                    stream = client.jetstream(timeout=2)
                    if is_new:
                        await stream.add_stream(name=STREAM, subjects=[STREAM], num_replicas=NODES, storage="file")
                        is_new = False
                    await stream.publish(STREAM, b"ready", stream=STREAM)
                    return True
                finally:
                    await client.close()
            await asyncio.sleep(0.5)
        return False

    async def _publish(self, seconds: float) -> None:
        """Publish and note what is acknowledged; after some time, in the middle of it, the power fails everywhere."""
        client = await self._connect()
        stream = client.jetstream(timeout=5)
        ended = asyncio.Event()

        async def send() -> None:
            while not ended.is_set():
                self._number += 1
                message = b"%d" % self._number
                try:
                    await stream.publish(STREAM, message.ljust(500, b"."), stream=STREAM)
                except Exception:  # noqa: BLE001 - the server is gone, in one of many ways: the outcome is open
                    return
                self.acked.add(message)

        senders = [asyncio.create_task(send()) for _ in range(SENDERS)]
        await asyncio.sleep(seconds)
        # Blocks the event loop, so nothing is acknowledged to us that came after the copy of the disks.
        cut_power((node, node.disk) for node in self._nodes)
        ended.set()
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        # Closing waits for a task of the client that has been cancelled, and raises that.
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await asyncio.wait_for(client.close(), 5)

    async def _read(self) -> set[bytes]:
        """All messages of the stream: as many as it says that it has, or it is an error."""
        client = await self._connect()
        found: dict[int, bytes] = {}
        try:
            stream = client.jetstream(timeout=5)
            reader = await self._reader(stream)
            there = (await stream.stream_info(STREAM)).state.messages
            deadline = time.monotonic() + READY_WITHIN_S
            while len(found) < there:
                assert time.monotonic() < deadline, f"only {len(found)} of {there} messages could be read"
                with contextlib.suppress(TimeoutError):
                    for message in await reader.fetch(500, timeout=QUIET_S):
                        found[message.metadata.sequence.stream] = message.data.rstrip(b".")
        finally:
            await client.close()
        return set(found.values())

    async def _reader(self, stream: Any) -> Any:
        """A consumer. The servers may still be electing the leader that creates it."""
        from nats.errors import Error
        from nats.js.api import AckPolicy, ConsumerConfig

        # With the default policy the server stops at a thousand messages that are not acknowledged.
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                return await stream.pull_subscribe(STREAM, stream=STREAM, config=config)
            except Error:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)


async def _quiet(error: Exception) -> None:
    """Servers that are down are what this is about."""


def run_nats(program: str, seed: int, *, syncs: bool) -> tuple[int, int]:
    """How many messages were acknowledged, and how many of these were lost."""
    directory = Path(tempfile.mkdtemp(prefix="drmq-control-"))
    ports: dict[int, int] = {}
    for number in range(1, NODES + 1):
        ports[number] = free_port_pair(ports.values())
    nodes: list[NatsNode] = []
    try:
        for number in ports:
            nodes.append(NatsNode(program, number, directory, ports, syncs=syncs))
        run = NatsRun(nodes, seed)
        lost = asyncio.run(run.run())
        return len(run.acked), len(lost)
    finally:
        for node in nodes:
            node.close()
        shutil.rmtree(directory)


def run_control(seed: int) -> int:
    """Both settings of NATS; 0 if each shows what it must, 1 if not, 2 if that cannot be found out here."""
    system = NatsSystem(Path(tempfile.gettempdir()), fsyncs=False)
    try:
        system.check()
    except NotInstalled as reason:
        print(f"NOT RUN: {reason}")
        return 2
    tool = try_power()
    if not tool.works:
        print(f"NOT RUN: {tool.name}: {tool.seen}")
        return 2
    assert system.program is not None
    print(f"nats-server {system.version()}, {NODES} nodes, {NODES} replicas, {CUTS} power cuts on all, seed {seed}")
    is_right = True
    for syncs, expected in ((False, "loss"), (True, "no loss")):
        name = "sync_interval: always" if syncs else "default settings"
        acked, lost = run_nats(system.program, seed, syncs=syncs)
        as_expected = acked > 0 and (lost > 0) != syncs
        is_right &= as_expected
        print(
            f"NATS, {name}: {acked} acknowledged, {lost} lost ({lost / max(1, acked):.1%}); "
            f"expected {expected}: {'as it must be' if as_expected else 'THE HARNESS IS WRONG'}",
            flush=True,
        )
    return int(not is_right)
