"""The state of dead letters: which of them are done, and the redrive that moves the others.

Only `replay` of the shard changes it. The idea is in `redrive`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drmq.leases.queue_key import redrive_key
from drmq.leases.ranges import Ranges
from drmq.leases.redrive_records import (
    LettersSnapshot,
    Origin,
    RedriveStarted,
    RedriveState,
    Runs,
    SavedBatch,
    SavedRedrive,
)
from drmq.model import TopicId


def size_of(runs: Runs) -> int:
    """The number of offsets in some runs."""
    return sum(last - first + 1 for first, last in runs)


class Numbers(NamedTuple):
    """The numbers of the next batch to an origin."""

    epoch: int = 0
    sequence: int = 0


class Redrive:
    """A redrive of one topic, running or over."""

    def __init__(self, started: RedriveStarted) -> None:
        self.started = started
        self.state = RedriveState.RUNNING
        self.redriven = 0
        self.ended_ms = 0
        self.skipped = self.failed = 0
        """What was left aside. Soft state while it runs: only the leader of the shard knows."""
        self.reason = ""
        self.sequences: dict[Origin, Numbers] = {}
        self.batches: dict[Origin, SavedBatch] = {}
        """Batches that are under way, one for each origin at most."""

    @property
    def is_running(self) -> bool:
        return self.state in (RedriveState.RUNNING, RedriveState.STOPPING)

    @property
    def left(self) -> int | None:
        """How many letters it may still take; None for any number."""
        if not self.started.count_max:
            return None
        return self.started.count_max - self.redriven - sum(size_of(batch.runs) for batch in self.batches.values())

    def next_for(self, origin: Origin) -> Numbers:
        return self.sequences.get(origin, Numbers())

    def open_runs(self) -> dict[int, Runs]:
        """Letters that are under way, by partition."""
        found: dict[int, list[tuple[int, int]]] = {}
        for batch in self.batches.values():
            found.setdefault(batch.partition, []).extend(batch.runs)
        return {partition: tuple(sorted(runs)) for partition, runs in sorted(found.items())}


class Letters:
    """What is known about the dead letters of one topic."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self.done: dict[int, Ranges[None]] = {}
        self.last_number = 0
        self.purged = 0
        self.redrive: Redrive | None = None

    @property
    def running(self) -> Redrive | None:
        return self.redrive if self.redrive is not None and self.redrive.is_running else None

    def add_done(self, partition: int, runs: Iterable[tuple[int, int]]) -> int:
        """Letters are done; returns how many were not before."""
        done = self.done.setdefault(partition, Ranges())
        before = done.count
        for first, last in runs:
            done.cut(first, last)
            done.add(first, last, None)
        return done.count - before

    def are_waiting(self, partition: int, runs: Runs) -> bool:
        """Whether none of these is done or under way."""
        done = self.done.get(partition)
        if done is not None and any(done.find(first, last) for first, last in runs):
            return False
        open_ = self.redrive.open_runs().get(partition, ()) if self.redrive is not None else ()
        return not any(first <= other[1] and other[0] <= last for first, last in runs for other in open_)

    # ---- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> LettersSnapshot:
        redrive = self.redrive
        saved = None
        if redrive is not None:
            over = not redrive.is_running
            saved = SavedRedrive(
                redrive.started,
                redrive.state,
                redrive.ended_ms,
                redrive.redriven,
                redrive.skipped if over else 0,
                redrive.failed if over else 0,
                redrive.reason if over else "",
                tuple((origin, *numbers) for origin, numbers in redrive.sequences.items()),
                tuple(redrive.batches.values()),
            )
        return LettersSnapshot(redrive_key(self.topic_id), self.last_number, self.purged, self.done_runs(), saved)

    def done_runs(self) -> tuple[tuple[int, Runs], ...]:
        return tuple(
            (partition, tuple((first, last) for first, last, _ in done))
            for partition, done in sorted(self.done.items())
        )

    @classmethod
    def restore(cls, saved: LettersSnapshot) -> Letters:
        letters = cls(saved.key.topic_id)
        letters.last_number = saved.last_number
        letters.purged = saved.purged
        for partition, runs in saved.done:
            letters.add_done(partition, runs)
        if saved.redrive is not None:
            redrive = letters.redrive = Redrive(saved.redrive.started)
            redrive.state = saved.redrive.state
            redrive.ended_ms = saved.redrive.ended_ms
            redrive.redriven = saved.redrive.redriven
            redrive.skipped = saved.redrive.skipped
            redrive.failed = saved.redrive.failed
            redrive.reason = saved.redrive.reason
            redrive.sequences = {origin: Numbers(epoch, next_) for origin, epoch, next_ in saved.redrive.sequences}
            redrive.batches = {batch.origin: batch for batch in saved.redrive.batches}
        return letters
