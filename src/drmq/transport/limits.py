"""The limits of a listener, as values. Each bounds what a hostile or broken client can cost."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.model.options import Bytes, Bytes32, Count, Milliseconds, check_ranges


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Limits of the Kafka listener. Each bounds what a hostile or broken client can cost."""

    request_bytes_max: Bytes32 = 104_857_600
    """The largest Produce request. A larger one closes the connection."""

    control_request_bytes_max: Bytes32 = 4_194_304
    """The largest request of any other kind."""

    connections_max: Count = 20_000
    """The maximum number of open connections. Further ones are closed at once."""

    requests_in_flight_max: Count = 128
    """Requests of one connection that wait for their response. Beyond this limit the connection is not read."""

    partial_request_bytes_max: Bytes = 268_435_456
    """Bytes of partially received requests of all connections. Beyond this limit, the largest ones wait for others."""

    request_receive_timeout_ms: Milliseconds = 60_000
    """How long a request may take from its first byte to its last."""

    response_send_timeout_ms: Milliseconds = 60_000
    """How long a client may leave its responses unread before the connection is closed."""

    response_bytes_max: Bytes = 268_435_456
    """Bytes of responses that wait for clients to read them, of all connections. Beyond half of this limit, a fetch
    returns one batch; beyond the limit, none."""

    idle_timeout_ms: Milliseconds = 600_000
    """A connection that has sent nothing for this time is closed."""

    slow_request_ms: Milliseconds = 1_000
    """A request that has no answer after this time is logged, with its id. Checked once a second. Requests that wait
    for records or for other members of a group are not meant."""

    def __post_init__(self) -> None:
        check_ranges(self)
