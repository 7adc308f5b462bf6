"""The options of a broker, as values. `drmq.server.config` reads them from flags, environment and files.

Each field has a docstring with its unit and the cost of a bad value. The docstring is also the help text of the command
line and of the reference, and the field's type has the allowed values, so nothing about an option is written twice.
Options are checked when they are created, so code that uses them need not check them.
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
    Partitions,
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
    """Create a topic when a client requests the metadata of a topic that does not exist, and allows its creation."""

    num_partitions: Partitions = 1
    """Partitions of a topic that is created without a number of partitions."""

    message_bytes_max: Bytes32 = 1_048_588
    """The largest record batch accepted, in bytes; the default of `max.message.bytes` for topics."""

    replicas_max: Count = 20_000
    """The maximum number of replicas of partitions on a node. Each needs about 40 KB of memory while it is idle. A
    request that would give a node more is refused. The controller decides, so use the same value on all nodes."""

    retention_ms: MillisecondsOrForever = 604_800_000
    """How long records are kept, in ms; -1 for unlimited. The default of `retention.ms` for topics."""

    retention_bytes: BytesOrUnlimited = -1
    """How large a partition may grow, in bytes; -1 for unlimited. The default of `retention.bytes` for topics."""

    segment_bytes: Annotated[int, Range(1_024, INT32_MAX)] = 268_435_456
    """Size at which a partition rolls to a new segment file. Small segments free disk space sooner, but need more
    files."""

    segment_ms: Milliseconds = 604_800_000
    """Age in ms at which a partition rolls to a new segment file, even if the current one is small."""

    retention_check_interval_ms: Milliseconds = 60_000
    """Pause between two retention runs, in ms. With long pauses, partitions grow far beyond their limits. A partition
    to which nothing is written is examined less often: 20 times within `retention.ms` and `segment.ms`, at least once
    an hour."""

    offsets_retention_ms: Milliseconds = 604_800_000
    """How long the committed offsets of an empty group are kept, in ms."""

    simple_offsets_retention_ms: Milliseconds = 43_200_000
    """How long the committed offsets of a group without members are kept if no consumer has ever joined it, in ms.
    Such groups belong to clients that assign partitions themselves. If it is too short, such a client that was stopped
    for longer starts again from the beginning or the end. Twelve hours cover restarts and jobs that run every few
    hours; jobs that run daily need more than a day. At most `offsets_retention_ms` is used."""

    groups_max: Count = 50_000
    """The maximum number of consumer groups on a node. One client address may add a quarter of it in the time of
    `simple_offsets_retention_ms`."""

    group_state_bytes_max: Bytes = 268_435_456
    """The maximum memory of the groups, members, committed offsets and queues of share groups on a node, in bytes. One
    client address may add a quarter of it in the time of `simple_offsets_retention_ms`; its members of groups, with
    their assignments, are part of that quarter while they are there. When it is reached, existing
    offsets can still be committed, and existing queues go on."""

    group_initial_rebalance_delay_ms: MillisecondsOrZero = 0
    """How long the first rebalance of an empty group waits for more members, in ms. Kafka's default is 3000."""

    group_session_timeout_min_ms: Milliseconds = 1_000
    """The shortest session timeout that a group member may request, in ms."""

    group_session_timeout_max_ms: Milliseconds = 1_800_000
    """The longest session timeout that a group member may request, in ms."""

    group_size_max: Count = 10_000
    """The maximum number of members of a consumer group."""

    offset_metadata_bytes_max: Bytes32 = 4_096
    """The largest metadata that a client may store with a committed offset, in bytes."""

    offsets_topic_partitions: Partitions = 4
    """Partitions of `__consumer_offsets`. Used when the topic is created, and fixed from then on."""

    share_state_topic_partitions: Partitions = 4
    """Partitions of `__share_group_state`. Used when the topic is created, and fixed from then on."""

    lease_sessions_max: Count = 2_000
    """The maximum number of sessions of members of share groups. Further members are refused."""

    fetch_bytes_max: Bytes32 = 16_777_216
    """The maximum number of record bytes in one answer to a Fetch. Limits the memory per slow reader."""

    fetch_sessions_max: Annotated[int, Range(0, INT32_MAX)] = 1_000
    """The maximum number of incremental fetch sessions. A client without a session sends full requests."""

    queued_bytes_max: Bytes = 67_108_864
    """If more bytes than this wait for the disk, the broker stops reading from producers until they are written."""

    uncommitted_bytes_max: Bytes = 268_435_456
    """If more bytes than this wait for followers, over all partitions that a node leads, it stops reading from
    producers until a majority has them. A single partition accepts up to 64 MiB, and refuses more with
    REQUEST_TIMED_OUT."""

    decompressed_bytes_max: Bytes = 268_435_456
    """The maximum decompressed size of a batch, in bytes, where the broker must decode it (lookups by time). Half of it
    where the broker recompresses batches (`compression.type`). A node decompresses one batch at a time."""

    producer_expiry_ms: Milliseconds = 86_400_000
    """How long the sequence numbers of an idle idempotent producer are remembered, in ms."""

    min_insync_replicas: Count = 1
    """Replicas that must have a record before acks=all is answered. A majority must have it in any case. The default
    of `min.insync.replicas` for topics. A value above the number of a topic's replicas refuses all its writes."""

    tick_ms: Milliseconds = 100
    """The interval of the consensus timer, in ms. A shorter one detects failed leaders sooner, but costs more when
    idle."""

    election_timeout_ms: Milliseconds = 1_000
    """How long a leader may be silent before the others elect a new one, in ms: between this and twice this if its node
    is down, five times that while its node is up. Time that a node's own loop was late does not count. If it is too
    short, a node with a slow disk or a busy processor is taken for dead. Use the same value on all nodes."""

    raft_heartbeat_ms: Milliseconds = 200
    """How often a leader sends heartbeats to its followers, in ms. At most a third of `election_timeout_ms`."""

    broker_session_timeout_ms: Milliseconds = 6_000
    """How long a node may be silent before the controller considers it down, in ms: clients are no longer directed to
    it, and no new partitions are placed on it."""

    leader_balance_interval_ms: Milliseconds = 30_000
    """How often leadership is returned to the preferred replicas, in ms, so that a restarted node gets its share."""

    reassignment_bytes_per_s: Bytes = 33_554_432
    """The maximum rate at which a node sends batches and snapshots to all replicas that are being added, in bytes per
    second."""

    snapshot_part_bytes: Annotated[int, Range(1_024, 3_145_728)] = 2_097_152
    """Size of the parts in which a leader sends a snapshot to a replica, in bytes. A replica that restarts meanwhile
    keeps the complete parts that it has. Each part costs a round trip and a sync, so small parts are only for tests."""

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
    """The address of another node of the cluster: its host, its port for clients, and its port for peers."""

    host: str
    port: int
    peer_port: int


ROLES = ("broker", "controller")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """A node's place in a cluster. Without peers, a node forms a cluster by itself."""

    peers: Mapping[NodeId, PeerAddress] = field(default_factory=dict)
    """The nodes to connect to first. For a new cluster: all other voters, the same on all nodes. For a node that joins
    a cluster: any nodes that are up."""
    peer_host: str = "127.0.0.1"
    """The address on which to listen for peers."""
    peer_port: int | None = None
    """The port on which to listen for peers; None for no listener, 0 for any free port."""
    advertised_peer_host: str | None = None
    """The address that is announced to peers; None for `peer_host`."""
    rack: str | None = None
    """The rack of the node. The replicas of a partition are spread over racks; clients read from their own rack."""
    roles: tuple[str, ...] = ROLES
    """What the node does: a `broker` serves clients, a `controller` votes on the cluster's metadata."""
    greets_as_version_1: bool = False
    """For tests of upgrades: greet and register like the releases that had no feature levels."""
