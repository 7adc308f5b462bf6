"""The rate at which this node copies partitions to learners, which take turns.

A node that returns with a new disk is a learner of all its groups at once, and the leader of each group sends it the
whole log, or a snapshot and the entries after it. This must not take the network away from replicas that are in sync,
so all copies that this node sends share one rate limit. Messages are never queued for it. Instead, consensus asks for a
*turn* (`raft.Ready.turns_wanted`), the learners wait in one queue, and entries are read only when a turn is granted,
one message per turn. So a waiting learner costs only its place in the queue, however many partitions are copied and
however slowly; and a message with entries cannot be overtaken by a later probe whether it arrived. A part of a snapshot
takes a turn too; the leader asks for it when it has the snapshot in memory, which is limited in `outgoing_snapshot`.

A turn costs the time that its bytes take at the limited rate, which may differ between learners (`rate_of`): settings
of brokers and topics can change it at run time. Unused time is not saved up. A turn that sends nothing (because another
node is leader now, for example) is free, and the next one follows at once.

Entries that are not in the page cache are first read on another thread, and the queue waits for that: the learner whose
entries were read has the next turn. If it went to the end of a long queue instead, its entries could be evicted from
the cache before its turn, and then all would read and none would send. It has this privilege once for each turn.

Always true: a learner of a group is in the queue at most once; while a learner waits, a call or a read is pending.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from drmq.model import NodeId

if TYPE_CHECKING:
    from drmq.broker.replication.replica import Replica


class _CallLater(Protocol):
    def __call__(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None: ...


class LearnerCatchUp:
    """The queue of learners that wait for a turn. Used on the event loop."""

    def __init__(self, bytes_per_s: int, now: Callable[[], float], call_later: _CallLater) -> None:
        self.rate_of: Callable[[Replica, NodeId], int] = lambda replica, member: bytes_per_s
        """The rate at which a learner of a replica is copied to, in bytes per second."""
        self._now = now
        self._call_later = call_later
        self._row: dict[tuple[Replica, NodeId], None] = {}
        self._paid_until = 0.0
        """The time until which the bytes that were sent use up the rate."""
        self._is_called = False
        self._called_for = 0.0
        """The value of `_paid_until` when the call was scheduled."""
        self._call_number = 0
        self._holder: Replica | None = None
        """The replica that had the last turn, until it has sent something."""
        self._reader: Replica | None = None
        """The holder whose entries are being read from the disk."""
        self._next: tuple[Replica, NodeId] | None = None
        """The learner whose entries were just read: it comes before the queue."""

    def __len__(self) -> int:
        """The number of waiting learners."""
        return len(self._row) + (self._next is not None)

    def ask(self, replica: Replica, member: NodeId) -> None:
        """Queue a turn for a learner of this leader."""
        if replica is self._holder and self._next is None:
            self._next = replica, member
        else:
            self._row[replica, member] = None
        self._call()

    def on_sent(self, replica: Replica, member: NodeId, size_bytes: int) -> None:
        """Entries, or a part of a snapshot, of this size were sent to a learner."""
        self._paid_until = max(self._paid_until, self._now()) + size_bytes / self.rate_of(replica, member)
        if replica is self._holder:
            self._holder = None

    def on_reading(self, replica: Replica) -> None:
        """Entries are being read from the disk. `on_read` follows in any case."""
        if replica is self._holder:
            self._reader = replica

    def on_read(self, replica: Replica) -> None:
        """The entries were read, or could not be read."""
        if replica is self._reader:
            self._reader = None
            self._call()

    def on_rates_changed(self) -> None:
        """Do not wait any longer for what was sent at an earlier rate: it may have been very low."""
        self._paid_until = min(self._paid_until, self._now())
        self._is_called = False
        self._call()

    def _call(self) -> None:
        # Never called directly: the caller is in the middle of its own work.
        if len(self) and not self._is_called and self._reader is None:
            self._is_called, self._called_for = True, self._paid_until
            self._call_number += 1
            delay_s = max(0.0, self._paid_until - self._now())
            self._call_later(delay_s, partial(self._give, self._call_number))

    def _give(self, call_number: int) -> None:
        if call_number != self._call_number:
            # A later call has replaced this one.
            return
        self._is_called = False
        try:
            # Not decided by the clock: a timer that fires slightly early would be scheduled again and again.
            if len(self) and self._reader is None and self._paid_until <= self._called_for:
                replica, member = self._take()
                replica.take_turn(member)
        finally:
            # Whatever happened to one copy, the others must continue.
            self._call()

    def _take(self) -> tuple[Replica, NodeId]:
        """Remove and return the next turn."""
        if self._next is not None:
            turn, self._next, self._holder = self._next, None, None
        else:
            turn = next(iter(self._row))
            del self._row[turn]
            self._holder = turn[0]
        return turn
