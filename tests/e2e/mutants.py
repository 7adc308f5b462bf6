"""Planted bugs: each is put into a copy of the broker, and the tests with real processes must notice.

A crash test that never fails proves nothing. Run this when the broker, the storage or these tests change:

    python tests/e2e/mutants.py            # all, about ten minutes
    python tests/e2e/mutants.py dedup      # those whose name contains a word

A mutant whose text is no longer found in the source is reported too: adapt it. What SIGKILL cannot show (a missing
sync: the kernel keeps what it was given) is not here but in `tests/unit/storage/mutants.py`, on a disk that loses
power.
"""

# ruff: noqa: E501 (lines are quoted as they stand in the source)
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """A wrong line in place of a right one, and where that must show."""

    name: str
    module: str
    right: str
    wrong: str
    tests: str


CRASH, STEPS, SHUTDOWN, FULL, LIMITS = (
    f"tests/e2e/test_{name}.py" for name in ("crash", "fsync_steps", "shutdown", "disk_full", "limits")
)
WALK = f"{STEPS}::test_killed_before_every_step"

MUTANTS = [
    Mutant(
        "dedup table not loaded",
        "broker/partitions/derived_state.py",
        "    start = log.start_offset if found is None else max(found.offset, log.start_offset)\n",
        "    return ProducerTable()\n",
        CRASH,
    ),
    Mutant(
        "dedup table not rebuilt after the snapshot",
        "broker/partitions/derived_state.py",
        "            table.apply(header, now_ms)\n",
        "            pass\n",
        CRASH,
    ),
    Mutant("dedup window of 1", "broker/partitions/producer_table.py", "BATCHES_KEPT = 5", "BATCHES_KEPT = 1", CRASH),
    Mutant(
        "dedup: retry answered as out of order",
        "broker/partitions/producer_table.py",
        "                return batch\n        newest",
        "                continue\n        newest",
        CRASH,
    ),
    Mutant(
        "dedup: retry answered with the end of the log",
        "broker/partitions/partition.py",
        "return Appended(repeat.base_offset, repeat.next_offset, -1)",
        "return Appended(self.next_offset, self.next_offset, -1)",
        CRASH,
    ),
    Mutant(
        "high watermark beyond what is flushed",
        "broker/partitions/partition.py",
        "        _release(self._write_waiters, end_offset)\n",
        "        _release(self._write_waiters, end_offset)\n        self.high_watermark = end_offset\n",
        CRASH,
    ),
    Mutant(
        "acks=all answered before the append",
        "broker/partitions/partition.py",
        "        if self.acked_offset >= next_offset:\n            done(ErrorCode.NONE)",
        "        if True:\n            done(ErrorCode.NONE)",
        f"{CRASH} {WALK}",
    ),
    Mutant(
        "acks=1 answered before the append",
        "broker/partitions/partition.py",
        "        if self.log.end_offset >= next_offset and not self._write_waiters:",
        "        if True:",
        CRASH,
    ),
    Mutant(
        "acks=all answered together with acks=1",
        "broker/partitions/partition.py",
        "        _release(self._write_waiters, end_offset)\n",
        "        _release(self._write_waiters, end_offset)\n        _release(self._flush_waiters, end_offset)\n",
        f"{STEPS}::test_failed_sync_fences_the_partition_until_a_restart",
    ),
    Mutant(
        "states not replayed",
        "broker/partitions/derived_state.py",
        "            self.applied_offset = replay_batches(data, self.machine.replay, self.applied_offset)\n",
        "            self.applied_offset = replay_batches(data, lambda key, value: None, self.applied_offset)\n",
        CRASH,
    ),
    Mutant(
        "group offsets not written",
        "broker/coordination/coordinator.py",
        "        if not step.records:\n",
        "        if not step.records or self.has_soft_state:\n",
        CRASH,
    ),
    Mutant(
        "deletion of a topic not written",
        "broker/services/topics.py",
        '        await self._metadata.decide(delete, f"the deletion of {what}")\n',
        "        delete(self._metadata.catalog)\n",
        CRASH,
    ),
    Mutant(
        "start of the log not written",
        "storage/segment_log.py",
        '        try:\n            write_start(self._files, f"{self._directory}/{START_NAME}", offset)\n        except OSError as error:\n            raise self._append_failed(error) from error\n        self._start_offset',
        "        self._start_offset",
        f"{CRASH} {WALK}",
    ),
    Mutant(
        "producer ids given out again",
        "catalog/catalog.py",
        "            self.next_producer_id = max(self.next_producer_id, fact.next_id)\n",
        "            pass\n",
        CRASH,
    ),
    Mutant(
        "torn tail not cut",
        "storage/recovery.py",
        "    files.truncate(handle, position)\n    return cut_path",
        "    return cut_path",
        SHUTDOWN,
    ),
    Mutant(
        "damage cut like a torn tail",
        "storage/recovery.py",
        "    if tail.end_offset < promised:",
        "    if False:",
        SHUTDOWN,
    ),
    Mutant(
        "missing partition taken for a new one",
        "broker/partitions/log_store.py",
        "        if not self._files.is_directory(path):\n            raise LogCorrupt(",
        "        if False:\n            raise LogCorrupt(",
        SHUTDOWN,
    ),
    Mutant(
        "damaged metadata taken for none",
        "broker/broker.py",
        '            raise StateUnreadable(f"the metadata log cannot be read: {problem}") from error\n',
        "            opened = self.store.create_log('other', METADATA_TOPIC.topic_id, 0, log_options(config))\n",
        SHUTDOWN,
    ),
    Mutant(
        "data directory not locked",
        "storage/files.py",
        "            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        SHUTDOWN,
    ),
    Mutant(
        "node id not compared",
        "storage/directory.py",
        '        if found["node_id"] != self.node_id:',
        "        if False:",
        SHUTDOWN,
    ),
    Mutant(
        "shutdown not marked as clean",
        "storage/segment_log.py",
        "                self._write_flushed(self._flushed(is_clean=True))\n",
        "                pass\n",
        SHUTDOWN,
    ),
    Mutant(
        "shutdown does not wait for what is in flight",
        "transport/listener.py",
        "        while any(c.is_busy for c in self.connections)",
        "        while False and any(c.is_busy for c in self.connections)",
        SHUTDOWN,
    ),
    Mutant(
        "failed sync tried again",
        "storage/segment_log.py",
        '            self._files.sync(segment.file.handle)\n        except OSError as error:\n            raise self._fence(f"sync failed: {error.strerror}") from error\n        segment.flushed_bytes',
        "            self._files.sync(segment.file.handle)\n        except OSError:\n            self._files.sync(segment.file.handle)\n        segment.flushed_bytes",
        f"{STEPS}::test_failed_sync_fences_the_partition_until_a_restart",
    ),
    Mutant(
        "failed append answered as written",
        "broker/partitions/partition.py",
        "partial(self._stop_leading, ErrorCode.KAFKA_STORAGE_ERROR)",
        "partial(self._stop_leading, ErrorCode.NONE)",
        FULL,
    ),
    Mutant(
        "full disk fences the log",
        "broker/replication/replica.py",
        "        if self._is_over or self._restarting or self._stopped:\n            return\n        self._restarting = True\n",
        "        if True:\n            return\n        self._restarting = True\n",
        FULL,
    ),
    Mutant(
        "answers are written whether or not they are read",
        "transport/connection.py",
        "        self.answers_blocked_since = self._listener.now\n        self.count_unread()\n        self.pause(Pause.ANSWERS)\n",
        "        pass\n",
        LIMITS,
    ),
    Mutant(
        "memory for a frame is taken when it is announced",
        "transport/connection.py",
        "        self._read_frame_size()\n        self._sends_large_frames",
        "        self._read_frame_size()\n        self._partial.extend(bytes(max(0, self._frame_size - len(self._partial))))\n        self._sends_large_frames",
        LIMITS,
    ),
    Mutant(
        "no time-out for a request",
        "transport/listener.py",
        "            if connection.frame_since and now - connection.frame_since > receive_s:",
        "            if False:",
        LIMITS,
    ),
    Mutant(
        "a line for every refused connection",
        "transport/listener.py",
        ', extra={"repeat_key": "closed a connection"}',
        "",
        LIMITS,
    ),
    Mutant(
        "no limit of what waits for the disk",
        "kafka/server.py",
        "        connection.pause(Pause.DISK)\n",
        "        return\n",
        LIMITS,
    ),
    Mutant(
        "no limit of connections",
        "transport/listener.py",
        "if len(self.connections) >= self.options.connections_max:",
        "if False:",
        LIMITS,
    ),
]


