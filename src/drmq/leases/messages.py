"""Requests to a shard of lease groups, and its responses."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from drmq.leases.queue import Death
from drmq.leases.queue_key import QueueKey
from drmq.leases.redrive_messages import RedriveRequest, RedriveResponse
from drmq.model import TopicId

WHOLE_TOPIC: Final = 0xFFFFFFFF
"""As the partition of a `QueueKey`: an entry about the topic. Its `end` is the number of partitions that the topic had
when the group began to work on it. It is begun and removed like a queue, and not described."""


class StartQueue(NamedTuple):
    """Begin a queue at an offset. If it exists already, nothing changes, unless `restart` is set."""

    key: QueueKey
    offset: int
    restart: bool = False
    """Begin again at `offset`: leases that are out are void, and nothing that waits or failed is remembered."""
    caller: str = ""
    """The address of the client for which the queue is begun. What one address may begin is limited."""


class Acquire(NamedTuple):
    """Lease up to `count_max` records. If none is available, the request is parked for up to `wait_ms`."""

    key: QueueKey
    member: str
    count_max: int
    log_start: int
    high_watermark: int
    """Records below it may be leased."""
    wait_ms: int = 0
    number: int = 0
    """For `Withdraw`: no other request of the member that waits in the queue has it."""


class Withdraw(NamedTuple):
    """An `Acquire` need not wait any more: it is answered now, with nothing if it still waits."""

    key: QueueKey
    member: str
    number: int


class Advance(NamedTuple):
    """The log of a partition has changed: parked requests may be served, and offsets that are gone are forgotten."""

    key: QueueKey
    log_start: int
    high_watermark: int


class Outcome(Enum):
    """What a member says about a record that it holds."""

    ACCEPT = auto()
    """The work is done."""
    RELEASE = auto()
    """The work failed: deliver it again, after the group's backoff or the delay that is given."""
    GIVE_BACK = auto()
    """The work was not tried: deliver it again at once. This delivery does not count."""
    REJECT = auto()
    """The work can never succeed."""
    RENEW = auto()
    """The work goes on: the lease lasts for its full duration from now on."""


class Settlement(NamedTuple):
    """The outcome for a run of offsets, both ends included."""

    first: int
    last: int
    outcome: Outcome
    delay_ms: int | None = None
    """RELEASE: how long they wait; None for the group's backoff."""
    token: int = 0
    """The token of the delivery, if the member has it. An old token is refused."""


class Settle(NamedTuple):
    """Settle offsets that a member holds. The runs are in ascending order and do not overlap."""

    key: QueueKey
    member: str
    settlements: tuple[Settlement, ...]


class ReleaseMember(NamedTuple):
    """A member is gone: give back everything that it holds in a queue."""

    key: QueueKey
    member: str


class ExpireMember(NamedTuple):
    """A member has not been heard of: its leases in all queues of the group in this shard run out now."""

    group: str
    member: str


class Bury(NamedTuple):
    """The dead letters of these offsets are committed, or the offsets are gone from the log."""

    key: QueueKey
    ranges: tuple[tuple[int, int], ...]


class RemoveQueues(NamedTuple):
    """Remove the queues of a group, or of one topic of it."""

    group: str
    topic_id: TopicId | None = None


class DescribeQueues(NamedTuple):
    """Describe the queues of a group that are in this shard."""

    group: str
    leases_max: int = 0
    """Runs of leased offsets to list, over all queues."""


LeaseRequest: TypeAlias = (
    StartQueue
    | Acquire
    | Withdraw
    | Advance
    | Settle
    | ReleaseMember
    | ExpireMember
    | Bury
    | RemoveQueues
    | DescribeQueues
    | RedriveRequest
)


class Failure(Enum):
    """Why a request as a whole was refused."""

    NOT_STARTED = "the queue has not begun yet"
    TOO_MANY_QUEUES = (
        "there are too many queues: their shard has as many as it may have, or its node has reached "
        "group_state_bytes_max, or this client address has added a quarter of that"
    )
    INVALID = "the offsets are not in ascending order, or not valid"


class Refusal(Enum):
    """Why offsets were not settled."""

    NEVER_LEASED = "it was never leased"
    NOT_LEASED = "its lease has run out, or it was settled before"
    LEASED_TO_ANOTHER = "another member holds it"
    STALE_TOKEN = "it was delivered again since"
    NO_RENEWAL = "the group does not renew leases (share.renew.acknowledge.enable is false)"


class Refused(NamedTuple):
    """A run of offsets that was not settled. Nothing about it has changed."""

    first: int
    last: int
    refusal: Refusal


class Delivery(NamedTuple):
    """A run of offsets that was leased, with the number of this delivery."""

    first: int
    last: int
    attempt: int


class Failed(NamedTuple):
    """The request was refused. Nothing has changed."""

    failure: Failure


class QueueBegun(NamedTuple):
    """The queue exists."""

    end: int


class Acquired(NamedTuple):
    """What was leased; nothing if `deliveries` is empty."""

    token: int
    duration_ms: int
    deliveries: tuple[Delivery, ...]


class SettleResult(NamedTuple):
    """Everything was settled but what is named here."""

    refused: tuple[Refused, ...]


class Done(NamedTuple):
    """The request was carried out."""


class LeaseView(NamedTuple):
    """A run of offsets that a member holds."""

    first: int
    last: int
    member: str
    attempt: int
    token: int
    left_ms: int


class QueueView(NamedTuple):
    """A queue as it is now."""

    key: QueueKey
    start: int
    end: int
    held_count: int
    returned_count: int
    parked_count: int
    dying_count: int
    next_due_ms: int | None
    """When the next parked record returns, by the wall clock."""
    is_paused: bool
    """Nothing new is leased, because too much is parked or dying."""
    leases: tuple[LeaseView, ...]


class QueueList(NamedTuple):
    """The queues of a group in this shard."""

    queues: tuple[QueueView, ...]


LeaseResponse: TypeAlias = Failed | QueueBegun | Acquired | SettleResult | Done | QueueList | RedriveResponse


class DeadRecord(NamedTuple):
    """Offsets whose dead letters are to be written."""

    key: QueueKey
    first: int
    last: int
    death: Death
