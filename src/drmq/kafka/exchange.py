"""One request on its way through the pipeline, with everything that its answer needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from drmq.broker.services.caller import Caller
from drmq.transport import Connection, Pause
from drmq.wire import APIS, RequestHeader

if TYPE_CHECKING:
    from drmq.kafka.context import Parked
    from drmq.kafka.server import KafkaServer


_UNREAD_BYTES_MAX = 1_048_576
"""If more bytes than this of earlier answers are unread, the client gets no more records."""
NO_FRAME: Final = memoryview(b"")
API_NAMES: Final = {int(key): api.key.name for key, api in APIS.items()}


class Exchange:
    """One parsed request and the state of its processing. Owned by the pipeline."""

    __slots__ = ("caller", "connection", "frame", "header", "parked", "request", "server", "throttle_ms")

    def __init__(
        self,
        server: KafkaServer,
        connection: Connection | None,
        header: RequestHeader,
        frame: memoryview,
        request: Any,
        caller: Caller,
    ) -> None:
        self.server = server
        self.connection = connection
        """None for a request that another node has forwarded."""
        self.header = header
        self.frame = frame
        self.request = request
        """The result of the API's parser."""
        self.caller = caller
        self.throttle_ms = 0
        self.parked: list[Parked] | None = None
        """Requests whose answer may take a long time. They are cancelled if the connection closes."""

    @property
    def api(self) -> str:
        """The name of the API, in capitals."""
        return API_NAMES[self.header.api_key]

    def park(self, parked: Parked) -> None:
        if self.parked is None:
            self.parked = []
        self.parked.append(parked)

    def release(self) -> None:
        """Drop the frame and the request, of which the answer needs nothing any more.

        A request of 4 MiB may wait for minutes, and each of 20,000 connections may have 128 of them.
        """
        self.frame, self.request = NO_FRAME, None

    def room(self, wanted: int) -> int:
        """How many bytes of records its answer may have, if the client wants so many. Called on any thread.

        A client that does not read its answers gets no more records.
        """
        connection, listener = self.connection, self.server.listener
        if connection is None:
            return wanted
        if connection.unread_bytes > _UNREAD_BYTES_MAX or listener.is_flooded or connection.closed:
            return 0
        if listener.is_congested:
            return 1
        return min(wanted, listener.options.response_bytes_max - listener.blocked_bytes)

    def throttle(self, ms: int) -> None:
        """Read no further request from the client for `ms`; the answer to this request has that time (KIP-219)."""
        connection = self.connection
        if connection is None:
            return
        self.throttle_ms = ms
        connection.pause(Pause.THROTTLE)
        asyncio.get_running_loop().call_later(ms / 1000, connection.resume, Pause.THROTTLE)
