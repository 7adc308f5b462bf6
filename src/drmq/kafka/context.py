"""The context of a request: what a handler needs besides the request itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drmq.broker import Broker
from drmq.broker.services.caller import Caller
from drmq.broker.services.gate import Permission
from drmq.broker.services.services import Services
from drmq.transport import Connection


class Parked(Protocol):
    """A request whose answer may take a long time, such as a task."""

    def cancel(self) -> object:
        """The client has disconnected, so the answer is not needed."""


def _forget(parked: Parked) -> None:
    """Do nothing: a request without a connection is never cancelled by a disconnect."""


@dataclass(slots=True)
class Context:
    """The broker, the caller, and the version of the request. Not changed after it was made."""

    broker: Broker
    connection: Connection | None
    """None for a request that another node has forwarded."""
    version: int
    caller: Caller
    api: str
    """The name of the API, in capitals."""
    park: Callable[[Parked], None] = _forget
    """Called for a request that may wait for a long time, so that it is cancelled if the connection closes."""
    room: Callable[[int], int] = lambda wanted: wanted
    """How many bytes of records the answer may have, if the client wants so many."""

    @property
    def services(self) -> Services:
        return self.broker.services

    @property
    def client_host(self) -> str:
        """The address of the client as Kafka's tools print it, `/127.0.0.1`."""
        return f"/{self.caller.address}"

    def may(self, permission: Permission) -> bool:
        """Whether the caller has a permission. For requests that list everything: entries without it are left out."""
        return self.services.gate.allows(self.caller, self.api, permission)
