"""What a handler knows of the request it serves, besides the request itself."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.broker import Broker
from drmq.transport import Connection


@dataclass(frozen=True, slots=True)
class Context:
    """The broker, and who asks in which version."""

    broker: Broker
    connection: Connection
    version: int
    client_id: str

    @property
    def client_host(self) -> str:
        """The address of the client as Kafka's tools print it, `/127.0.0.1`."""
        return "/" + self.connection.peer.rpartition(":")[0]
