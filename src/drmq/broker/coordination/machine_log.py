"""Where a state machine meets its log: records in, records replayed, answers when they are committed.

The catalog and the group shards are pure: they decide which records an input leads to and change
only by replaying records. This driver gives them a partition to live in. Its one rule is that every
answer waits until the log is committed up to its end at the moment of the answer, whether or not the
answer's own input wrote anything: it may rest on what an earlier one wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drmq.broker.partitions.derived_state import KeyValue, MachineState
from drmq.broker.partitions.partition import Partition
from drmq.model import ErrorCode, Offset
from drmq.records import Record, encode_batch

SNAPSHOT_AFTER_BYTES = 8 * 1024 * 1024
"""Log written since the last snapshot that makes a new one worth its write."""


class MachineLog:
    """The log of one state machine. `partition` is where it lives; nothing else appends there."""

    def __init__(self, partition: Partition) -> None:
        assert isinstance(partition.state, MachineState), partition
        self.partition = partition
        self.state = partition.state
        self._snapshot_at_bytes = partition.log.size_bytes

    @property
    def leads(self) -> bool:
        """Whether this node decides."""
        return self.partition.is_serving

    def append(self, records: Iterable[KeyValue], now_ms: int) -> None:
        """Propose records as one batch, all or none, and replay them. Raises `ApiError` with nothing changed."""
        taken: list[KeyValue] = []
        size_bytes = 0
        for key, value in records:
            # Asked before the next record is made: what is too large must not be in memory as a whole to be refused.
            size_bytes += len(key) + len(value or b"")
            self.partition.check_own_size(size_bytes)
            taken.append((key, value))
        batch = encode_batch(Record(Offset(index), now_ms, key, value) for index, (key, value) in enumerate(taken))
        appended = self.partition.append_own(batch)
        for key, value in taken:
            self.state.machine.replay(key, value)
        self.state.note_appended(appended.next_offset)

    def when_durable(self, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once everything appended so far is committed; at once if it is already."""
        self.partition.when_durable(self.partition.next_offset, done)

    @property
    def wants_snapshot(self) -> bool:
        return self.partition.log.size_bytes - self._snapshot_at_bytes > SNAPSHOT_AFTER_BYTES

    def on_snapshot_saved(self) -> None:
        self._snapshot_at_bytes = self.partition.log.size_bytes
