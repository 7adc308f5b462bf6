"""Planted bugs: each is put into a copy of storage, and some test must notice.

Tests that never fail prove nothing. Run this when storage or its tests change:

    python tests/unit/storage/mutants.py            # all, about four minutes
    python tests/unit/storage/mutants.py truncate   # those whose name contains a word

A mutant whose text is no longer found in the source is reported too: adapt it.
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

ROOT = Path(__file__).resolve().parents[3]
TESTS = [
    "test_index",
    "test_damage",
    "test_writer",
    "test_snapshots",
    "test_directory",
    "test_log_contract",
    "test_crash",
    "test_log_model",
    "test_segment_log",
]
"""Fast ones first: the run of a mutant ends with the first failure."""


class Mutant(NamedTuple):
    """A wrong line in place of a right one."""

    name: str
    module: str
    right: str
    wrong: str


MUTANTS = [
    Mutant(
        "ack before fsync",
        "segment_log.py",
        '            self._files.sync(segment.file.handle)\n        except OSError as error:\n            raise self._fence(f"sync',
        '            pass\n        except OSError as error:\n            raise self._fence(f"sync',
    ),
    Mutant(
        "no directory fsync at roll",
        "segment_log.py",
        '            self._files.sync_directory(self._directory)\n        except OSError as error:\n            raise self._fence(f"sync',
        '            pass\n        except OSError as error:\n            raise self._fence(f"sync',
    ),
    Mutant(
        "no directory fsync at create",
        "recovery.py",
        "    files.sync_directory(directory)\n    sync_ancestors",
        "    sync_ancestors",
    ),
    Mutant(
        "no sync of ancestors",
        "recovery.py",
        "    sync_ancestors(files, directory)\n",
        "    pass\n",
    ),
    Mutant(
        "mkdir without parent sync + no ancestors",
        "files.py",
        '        files.sync_directory(os.path.dirname(directory) or ".")\n\n\ndef sync_anc',
        "        pass\n\n\ndef sync_anc",
    ),
    Mutant(
        "corrupt middle treated as tail",
        "recovery.py",
        "    if tail.end_offset < promised:",
        "    if False:",
    ),
    Mutant(
        "CRC not checked on read",
        "segment.py",
        "            check(data, position, offset)",
        "            pass",
    ),
    Mutant(
        "cached bytes trusted unchecked",
        "segment.py",
        "return data if self._checked.covers(position, min(end, self.trusted_from)) else None",
        "return data",
    ),
    Mutant(
        "index trusted unchecked: header crc",
        "index.py",
        "    if crc32c(memoryview(data)[: _HEADER.size]) != checksum:\n        return None\n",
        "",
    ),
    Mutant(
        "index trusted unchecked: body crc",
        "index.py",
        " or crc32c(body) != header.body_crc",
        "",
    ),
    Mutant(
        "index trusted though it does not fit",
        "segment.py",
        "if header is None or not self._fits(header.summary):\n            return False",
        "if header is None:\n            return False",
    ),
    Mutant(
        "retention deletes the active segment",
        "segment_log.py",
        " and segment is not self._active",
        "",
    ),
    Mutant(
        "retention beyond keep_from",
        "segment_log.py",
        "if segment.end_offset > keep_from or segment.size_bytes == 0:",
        "if segment.size_bytes == 0:",
    ),
    Mutant(
        "replace without fsync",
        "files.py",
        "        files.write(handle, (content,), 0)\n        files.sync(handle)",
        "        files.write(handle, (content,), 0)",
    ),
    Mutant(
        "replace without directory fsync",
        "files.py",
        '    files.sync_directory(os.path.dirname(path) or ".")\n\n\ndef remove_tree',
        "    pass\n\n\ndef remove_tree",
    ),
    Mutant(
        "clean mark stays",
        "segment_log.py",
        "        if self._is_marked_clean:\n            try:",
        "        if False:\n            try:",
    ),
    Mutant(
        "clean mark taken back without sync",
        "segment_log.py",
        "                self._flushed_file.sync()\n            except",
        "                pass\n            except",
    ),
    Mutant(
        "partial write not cut",
        "segment_log.py",
        "            self._cut_partial(segment, first_position)\n",
        "",
    ),
    Mutant(
        "failed sync not fenced",
        "segment_log.py",
        "        self._fenced = reason\n",
        "",
    ),
    Mutant(
        "truncate leaves flushed file",
        "segment_log.py",
        "            self._flushed_file.write(Flushed(False, self._flushed_offset, cut.base_offset, cut.flushed_bytes))\n            self._flushed_file.sync()\n",
        "",
    ),
    Mutant(
        "truncate lowers flushed file without sync",
        "segment_log.py",
        "cut.flushed_bytes))\n            self._flushed_file.sync()\n",
        "cut.flushed_bytes))\n",
    ),
    Mutant(
        "truncate removes forward",
        "segment_log.py",
        "in reversed(view.segments[at + 1 :])",
        "in (view.segments[at + 1 :])",
    ),
    Mutant(
        "truncate unlinks without directory sync",
        "segment_log.py",
        "                later.remove_files()\n                self._files.sync_directory(self._directory)",
        "                later.remove_files()",
    ),
    Mutant(
        "truncate without final sync",
        "segment_log.py",
        "            self._files.sync(cut.file.handle)\n",
        "",
    ),
    Mutant(
        "truncate keeps stale index",
        "segment_log.py",
        "            cut.remove_index()\n",
        "",
    ),
    Mutant(
        "drop without durable start",
        "segment_log.py",
        '            write_start(self._files, f"{self._directory}/{START_NAME}", offset)\n',
        "            pass\n",
    ),
    Mutant(
        "recovery does not sync",
        "recovery.py",
        "        files.sync(tail.file.handle)\n        files.sync_directory(directory)\n",
        "        pass\n",
    ),
    Mutant(
        "recovery does not sync the file",
        "recovery.py",
        "        files.sync(tail.file.handle)\n",
        "",
    ),
    Mutant(
        "recovery does not sync the directory",
        "recovery.py",
        "        files.sync(tail.file.handle)\n        files.sync_directory(directory)\n",
        "        files.sync(tail.file.handle)\n",
    ),
    Mutant(
        "walk accepts any offset",
        "walk.py",
        " or position + size > end or header.base_offset != offset:",
        " or position + size > end:",
    ),
    Mutant(
        "walk does not check crc",
        "walk.py",
        "            if crc32c(chunk[at + _CRC_START : at + size]) != header.crc:",
        "            if False:",
    ),
    Mutant(
        "check accepts gaps",
        "walk.py",
        " or after > end or base != expected:",
        " or after > end:",
    ),
    Mutant(
        "roll without flush",
        "segment_log.py",
        "        self.flush()\n        new = Segment",
        "        new = Segment",
    ),
    Mutant(
        "flushed file before sync",
        "segment_log.py",
        "        size_bytes = segment.size_bytes\n        try:",
        "        size_bytes = segment.size_bytes\n        self._flushed_file.write(Flushed(False, end_offset, segment.base_offset, size_bytes))\n        try:",
    ),
    Mutant(
        "sound batches cut silently",
        "recovery.py",
        "    if find_batch(removed, tail.end_offset) is not None:",
        "    if False:",
    ),
    Mutant(
        "delete without rename",
        "segment_log.py",
        "        self._files.rename(self._directory, aside)\n",
        "        aside = self._directory\n",
    ),
    Mutant(
        "delete without directory sync",
        "segment_log.py",
        '        self._files.sync_directory(os.path.dirname(self._directory) or ".")\n',
        "",
    ),
    Mutant(
        "flushed moves before sync",
        "segment_log.py",
        "        size_bytes = segment.size_bytes\n        try:",
        "        size_bytes = segment.size_bytes\n        self._flushed_offset = end_offset\n        try:",
    ),
    Mutant(
        "writer acks before flush",
        "writer.py",
        "                    log.flush()\n                except",
        "                    pass\n                except",
    ),
    Mutant(
        "writer reports flushed though failed",
        "writer.py",
        "                else:\n                    results.append((log, log.flushed_offset))\n",
        "                results.append((log, log.end_offset))\n",
    ),
    Mutant(
        "writer takes what follows a failure",
        "writer.py",
        "        if log in self._failed:\n            return\n",
        "",
    ),
    Mutant(
        "writer syncs per batch",
        "writer.py",
        "                batches.append((header, batch))\n",
        "                self._append(log, [(header, batch)]); self._flush()\n",
    ),
    Mutant(
        "snapshot crc unchecked",
        "snapshots.py",
        "        if crc32c(payload, crc32c(memoryview(data)[:_BEFORE_CHECKSUM])) != checksum:\n            return None\n",
        "",
    ),
    Mutant(
        "snapshot prunes all but one",
        "snapshots.py",
        "offsets[: -self._keep_count]",
        "offsets[:-1]",
    ),
    Mutant(
        "directory: missing description is a fresh node",
        "directory.py",
        "            if others:",
        "            if False:",
    ),
    Mutant(
        "directory: checksum ignored",
        "directory.py",
        "    if checksum != _checksum(fields) or",
        "    if",
    ),
    Mutant(
        "directory: delete_topic without rename",
        "directory.py",
        "        self._files.rename(path, aside)\n",
        "        aside = path\n",
    ),
    Mutant(
        "max timestamp of -1 not by file time",
        "segment_log.py",
        "    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms()",
        "    return segment.max_timestamp",
    ),
]


def copy_project(target: Path) -> None:
    """What the tests of storage need, where it may be damaged."""
    for folder in ("src", "tests/unit/storage", "tests/support"):
        shutil.copytree(ROOT / folder, target / folder)
    shutil.copy(ROOT / "pyproject.toml", target)


def run_tests(project: Path) -> tuple[bool, str]:
    """Whether all tests pass, and the first that does not."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--timeout=60"]
        + [f"tests/unit/storage/{name}.py" for name in TESTS],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}/src:{project}/tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line.partition("::")[2] for line in result.stdout.splitlines() if line.startswith("FAILED")]
    return result.returncode == 0, failed[0].partition(" - ")[0] if failed else result.stdout[-300:]


def try_mutant(project: Path, mutant: Mutant) -> bool:
    """Whether the mutant is found; says by which test."""
    path = project / "src/drmq/storage" / mutant.module
    source = path.read_text()
    if source.count(mutant.right) != 1:
        print(f"STALE   {mutant.name}: its text is in {mutant.module} {source.count(mutant.right)} times")
        return False
    path.write_text(source.replace(mutant.right, mutant.wrong))
    started = time.monotonic()
    passed, first_failure = run_tests(project)
    path.write_text(source)
    seconds = time.monotonic() - started
    print(
        f"{'MISSED ' if passed else 'found  '} {mutant.name} ({seconds:.1f} s){'' if passed else f': {first_failure}'}"
    )
    return not passed


def main(words: list[str]) -> int:
    """Try the mutants whose names contain one of `words`, or all; the exit code tells if any was missed."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory() as directory:
        copy_project(Path(directory))
        passed, first_failure = run_tests(Path(directory))
        if not passed:
            print(f"the tests fail without any mutant: {first_failure}")
            return 2
        found = sum(try_mutant(Path(directory), mutant) for mutant in chosen)
    print(f"{found} of {len(chosen)} found")
    return int(found < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
