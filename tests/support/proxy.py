"""Links between nodes as TCP proxies, for machines that do not allow network namespaces.

    python proxy.py ROUTE ROUTE ...         ROUTE: KIND,NODE,LISTEN_HOST,PORT,TARGET_HOST

Every node advertises an address of this process instead of its own. A connection to a node's clients' port comes from
the clients; one to its peers' port says in its greeting which node dialled. A cut link holds its bytes back, also
those that end a connection: both ends see silence, and on healing everything arrives, as after TCP's repetitions. What
only packets can suffer (loss, duplication, overtaking) cannot be done here.

What only a proxy can do, because it knows what passes: hold single requests of clients back until long after these have
given up on them, and stop the transfer of a snapshot after so many bytes. The answer to each line of rules says how
many bytes of snapshots have passed, and how many requests were held.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.link_rules import CLIENTS, LinkRules

CHUNK_BYTES = 65_536
_GREETING_BYTES = 28
_NODE_ID_AT = 20
"""Of the peers' greeting: where in its frame the node id of the dialler begins (drmq.transport.peers.hello)."""
_KIND_AT = 19
"""And where the kind of the connection is."""
_SNAPSHOTS = 2
_QUEUE_MAX = 32
_SIZE_BYTES = 4
_API_END = 6
"""Of a request: the size, then two bytes with the API key."""


class Route(NamedTuple):
    """Where to listen, and for which target."""

    kind: str
    node_id: int
    listen_host: str
    port: int
    target_host: str


class Proxy:
    """All links of a cluster."""

    def __init__(self, seed: int = 0) -> None:
        self.rules = LinkRules()
        self.snapshot_bytes = 0
        self.held = 0
        self._changed = asyncio.Event()
        self._chance = random.Random(seed)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def set_rules(self, rules: LinkRules) -> None:
        self.rules = rules
        self._changed.set()
        self._changed = asyncio.Event()

    async def listen(self, route: Route) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                await self._connect(route, reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        self._servers.append(await asyncio.start_server(accept, route.listen_host, route.port, limit=CHUNK_BYTES))

    async def _connect(self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start, dialler, has_snapshots = b"", CLIENTS, False
        if route.kind == "peers":
            start = await reader.readexactly(_GREETING_BYTES)
            dialler = int.from_bytes(start[_NODE_ID_AT:], "big")
            has_snapshots = start[_KIND_AT] == _SNAPSHOTS
        await self._pass_gate(dialler, route.node_id)
        target_reader, target_writer = await asyncio.open_connection(route.target_host, route.port, limit=CHUNK_BYTES)
        try:
            await asyncio.gather(
                self._pump(reader, target_writer, dialler, route.node_id, start, has_snapshots=has_snapshots),
                self._pump(target_reader, writer, route.node_id, dialler, b""),
            )
        finally:
            target_writer.close()

    async def _pass_gate(self, sender: int, receiver: int) -> None:
        while self.rules.get(sender, receiver).cut:
            await self._changed.wait()

    async def _pass_snapshot(self, sender: int, receiver: int, writer: asyncio.StreamWriter, data: bytes) -> bytes:
        """Send as much of a snapshot as may pass, and wait while none may; what is left to send."""
        most = self.rules.get(sender, receiver).snapshot_bytes_max
        allowed = len(data) if most < 0 else min(len(data), max(0, most - self.snapshot_bytes))
        if not allowed:
            await self._changed.wait()
        self.snapshot_bytes += allowed
        writer.write(data[:allowed])
        await writer.drain()
        return data[allowed:]

    def _held_ms(self, request: bytes, sender: int, receiver: int) -> float:
        rule = self.rules.get(sender, receiver)
        if int.from_bytes(request[_SIZE_BYTES:_API_END], "big", signed=True) != rule.held_api or rule.held_api < 0:
            return 0.0
        if self._chance.random() >= rule.held_part:
            return 0.0
        self.held += 1
        return rule.held_ms

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        sender: int,
        receiver: int,
        start: bytes,
        *,
        has_snapshots: bool = False,
    ) -> None:
        """Move bytes until one end closes; then close the other, which ends the other direction too."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUE_MAX)
        loop = asyncio.get_running_loop()

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await self._pass_gate(sender, receiver)
                if not data:
                    writer.close()
                    return
                rate = self.rules.get(sender, receiver).bytes_per_s
                if rate:
                    await asyncio.sleep(len(data) / rate)
                while has_snapshots and data:
                    data = await self._pass_snapshot(sender, receiver, writer, data)
                writer.write(data)
                await writer.drain()

        async def receive() -> None:
            data = start
            while True:
                if data:
                    rule = self.rules.get(sender, receiver)
                    jitter = self._chance.uniform(-rule.jitter_ms, rule.jitter_ms) if rule.jitter_ms else 0.0
                    held_ms = self._held_ms(data, sender, receiver) if sender == CLIENTS else 0.0
                    await queue.put((loop.time() + (rule.delay_ms + jitter + held_ms) / 1_000, data))
                data = await (_read_request(reader) if sender == CLIENTS else _read(reader))
                if not data:
                    await queue.put((0.0, b""))
                    return

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(deliver())
                group.create_task(receive())
        except* OSError:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        return b""


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    """One request of a client, whole, so that it can be held alone; what there is of it if the client disconnects."""
    try:
        size = await reader.readexactly(_SIZE_BYTES)
        return size + await reader.readexactly(int.from_bytes(size, "big"))
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    except OSError:
        return b""


async def main(routes: list[Route]) -> None:
    """Run until standard input ends."""
    proxy = Proxy()
    for route in routes:
        await proxy.listen(route)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        proxy.set_rules(LinkRules.from_line(line))
        os.write(1, b"%d %d\n" % (proxy.snapshot_bytes, proxy.held))
    # There is nothing to tidy up, and connections that are still being made would only complain.
    os._exit(0)


def _route(word: str) -> Route:
    kind, node_id, listen_host, port, target_host = word.split(",")
    return Route(kind, int(node_id), listen_host, int(port), target_host)


if __name__ == "__main__":
    asyncio.run(main([_route(word) for word in sys.argv[1:]]))
