"""What the HTTP API sends and receives. The OpenAPI document and the types of the dashboard are made from these."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Meta, Struct

T = TypeVar("T")

Name = Annotated[str, Meta(min_length=1, max_length=249)]
GroupName = Annotated[str, Meta(min_length=1, max_length=1_000)]
Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Page(Struct, Generic[T]):
    """A part of a list. `next` is the cursor of the next part; null at the end."""

    items: list[T]
    next: str | None = None


class Problem(Struct, omit_defaults=True):
    """An error, after RFC 9457. `code` is Kafka's name of the error, or one of DRMQ; `advice` says what to do next.

    `kafka_code` is Kafka's number of the error, if it is one of Kafka.

    `request_id` is in all log lines about the request, and in the header `X-Request-Id`.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str | None = None
    advice: str | None = None
    retriable: bool = False
    kafka_code: int | None = None
    request_id: str | None = None


class Done(Struct):
    """The request was carried out."""

    done: bool = True


# ---- the cluster ------------------------------------------------------------------------------------


class Feature(Struct):
    name: str
    level: int


class GatewayAddress(Struct):
    """Where the gateway of a node answers HTTP requests, and gRPC if that is on."""

    node_id: int
    http: str
    grpc: str | None = None


class LabNode(Struct):
    """A node as the fault lab sees it. `is_self`: this gateway belongs to it, and ends with it."""

    node_id: int
    state: Literal["running", "paused", "cut", "dead"]
    is_self: bool


class LabView(Struct):
    """Whether the fault lab is on, and the nodes that it works on."""

    enabled: bool
    nodes: list[LabNode]


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
    """The node that should lead, and from then on is the preferred one; null for the one that is preferred now."""


class TransferAnswer(Struct):
    """The partition after the move. `moved` is false if the node led it already."""

    topic: str
    partition: int
    leader: int
    term: int
    moved: bool
    before: int | None


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
    rate: float | None = None
    """Records a second, between the last two looks at it; null if it was not looked at twice."""


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
    timestamp_ms: Milliseconds | None = None
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
