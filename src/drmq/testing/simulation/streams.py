"""Connections of clients, without sockets: bytes arrive in order, with delays, held back by cuts, until a process ends.

The server's side is the real `Connection`, on a transport defined here. A cut holds bytes back, as TCP does, until it
is restored or one side times out. When a process dies, its connections break soon; a machine without power sends
nothing, and the other side finds out at its next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from drmq.testing.simulation.world import MS, World

if TYPE_CHECKING:
    from drmq.testing.simulation.links import Links
    from drmq.testing.simulation.loop import SimulatedLoop

CLIENTS = 0
"""The number of all clients in the table of links."""

_HELD_BACK_US = 60 * MS


class SimulatedServer:
    """What `create_server` returns: an address that accepts connections until it is closed."""

    def __init__(self, loop: SimulatedLoop, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
        self.loop = loop
        self.factory = factory
        self.is_open = True
        self.sockets = [SimpleNamespace(getsockname=lambda: (host, port), fileno=lambda: -1)]

    def close(self) -> None:
        self.is_open = False

    async def wait_closed(self) -> None:
        return


class ServerTransport(asyncio.Transport):
    """The transport of an accepted connection."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        self._is_reading = True
        self._arrived: list[bytes] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.99", 40_000 + self._stream.number % 20_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._stream.to_client(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self._stream.to_client(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._stream.is_broken

    def abort(self) -> None:
        self._stream.break_off(by_server=True)

    close = abort

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        arrived, self._arrived = self._arrived, []
        for data in arrived:
            self.receive(data)

    def _is_held(self) -> bool:
        return not self._is_reading

    def receive(self, data: bytes) -> None:
        if self._is_held():
            self._arrived.append(data)
            return
        protocol = self._stream.protocol
        position = 0
        while position < len(data) and not self._stream.is_broken:
            if self._is_held():
                self._arrived.append(data[position:])
                return
            buffer = cast(memoryview, protocol.get_buffer(-1))
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            protocol.buffer_updated(count)
            position += count


class Stream:
    """One connection between a client and a node."""

    def __init__(
        self,
        world: World,
        links: Links,
        number: int,
        node: int,
        server: SimulatedServer,
        on_data: Callable[[bytes], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._world = world
        self._links = links
        self.number = number
        self.node = node
        self._server = server
        self._on_data = on_data
        self._on_lost = on_lost
        self.is_broken = False
        self._client_knows = False
        self._due_us = [0, 0]
        self._held: list[list[Callable[[], None]]] = [[], []]
        self.protocol = cast(asyncio.BufferedProtocol, server.factory())
        self._transport = ServerTransport(self)

    def accept(self) -> None:
        """The connection is established. Runs on the server's loop."""
        self.protocol.connection_made(self._transport)

    # ---- bytes ----------------------------------------------------------------------------------

    def to_server(self, data: bytes) -> None:
        self._send(0, lambda: self._server.loop.call_soon(self._receive, data))

    def _receive(self, data: bytes) -> None:
        if not self.is_broken:
            self._transport.receive(data)

    def to_client(self, data: bytes) -> None:
        def arrive() -> None:
            if not self._client_knows:
                self._on_data(data)

        self._send(1, arrive)

    def _send(self, direction: int, arrive: Callable[[], object]) -> None:
        if self.is_broken:
            return
        world = self._world
        due = max(world.now_us + self._links.delay_us(), self._due_us[direction] + 1)
        self._due_us[direction] = due
        ends = (CLIENTS, self.node) if direction == 0 else (self.node, CLIENTS)

        def deliver() -> None:
            if self.is_broken or self._client_knows:
                return
            held = self._held[direction]
            if held or self._links.is_cut(*ends):
                # Later data must not overtake it.
                held.append(cast(Callable[[], None], arrive))
                if len(held) == 1:
                    world.later(_HELD_BACK_US, "held back", retry)
            else:
                arrive()

        def retry() -> None:
            if self.is_broken or self._client_knows:
                return
            if self._links.is_cut(*ends):
                world.later(_HELD_BACK_US, "held back", retry)
                return
            waiting, self._held[direction] = self._held[direction], []
            for one in waiting:
                one()

        world.later(due - world.now_us, "bytes", deliver)

    # ---- the end --------------------------------------------------------------------------------

    def break_off(self, *, by_server: bool) -> None:
        """One side closes the connection; the other side is notified soon."""
        if self.is_broken:
            return
        self.is_broken = True
        loop = self._server.loop
        if not loop.is_dead:
            loop.call_soon(self.protocol.connection_lost, None)
        if by_server:
            self.notify_client(self._links.delay_us())
        else:
            self._client_knows = True

    def die(self, *, silently: bool) -> None:
        """The server's process has ended."""
        if not self.is_broken:
            self.is_broken = True
            self.notify_client(
                self._world.random.randrange(100 * MS, 3_000 * MS) if silently else self._links.delay_us()
            )

    def notify_client(self, delay_us: int) -> None:
        def notify() -> None:
            if not self._client_knows:
                self._client_knows = True
                self._on_lost()

        self._world.later(delay_us, "connection lost", notify)
