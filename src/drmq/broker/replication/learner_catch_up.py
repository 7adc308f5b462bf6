"""How fast this node copies partitions to members that are being added: they take turns.

A node that comes back with a new disk is a learner of all its groups at once, and whoever leads one of them sends it
the whole log, or its snapshot and what follows that. That must not take the network away from those who keep up, so
all copies of this node together have a rate. What waits for it is never a message: consensus asks for a *turn*
(`raft.Ready.turns_wanted`), the learners stand in one row, and only when a turn has come are its entries read, one
message of them. So what waits costs nothing but its place in the row, however many partitions are copied and however
slowly; and nothing that was sent can be overtaken by a later question whether it arrived. A part of a snapshot takes a
turn like that; the leader asks for it when it has the snapshot in memory, which is bounded elsewhere (`outgoing`).

A turn is paid for with the time that the bytes it sent may take. Time in which nothing was copied is not saved up. A
turn that sends nothing (another leads by now, for example) is free, and the next one follows at once.

Entries that are not in the page cache are read first, off the loop, and the row waits for that: the one whose disk was
asked has the next turn. Were it sent to the end of a long row instead, what was read for it could be gone again from
the cache when its turn comes, and all would read and none would send. It has that privilege once for each turn.

Always true: a learner of a group is in the row at most once; while somebody waits, a call or a read is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from drmq.model import NodeId

if TYPE_CHECKING:
    from drmq.broker.replication.replica import Replica


class _CallLater(Protocol):
    def __call__(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None: ...


class LearnerCatchUp:
    """Whose turn it is to be copied to. Lives on the event loop."""

    def __init__(self, bytes_per_s: int, now: Callable[[], float], call_later: _CallLater) -> None:
        self._bytes_per_s = bytes_per_s
        self._now = now
        self._call_later = call_later
        self._row: dict[tuple[Replica, NodeId], None] = {}
        self._paid_until = 0.0
        """When the bytes that were sent have had their time."""
        self._is_called = False
        self._called_for = 0.0
        """What `_paid_until` was then."""
        self._holder: Replica | None = None
        """Whose turn it was last, until it has sent something."""
        self._reader: Replica | None = None
        """The holder whose disk is being asked."""
        self._next: tuple[Replica, NodeId] | None = None
        """Whose entries are at hand now: it goes before the row."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._row) + (self._next is not None)

    def ask(self, replica: Replica, member: NodeId) -> None:
        """Give a learner of this leader a turn, behind those who wait."""
        if replica is self._holder and self._next is None:
            self._next = replica, member
        else:
            self._row[replica, member] = None
        self._call()

    def on_sent(self, replica: Replica, size_bytes: int) -> None:
        """Entries, or a part of a snapshot, of this size have left for a learner."""
        self._paid_until = max(self._paid_until, self._now()) + size_bytes / self._bytes_per_s
        if replica is self._holder:
            self._holder = None

    def on_reading(self, replica: Replica) -> None:
        """Entries are read from the disk. `on_read` follows in any case."""
        if replica is self._holder:
            self._reader = replica

    def on_read(self, replica: Replica) -> None:
        """The entries are at hand, or cannot be had."""
        if replica is self._reader:
            self._reader = None
            self._call()

    def _call(self) -> None:
        # Never at once: who asks is in the middle of its own work.
        if len(self) and not self._is_called and self._reader is None:
            self._is_called, self._called_for = True, self._paid_until
            self._call_later(max(0.0, self._paid_until - self._now()), self._give)

    def _give(self) -> None:
        self._is_called = False
        try:
            # Not by the clock: one that is a little early, as timers may be, would be called again and again.
            if len(self) and self._reader is None and self._paid_until <= self._called_for:
                replica, member = self._take()
                replica.take_turn(member)
        finally:
            # Whatever happened to one copy, the others go on.
            self._call()

    def _take(self) -> tuple[Replica, NodeId]:
        """Whose turn it is."""
        if self._next is not None:
            turn, self._next, self._holder = self._next, None, None
        else:
            turn = next(iter(self._row))
            del self._row[turn]
            self._holder = turn[0]
        return turn
