"""Some logs that share a journal, written as the writer does it, and what was promised of them."""

from __future__ import annotations

from drmq.model import Offset
from drmq.storage import Journal, LogOptions, SegmentLog
from drmq.storage.files import make_directories
from drmq.storage.journal import PAGE_BYTES
from drmq.storage.log import Log
from drmq.testing.files import FakeFiles
from support.storage_samples import Batch, joined, read_all, row

ROOT = "/data"
SECRET = "secret"
FILE_BYTES = 6 * PAGE_BYTES
OPTIONS = LogOptions(segment_bytes=2048, index_interval_bytes=128)


class JournaledLogs:
    """Some logs with a journal, and what has been promised of them."""

    def __init__(self, files: FakeFiles, file_bytes: int = FILE_BYTES) -> None:
        self.files = files
        self.file_bytes = file_bytes
        make_directories(files, ROOT)
        self.journal = Journal(files, ROOT, SECRET, file_bytes)
        self.logs: dict[str, SegmentLog] = {}
        self.appended: dict[str, list[Batch]] = {}
        self.flushed: dict[str, int] = {}
        self.cut_maybe: dict[str, int] = {}
        """What a step that has begun may have taken away."""
        self.syncing: list[Log] = []
        self.seed = 0

    def open(self, *names: str) -> None:
        for name in names:
            self.logs[name] = SegmentLog(f"{ROOT}/{name}", OPTIONS, self.files, journal=self.journal)
            self.appended.setdefault(name, [])
            self.flushed.setdefault(name, 0)

    def append(self, name: str, count: int, size: int = 60) -> None:
        log = self.logs[name]
        self.seed += 1
        batches = row(log.end_offset, count, size=size, seed=self.seed)
        self.appended[name] += batches
        log.append(batches)

    def take(self, *names: str) -> bool:
        """As the writer does it: all in one, or one by one; then some of what is due, which ends the next time."""
        logs: list[Log] = [self.logs[name] for name in names]
        for log in self.syncing:
            log.end_sync()
        self.syncing = []
        taken = self.journal.take(logs)
        if not taken:
            for log in logs:
                log.sync()
        for name in names:
            self.flushed[name] = self.logs[name].flushed_offset
        for log in self.journal.due(1):
            sync = log.begin_sync()
            if sync is not None:
                sync.run()
                self.syncing.append(log)
        self.lengthen()
        return taken

    def lengthen(self) -> None:
        lengthen = self.journal.begin_lengthening()
        if lengthen is not None:
            lengthen()

    def truncate(self, name: str, offset: int) -> None:
        self.cut_maybe[name] = offset
        self.logs[name].truncate_suffix(Offset(offset))
        del self.cut_maybe[name]
        end = self.logs[name].end_offset
        self.appended[name] = [one for one in self.appended[name] if one[0].next_offset <= end]
        self.flushed[name] = min(self.flushed[name], self.logs[name].flushed_offset)

    def recreate(self, name: str) -> None:
        self.cut_maybe[name] = 0
        self.logs[name].delete()
        self.appended[name], self.flushed[name] = [], 0
        self.open(name)
        del self.cut_maybe[name]

    def reset(self, name: str, offset: int) -> None:
        self.cut_maybe[name] = 0
        self.logs[name].reset(Offset(offset))
        self.appended[name], self.flushed[name] = [], offset
        del self.cut_maybe[name]

    def close(self) -> None:
        for name, log in self.logs.items():
            log.close()
            self.flushed[name] = log.flushed_offset
        self.journal.close()

    def check(self, disk: FakeFiles) -> None:
        """After a crash: each log has what was promised, and nothing else than what was appended last."""
        journal = Journal(disk, ROOT, SECRET, self.file_bytes)
        for name in self.logs:
            if not disk.is_directory(f"{ROOT}/{name}"):
                assert name in self.cut_maybe or self.flushed[name] == 0, name
                continue
            if name in self.cut_maybe and self.cut_maybe[name] == 0:
                continue  # in the middle of being given up: whoever asked for that repeats it
            log = SegmentLog(f"{ROOT}/{name}", OPTIONS, disk, journal=journal)
            floor = min(self.flushed[name], self.cut_maybe.get(name, self.flushed[name]))
            assert log.end_offset >= floor, f"{name}: acknowledged up to {floor}, found {log.end_offset}"
            kept = [one for one in self.appended[name] if log.start_offset < one[0].next_offset <= log.end_offset]
            assert read_all(log) == joined(kept), name
