"""What can be set on a broker, as values. Reading flags, environment and files is `drmq.server.config`'s work.

Each field has a docstring with its unit, and the cost of a bad value. That docstring is also the help text of
the command line and of the reference, and the field's type carries the values that are allowed: nothing about an
option is written down twice. Options are checked when they are made, so code that holds them need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from drmq.model.options import (
    INT32_MAX,
    Bytes,
    Bytes32,
    BytesOrUnlimited,
    Count,
    InvalidOption,
    Milliseconds,
    MillisecondsOrForever,
    MillisecondsOrZero,
    Range,
    check_ranges,
    option_types,
)
from drmq.transport.limits import ListenerOptions

__all__ = ["BrokerOptions", "InvalidOption", "ListenerOptions", "Range", "check_ranges", "option_types"]


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Everything about a broker that is not an address or a path."""

    auto_create_topics: bool = True
    """Create a topic when a client asks for the metadata of one that is not there and allows it."""

    num_partitions: Count = 1
    """Partitions of a topic that is created without a number."""

    message_bytes_max: Bytes32 = 1_048_588
    """The largest record batch accepted, in bytes; the default of `max.message.bytes` for topics."""

    retention_ms: MillisecondsOrForever = 604_800_000
    """How long records are kept, in ms; -1 for ever. The default of `retention.ms` for topics."""

    retention_bytes: BytesOrUnlimited = -1
    """How large a partition may grow, in bytes; -1 without limit. The default of `retention.bytes` for topics."""

    segment_bytes: Annotated[int, Range(1_024, INT32_MAX)] = 268_435_456
    """Size at which a partition begins a new segment file. Small segments free disk sooner and cost more files."""

    segment_ms: Milliseconds = 604_800_000
    """Age in ms at which a partition begins a new segment file even if it is small."""

    retention_check_interval_ms: Milliseconds = 60_000
    """Pause between two rounds of retention. Long pauses let the disk fill past the limits."""

    offsets_retention_ms: Milliseconds = 604_800_000
    """How long committed offsets of an empty group are kept."""

    group_initial_rebalance_delay_ms: MillisecondsOrZero = 0
    """How long the first rebalance of an empty group waits for more members. Kafka's default is 3000."""

    group_session_timeout_min_ms: Milliseconds = 1_000
    """The shortest session timeout a group member may ask for."""

    group_session_timeout_max_ms: Milliseconds = 1_800_000
    """The longest session timeout a group member may ask for."""

    group_size_max: Count = 10_000
    """Members that one consumer group may have."""

    offset_metadata_bytes_max: Bytes32 = 4_096
    """The largest text that a client may store beside a committed offset."""

    offsets_topic_partitions: Count = 4
    """Partitions of `__consumer_offsets`; fixed when the data directory is made."""

    fetch_bytes_max: Bytes32 = 16_777_216
    """The most record bytes in one answer to a Fetch. Memory per slow reader is bounded by it."""

    fetch_sessions_max: Annotated[int, Range(0, INT32_MAX)] = 1_000
    """Incremental fetch sessions kept at a time; a client without one sends full requests."""

    queued_bytes_max: Bytes = 67_108_864
    """Bytes waiting for the disk at which the broker stops reading from producers until they are written."""

    decompressed_bytes_max: Bytes = 268_435_456
    """The most that one batch may decompress to where the broker must look inside it (time look-ups)."""

    producer_expiry_ms: Milliseconds = 86_400_000
    """How long an idle idempotent producer's sequence numbers are remembered."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.group_session_timeout_min_ms > self.group_session_timeout_max_ms:
            raise InvalidOption(
                "group_session_timeout_min_ms",
                f"{self.group_session_timeout_min_ms} is more than group_session_timeout_max_ms "
                f"({self.group_session_timeout_max_ms})",
            )
