"""Planted bugs: each is put into a copy of storage, and some test must notice.

Tests that never fail prove nothing. Run this when storage or its tests change:

    python tests/unit/storage/planted_bugs.py            # all, about six minutes
    python tests/unit/storage/planted_bugs.py truncate   # those whose name contains a word

What a planted bug is, and how it finds its place: `tests/support/planted_bugs.py`. Those of the journal and of the
ledger are in `journal_bugs.py` and `ledger_bugs.py` beside it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# The tests are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.journal_bugs import JOURNAL_BUGS
from support.ledger_bugs import LEDGER_BUGS
from support.planted_bugs import PlantedBug, chosen, try_in_copy

# Fast ones first: the run of a bug ends with the first failure.
LOG_TESTS = (
    "test_index test_recovery test_file_pool test_damage test_writer test_snapshots test_directory test_log_contract"
    " test_crash test_log_model test_segment_log"
)
LEDGER_TESTS = "test_ledger_damage test_ledger_crash test_ledger"
"""Nothing else in storage uses the ledger."""
JOURNAL_TESTS = "test_lives test_journal test_journal_room test_crash"


@dataclass(frozen=True)
class StorageBug:
    """A planted bug, and the tests that may notice it, by the names of their files."""

    bug: PlantedBug
    tests: str


LOG_BUGS = [
    PlantedBug(
        "ack before fsync",
        symbol="SegmentLog.sync",
        right="self._files.sync(file.handle)",
        wrong="pass",
    ),
    PlantedBug(
        "no directory fsync at roll",
        symbol="SegmentLog.roll",
        right="self._files.sync_directory(self._directory)",
        wrong="pass",
    ),
    PlantedBug(
        "no directory fsync at create",
        symbol="recovery:_create",
        right="files.sync_directory(directory)",
        wrong="",
    ),
    PlantedBug(
        "no sync of ancestors",
        symbol="recovery:_create",
        right="sync_ancestors(files, directory, pool.known_directories)",
        wrong="pass",
    ),
    PlantedBug(
        "mkdir without parent sync + no ancestors",
        symbol="make_directories",
        right='files.sync_directory(os.path.dirname(directory) or ".")',
        wrong="pass",
    ),
    PlantedBug(
        "corrupt middle treated as tail",
        symbol="_open_tail",
        right="if tail.end_offset < promised:",
        wrong="if False:",
    ),
    PlantedBug(
        "CRC not checked on read",
        symbol="Segment._checked_bytes",
        right="check(data, position, offset)",
        wrong="pass",
    ),
    PlantedBug(
        "cached bytes trusted unchecked",
        symbol="Segment._checked_bytes",
        right="return data if self._checked.covers(position, min(end, self.trusted_from)) else None",
        wrong="return data",
    ),
    PlantedBug(
        "index trusted unchecked: header crc",
        symbol="decode_header",
        right="""
            if crc32c(memoryview(data)[: _HEADER.size]) != checksum:
                return None
        """,
        wrong="",
    ),
    PlantedBug(
        "index trusted unchecked: body crc",
        symbol="decode_body",
        right="or crc32c(body) != header.body_crc",
        wrong="",
    ),
    PlantedBug(
        "index trusted though it does not fit",
        symbol="Segment.load_index_file",
        right="if header is None or not self._fits(header.summary):",
        wrong="if header is None:",
    ),
    PlantedBug(
        "retention deletes the active segment",
        symbol="start_to_keep",
        right="and segment is not active",
        wrong="",
    ),
    PlantedBug(
        "retention beyond keep_from",
        symbol="start_to_keep",
        right="if segment.end_offset > keep_from or segment.size_bytes == 0:",
        wrong="if segment.size_bytes == 0:",
    ),
    PlantedBug(
        "replace without fsync",
        symbol="replace_file",
        right="files.sync(handle)",
        wrong="",
    ),
    PlantedBug(
        "replace without directory fsync",
        symbol="replace_file",
        right='files.sync_directory(os.path.dirname(path) or ".")',
        wrong="pass",
    ),
    PlantedBug(
        "clean mark stays",
        symbol="SegmentLog._before_change",
        right="if self._is_marked_clean:",
        wrong="if False:",
    ),
    PlantedBug(
        "clean mark taken back without sync",
        symbol="SegmentLog._before_change",
        right="self._flushed_file.sync(written)",
        wrong="pass",
    ),
    PlantedBug(
        "partial write not cut",
        symbol="SegmentLog._append_run",
        right="self._cut_partial(segment, first_position)",
        wrong="",
    ),
    PlantedBug(
        "failed sync not fenced",
        symbol="SegmentLog._fence",
        right="self._fenced = reason",
        wrong="",
    ),
    PlantedBug(
        "truncate leaves flushed file",
        symbol="SegmentLog.truncate_suffix",
        right="""
            written = self._flushed_file.write(lowered)
            self._flushed_file.sync(written)
        """,
        wrong="",
    ),
    PlantedBug(
        "truncate lowers flushed file without sync",
        symbol="SegmentLog.truncate_suffix",
        right="self._flushed_file.sync(written)",
        wrong="",
    ),
    PlantedBug(
        "truncate removes forward",
        symbol="SegmentLog.truncate_suffix",
        right="in reversed(view.segments[at + 1 :])",
        wrong="in (view.segments[at + 1 :])",
    ),
    PlantedBug(
        "truncate unlinks without directory sync",
        symbol="SegmentLog.truncate_suffix",
        right="""
            later.remove_files()
            self._files.sync_directory(self._directory)
        """,
        wrong="later.remove_files()",
    ),
    PlantedBug(
        "truncate without final sync",
        symbol="SegmentLog.truncate_suffix",
        right="self._files.sync(file.handle)",
        wrong="",
    ),
    PlantedBug(
        "truncate keeps stale index",
        symbol="SegmentLog.truncate_suffix",
        right="cut.remove_index()",
        wrong="",
    ),
    PlantedBug(
        "drop without durable start",
        symbol="SegmentLog._record_start",
        right='write_start(self._files, f"{self._directory}/{START_NAME}", offset)',
        wrong="pass",
    ),
    PlantedBug(
        "recovery does not sync the file",
        symbol="_settle",
        right="files.sync(handle)",
        wrong="pass",
    ),
    PlantedBug(
        "recovery takes all that it finds for synced",
        symbol="_settle",
        right="""
            if found != flushed:
                # Otherwise this is what was synced before the `flushed` file was written.
                files.sync(handle)
        """,
        wrong="pass",
    ),
    PlantedBug(
        "recovery does not sync the directory",
        symbol="_settle",
        right="files.sync_directory(directory)",
        wrong="",
    ),
    PlantedBug(
        "walk accepts any offset",
        symbol="walk",
        right="or header.base_offset != offset",
        wrong="",
    ),
    PlantedBug(
        "walk does not check crc",
        symbol="walk",
        right="if crc32c(chunk[at + _CRC_START : at + size]) != header.crc:",
        wrong="if False:",
    ),
    PlantedBug(
        "check accepts gaps",
        symbol="check",
        right="or base != expected",
        wrong="",
    ),
    PlantedBug(
        "roll without flush",
        symbol="SegmentLog.roll",
        right="self.sync()",
        wrong="",
    ),
    PlantedBug(
        "flushed file before sync",
        symbol="SegmentLog.sync",
        right="size_bytes = segment.size_bytes",
        wrong="""
            size_bytes = segment.size_bytes
            self._flushed_file.write(Flushed(False, end_offset, segment.base_offset, size_bytes))
        """,
    ),
    PlantedBug(
        "checkpoint: trusted beyond the flushed position",
        symbol="Segment.from_checkpoint",
        right="entry = bisect_left(index.positions, flushed_bytes) - 1",
        wrong="entry = len(index) - 1",
    ),
    PlantedBug(
        "checkpoint: covers what is not synced",
        symbol="Segment.save_checkpoint",
        right="synced = self.cut(self.synced_bytes, synced_offset)",
        wrong="synced = self.cut(self.size_bytes, self.end_offset)",
    ),
    PlantedBug(
        "checkpoint: bytes before it are trusted",
        symbol="Segment.cut",
        right="result.trusted_from = min(self.trusted_from, position)",
        wrong="result.trusted_from = 0",
    ),
    PlantedBug(
        "checkpoint: believed though the log does not continue there",
        symbol="_open_tail",
        right="if part is not None and part.end_offset >= promised:",
        wrong="if part is not None:",
    ),
    PlantedBug(
        "checkpoint: the index of an earlier segment stays",
        symbol="Segment.create",
        right="self.remove_index()",
        wrong="",
    ),
    PlantedBug(
        "a file with unsynced bytes is closed",
        symbol="FilePool.pin",
        right="""
            self._idle.pop(pooled, None)
            self._pinned.add(pooled)
        """,
        wrong="self._idle[pooled] = None",
    ),
    PlantedBug(
        "a file may be closed when a part of it is synced",
        symbol="Segment.on_synced",
        right="if self.synced_bytes == self.size_bytes:",
        wrong="if True:",
    ),
    PlantedBug(
        "a file is closed during a read",
        symbol="FilePool._close_some",
        right="pooled._file = None",
        wrong="""
            if pooled._file is not None:
                self.files.close(pooled._file.handle)
            pooled._file = None
        """,
    ),
    PlantedBug(
        "an index is used after it was dropped",
        symbol="Segment.load",
        right="return index",
        wrong="return self.index",
    ),
    PlantedBug(
        "sound batches cut silently",
        symbol="_cut_tail",
        right="if find_batch(removed, tail.end_offset) is not None:",
        wrong="if False:",
    ),
    PlantedBug(
        "delete without rename",
        symbol="SegmentLog.delete",
        right="self._files.rename(self._directory, aside)",
        wrong="aside = self._directory",
    ),
    PlantedBug(
        "delete without directory sync",
        symbol="SegmentLog.delete",
        right='self._files.sync_directory(os.path.dirname(self._directory) or ".")',
        wrong="",
    ),
    PlantedBug(
        "flushed moves before sync",
        symbol="SegmentLog.sync",
        right="size_bytes = segment.size_bytes",
        wrong="""
            size_bytes = segment.size_bytes
            self._flushed_offset = end_offset
        """,
    ),
    PlantedBug(
        "writer acks before flush",
        symbol="Writer._sync_logs.sync",
        right="log.sync()",
        wrong="pass",
    ),
    PlantedBug(
        "writer runs a job before the sync",
        symbol="Writer._do_quietly",
        right="""
            if item.log in self._dirty:
                self._flush_one(item.log)
        """,
        wrong="",
    ),
    PlantedBug(
        "writer takes what follows a failed step",
        symbol="Writer._do_job",
        right="self._failed.add(job.log)",
        wrong="pass",
    ),
    PlantedBug(
        "writer runs a step behind a failure",
        symbol="Writer._do_job",
        right="if job.is_step and job.log in self._failed:",
        wrong="if False:",
    ),
    PlantedBug(
        "writer reports flushed though failed",
        symbol="Writer._flush",
        right="results = [(log, log.flushed_offset) for log in logs if log.flushed_offset > dirty[log]]",
        wrong="results = [(log, log.end_offset) for log in logs]",
    ),
    PlantedBug(
        "writer takes what follows a failure",
        symbol="Writer._append",
        right="""
            if log in self._failed:
                return
        """,
        wrong="",
    ),
    PlantedBug(
        "writer syncs per batch",
        symbol="Writer._do_quietly",
        right="batches.append((header, batch))",
        wrong="""
            self._append(log, [(header, batch)])
            self._flush()
        """,
    ),
    PlantedBug(
        "snapshot crc unchecked",
        symbol="SnapshotStore._load",
        right="""
            if crc32c(payload, crc32c(memoryview(data)[:_BEFORE_CHECKSUM])) != checksum:
                return None
        """,
        wrong="",
    ),
    PlantedBug(
        "snapshot prunes all but one",
        symbol="SnapshotStore.save",
        right="offsets[: -self._keep_count]",
        wrong="offsets[:-1]",
    ),
    PlantedBug(
        "directory: missing description is a fresh node",
        symbol="DataDirectory._identify",
        right="if others:",
        wrong="if False:",
    ),
    PlantedBug(
        "directory: checksum ignored",
        symbol="_decode_description",
        right="checksum != _checksum(fields) or",
        wrong="",
    ),
    PlantedBug(
        "directory: delete_topic without rename",
        symbol="DataDirectory.delete_topic",
        right="""
            self._files.rename(path, aside)
            self._files.sync_directory(os.path.dirname(path))
        """,
        wrong="aside = path",
    ),
    PlantedBug(
        "max timestamp of -1 not by file time",
        symbol="Segment.newest_ms",
        right="return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms()",
        wrong="return self.max_timestamp",
    ),
]

BUGS = [
    *(StorageBug(bug, JOURNAL_TESTS) for bug in JOURNAL_BUGS),
    *(StorageBug(bug, LOG_TESTS) for bug in LOG_BUGS),
    *(StorageBug(bug, LEDGER_TESTS) for bug in LEDGER_BUGS),
]


def run_tests(project: Path, tests: str, attempt: int) -> tuple[bool, str]:
    """Whether all of these tests pass, and the first that does not."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--timeout=60"]
        + [f"tests/unit/storage/{name}.py" for name in tests.split()],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}/src:{project}/tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line.partition("::")[2] for line in result.stdout.splitlines() if line.startswith("FAILED")]
    return result.returncode == 0, failed[0].partition(" - ")[0] if failed else result.stdout[-300:]


def main(words: list[str]) -> int:
    """Try those whose names contain one of `words`, or all; the exit code tells if any was missed."""
    tried = [(case.bug, case.tests) for case in chosen(BUGS, words)]
    return try_in_copy(tried, ("src", "tests/unit/storage", "tests/support", "pyproject.toml"), run_tests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
