"""Where logs are stored: a data directory, or memory.

The broker gets logs through this interface and never builds a path or opens a file itself. All methods block and run
outside the event loop, or before the broker serves requests.
"""

from __future__ import annotations

import os
import secrets
import shutil
from typing import Protocol

from drmq.model import Offset, TopicId
from drmq.model.names import CLUSTER_METADATA
from drmq.records import Buffer
from drmq.storage import (
    NO_VOTE,
    OS_FILES,
    Ballot,
    DataDirectory,
    Files,
    IncomingFile,
    Journal,
    Ledger,
    LedgerBase,
    LedgerLike,
    LedgerMissing,
    Log,
    LogCorrupt,
    LogOptions,
    MemoryLedger,
    MemoryLog,
    SegmentLog,
    Snapshot,
    SnapshotStore,
    StorageError,
    holds_records,
    remove_log_files,
)
from drmq.storage.file_pool import OPEN_FILES_MAX, FilePool
from drmq.storage.files import remove_tree
from drmq.storage.journal import FILE_BYTES as JOURNAL_FILE_BYTES
from drmq.storage.recovery import segment_bases
from drmq.storage.writer import LOGS_PER_SYNC_MAX

NO_BALLOT = Ballot(0, NO_VOTE)


class Snapshots(Protocol):
    """Snapshots of the state derived from a log; `storage.SnapshotStore` is the real implementation."""

    def save(self, prefix: str, offset: Offset, payload: Buffer) -> None: ...

    def load_latest(self, prefix: str, not_after: Offset | None = None) -> Snapshot | None: ...

    def offsets(self, prefix: str) -> list[Offset]: ...

    def remove_after(self, prefix: str, offset: Offset) -> None: ...


class LogStore(Protocol):
    """Creates, opens and removes the logs of partitions."""

    location: str
    """The name of the store: the absolute path of the data directory, or a word for memory."""
    directory_id: str
    """A random id of this directory, so that an empty one can be told from the one that it replaces."""

    @property
    def journal(self) -> Journal | None:
        """The journal that makes small appends to the logs durable."""

    @property
    def logs_per_sync_max(self) -> int:
        """How many logs may be appended to before they are made durable."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the logs belong to; None as long as none has been created or joined."""

    @property
    def incarnation(self) -> int:
        """The incarnation of the node that this directory belongs to."""

    @property
    def starts(self) -> int:
        """How many times the directory has been opened, counted durably: an older copy has a lower count."""

    def identify(self, cluster_id: str, incarnation: int) -> None:
        """Durably record the cluster that this node belongs to, and its incarnation."""

    def require_feature_levels(self) -> None:
        """Durably mark the directory, so that releases from before feature levels do not use it any more."""

    def has_log(self, topic: str, topic_id: TopicId, index: int) -> bool: ...

    def was_used(self, topic: str, topic_id: TopicId, index: int) -> bool:
        """Whether a log and its ledger contain anything: a record, an entry, a vote. False if a crash came before they
        were completely created."""

    def has_topics(self) -> bool:
        """Whether there is a log of any topic."""

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        """Create an empty log. It is on the disk when this returns."""

    def open_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        """Open an existing log. Raises `LogCorrupt` if it is missing although it must exist."""

    def reset_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions, offset: Offset) -> Log:
        """Replace whatever is there with an empty log that begins at `offset`."""

    def create_ledger(self, topic: str, topic_id: TopicId, index: int, base: LedgerBase) -> LedgerLike:
        """Create a ledger beside a log. It is on the disk when this returns."""

    def open_ledger(self, topic: str, topic_id: TopicId, index: int) -> LedgerLike:
        """Open an existing ledger. Raises `LedgerMissing`, `LedgerCorrupt`."""

    def snapshots(self, topic: str, topic_id: TopicId, index: int) -> Snapshots: ...

    def incoming(self, topic: str, topic_id: TopicId, index: int) -> IncomingFile | None:
        """The file for the parts of a snapshot that is being received; None if nothing survives a restart."""

    def found(self) -> list[tuple[TopicId, int]]:
        """Every topic partition that has files here."""

    def remove_partition(self, topic: str, topic_id: TopicId, index: int) -> None:
        """Remove all files of a partition that was never used."""

    def set_aside(self, topic: str, topic_id: TopicId, index: int) -> str:
        """Move the files of a partition out of the way, and return their new location."""

    def remove_topic(self, topic: str, topic_id: TopicId) -> None:
        """Remove all remaining files of a topic."""

    def disk_bytes(self) -> tuple[int, int]:
        """The size of the file system and its free space; -1 if there is none."""

    def close(self) -> None: ...