def copy_project(target: Path) -> None:
    """What these tests need, where it may be damaged."""
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)


def run_tests(project: Path, tests: str) -> tuple[bool, str]:
    """Whether all tests pass, and the first that does not."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120", *tests.split()],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}/src:{project}/tests", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [
        line.partition("::")[2] for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR tests"))
    ]
    return result.returncode == 0, failed[0].partition(" - ")[0] if failed else result.stdout[-300:]


def try_mutant(project: Path, mutant: Mutant) -> bool:
    """Whether the mutant is found; says by which test."""
    path = project / "src/drmq" / mutant.module
    source = path.read_text()
    if source.count(mutant.right) != 1:
        print(f"STALE   {mutant.name}: its text is in {mutant.module} {source.count(mutant.right)} times", flush=True)
        return False
    path.write_text(source.replace(mutant.right, mutant.wrong))
    started = time.monotonic()
    passed, first_failure = run_tests(project, mutant.tests)
    path.write_text(source)
    seconds = time.monotonic() - started
    verdict = "MISSED " if passed else "found  "
    print(f"{verdict} {mutant.name} ({seconds:.1f} s){'' if passed else f': {first_failure}'}", flush=True)
    return not passed


def main(words: list[str]) -> int:
    """Try the mutants whose names contain one of `words`, or all; the exit code tells if any was missed."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        copy_project(project)
        for tests in sorted({mutant.tests for mutant in chosen}):
            passed, first_failure = run_tests(project, tests)
            if not passed:
                print(f"the tests fail without any mutant: {first_failure}")
                return 2
        found = sum(try_mutant(project, mutant) for mutant in chosen)
    print(f"{found} of {len(chosen)} found")
    return int(found < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
