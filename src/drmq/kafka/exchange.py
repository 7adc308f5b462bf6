"""One request on its way through the pipeline, with all that its answer needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from drmq.broker.services.caller import Caller
from drmq.transport import Connection, Pause
from drmq.wire import APIS, RequestHeader

if TYPE_CHECKING:
    from drmq.broker.services.groups import ParkedRequest
    from drmq.kafka.server import KafkaServer


API_NAMES: Final = {int(key): api.key.name for key, api in APIS.items()}


class Exchange:
    """Made for each request once it is parsed. Belongs to the pipeline."""

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
        """None for a request that another node has passed on."""
        self.header = header
        self.frame = frame
        self.request = request
        """What the API's own parser has made of the frame."""
        self.caller = caller
        self.throttle_ms = 0
        self.parked: list[ParkedRequest] | None = None
        """Group requests whose answer may take long, for when the connection closes."""

    @property
    def api(self) -> str:
        """The name of the API, in capitals."""
        return API_NAMES[self.header.api_key]

    def park(self, parked: ParkedRequest) -> None:
        if self.parked is None:
            self.parked = []
        self.parked.append(parked)

    def throttle(self, ms: int) -> None:
        """Take no further request from the client for a while; the answer to this one says so (KIP-219)."""
        connection = self.connection
        if connection is None:
            return
        self.throttle_ms = ms
        connection.pause(Pause.THROTTLE)
        asyncio.get_running_loop().call_later(ms / 1000, connection.resume, Pause.THROTTLE)
