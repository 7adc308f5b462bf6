"""What a leader knows about one follower, and how much it may send to it.

    probe       it is not known where the logs match: one message at a time
    replicate   known: messages are sent without waiting, as far as the window allows
    snapshot    the follower needs entries that are gone: no appends until it has a snapshot

    probe -> replicate    an append was accepted
    replicate -> probe    an append was rejected: a message was lost
    any -> snapshot       the next entry is covered by the snapshot
    snapshot -> replicate the snapshot is installed
    snapshot -> probe     the driver could not read it
    replicate -> probe    the follower has a new process: verify again what it holds

If the driver makes learners take turns (see `Node`), `turn` says whether the next message may be sent:

    none -> asked    there is something to send
    asked -> given   the driver's catch-up schedule has reached this follower
    given -> none    one message was sent, or its entries are not in memory; a turn is asked for again once they are

The *window* holds the messages that were sent and not answered: the last index and the size of each. It limits messages
and bytes, so a follower that hangs costs its leader a bounded amount of memory.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from drmq.raft.options import RaftOptions
from drmq.raft.snapshot import SnapshotSending
from drmq.raft.types import NO_INDEX, LogIndex


class ProgressState(Enum):
    """How a follower is replicated to."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Turn(Enum):
    """Whether entries may be sent to a follower that takes turns."""

    NONE = "none"
    ASKED = "asked"
    GIVEN = "given"


class Progress:
    """The leader's view of one follower. Owned by the `Leader`; soft state.

    Always true: `match < next`; only `match` says what the follower holds, and as long as its process runs, it never
    decreases; the window is empty except in `replicate`.
    """

    __slots__ = (
        "_caught_up_tick",
        "_goal",
        "_goal_tick",
        "_in_flight",
        "_in_flight_bytes",
        "_options",
        "commit_sent",
        "heard_tick",
        "match",
        "next",
        "paused",
        "read_round",
        "sending",
        "silent",
        "state",
        "turn",
    )

    def __init__(self, options: RaftOptions, next_index: LogIndex, tick: int) -> None:
        self._options = options
        self.match = NO_INDEX
        """The follower has confirmed that it holds the log up to here, durably."""
        self.next = next_index
        """The next entry to send."""
        self.state = ProgressState.PROBE
        self.paused = False
        """An unanswered probe was sent, or the next entries are not in memory."""
        self.silent = False
        """A heartbeat was answered since the follower last accepted or rejected anything."""
        self.turn = Turn.NONE
        self.heard_tick = tick
        self._caught_up_tick: int | None = None
        self._goal = next_index
        self._goal_tick = tick
        self.read_round = 0
        self.commit_sent = NO_INDEX
        self.sending: SnapshotSending | None = None
        self._in_flight: deque[tuple[LogIndex, int]] = deque()
        self._in_flight_bytes = 0

    @property
    def in_flight_count(self) -> int:
        """Messages that were sent and not answered."""
        return len(self._in_flight)

    @property
    def in_flight_bytes(self) -> int:
        """Payload bytes in those messages."""
        return self._in_flight_bytes

    @property
    def may_send(self) -> bool:
        """Whether an append may be sent now."""
        if self.state is ProgressState.SNAPSHOT or self.paused:
            return False
        return (
            len(self._in_flight) < self._options.in_flight_messages_max
            and self._in_flight_bytes < self._options.in_flight_bytes_max
        )

    def caught_up_tick(self, commit: LogIndex, tick: int) -> int | None:
        """The last tick at which the follower is known to have had everything that was committed then; None if unknown.

        Under load, something more is committed whenever an answer arrives, so a follower with a small delay would never
        be seen to have everything. Therefore `look` records the commit index at one tick, and that tick counts once the
        follower reaches the index.
        """
        if self.match == NO_INDEX:
            return None
        if self.match >= commit:
            return tick
        return self._goal_tick if self.match >= self._goal else self._caught_up_tick

    def look(self, commit: LogIndex, tick: int) -> None:
        """Record the commit index at this tick."""
        self._caught_up_tick = self.caught_up_tick(commit, tick)
        if self.match >= min(self._goal, commit):
            self._goal, self._goal_tick = commit, tick

    def on_sent(self, last_index: LogIndex, size_bytes: int) -> None:
        """Entries up to `last_index` were sent."""
        assert self.state is not ProgressState.SNAPSHOT
        if self.state is ProgressState.PROBE:
            self.paused = True
            return
        assert last_index >= self.next, (last_index, self.next)
        self.next = LogIndex(last_index + 1)
        self._in_flight.append((last_index, size_bytes))
        self._in_flight_bytes += size_bytes

    def on_accepted(self, match: LogIndex, first_index: LogIndex) -> bool:
        """The follower holds the log up to `match`. Returns True if that is new."""
        self.silent = False
        rose = match > self.match
        self.match = max(self.match, match)
        while self._in_flight and self._in_flight[0][0] <= match:
            self._in_flight_bytes -= self._in_flight.popleft()[1]
        if self.state is ProgressState.REPLICATE:
            self.next = max(self.next, LogIndex(match + 1))
            self.paused = False
        elif self.sending is None or self.match >= min(self.sending.meta.index, first_index - 1):
            # Also if the leader's log now begins later than the snapshot: then the follower needs a newer snapshot,
            # which the next append will find out.
            self._become(ProgressState.REPLICATE, LogIndex(self.match + 1))
        return rose

    def on_rejected(self, rejected: LogIndex, agreed_at_most: LogIndex) -> bool:
        """An append after `rejected` did not match. Returns True if that is new and the next index to try is set.

        An old rejection must not undo newer knowledge: of probes only the answer to the last one counts, and nothing at
        or below `match` can be missing.
        """
        if self.state is ProgressState.SNAPSHOT or rejected <= self.match:
            return False
        if self.state is ProgressState.PROBE and rejected != self.next - 1:
            return False
        if rejected >= self.next:
            return False
        self.silent = False
        next_index = LogIndex(min(rejected, max(agreed_at_most, self.match) + 1))
        self._become(ProgressState.PROBE, next_index)
        return True

    def become_probe(self) -> None:
        """Start again to find out where the logs match."""
        self._become(ProgressState.PROBE, LogIndex(self.match + 1))

    def forget(self) -> None:
        """Discard everything that the follower has confirmed, and check first whether it still holds all of it."""
        next_index = LogIndex(self.match + 1)
        self.match = NO_INDEX
        self._caught_up_tick = None
        self._become(ProgressState.PROBE, next_index)

    def become_snapshot(self, sending: SnapshotSending) -> None:
        """Stop sending entries until the follower has the snapshot."""
        self._become(ProgressState.SNAPSHOT, self.next)
        self.sending = sending

    def on_silence(self) -> bool:
        """A heartbeat was answered. Returns True if it was the second one since the last answer to an append.

        In that case a message or its answer is lost, and something must be sent to find out. After the first heartbeat,
        the append may still be waiting for the follower's disk.
        """
        was_silent, self.silent = self.silent, True
        return was_silent

    def _become(self, state: ProgressState, next_index: LogIndex) -> None:
        self.state = state
        self.next = next_index
        self.paused = False
        self.sending = None
        self._in_flight.clear()
        self._in_flight_bytes = 0
