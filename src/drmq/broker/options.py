"""What can be set on a broker, as values. Reading flags, environment and files is `drmq.server.config`'s work.

Each field has a docstring with its unit, and the cost of a bad value. That docstring is also the help text of
the command line and of the reference, and the field's type carries the values that are allowed: nothing about an
option is written down twice. Options are checked when they are made, so code that holds them need not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from drmq.model import NodeId
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

__all__ = [
    "BrokerOptions",
    "ClusterOptions",
    "InvalidOption",
    "ListenerOptions",
    "PeerAddress",
    "Range",
    "check_ranges",
    "option_types",
]


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

    uncommitted_bytes_max: Bytes = 268_435_456
    """Bytes waiting for followers, over all partitions that a node leads, at which it stops reading from producers
    until a majority has them. One partition alone takes up to 64 MiB, and refuses more with REQUEST_TIMED_OUT."""

    decompressed_bytes_max: Bytes = 268_435_456
    """The most that one batch may decompress to where the broker must look inside it (time look-ups)."""

    producer_expiry_ms: Milliseconds = 86_400_000
    """How long an idle idempotent producer's sequence numbers are remembered."""

    min_insync_replicas: Count = 1
    """Replicas that must have a record before acks=all is answered, beyond the majority that always must; the
    default of `min.insync.replicas` for topics. More than the replicas of a topic refuses all its writes."""

    tick_ms: Milliseconds = 100
    """The beat of consensus, in ms. Shorter finds dead leaders sooner and costs more while nothing happens."""

    election_timeout_ms: Milliseconds = 1_000
    """How long a leader may be silent before the others elect a new one: between this and twice this. Too short, and
    a slow disk or a busy processor looks like a dead node. The same on all nodes."""

    raft_heartbeat_ms: Milliseconds = 200
    """How often a leader is heard of by its followers. A third of `election_timeout_ms` at most."""

    broker_session_timeout_ms: Milliseconds = 6_000
    """How long a node may be silent before the controller takes it for gone: clients are no longer sent there, and
    no new partition is placed there."""

    leader_balance_interval_ms: Milliseconds = 30_000
    """How often leaders are handed back to the replicas that should lead: a node that comes back gets its share."""

    reassignment_bytes_per_s: Bytes = 33_554_432
    """The most that a node sends to all replicas that are being added, in bytes per second: batches and parts of
    snapshots."""

    snapshot_part_bytes: Annotated[int, Range(1_024, 3_145_728)] = 2_097_152
    """Size of the parts in which a leader sends its state to a replica that needs it. A replica that is restarted on
    the way keeps the whole parts that it has. Small parts cost a round trip and a sync each: for tests."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.raft_heartbeat_ms * 3 > self.election_timeout_ms:
            raise InvalidOption(
                "raft_heartbeat_ms",
                f"{self.raft_heartbeat_ms} is more than a third of election_timeout_ms ({self.election_timeout_ms})",
            )
        if self.tick_ms > self.raft_heartbeat_ms:
            raise InvalidOption("tick_ms", f"{self.tick_ms} is more than raft_heartbeat_ms ({self.raft_heartbeat_ms})")
        if self.group_session_timeout_min_ms > self.group_session_timeout_max_ms:
            raise InvalidOption(
                "group_session_timeout_min_ms",
                f"{self.group_session_timeout_min_ms} is more than group_session_timeout_max_ms "
                f"({self.group_session_timeout_max_ms})",
            )


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where another node of the cluster is: its clients' port, and the port for its peers."""

    host: str
    port: int
    peer_port: int


ROLES = ("broker", "controller")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """A node's place in a cluster. Without peers a node is a cluster of its own."""

    peers: Mapping[NodeId, PeerAddress] = field(default_factory=dict)
    """The other nodes to begin with. For a new cluster: all others that vote, the same everywhere. For a node that
    joins: any that are up."""
    peer_host: str = "127.0.0.1"
    """The address on which to listen for peers."""
    peer_port: int | None = None
    """The port on which to listen for peers; None for no listener at all, 0 for any free port."""
    advertised_peer_host: str | None = None
    """Where peers are told to connect; None for `peer_host`."""
    rack: str | None = None
    """Where the node stands. Replicas of a partition are spread over racks; clients read from their own."""
    roles: tuple[str, ...] = ROLES
    """What the node does: `broker` serves clients, `controller` votes about the cluster's metadata."""
    greets_as_version_1: bool = False
    """For tests of upgrades: greet and register like a release from before feature levels."""
