"""The replicated state of one queue: one partition of a topic, as one group works on it.

Every offset below `end` is in exactly one of these states:

    held       leased to a member (`held`)
    returned   available again (`returned`)
    parked     available again at a time (`parked`)
    dying      given up, its dead letter is not committed yet (`dying`)
    done       in none of the above; a million of them cost nothing

Offsets from `end` on were never leased. The sizes of all of these are bounded: `held` by the group's limit of leases,
`parked` and `dying` by limits of their own, `returned` by what was held and what is unparked at a time.

Each run of held offsets has a *token* and a *lease*. The token names the delivery: it is never used twice in a queue,
so that a member that shows an old one is refused. The lease is what runs out: one for each acquisition, and a new one
for each renewal, because a renewal may cover a part of an acquisition only.

Only `replay` of the shard changes a queue, through the methods here. They accept any sequence of records: what a
record says about offsets that are not in the state it expects has no effect on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drmq.leases.parked import Parked, ParkedRow
from drmq.leases.queue_key import QueueKey
from drmq.leases.ranges import Ranges
from drmq.leases.records import (
    Fate,
    LeaseEnded,
    LeaseGranted,
    LeaseRenewed,
    QueueSnapshot,
    Reason,
    SavedHold,
    SavedLease,
    Settled,
)

QUEUE_BYTES = 1_500
"""The memory of an empty queue besides the name of its group, by measurement."""

_RECENT_MEMBERS_MAX = 64
_RECENT_RANGES_MAX = 256
"""What is remembered for members that repeat a request: so many members, with so many ranges each."""


class Hold(NamedTuple):
    """The delivery that a run of offsets is in."""

    attempt: int
    failed_ms: int
    token: int
    lease: int


class History(NamedTuple):
    """The past deliveries of a run of offsets that is available."""

    attempt: int
    failed_ms: int


class Death(NamedTuple):
    """What a dead letter says about its offset."""

    attempt: int
    failed_ms: int
    ended_ms: int
    reason: Reason


class Lease:
    """The right of a member to some offsets, until it runs out."""

    __slots__ = ("count", "deadline_ms", "duration_ms", "member")

    def __init__(self, member: str, duration_ms: int) -> None:
        self.member = member
        self.duration_ms = duration_ms
        self.count = 0
        """Offsets that are still held."""
        self.deadline_ms: int | None = None
        """When it runs out. Soft state: only the leader of the shard sets and reads it."""


class Queue:
    """The state of one queue. Owned by the shard."""

    __slots__ = ("dying", "end", "held", "key", "last_token", "leases", "parked", "recent", "returned", "time_ms")

    def __init__(self, key: QueueKey, end: int) -> None:
        self.key = key
        self.end = end
        """The first offset that was never leased."""
        self.last_token = 0
        self.time_ms = 0
        """The latest time of the shard that its records name."""
        self.held: Ranges[Hold] = Ranges()
        self.returned: Ranges[History] = Ranges()
        self.parked = Parked()
        self.dying: Ranges[Death] = Ranges()
        self.leases: dict[int, Lease] = {}
        self.recent: dict[str, Ranges[Fate]] = {}
        """What each member settled recently, and how, the member that settled last at the end. A repeated request
        succeeds."""

    @property
    def start(self) -> int:
        """The first offset that is not done. It looks at everything that is parked."""
        lowest = (self.held.first, self.returned.first, self.dying.first, self.parked.first(), self.end)
        return min(offset for offset in lowest if offset is not None)

    # ---- replay ---------------------------------------------------------------------------------

    def grant(self, record: LeaseGranted) -> None:
        lease = Lease(record.member, record.duration_ms)
        recent = self.recent.get(record.member)
        for first, last, attempt, failed_ms in record.offsets:
            self.returned.cut(first, last)
            self.held.add(first, last, Hold(attempt, failed_ms, record.token, record.token))
            lease.count += last - first + 1
            if recent is not None:
                recent.cut(first, last)
        self.leases[record.token] = lease
        self.last_token = record.token
        self.end = record.end

    def end_leases(self, record: LeaseEnded) -> None:
        settled: list[tuple[int, int, Fate]] = []
        for entry in record.offsets:
            fate = entry.fate
            for first, last, hold in self.held.cut(entry.first, entry.last):
                self._shrink(hold.lease, last - first + 1)
                if fate is not Fate.DONE:
                    self._place(entry._replace(first=first, last=last))
                settled.append((first, last, fate))
        self.time_ms = max(self.time_ms, record.time_ms)
        if record.member:
            self._remember(record.member, settled)

    def renew(self, record: LeaseRenewed) -> None:
        lease = Lease(record.member, record.duration_ms)
        for first, last in record.ranges:
            for piece in self.held.cut(first, last):
                self._shrink(piece.value.lease, piece.size)
                self.held.add(piece.first, piece.last, piece.value._replace(lease=record.lease))
                lease.count += piece.size
        self.leases[record.lease] = lease
        self.last_token = record.lease

    def unpark(self, due_ms: int, count_max: int) -> None:
        self.time_ms = max(self.time_ms, due_ms)
        for row in self.parked.take(due_ms, count_max):
            self.returned.add(row.first, row.last, History(row.attempt, row.failed_ms))

    def bury(self, ranges: Iterable[tuple[int, int]]) -> None:
        for first, last in ranges:
            self.dying.cut(first, last)

    def trim(self, start: int) -> None:
        for piece in self.held.cut(0, start - 1):
            self._shrink(piece.value.lease, piece.size)
        self.returned.cut(0, start - 1)
        self.dying.cut(0, start - 1)
        self.parked.trim(start)
        self.end = max(self.end, start)

    def _shrink(self, lease: int, count: int) -> None:
        left = self.leases[lease]
        left.count -= count
        if not left.count:
            del self.leases[lease]

    def _place(self, entry: Settled) -> None:
        first, last = entry.first, entry.last
        if entry.fate is Fate.RETURNED:
            self.returned.add(first, last, History(entry.attempt, entry.failed_ms))
        elif entry.fate is Fate.PARKED:
            self.parked.add(entry.at_ms, ParkedRow(first, last, entry.attempt, entry.failed_ms))
        elif entry.fate is Fate.DYING:
            self.dying.add(first, last, Death(entry.attempt, entry.failed_ms, entry.at_ms, entry.reason))

    def _remember(self, member: str, ranges: Iterable[tuple[int, int, Fate]]) -> None:
        recent = self.recent.pop(member, None) or Ranges()
        self.recent[member] = recent
        if len(self.recent) > _RECENT_MEMBERS_MAX:
            del self.recent[next(iter(self.recent))]
        for first, last, fate in ranges:
            recent.cut(first, last)
            recent.add(first, last, fate)
        while len(recent) > _RECENT_RANGES_MAX:
            recent.drop_first()

    # ---- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> QueueSnapshot:
        waiting = [
            Settled(first, last, Fate.RETURNED, history.attempt, history.failed_ms, 0, Reason.NONE)
            for first, last, history in self.returned
        ]
        waiting += [
            Settled(row.first, row.last, Fate.PARKED, row.attempt, row.failed_ms, due_ms, Reason.NONE)
            for due_ms, row in self.parked
        ]
        waiting += [
            Settled(first, last, Fate.DYING, death.attempt, death.failed_ms, death.ended_ms, death.reason)
            for first, last, death in self.dying
        ]
        return QueueSnapshot(
            self.key,
            self.end,
            self.last_token,
            self.time_ms,
            tuple(SavedLease(id_, lease.member, lease.duration_ms) for id_, lease in self.leases.items()),
            tuple(SavedHold(first, last, *hold) for first, last, hold in self.held),
            tuple(waiting),
            tuple(
                (member, tuple((first, last, fate) for first, last, fate in ranges))
                for member, ranges in self.recent.items()
            ),
        )

    @classmethod
    def restore(cls, saved: QueueSnapshot) -> Queue:
        queue = cls(saved.key, saved.end)
        queue.last_token, queue.time_ms = saved.last_token, saved.time_ms
        queue.leases = {lease.lease: Lease(lease.member, lease.duration_ms) for lease in saved.leases}
        for hold in saved.held:
            queue.held.add(hold.first, hold.last, Hold(hold.attempt, hold.failed_ms, hold.token, hold.lease))
            queue.leases[hold.lease].count += hold.last - hold.first + 1
        for entry in saved.waiting:
            queue._place(entry)
        for member, ranges in saved.recent:
            queue._remember(member, ranges)
        return queue
