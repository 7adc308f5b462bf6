"""What the HTTP API says about groups, leases and dead letters. The other types are in `types`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from drmq.gateway.leasing import RefusalCode
from drmq.gateway.types import HeaderView, Index, Name

AckId = Annotated[str, Meta(min_length=1, max_length=512)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Text = Annotated[str, Meta(max_length=4_096)]

# ---- groups -----------------------------------------------------------------------------------------


class GroupRow(Struct):
    """A group. A number is null where it does not apply, or is not known now."""

    group_id: str
    type: str
    """`consumer`, `share` (a lease group), or what else its members call themselves."""
    state: str
    members: int | None = None
    topics: list[str] = []
    lag: int | None = None
    """Records that it has not read; of a lease group, those that are not done."""
    lag_ms: int | None = None
    """The age of the oldest of them: of the first record in its batch. 0 if there is none."""
    oldest_open_ms: int | None = None
    """The time of that record."""
    rate: float | None = None
    """Records a second that the group gets done, between the last two looks at it."""
    held: int | None = None
    parked: int | None = None
    dead_letters: int | None = None
    """Letters that wait in its dead-letter topic, which other groups may use too."""
    dead_letter_topic: str | None = None
    is_paused: bool = False
    """So many records are parked or given up that some partition leases no new ones."""


class MemberView(Struct):
    member_id: str
    client_id: str
    host: str
    assignments: list[tuple[str, int]]
    """Pairs of topic and partition."""


class GroupPartition(Struct):
    topic: str
    partition: int
    committed: int | None
    """The next offset that the group reads; of a lease group, the first one that is not done."""
    end_offset: int | None
    lag: int | None
    member: str | None
    """Of a lease group null: several members may work on a partition."""
    oldest_open_ms: int | None = None
    held: int | None = None
    returned: int | None = None
    parked: int | None = None
    dying: int | None = None
    """Records that were given up and whose dead letters are not written yet."""
    next_due_ms: int | None = None
    """When the next parked record is available again."""
    is_paused: bool = False


class GroupDetail(Struct):
    group: GroupRow
    members: list[MemberView]
    partitions: list[GroupPartition]


class ResetRequest(Struct, forbid_unknown_fields=True):
    to: Annotated[str, Meta(max_length=64)]
    """`earliest`, `latest`, an offset, `-N` for N before the end, or `@MS`, a time in milliseconds."""
    topics: Annotated[list[Name], Meta(max_length=1_000)] = []
    """Default: all topics in which the group has a position."""
    dry_run: bool = False


class ResetRow(Struct):
    topic: str
    partition: int
    before: int | None
    after: int


# ---- leases -----------------------------------------------------------------------------------------


class LeaseView(Struct):
    """Offsets that one member holds, both ends included."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    member: str
    attempt: int
    left_ms: int
    """How long the lease still lasts."""


class LeasesAnswer(Struct):
    """What a lease group works on. `is_complete` is false if a node did not answer: then queues may be missing."""

    items: list[LeaseView]
    partitions: list[GroupPartition]
    is_complete: bool
    is_truncated: bool
    """There are more leases than `limit`."""


class PollRequest(Struct, forbid_unknown_fields=True):
    topics: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    max: Annotated[int, Meta(ge=1, le=1_000)] = 10
    wait_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    """How long to wait for the first message."""


class LeasedMessage(Struct):
    """A message that is leased to the caller until `lease_until_ms`. Nothing of it is cut."""

    ack_id: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: list[HeaderView]
    key_format: str
    value_format: str
    attempt: int
    """1 for the first delivery."""
    lease_until_ms: int
    lease_token: int


class PollAnswer(Struct):
    messages: list[LeasedMessage]


class SettleRequest(Struct, forbid_unknown_fields=True):
    ack_ids: Annotated[list[AckId], Meta(min_length=1, max_length=1_000)]


class NackRequest(Struct, forbid_unknown_fields=True):
    ack_ids: Annotated[list[AckId], Meta(min_length=1, max_length=1_000)]
    delay_ms: Annotated[int, Meta(ge=0, le=43_200_000)] | None = None
    """How long they wait before they are delivered again; null for the backoff of the group."""


