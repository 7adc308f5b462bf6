"""Lease groups: which member of a group works on which record, until when, and what became of it.

The problem
-----------

A topic is also a work queue. Any number of members share a group, and the number of partitions does not limit them.
Each record is leased to one member, settled on its own, delivered again when the work failed or the lease ran out, and
ends either done or in a dead-letter topic.

The idea
--------

A *queue* is one partition of a topic as one group works on it. A *shard* (`LeaseShard`) holds many queues and decides
for them; it is a replicated state machine on one partition of an internal topic. The shard knows offsets, not records:
the leader of the data partition tells it how far the log goes, and reads the bytes.

A queue is a few sorted ranges of offsets (`queue`), because work is leased and settled in runs: cost depends on the
number of runs, not on the number of records. What is done is in no range and costs nothing.

The interface, for a driver that owns a log
-------------------------------------------

    shard = LeaseShard(options_of, random)
    shard.replay(record)                                   every record of the log, in order, on every replica
    shard.snapshot()                                       one record for each queue
    shard.become_leader(now_ms)                            only on the leader, from here:
    shard.handle(ticket, request, now_ms, wall_ms) -> Step
    shard.next_deadline(), shard.on_deadline(now_ms, wall_ms) -> Step
    shard.on_disconnect(tickets, now_ms, wall_ms) -> Step
    shard.forget_topics(topic_ids, now_ms, wall_ms) -> Step
    shard.dying_queues(), shard.dead_records(n, key)       what to write to dead-letter topics, and then to `Bury`
    shard.resign() -> Step                                 to here

Always true
-----------

- Leases, outcomes and delivery counts are records, and an answer is sent when its records are committed. So a new
  leader knows what is out: an offset is with one member while its lease lasts, across changes of leader too.
- An offset that was accepted is never leased again.
- The number of a delivery never falls: a failed delivery counts, one that was given back is repeated with its number.
- An offset that was given up stays until its dead letter is committed.
- A refused settlement changes nothing. A settlement that is repeated by the member that made it succeeds.
- The size of a queue is bounded by the options of its group, whatever its members do.
- A dead letter is moved back at most once, and is done only when that is committed (`redrive`).

Where things are
----------------

`records` are the stored records, `queue` the state of one queue, `ranges` and `parked` its parts; `messages` are
requests and responses, `options` the settings of a group, `outcomes` what becomes of a record, `counts` what is
counted; `shard` is the interface. `redrive` and its neighbours are about dead letters that were written: which of them
are done, and how a redrive moves the others back.

Not here: members and their sessions, which queue belongs to which shard, reading and sending records, writing dead
letters. Order by key, priorities and scheduled delivery are not offered.
"""

from drmq.leases.messages import (
    WHOLE_TOPIC,
    Acquire,
    Acquired,
    Advance,
    Bury,
    DeadRecord,
    Delivery,
    DescribeQueues,
    Done,
    ExpireMember,
    Failed,
    Failure,
    LeaseRequest,
    LeaseResponse,
    LeaseView,
    Outcome,
    QueueBegun,
    QueueList,
    QueueView,
    Refusal,
    Refused,
    ReleaseMember,
    RemoveQueues,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
    Withdraw,
)
from drmq.leases.options import LeaseOptions
from drmq.leases.queue_key import QueueKey, redrive_key
from drmq.leases.records import LeaseRecord, Reason, record_from_bytes, record_to_bytes
from drmq.leases.redrive_messages import (
    BatchAllowed,
    DescribeLetters,
    EndBatch,
    EndRedrive,
    IntendBatch,
    LettersView,
    NoteProgress,
    Purged,
    PurgeLetters,
    RedriveBegun,
    RedriveDone,
    RedriveRefusal,
    RedriveRefused,
    RedriveView,
    StartRedrive,
    StopRedrive,
)
from drmq.leases.redrive_records import Origin, RedriveState, Runs, SavedBatch
from drmq.leases.shard import LeaseShard

__all__ = [
    "WHOLE_TOPIC",
    "Acquire",
    "Acquired",
    "Advance",
    "BatchAllowed",
    "Bury",
    "DeadRecord",
    "Delivery",
    "DescribeLetters",
    "DescribeQueues",
    "Done",
    "EndBatch",
    "EndRedrive",
    "ExpireMember",
    "Failed",
    "Failure",
    "IntendBatch",
    "LeaseOptions",
    "LeaseRecord",
    "LeaseRequest",
    "LeaseResponse",
    "LeaseShard",
    "LeaseView",
    "LettersView",
    "NoteProgress",
    "Origin",
    "Outcome",
    "PurgeLetters",
    "Purged",
    "QueueBegun",
    "QueueKey",
    "QueueList",
    "QueueView",
    "Reason",
    "RedriveBegun",
    "RedriveDone",
    "RedriveRefusal",
    "RedriveRefused",
    "RedriveState",
    "RedriveView",
    "Refusal",
    "Refused",
    "ReleaseMember",
    "RemoveQueues",
    "Runs",
    "SavedBatch",
    "Settle",
    "SettleResult",
    "Settlement",
    "StartQueue",
    "StartRedrive",
    "StopRedrive",
    "Withdraw",
    "record_from_bytes",
    "record_to_bytes",
    "redrive_key",
]
