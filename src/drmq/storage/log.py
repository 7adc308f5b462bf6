"""The interface of a log as the broker sees it, and the values that cross it.

A log is a sequence of record batches with dense offsets. It knows nothing about topics, leaders or clients. Three
offsets describe it, always in this order:

    start_offset <= flushed_offset <= end_offset        (readers stay below flushed_offset)

`SegmentLog` keeps a log on disk, `MemoryLog` in memory; both pass `tests/unit/storage/test_log_contract.py`.

Threads. One thread changes a log (the `Writer`'s): `append`, `flush`, `sync`, `begin_sync`, `end_sync`, `on_journaled`,
`truncate_suffix`, `drop_prefix`, `maybe_roll`, `retention_start`, `close`, `delete`. Any thread may read it at any
time: the properties, `read`, `batch_at_time`, `headers`, `epoch_at`, `end_of_epoch`. There are no locks, because the
data that readers see only grows or is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from drmq.model import LeaderEpoch, Offset
from drmq.records import BatchHeader, Buffer
from drmq.storage.epochs import EpochStart
from drmq.storage.files import BackgroundSync

SEGMENT_BYTES_MAX = 1 << 31


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is divided into segments. Replace `log.options` to change it while the log is in use."""

    segment_bytes: int = 128 << 20
    """A segment is sealed before it would grow beyond this (bytes; default 128 MiB).

    Larger: fewer files, but retention frees space in larger steps, and after a crash up to an eighth of this is read
    again. Smaller: more files, and a sync of the directory for each.
    """

    segment_ms: int = 7 * 24 * 3600 * 1000
    """A segment is sealed when its first record is this old (milliseconds; default 7 days).

    Retention removes whole segments, and first seals the one in use if all its records are too old. Smaller values let
    time-based retention work in smaller steps.
    """

    index_interval_bytes: int = 4096
    """One index entry for about this many bytes of log (bytes; default 4096).

    A lookup walks at most this much. Smaller: 16 more bytes of memory and disk per entry.
    Takes effect with the next segment.
    """

    def __post_init__(self) -> None:
        if not 1024 <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment_bytes must be within 1024..{SEGMENT_BYTES_MAX}, not {self.segment_bytes}")
        if self.segment_ms < 1:
            raise ValueError(f"segment_ms must be positive, not {self.segment_ms}")
        if not 64 <= self.index_interval_bytes <= 1 << 20:
            raise ValueError(f"index_interval_bytes must be within 64..1048576, not {self.index_interval_bytes}")


class StoredBatch(NamedTuple):
    """A batch as stored in the log."""

    header: BatchHeader
    data: Buffer


class LatestTime(NamedTuple):
    """The largest timestamp in a log, and where the batch that holds it begins; both -1 if there is none."""

    timestamp: int
    base_offset: Offset


class Unflushed(NamedTuple):
    """The batches that a log has appended and not made durable yet. All of them are in one segment."""

    segment: Offset
    """The base offset of that segment."""
    position: int
    end_offset: Offset
    buffers: Sequence[Buffer]
    size_bytes: int


