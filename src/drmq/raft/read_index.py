"""ReadIndex: reads that see everything acknowledged before them, without writing to the log.

A leader may have been deposed without knowing it, so it must not serve a read on its own. It records its commit index,
asks all members by heartbeat whether it is still the leader, and serves the read when a quorum has confirmed it. At the
time of the request, then, no other leader can have committed anything (Raft thesis, section 6.4).

Reads are confirmed in *rounds*. All reads since the last `Ready` share one round, and the answer to a later round
confirms the earlier ones too, so a lost heartbeat delays a read and never loses it. A round belongs to one leader and
one term, because messages carry the term and this object is dropped when the leadership ends. So an answer can never
confirm a read of another term.

A new leader does not know yet what is committed. Reads wait until its first own entry is committed.
"""

from __future__ import annotations

from collections import deque

from drmq.raft.ready import ReadConfirmed
from drmq.raft.types import LogIndex


class ReadRounds:
    """The unconfirmed reads of one term. Owned by the `Leader`."""

    def __init__(self) -> None:
        self._waiting: list[object] = []
        self._rounds: deque[tuple[int, LogIndex, list[object]]] = deque()
        self._confirmed: list[ReadConfirmed] = []
        self._count = 0
        self.last_round = 0

    @property
    def count(self) -> int:
        """Reads that wait for confirmation."""
        return self._count

    @property
    def has_waiting(self) -> bool:
        """Whether some reads are in no round yet."""
        return bool(self._waiting)

    @property
    def has_confirmed(self) -> bool:
        """Whether `take_confirmed` would return anything."""
        return bool(self._confirmed)

    def add(self, context: object) -> None:
        """Add a new read. It joins the next round, because a round in progress started too early for it."""
        self._waiting.append(context)
        self._count += 1

    def begin_round(self, commit: LogIndex) -> int:
        """Put all waiting reads into a new round and return its number, to be sent to all members."""
        self.last_round += 1
        self._rounds.append((self.last_round, commit, self._waiting))
        self._waiting = []
        return self.last_round

    def on_quorum(self, read_round: int) -> None:
        """A quorum has answered rounds up to `read_round`."""
        while self._rounds and self._rounds[0][0] <= read_round:
            _, index, contexts = self._rounds.popleft()
            self._count -= len(contexts)
            self._confirmed += [ReadConfirmed(context, index) for context in contexts]

    def take_confirmed(self) -> tuple[ReadConfirmed, ...]:
        """Reads that may be served."""
        confirmed, self._confirmed = self._confirmed, []
        return tuple(confirmed)

    def unconfirmed(self) -> tuple[object, ...]:
        """The contexts of all reads that were not confirmed, to be refused when the leadership ends."""
        return tuple(context for _, _, contexts in self._rounds for context in contexts) + tuple(self._waiting)
