"""The limits of a listener, as values. Each bounds what a hostile or broken client can cost."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.model.options import Bytes, Bytes32, Count, Milliseconds, check_ranges


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Limits of the Kafka listener. Each bounds what a hostile or broken client can cost."""

    request_bytes_max: Bytes32 = 104_857_600
    """The largest Produce request; a larger one closes the connection."""

    control_request_bytes_max: Bytes32 = 4_194_304
    """The largest request of any other kind."""

    connections_max: Count = 20_000
    """Open connections at a time; further ones are closed at once."""

    requests_in_flight_max: Count = 128
    """Requests of one connection that wait for their answer; past it the connection is not read."""

    partial_request_bytes_max: Bytes = 268_435_456
    """Bytes of half-received requests over all connections; past it the largest are not read on until others finish."""

    request_receive_timeout_ms: Milliseconds = 60_000
    """How long a request may take from its first byte to its last."""

    response_send_timeout_ms: Milliseconds = 60_000
    """How long a client may leave its answers unread before the connection is closed."""

    response_bytes_max: Bytes = 268_435_456
    """Bytes of answers waiting for slow readers over all connections; past it fetches are answered minimally."""

    idle_timeout_ms: Milliseconds = 600_000
    """A connection that has sent nothing for so long is closed."""

    def __post_init__(self) -> None:
        check_ranges(self)
