"""What a handler knows of the request it serves, besides the request itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drmq.broker import Broker, GroupShardCoordinator
from drmq.transport import Connection


def _forget(shard: GroupShardCoordinator, ticket: int) -> None:
    """For whoever has no connection that could close."""


@dataclass(frozen=True, slots=True)
class Context:
    """The broker, and who asks in which version."""

    broker: Broker
    connection: Connection | None
    """None for a request that another node has passed on."""
    version: int
    client_id: str
    park: Callable[[GroupShardCoordinator, int], None] = _forget
    """Called for a group request that may wait long, so that its shard can be told if the connection closes."""

    @property
    def client_host(self) -> str:
        """The address of the client as Kafka's tools print it, `/127.0.0.1`."""
        return "/" + self.connection.peer.rpartition(":")[0] if self.connection is not None else "/"
