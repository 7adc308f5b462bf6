"""Where a state machine meets its log: records in, records replayed, answers when they are durable.

The catalog and the group shards are pure: they decide which records an input leads to and change
only by replaying records. This driver gives them a partition to live in. Its one rule is that every
answer waits until the log is durable up to its end at the moment of the answer, whether or not the
answer's own input wrote anything: it may rest on what an earlier one wrote.

The log of a state machine is short, because every so often the whole state is saved as a snapshot
that carries the offset it describes, and the log before that offset is dropped. Loading is the
snapshot and then the rest of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drmq.broker.logs import Snapshots
from drmq.broker.partition import Partition
from drmq.model import DrmqError, ErrorCode, Offset
from drmq.records import Record, decode_batch, encode_batch, iter_batches
from drmq.storage import Log

KeyValue = tuple[bytes, bytes | None]

SNAPSHOT_NAME = "state"
SNAPSHOT_AFTER_BYTES = 8 * 1024 * 1024
"""Log written since the last snapshot that makes a new one worth its write."""

_READ_SIZE = 1024 * 1024
_RECORDS_PER_BATCH = 1_000
_DECOMPRESSED_MAX = 1 << 30


class StateUnreadable(DrmqError):
    """The broker's own state cannot be read, so it must not start: it would take itself for a new one."""


class MachineLog:
    """The log of one state machine. `partition` is where it lives; nothing else appends there."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._snapshot_at_bytes = partition.log.size_bytes

    def append(self, records: Iterable[KeyValue], now_ms: int) -> None:
        """Queue records for the disk as one batch: all of them survive, or none."""
        batch = encode_batch(Record(Offset(index), now_ms, key, value) for index, (key, value) in enumerate(records))
        self.partition.append_own(batch)

    def when_durable(self, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once everything appended so far is durable; at once if it is already."""
        self.partition.when_durable(self.partition.next_offset, done)

    @property
    def wants_snapshot(self) -> bool:
        return self.partition.log.size_bytes - self._snapshot_at_bytes > SNAPSHOT_AFTER_BYTES

    def on_snapshot_saved(self) -> None:
        self._snapshot_at_bytes = self.partition.log.size_bytes


def load(log: Log, snapshots: Snapshots, replay: Callable[[bytes, bytes | None], None]) -> None:
    """Replay the newest snapshot and everything in the log after it. Blocks; used before the broker serves."""
    position = log.start_offset
    snapshots.remove_after(SNAPSHOT_NAME, log.end_offset)
    snapshot = snapshots.load_latest(SNAPSHOT_NAME, not_after=log.end_offset)
    if snapshot is not None:
        _replay_batches(snapshot.payload, replay, Offset(0))
        position = max(position, snapshot.offset)
    if log.start_offset > (0 if snapshot is None else snapshot.offset):
        raise StateUnreadable(
            f"{log.name} starts at {log.start_offset}, and no sound snapshot holds what was before; "
            "restore its *.snapshot files from a backup"
        )
    while position < log.flushed_offset:
        data = log.read(position, _READ_SIZE, log.flushed_offset)
        assert data, (log.name, position)
        position = _replay_batches(data, replay, position)


def encode_snapshot(records: Iterable[KeyValue]) -> bytes:
    """All of a machine's records as consecutive batches: the form that `load` reads back."""
    out = bytearray()
    chunk: list[Record] = []
    for key, value in records:
        chunk.append(Record(Offset(len(chunk)), 0, key, value))
        if len(chunk) == _RECORDS_PER_BATCH:
            out += encode_batch(chunk)
            chunk = []
    if chunk:
        out += encode_batch(chunk)
    return bytes(out)


def _replay_batches(
    data: bytes | bytearray | memoryview, replay: Callable[[bytes, bytes | None], None], start: Offset
) -> Offset:
    """Replay the records from `start` on, and return the offset behind the last batch."""
    view = memoryview(data)
    reached = start
    for position, header in iter_batches(view):
        for record in decode_batch(view[position : position + header.size], decompressed_size_max=_DECOMPRESSED_MAX):
            # A read that starts inside a batch returns the whole batch.
            if record.offset >= start:
                assert record.key is not None, (record.offset, "a state machine's record has a key")
                replay(record.key, record.value)
        reached = header.next_offset
    return reached
