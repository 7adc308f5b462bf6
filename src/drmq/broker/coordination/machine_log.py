"""The log of one replicated state machine: records in, replayed at once, committed later.

A leader collects the records of one turn of the event loop (`add`) and appends them as one batch (`flush`). Each
record is replayed when it is added, so that the next request of the same turn already sees it. Between the first `add`
and the `flush` nothing else runs, so the log's answer cannot change: `add` asks beforehand whether the log would take
the batch, and refuses with nothing changed if it would not.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from drmq.broker.partitions.derived_state import KeyValue, MachineState
from drmq.broker.partitions.partition import OWN_BATCH_BYTES_MAX, Partition
from drmq.model import ApiError, ErrorCode, Offset
from drmq.records import Record, encode_batch

SNAPSHOT_AFTER_BYTES = 8 * 1024 * 1024
"""Log written since the last snapshot that makes a new one worth its write, if the state is not larger than this."""

_BATCH_OVERHEAD_BYTES = 128
_RECORD_OVERHEAD_BYTES = 32
"""More than the encoding adds to a batch and to each record."""


class MachineLog:
    """The log of one state machine. `partition` is where it lives; nothing else appends there."""

    def __init__(self, partition: Partition) -> None:
        assert isinstance(partition.state, MachineState), partition
        self.partition = partition
        self.state = partition.state
        self._snapshot_at_bytes = partition.log.size_bytes
        self._snapshot_bytes = 0
        self.is_saving = False
        """Whether a snapshot is being saved."""
        self._open: list[KeyValue] = []
        """Records that are replayed and not yet appended: between `add` and `flush`."""
        self._open_bytes = _BATCH_OVERHEAD_BYTES
        self.batch_count = self.record_count = 0
        """What this node has appended as leader."""

    @property
    def leads(self) -> bool:
        """Whether this node decides."""
        return self.partition.is_serving

    def add(self, records: Iterable[KeyValue], now_ms: int, replay: Callable[[], None] | None = None) -> None:
        """Replay records and put them into the batch of this turn, all or none. Raises `ApiError` with nothing changed.

        The caller must call `flush` before it returns to the event loop. `replay` replays the same records from the
        objects that they were encoded from; without it, they are decoded.
        """
        taken: list[KeyValue] = []
        size_bytes = 0
        for key, value in records:
            # Checked before the next record is encoded: a step that is too large must not be in memory as a whole.
            size_bytes += len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
            self.partition.check_own_size(size_bytes)
            taken.append((key, value))
        if self._open and self._open_bytes + size_bytes > OWN_BATCH_BYTES_MAX:
            self.flush(now_ms)
        self.partition.check_may_append(self._open_bytes + size_bytes)
        if replay is not None:
            replay()
        else:
            for key, value in taken:
                self.state.machine.replay(key, value)
        self._open += taken
        self._open_bytes += size_bytes

    def flush(self, now_ms: int) -> None:
        """Append what was added since the last flush as one batch."""
        if not self._open:
            return
        taken, self._open, self._open_bytes = self._open, [], _BATCH_OVERHEAD_BYTES
        batch = encode_batch(Record(Offset(index), now_ms, key, value) for index, (key, value) in enumerate(taken))
        try:
            appended = self.partition.append_own(batch)
        except ApiError as refusal:
            # `add` checked for this, so it is a bug. The machine says more than its log: it must be loaded again.
            self.state.discard(self.partition, OSError(errno.EAGAIN, f"the log refused a batch: {refusal}"))
            raise
        self.state.note_appended(appended.next_offset)
        self.batch_count += 1
        self.record_count += len(taken)

    def append(self, records: Iterable[KeyValue], now_ms: int) -> None:
        """Append records as a batch of their own, all or none, and replay them. Raises `ApiError`, nothing changed."""
        self.add(records, now_ms)
        self.flush(now_ms)

    def when_durable(self, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once everything appended so far is committed; at once if it is already."""
        self.partition.when_durable(self.partition.next_offset, done)

    @property
    def wants_snapshot(self) -> bool:
        """Whether as much was written as a snapshot takes. Then all of it on disk is a small multiple of the state.

        More often would write more than the log itself, less often would keep more log than state.
        """
        written = self.partition.log.size_bytes - self._snapshot_at_bytes
        return not self.is_saving and written > max(SNAPSHOT_AFTER_BYTES, self._snapshot_bytes)

    def on_snapshot_saved(self, size_bytes: int) -> None:
        self._snapshot_at_bytes = self.partition.log.size_bytes
        self._snapshot_bytes = size_bytes