class DiskLogs:
    """Logs in a data directory, which stays locked until `close`."""

    def __init__(
        self,
        directory: DataDirectory,
        files: Files = OS_FILES,
        journal_bytes: int = JOURNAL_FILE_BYTES,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        """Replay the journal after a crash; `journal_bytes` is the size of each of its two files.

        `open_files_max` is how many files all logs together keep open.
        """
        self._directory = directory
        self._files = files
        self.pool = FilePool(files, open_files_max)
        self.pool.known_directories.root = directory.path
        self.location = os.path.abspath(directory.path)
        self.directory_id = directory.directory_id
        directory.remove_deleted()
        self.journal = Journal(files, directory.path, directory.journal_secret, journal_bytes)
        self.journal.pinned_share = lambda: self.pool.pinned_share

    @property
    def logs_per_sync_max(self) -> int:
        return max(1, self.pool.open_files_max // 4)

    @property
    def cluster_id(self) -> str | None:
        return self._directory.cluster_id

    @property
    def incarnation(self) -> int:
        return self._directory.incarnation

    @property
    def starts(self) -> int:
        return self._directory.starts

    def identify(self, cluster_id: str, incarnation: int) -> None:
        self._directory.identify(cluster_id, incarnation)

    def require_feature_levels(self) -> None:
        self._directory.require_feature_levels()

    def _path(self, topic: str, topic_id: TopicId, index: int) -> str:
        if topic == CLUSTER_METADATA:
            return self._directory.internal_path(topic, index)
        return self._directory.log_path(topic, topic_id, index)

    def has_log(self, topic: str, topic_id: TopicId, index: int) -> bool:
        return self._files.is_directory(self._path(topic, topic_id, index))

    def was_used(self, topic: str, topic_id: TopicId, index: int) -> bool:
        path = self._path(topic, topic_id, index)
        try:
            ledger = Ledger.open(path, self._files, self.pool)
        except LedgerMissing:
            return holds_records(path, self._files)
        except StorageError:
            return True
        is_new = ledger.ballot == NO_BALLOT and not ledger.entries and ledger.base.index == 0
        ledger.close()
        return not is_new or holds_records(path, self._files)

    def has_topics(self) -> bool:
        return bool(self._directory.scan())

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        return SegmentLog(
            self._path(topic, topic_id, index), options, self._files, journal=self.journal, pool=self.pool
        )

    def open_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        path = self._path(topic, topic_id, index)
        if not self._files.is_directory(path):
            raise LogCorrupt(path, 0, 0, "the directory of this partition is gone")
        if not segment_bases(self._files, path):
            # A log always has a segment, possibly an empty one.
            raise LogCorrupt(path, 0, 0, "all segments are missing")
        return SegmentLog(path, options, self._files, journal=self.journal, pool=self.pool)

    def reset_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions, offset: Offset) -> Log:
        path = self._path(topic, topic_id, index)
        remove_log_files(path, self._files)
        return SegmentLog(path, options, self._files, offset, self.journal, self.pool)

    def create_ledger(self, topic: str, topic_id: TopicId, index: int, base: LedgerBase) -> LedgerLike:
        return Ledger.create(self._path(topic, topic_id, index), base, self._files, self.pool)

    def open_ledger(self, topic: str, topic_id: TopicId, index: int) -> LedgerLike:
        return Ledger.open(self._path(topic, topic_id, index), self._files, self.pool)

    def found(self) -> list[tuple[TopicId, int]]:
        return [(location.topic_id, location.partition) for location in self._directory.scan()]

    def snapshots(self, topic: str, topic_id: TopicId, index: int) -> SnapshotStore:
        return SnapshotStore(self._path(topic, topic_id, index), self._files, known=self.pool.known_directories)

    def incoming(self, topic: str, topic_id: TopicId, index: int) -> IncomingFile:
        return IncomingFile(self._path(topic, topic_id, index), self._files)

    def remove_partition(self, topic: str, topic_id: TopicId, index: int) -> None:
        remove_tree(self._files, self._path(topic, topic_id, index))

    def set_aside(self, topic: str, topic_id: TopicId, index: int) -> str:
        return self._directory.set_log_aside(topic, topic_id, index)

    def remove_topic(self, topic: str, topic_id: TopicId) -> None:
        self._directory.delete_topic(topic, topic_id)

    def disk_bytes(self) -> tuple[int, int]:
        usage = shutil.disk_usage(self._directory.path)
        return usage.total, usage.free

    def close(self) -> None:
        self.journal.close()
        self._directory.close()


class MemoryLogs:
    """Logs in memory, for tests that need a broker and no disk. Everything is lost at the end."""

    def __init__(self) -> None:
        self.location = "memory"
        self.journal: Journal | None = None
        self.logs_per_sync_max = LOGS_PER_SYNC_MAX
        self.directory_id = secrets.token_hex(16)
        self.cluster_id: str | None = None
        self.incarnation = 0
        self.starts = 1
        self._snapshots: dict[tuple[TopicId, int], MemorySnapshots] = {}

    def has_log(self, topic: str, topic_id: TopicId, index: int) -> bool:
        return False

    def was_used(self, topic: str, topic_id: TopicId, index: int) -> bool:
        return False

    def has_topics(self) -> bool:
        return False

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        return MemoryLog(f"{topic}-{index}", options)

    def open_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        raise LogCorrupt(topic, 0, 0, "memory keeps nothing over a restart")

    def reset_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions, offset: Offset) -> Log:
        raise LogCorrupt(topic, 0, 0, "memory keeps nothing over a restart")

    def create_ledger(self, topic: str, topic_id: TopicId, index: int, base: LedgerBase) -> LedgerLike:
        return MemoryLedger(base)

    def open_ledger(self, topic: str, topic_id: TopicId, index: int) -> LedgerLike:
        raise LogCorrupt(topic, 0, 0, "memory keeps nothing over a restart")

    def snapshots(self, topic: str, topic_id: TopicId, index: int) -> Snapshots:
        return self._snapshots.setdefault((topic_id, index), MemorySnapshots())

    def incoming(self, topic: str, topic_id: TopicId, index: int) -> None:
        return None

    def found(self) -> list[tuple[TopicId, int]]:
        return []

    def remove_partition(self, topic: str, topic_id: TopicId, index: int) -> None:
        return

    def set_aside(self, topic: str, topic_id: TopicId, index: int) -> str:
        return self.location

    def identify(self, cluster_id: str, incarnation: int) -> None:
        self.cluster_id, self.incarnation = cluster_id, incarnation

    def require_feature_levels(self) -> None:
        return

    def remove_topic(self, topic: str, topic_id: TopicId) -> None:
        for key in [key for key in self._snapshots if key[0] == topic_id]:
            del self._snapshots[key]

    def disk_bytes(self) -> tuple[int, int]:
        return -1, -1

    def close(self) -> None:
        return


class MemorySnapshots:
    """Snapshots that are lost with the process; implements `Snapshots`."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[Offset, bytes]] = {}

    def save(self, prefix: str, offset: Offset, payload: Buffer) -> None:
        kept = self._kept.setdefault(prefix, {})
        kept[offset] = bytes(payload)
        for old in sorted(kept)[:-2]:
            del kept[old]

    def load_latest(self, prefix: str, not_after: Offset | None = None) -> Snapshot | None:
        for offset in reversed(self.offsets(prefix)):
            if not_after is None or offset <= not_after:
                return Snapshot(offset, self._kept[prefix][offset])
        return None

    def offsets(self, prefix: str) -> list[Offset]:
        return sorted(self._kept.get(prefix, ()))

    def remove_after(self, prefix: str, offset: Offset) -> None:
        for found in self.offsets(prefix):
            if found > offset:
                del self._kept[prefix][found]
