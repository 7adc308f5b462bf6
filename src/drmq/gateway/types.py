"""What the HTTP API sends and receives. The OpenAPI document and the types of the dashboard are made from these."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")

Name = Annotated[str, Meta(min_length=1, max_length=249)]
GroupName = Annotated[str, Meta(min_length=1, max_length=1_000)]
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]


class Page(Struct, Generic[T]):
    """A part of a list. `next` is the cursor of the next part; null at the end."""

    items: list[T]
    next: str | None = None


class Problem(Struct, omit_defaults=True):
    """An error, after RFC 9457. `code` is Kafka's name of the error, `advice` what to do next."""

    type: str
    title: str
    status: int
    detail: str
    code: str | None = None
    advice: str | None = None
    retriable: bool = False


class Done(Struct):
    """The request was carried out."""

    done: bool = True


# ---- the cluster ------------------------------------------------------------------------------------


class Feature(Struct):
    name: str
    level: int


class GatewayAddress(Struct):
    """Where the gateway of a node answers HTTP requests."""

    node_id: int
    http: str


class ClusterView(Struct):
    cluster_id: str
    status: Literal["healthy", "degraded", "down"]
    reason: str
    controller_id: int | None
    brokers_up: int
    brokers_total: int
    topic_count: int
    partition_count: int
    leaderless: int
    under_replicated: int
    features: list[Feature]
    gateways: list[GatewayAddress]
    version: str
    time_ms: int


class BrokerView(Struct):
    """A node. Numbers are null while the node does not answer."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool
    is_controller: bool
    is_up: bool
    leaders: int | None = None
    followers: int | None = None
    log_bytes: int | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    cpu_share: float | None = None
    """Of one core, over the last sample."""
    resident_bytes: int | None = None
    uptime_ms: int | None = None
    connections: int | None = None
    http: str | None = None


class CounterView(Struct):
    name: str
    labels: dict[str, str]
    value: int
    buckets: list[int]


class SettingView(Struct):
    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    documentation: str | None


class BrokerDetail(Struct):
    broker: BrokerView
    counters: list[CounterView]
    settings: list[SettingView]


class EventView(Struct):
    time_ms: int
    node_id: int
    sequence: int
    level: str
    source: str
    text: str


# ---- Raft -------------------------------------------------------------------------------------------


class ReplicaView(Struct):
    node_id: int
    role: Literal["leader", "voter", "observer"]
    end_offset: int | None
    lag: int | None
    caught_up_ms: int | None


class RaftGroup(Struct):
    topic: str
    partition: int
    leader: int | None
    term: int
    high_watermark: int
    in_sync: list[int]
    replicas: list[ReplicaView]


class TransferRequest(Struct, forbid_unknown_fields=True):
    to: Index | None = None
    """The node that should lead; null for the preferred one."""


# ---- topics -----------------------------------------------------------------------------------------


class TopicView(Struct):
    name: str
    id: str
    is_internal: bool
    partitions: int
    replicas: int
    size_bytes: int | None
    """Of all replicas."""
    records: int
    """Offsets between the start and the end of all partitions."""
    leaderless: int
    under_replicated: int


class PartitionView(Struct):
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    """Of the largest replica."""


class NewTopicRequest(Struct, forbid_unknown_fields=True):
    name: Name
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replicas: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    settings: dict[str, str] = {}


class TopicChange(Struct, forbid_unknown_fields=True):
    partitions: Annotated[int, Meta(ge=1, le=10_000)]


class SettingsChange(Struct, forbid_unknown_fields=True):
    set: dict[str, str] = {}
    unset: list[str] = []


# ---- groups -----------------------------------------------------------------------------------------


class GroupRow(Struct):
    group_id: str
    type: str
    state: str
    lag: int | None = None
    oldest_open_ms: int | None = None
    """The time of the oldest record that the group has not worked on."""
    held: int | None = None
    parked: int | None = None


class MemberView(Struct):
    member_id: str
    client_id: str
    host: str
    assignments: list[list[Any]]
    """Pairs of topic and partition."""


class GroupPartition(Struct):
    topic: str
    partition: int
    committed: int | None
    """The next offset that the group reads; of a lease group, the first one that is not done."""
    end_offset: int | None
    lag: int | None
    member: str | None
    held: int | None = None
    parked: int | None = None


class GroupDetail(Struct):
    group: GroupRow
    members: list[MemberView]
    partitions: list[GroupPartition]


class ResetRequest(Struct, forbid_unknown_fields=True):
    to: str
    """`earliest`, `latest`, an offset, `-N` for N before the end, or `@MS`, a time in milliseconds."""
    topics: list[Name] = []
    """Default: all topics in which the group has committed offsets."""
    dry_run: bool = False


class ResetRow(Struct):
    topic: str
    partition: int
    before: int | None
    after: int


# ---- live data --------------------------------------------------------------------------------------


class Overview(Struct):
    """The data of the stream `overview`."""

    cluster: ClusterView
    brokers: list[BrokerView]
    series: dict[str, float]
    """The numbers of the last second, by name."""
    events: list[EventView]
    """The last ones, the newest first."""


class MetricsHistory(Struct):
    """Samples that this gateway kept, the oldest first. A series has null where it has no number at that time."""

    times_ms: list[int]
    series: dict[str, list[float | None]]


# ---- records ----------------------------------------------------------------------------------------


class HeaderView(Struct):
    name: str
    value: str | None
    format: str


class RecordView(Struct):
    """A record as a person reads it. `format` is json, text, base64 or null."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: list[HeaderView]
    key_format: str
    value_format: str
    size_bytes: int
    is_truncated: bool


class RecordPage(Struct):
    """Records, and where to go on. A page may be short although more match: `done` says whether all was scanned."""

    items: list[RecordView]
    next: str | None
    scanned: int
    found: int
    done: bool


class NewHeader(Struct, forbid_unknown_fields=True):
    name: str
    value: str | None = None


Format = Literal["text", "json", "base64"]


class NewRecord(Struct, forbid_unknown_fields=True):
    """A record to send. A value in the format `json` is any JSON value; in the others it is a string."""

    key: Any = None
    value: Any = None
    headers: list[NewHeader] = []
    partition: Index | None = None
    timestamp_ms: Annotated[int, Meta(ge=0)] | None = None
    key_format: Format = "text"
    value_format: Format = "text"


class ProduceRequest(Struct, forbid_unknown_fields=True):
    records: Annotated[list[NewRecord], Meta(min_length=1, max_length=10_000)]


class Sent(Struct):
    partition: int
    offset: int
    timestamp_ms: int


class ProduceAnswer(Struct):
    """Where the records are, in the order of the request."""

    results: list[Sent]
