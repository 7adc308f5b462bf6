"""Links between nodes as TCP proxies, for machines where nobody may make network namespaces.

    python proxy.py ROUTE ROUTE ...         ROUTE: KIND,NODE,LISTEN_HOST,PORT,TARGET_HOST

Every node advertises an address of this process instead of its own. A connection to a node's clients' port comes from
the clients; one to its peers' port says in its greeting which node dialled. A cut link holds its bytes back, also
those that end a connection: both ends see silence, and on healing everything arrives, as after TCP's repetitions. What
only packets can suffer (loss, duplication, overtaking) cannot be done here.
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
_QUEUE_MAX = 32


class Route(NamedTuple):
    """Where to listen, and for whom."""

    kind: str
    node_id: int
    listen_host: str
    port: int
    target_host: str


class Proxy:
    """All links of a cluster."""

    def __init__(self, seed: int = 0) -> None:
        self.rules = LinkRules()
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
        start, dialler = b"", CLIENTS
        if route.kind == "peers":
            start = await reader.readexactly(_GREETING_BYTES)
            dialler = int.from_bytes(start[_NODE_ID_AT:], "big")
        await self._pass_gate(dialler, route.node_id)
        target_reader, target_writer = await asyncio.open_connection(route.target_host, route.port, limit=CHUNK_BYTES)
        try:
            await asyncio.gather(
                self._pump(reader, target_writer, dialler, route.node_id, start),
                self._pump(target_reader, writer, route.node_id, dialler, b""),
            )
        finally:
            target_writer.close()

    async def _pass_gate(self, sender: int, receiver: int) -> None:
        while self.rules.get(sender, receiver).cut:
            await self._changed.wait()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: int, receiver: int, start: bytes
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
                writer.write(data)
                await writer.drain()

        async def receive() -> None:
            data = start
            while True:
                if data:
                    rule = self.rules.get(sender, receiver)
                    jitter = self._chance.uniform(-rule.jitter_ms, rule.jitter_ms) if rule.jitter_ms else 0.0
                    await queue.put((loop.time() + (rule.delay_ms + jitter) / 1_000, data))
                data = await _read(reader)
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


async def main(routes: list[Route]) -> None:
    """Run until standard input ends."""
    proxy = Proxy()
    for route in routes:
        await proxy.listen(route)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        proxy.set_rules(LinkRules.from_line(line))
        os.write(1, b"0 0\n")
    # There is nothing to tidy up, and connections that are still being made would only complain.
    os._exit(0)


def _route(word: str) -> Route:
    kind, node_id, listen_host, port, target_host = word.split(",")
    return Route(kind, int(node_id), listen_host, int(port), target_host)


if __name__ == "__main__":
    asyncio.run(main([_route(word) for word in sys.argv[1:]]))
