"""Where logs come from: a data directory, or memory.

The broker asks this interface for logs and never builds a path or opens a file itself. All methods
block and run off the event loop, or before it serves.
"""

from __future__ import annotations

import secrets
import shutil
from typing import Protocol

from drmq.model import Offset, TopicId
from drmq.model.names import CLUSTER_METADATA
from drmq.records import Buffer
from drmq.storage import (
    OS_FILES,
    DataDirectory,
    Files,
    Log,
    LogCorrupt,
    LogOptions,
    MemoryLog,
    SegmentLog,
    Snapshot,
    SnapshotStore,
)


class Snapshots(Protocol):
    """Snapshots of what a log's records amount to; `storage.SnapshotStore` is the real one."""

    def save(self, prefix: str, offset: Offset, payload: Buffer) -> None: ...

    def load_latest(self, prefix: str, not_after: Offset | None = None) -> Snapshot | None: ...

    def offsets(self, prefix: str) -> list[Offset]: ...

    def remove_after(self, prefix: str, offset: Offset) -> None: ...


class LogStore(Protocol):
    """Creates, opens and removes the logs of partitions."""

    cluster_id: str
    location: str
    """What to call the place: the data directory's path, or a word for memory."""

    def has_log(self, topic: str, topic_id: TopicId, index: int) -> bool: ...

    def has_topics(self) -> bool:
        """Whether there is a log of any topic at all."""

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        """A new, empty log. It is on the disk before this returns."""

    def open_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        """The log that is there. One that should be there and is not held records: `LogCorrupt`."""

    def snapshots(self, topic: str, topic_id: TopicId, index: int) -> Snapshots: ...

    def remove_topic(self, topic: str, topic_id: TopicId) -> None:
        """Remove whatever is left of a topic."""

    def disk_bytes(self) -> tuple[int, int]:
        """Size of the file system and the space left on it; -1 where there is none."""

    def close(self) -> None: ...


class DiskLogs:
    """Logs in a data directory, which stays locked until `close`."""

    def __init__(self, directory: DataDirectory, files: Files = OS_FILES) -> None:
        self._directory = directory
        self._files = files
        self.cluster_id = directory.cluster_id
        self.location = directory.path
        directory.remove_deleted()

    def _path(self, topic: str, topic_id: TopicId, index: int) -> str:
        if topic == CLUSTER_METADATA:
            return self._directory.internal_path(topic, index)
        return self._directory.log_path(topic, topic_id, index)

    def has_log(self, topic: str, topic_id: TopicId, index: int) -> bool:
        return self._files.is_directory(self._path(topic, topic_id, index))

    def has_topics(self) -> bool:
        return bool(self._directory.scan())

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        return SegmentLog(self._path(topic, topic_id, index), options, self._files)

    def open_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        path = self._path(topic, topic_id, index)
        if not self._files.is_directory(path):
            raise LogCorrupt(path, 0, 0, "the directory of this partition is gone")
        return SegmentLog(path, options, self._files)

    def snapshots(self, topic: str, topic_id: TopicId, index: int) -> SnapshotStore:
        return SnapshotStore(self._path(topic, topic_id, index), self._files)

    def remove_topic(self, topic: str, topic_id: TopicId) -> None:
        self._directory.delete_topic(topic, topic_id)

    def disk_bytes(self) -> tuple[int, int]:
        usage = shutil.disk_usage(self._directory.path)
        return usage.total, usage.free

    def close(self) -> None:
        self._directory.close()


class MemoryLogs:
    """Logs in memory: for tests that need a broker and no disk. Everything is gone at the end."""

    def __init__(self) -> None:
        self.cluster_id = secrets.token_urlsafe(16)
        self.location = "memory"

    def has_log(self, topic: str, topic_id: TopicId, index: int) -> bool:
        return False

    def has_topics(self) -> bool:
        return False

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        return MemoryLog(f"{topic}-{index}", options)

    def open_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        raise LogCorrupt(topic, 0, 0, "memory keeps nothing over a restart")

    def snapshots(self, topic: str, topic_id: TopicId, index: int) -> Snapshots:
        return _NoSnapshots()

    def remove_topic(self, topic: str, topic_id: TopicId) -> None:
        return

    def disk_bytes(self) -> tuple[int, int]:
        return -1, -1

    def close(self) -> None:
        return


class _NoSnapshots:
    """Nothing in memory outlives the process, so there is nobody to load a snapshot."""

    def save(self, prefix: str, offset: Offset, payload: Buffer) -> None:
        return

    def load_latest(self, prefix: str, not_after: Offset | None = None) -> Snapshot | None:
        return None

    def offsets(self, prefix: str) -> list[Offset]:
        return []

    def remove_after(self, prefix: str, offset: Offset) -> None:
        return
