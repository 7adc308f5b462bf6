"""Storage: record batches on disk, so that acknowledged records survive any crash.

**The problem.** Here a queue keeps or breaks its promise: an acknowledged record must survive the loss of power, and a
read must never return anything but what was written. Disks fail in known ways: a write is not durable until it is
synced, the name of a new file not until its directory is synced, a failed sync cannot be repeated, and old bytes decay.

**The idea.** A log (`log`) is a sequence of batches. On disk (`segment_log`) it is a sequence of append-only files
(`segment`) with sparse indexes (`index`), which are hints: the files alone are authoritative. One thread (`writer`)
makes every change and syncs once for everything that is waiting. Small appends to many logs become durable through one
file that these logs share (`journal`). Any thread may read below `flushed_offset`, without locks. All file operations
go through `Files` (`files`), so that a test can cut the power at any step (`drmq.testing.FakeFiles`). State that a
replica must not lose beside its batches, above all its vote, is in a small file of its own (`ledger`).

**How it is used.**

    directory = DataDirectory(path, node_id)            # lock, identity, paths; DirectoryRefused
    directory.remove_deleted()
    log = SegmentLog(directory.log_path("orders", topic_id, 0), LogOptions(...))     # LogCorrupt
    log = MemoryLog("orders-0")                         # the same in memory

    class Events:                                       # called on the writer thread: pass on and return
        def on_written(self, results): ...              # [(log, end_offset)], only if wants_written
        def on_flushed(self, results): ...              # [(log, flushed_offset)]
        def on_failed(self, log, error, end_offset): ...
        def on_crashed(self, error): ...

    writer = Writer(Events()); writer.start()
    writer.submit(log, header, batch, wants_written=acks == 1)      # stamped: base offset and epoch
    writer.run(log, lambda: log.drop_prefix(log.retention_start(now_ms, retention_ms)))  # -> Future
    writer.queued_bytes                                 # pause the sources past a limit
    writer.resume(log)                                  # after on_failed, back at end_offset
    writer.stop()                                       # drains; then log.close(clean=True) each

    log.read(offset, max_bytes, up_to, cached_only=True)    # bytes; None: not cached, call without
                                                            # cached_only on a thread; OffsetOutOfRange
    log.batch_at_time(timestamp, up_to)                 # StoredBatch(header, data) | None
    log.latest_time()                                   # LatestTime(timestamp, base_offset)
    log.headers(start, end)                             # (header, size in bytes) each
    log.epochs, log.end_of_epoch(epoch)                 # EpochStart(epoch, offset)
    log.epoch_at(offset)                                # the leader epoch of the batch there
    log.start_offset, log.flushed_offset, log.end_offset, log.size_bytes, log.segment_count, log.is_fenced
    log.truncate_suffix(offset), log.drop_prefix(offset), log.roll(), log.maybe_roll(now_ms)
    log.flush(), log.close(clean), log.delete()         # writer thread, or when there is none

    ledger = Ledger.open(log_directory)                 # LedgerMissing, LedgerCorrupt; Ledger.create(.., base)
    ledger.base, ledger.ballot, ledger.entries, ledger.commit
    ledger.save_ballot(Ballot(term, vote))              # durable when it returns, as all of these are:
    ledger.append([OwnEntry(index, term, kind, offset, payload)]), ledger.truncate(from_index)
    ledger.rebase(base), ledger.reset(base, ballot)     # LogFenced after a failure; DiskFull and goes on
    ledger.note_commit(index)                           # but not this

    snapshots = SnapshotStore(log_directory)
    snapshots.save("producers", offset, payload)        # durable when it returns; keeps two
    snapshots.load_latest("producers", not_after)       # Snapshot(offset, payload) | None

    incoming = IncomingFile(log_directory)              # a snapshot that is being received
    incoming.load()                                     # Incoming(description, data) | None
    incoming.keep(description, position, part)          # durable when it returns; OSError: no longer kept
    incoming.remove()

**Always true.**

- `start_offset <= flushed_offset <= end_offset`; nothing below `flushed_offset` can be lost in a crash.
- Offsets in a log are dense; a batch never changes its offset or its bytes.
- After a failed write nothing of it remains; after a failed sync the log accepts no more appends.
- A torn tail is cut off; a bad batch below the flushed offset is `LogCorrupt` and changes nothing.
- Nothing is removed except by a decision that was made durable before.

**What is not here.** Compaction by key and tiering will work on sealed segments. The broker decides when to apply
retention and how much memory the queue may take; `kafka` turns errors into codes. The records inside a batch are never
read.

**What that costs.** After a power cut the `flushed` file may be some seconds old. Damage to batches that were
acknowledged in these last seconds looks like a torn tail, and is cut off; if intact batches follow it, they are kept in
a `.cut` file and reported. The leader epoch of a batch is not covered by its checksum.
"""

from drmq.storage.directory import DataDirectory, LogLocation, check_name
from drmq.storage.epochs import EpochStart, EpochTable
from drmq.storage.errors import (
    AppendFailed,
    DirectoryLocked,
    DirectoryMismatch,
    DirectoryRefused,
    DirectoryTooNew,
    DirectoryUnreadable,
    DiskFull,
    FormatTooNew,
    InvalidName,
    LogClosed,
    LogCorrupt,
    LogFenced,
    OffsetOutOfRange,
    StorageError,
    WriterStopped,
)
from drmq.storage.files import OS_FILES, Files, FileStatus, OsFiles
from drmq.storage.incoming import Incoming, IncomingFile
from drmq.storage.journal import Journal
from drmq.storage.ledger import Ledger
from drmq.storage.ledger_format import NO_VOTE, Ballot, LedgerBase, LedgerCorrupt, LedgerMissing, OwnEntry
from drmq.storage.log import LatestTime, Log, LogOptions, StoredBatch, Unflushed
from drmq.storage.memory_ledger import LedgerLike, MemoryLedger
from drmq.storage.memory_log import MemoryLog
from drmq.storage.recovery import Recovery, holds_records, remove_log_files
from drmq.storage.segment_log import SegmentLog
from drmq.storage.snapshots import Snapshot, SnapshotStore
from drmq.storage.writer import Writer, WriterEvents

__all__ = [
    "NO_VOTE",
    "OS_FILES",
    "AppendFailed",
    "Ballot",
    "DataDirectory",
    "DirectoryLocked",
    "DirectoryMismatch",
    "DirectoryRefused",
    "DirectoryTooNew",
    "DirectoryUnreadable",
    "DiskFull",
    "EpochStart",
    "EpochTable",
    "FileStatus",
    "Files",
    "FormatTooNew",
    "Incoming",
    "IncomingFile",
    "InvalidName",
    "Journal",
    "LatestTime",
    "Ledger",
    "LedgerBase",
    "LedgerCorrupt",
    "LedgerLike",
    "LedgerMissing",
    "Log",
    "LogClosed",
    "LogCorrupt",
    "LogFenced",
    "LogLocation",
    "LogOptions",
    "MemoryLedger",
    "MemoryLog",
    "OffsetOutOfRange",
    "OsFiles",
    "OwnEntry",
    "Recovery",
    "SegmentLog",
    "Snapshot",
    "SnapshotStore",
    "StorageError",
    "StoredBatch",
    "Unflushed",
    "Writer",
    "WriterEvents",
    "WriterStopped",
    "check_name",
    "holds_records",
    "remove_log_files",
]