class Log(Protocol):
    """A sequence of record batches. The module docstring says which thread may call which method."""

    options: LogOptions

    @property
    def name(self) -> str:
        """The name of this log in messages: its directory, or any name for a log in memory."""

    @property
    def start_offset(self) -> Offset:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> Offset:
        """The offset of the next batch."""

    @property
    def flushed_offset(self) -> Offset:
        """Everything below this survives a power cut. Readers stay below it."""

    @property
    def size_bytes(self) -> int:
        """The size of all batches in bytes."""

    @property
    def segment_count(self) -> int:
        """The number of segments."""

    @property
    def is_fenced(self) -> bool:
        """Whether a failed sync has ended appending until the log is reopened."""

    @property
    def epochs(self) -> Sequence[EpochStart]:
        """Each leader epoch in the log with its first offset, in order. The first use may read index files."""

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch of the batch at `offset`; -1 if that is not in the log. The first use may read files."""

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochStart:
        """The largest known epoch <= `epoch`, and the offset at which it ends, as OffsetForLeaderEpoch answers.

        Older than all known: (`epoch`, start of the first known). No epoch known: (-1, -1).
        """

    def latest_time(self, up_to: Offset | None = None) -> LatestTime:
        """The largest record timestamp, below `up_to` if given, and the first batch that has it. May read files."""

    def append(self, batches: Sequence[tuple[BatchHeader, Buffer]]) -> None:
        """Write stamped batches, the first at `end_offset` and each one at the end of the one before.

        Of a header, only base offset, length, leader epoch, last offset delta and largest timestamp are used. Each must
        be the same as in the bytes, which must not change any more. Blocks. Raises `AppendFailed` (`DiskFull`): nothing
        at or after the resulting `end_offset` is in the log, which stays usable. Raises `LogFenced`, `LogClosed`.
        """

    def flush(self) -> None:
        """Make everything that was appended durable and move `flushed_offset` to `end_offset`.

        If that fails, the log is fenced; `LogFenced` explains why there is no retry.
        """

    @property
    def synced_offset(self) -> Offset:
        """Everything below is durable in the log's own files; from here to `flushed_offset` it is in the journal."""

    @property
    def unsynced_bytes(self) -> int:
        """The size of the flushed batches that are in the journal and not yet synced in the log's own files."""

    def sync(self) -> None:
        """Like `flush`, but in the log's own files: moves `synced_offset` and `flushed_offset` to `end_offset`."""

    def begin_sync(self) -> BackgroundSync | None:
        """Prepare a sync of the log's own files up to `flushed_offset`; None if there is nothing to sync.

        The result may be run on any thread while the log is appended to.
        """

    def end_sync(self) -> None:
        """Wait for the sync that was begun, if any: move `synced_offset`, or raise like `sync`."""

    def unflushed(self) -> Unflushed:
        """The batches that `flush` would make durable, for a journal that does it instead."""

    def on_journaled(self, unflushed: Unflushed) -> None:
        """Move `flushed_offset`, because a journal has made these batches durable."""

    def read(self, offset: Offset, max_bytes: int, up_to: Offset, cached_only: bool = False) -> Buffer | None:
        """Whole batches from the one that contains `offset`, as stored, in about `max_bytes`.

        The first batch is returned whole even if it is larger. Nothing at or after `up_to` is returned, which is a
        batch boundary at or below `flushed_offset`. Empty if `offset >= up_to`. One call returns bytes of one segment,
        so there may be more to read even if `max_bytes` is not reached. With `cached_only` the call never waits for a
        disk, and returns None if it would have to: call again without it, on a thread that may block. Raises
        `OffsetOutOfRange`, `LogCorrupt`.
        """

    def batch_at_time(self, timestamp: int, up_to: Offset, start: Offset | None = None) -> StoredBatch | None:
        """The first batch from the one with `start` to `up_to` whose largest timestamp is at least `timestamp`."""

    def headers(self, start: Offset, end: Offset) -> Iterator[tuple[BatchHeader, int]]:
        """The header of each batch from the one containing `start` to the last below `end`, with its size."""

    def truncate_suffix(self, offset: Offset) -> None:
        """Durably remove every batch with a base offset of `offset` or more."""

    def drop_prefix(self, offset: Offset) -> None:
        """Durably move `start_offset` up to `offset`, and free what lies wholly below."""

    def maybe_roll(self, now_ms: int) -> bool:
        """Seal the active segment if its first record is older than `segment_ms`."""

    def roll(self) -> None:
        """Seal the active segment and begin another, unless it is empty."""

    def reset(self, offset: Offset) -> None:
        """Remove everything and start at `offset`, to install another replica's snapshot.

        Not atomic: the caller has durably recorded that this is in progress, and repeats it after a crash.
        """

    def retention_start(
        self, now_ms: int, retention_ms: int = -1, retention_bytes: int = -1, keep_from: Offset | None = None
    ) -> Offset:
        """The start offset, for `drop_prefix`, without segments that are too old or exceed the size, oldest first.

        A segment is too old if its newest record is older than `retention_ms`. It exceeds the size if the remaining
        segments still hold `retention_bytes`. -1 means no limit. Nothing at or after `keep_from` (the high watermark;
        default `flushed_offset`) is removed. This call may seal the active segment.
        """

    def close(self, clean: bool = True) -> None:
        """Flush and close all files. After a clean close the next opening need not walk the log."""

    def delete(self) -> None:
        """Remove the log and free what it used."""