class SettledView(Struct):
    """What became of one message. If `ok` is false, `reason` says why it was refused, and nothing has changed."""

    ack_id: str
    ok: bool
    code: RefusalCode
    reason: str | None = None
    lease_until_ms: int | None = None
    """After an extension."""


class SettleAnswer(Struct):
    """In the order of the request. `ok` is true if all of them are settled."""

    ok: bool
    results: list[SettledView]


# ---- dead letters -----------------------------------------------------------------------------------


class RedriveView(Struct):
    """A redrive that runs or ran last. `skipped` do not match its filter, `failed` cannot be moved (`reason`)."""

    number: int
    state: str
    """`running`, `stopping`, `finished` or `stopped`."""
    started_ms: int
    ended_ms: int | None
    filter: str
    count_max: int
    redriven: int
    skipped: int
    failed: int
    reason: str


class LetterView(Struct):
    """A dead letter: where it is, where its record came from, why it was given up, and what it contains."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: list[HeaderView]
    key_format: str
    value_format: str
    is_truncated: bool
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str
    reason: str
    attempts: int
    first_failed_ms: int
    last_failed_ms: int
    has_record: bool
    """Whether key and value are those of the record. If not, it was not copied, and cannot be moved back."""
    redrive_count: int


class DeadLetterTopic(Struct):
    """A topic that takes dead letters, and what waits in it."""

    topic: str
    waiting: int
    purged: int
    groups: list[str]
    """Those whose dead letters go there, as far as their oldest and newest letters tell."""
    oldest: LetterView | None
    newest: LetterView | None
    redrive: RedriveView | None


class LetterFilter(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Which letters are meant: everything that is given must be true of a letter."""

    group: Text | None = None
    topic: Text | None = None
    """That the record came from, as `partition`."""
    partition: Index | None = None
    key: Text | None = None
    value_contains: Text | None = None
    reason: Text | None = None
    header: dict[str, str] | None = None
    attempts_min: Count | None = None
    redrives_max: Count | None = None
    failed_since_ms: Count | None = None
    failed_until_ms: Count | None = None


class RedriveRequest(Struct, forbid_unknown_fields=True):
    filter: LetterFilter = LetterFilter()
    max: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """How many letters at most; 0 for all."""
    dry_run: bool = False
    """Only count what would be moved."""


class RedriveAnswer(Struct):
    """What waits in a dead-letter topic, and its last redrive. `matching` is the count of a dry run."""

    topic: str
    waiting: int
    redrive: RedriveView | None
    matching: int | None = None


class PurgeRequest(Struct, forbid_unknown_fields=True):
    filter: LetterFilter = LetterFilter()
    dry_run: bool = False


class PurgeAnswer(Struct):
    topic: str
    purged: int
    matching: int | None = None


# ---- the whole picture ------------------------------------------------------------------------------


class TopologyNode(Struct):
    """A producer, a topic or a group. Its `id` is unique among all of them."""

    id: str
    kind: Literal["producer", "topic", "group"]
    name: str
    type: str | None = None
    """Of a group."""
    partitions: int | None = None
    """Of a topic."""
    lag: int | None = None
    """Of a group."""


class TopologyEdge(Struct):
    """Records flow from one node to another. `rate` is in records a second, null if it is not known."""

    source: str
    target: str
    kind: Literal["produces", "consumes", "dead_letters"]
    rate: float | None
    lag: int | None = None


class Topology(Struct):
    """Producers are known only if they are idempotent, and only by their ids. Rates are those of the last seconds."""

    nodes: list[TopologyNode]
    edges: list[TopologyEdge]
    time_ms: int
    is_truncated: bool
    """There are more producers than are shown."""


class TransactionView(Struct):
    """A transaction that is open in a partition."""

    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    start_offset: int
    last_ms: int


class Transactions(Struct):
    items: list[TransactionView]
    note: str | None = None
    """Why there can be none, if that is so."""
