"""ReadIndex: reads that see everything answered before them, without writing to the log.

A leader may have been deposed without knowing it, so its word is not enough. It notes its commit index,
asks everyone by heartbeat whether it still leads, and serves the read when a quorum has said yes: at the
time of the request, then, no other leader can have committed anything (Raft thesis, section 6.4).

Reads are confirmed in *rounds*. All that came in since the last `Ready` share one, and the answer to a
later round confirms the earlier ones too, so a lost heartbeat delays a read and never loses it. A round
belongs to one leader and one term, because messages carry the term and this object dies with the reign:
an answer can never confirm a read of another time.

A new leader does not know yet what is committed. Until its own first entry is, reads wait.
"""

from __future__ import annotations

from collections import deque

from drmq.raft.ready import ReadConfirmed
from drmq.raft.types import LogIndex


class ReadRounds:
    """The reads of one reign that are not confirmed. Owned by the `Leader`."""

    def __init__(self) -> None:
        self._waiting: list[object] = []
        self._rounds: deque[tuple[int, LogIndex, list[object]]] = deque()
        self._confirmed: list[ReadConfirmed] = []
        self._count = 0
        self.last_round = 0

    @property
    def count(self) -> int:
        """Reads that wait for their confirmation."""
        return self._count

    @property
    def has_waiting(self) -> bool:
        """Whether some reads are in no round yet."""
        return bool(self._waiting)

    @property
    def has_confirmed(self) -> bool:
        """Whether there is something to take."""
        return bool(self._confirmed)

    def add(self, context: object) -> None:
        """A read that came in now. The next round is its own; one under way began too early for it."""
        self._waiting.append(context)
        self._count += 1

    def begin_round(self, commit: LogIndex) -> int:
        """Put all waiting reads into a new round and give its number, to be sent to everyone."""
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
        """The contexts of all reads that were not confirmed, for the end of the reign."""
        return tuple(context for _, _, contexts in self._rounds for context in contexts) + tuple(self._waiting)
