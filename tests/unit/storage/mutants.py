"""Planted bugs: each is put into a copy of storage, and some test must notice.

Tests that never fail prove nothing. Run this when storage or its tests change:

    python tests/unit/storage/mutants.py            # all, about six minutes
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

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from support import journal_mutants  # noqa: E402
from support.mutant import Mutant  # noqa: E402

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
LEDGER_TESTS = ["test_ledger_damage", "test_ledger_crash", "test_ledger"]
"""Those for mutants of the ledger, which nothing else in storage uses. Those of the journal have a file alone."""


MUTANTS = [
    *journal_mutants.MUTANTS,
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
        "retention.py",
        " and segment is not active",
        "",
    ),
    Mutant(
        "retention beyond keep_from",
        "retention.py",
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
        '            write_start(self._files, f"{self._directory}/{START_NAME}", offset)\n        except',
        "            pass\n        except",
    ),
    Mutant(
        "recovery does not sync",
        "recovery.py",
        "        files.sync(handle)\n        files.sync_directory(directory)\n    except",
        "        pass\n    except",
    ),
    Mutant(
        "recovery does not sync the file",
        "recovery.py",
        "        files.sync(handle)\n        files.sync_directory(directory)\n    except",
        "        files.sync_directory(directory)\n    except",
    ),
    Mutant(
        "recovery does not sync the directory",
        "recovery.py",
        "        files.sync(handle)\n        files.sync_directory(directory)\n    except",
        "        files.sync(handle)\n    except",
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
        "        self.sync()\n        new = Segment",
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
        "                log.sync()\n            except StorageError as error:\n                failures",
        "                pass\n            except StorageError as error:\n                failures",
    ),
    Mutant(
        "writer runs a job before the sync",
        "writer.py",
        "                if item.log in self._dirty:\n                    self._flush_one(item.log)\n",
        "",
    ),
    Mutant(
        "writer takes what follows a failed step",
        "writer.py",
        "            self._failed.add(job.log)\n",
        "            pass\n",
    ),
    Mutant(
        "writer runs a step behind a failure",
        "writer.py",
        "        if job.is_step and job.log in self._failed:\n",
        "        if False:\n",
    ),
    Mutant(
        "writer reports flushed though failed",
        "writer.py",
        "results = [(log, log.flushed_offset) for log in logs if log.flushed_offset > dirty[log]]",
        "results = [(log, log.end_offset) for log in logs]",
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
        "        self._files.rename(path, aside)\n        self._files.sync_directory(os.path.dirname(path))\n        remove",
        "        aside = path\n        remove",
    ),
    Mutant(
        "max timestamp of -1 not by file time",
        "segment.py",
        "        return self.max_timestamp if self.max_timestamp >= 0 else self.modified_ms()",
        "        return self.max_timestamp",
    ),
    Mutant(
        "ledger: no fsync",
        "ledger.py",
        "            self._files.sync(self._file.handle)\n            self._end += len(record)\n",
        "            self._end += len(record)\n",
    ),
    Mutant(
        "ledger: fsync before write",
        "ledger.py",
        "            self._files.write(self._file.handle, (record,), self._end)\n            self._files.sync(self._file.handle)\n            self._end",
        "            self._files.sync(self._file.handle)\n            self._files.write(self._file.handle, (record,), self._end)\n            self._end",
    ),
    Mutant(
        "ledger: shown before it is durable",
        "ledger.py",
        "        record = framed(self._end, body)\n",
        "        record = framed(self._end, body)\n        self._facts = facts\n",
    ),
    Mutant(
        "ledger: no directory sync at create",
        "ledger.py",
        "    files.sync_directory(os.path.dirname(path))\n",
        "",
    ),
    Mutant(
        "ledger: no sync of ancestors",
        "ledger.py",
        "        sync_ancestors(files, directory)\n",
        "",
    ),
    Mutant(
        "ledger: file gets its name unsynced",
        "ledger.py",
        "    files.write(file.handle, (content, bytes(RESERVE_BYTES)), 0)\n    files.sync(file.handle)\n",
        "    files.write(file.handle, (content, bytes(RESERVE_BYTES)), 0)\n",
    ),
    Mutant(
        "ledger: created over another",
        "ledger.py",
        '        assert not files.exists(path), f"{path} exists; it must be opened, not created"\n',
        "",
    ),
    Mutant(
        "ledger: what was found is not synced",
        "ledger.py",
        "bytes(remains)), durable)\n            self._files.sync(self._file.handle)\n",
        "bytes(remains)), durable)\n",
    ),
    Mutant(
        "ledger: what was found is synced but not written again",
        "ledger.py",
        "(data[durable : self._end], bytes(remains)), durable)",
        "(bytes(remains),), self._end)",
    ),
    Mutant(
        "ledger: what was found may have no durable name",
        "ledger.py",
        "            files.sync_directory(directory)\n            ledger._write_marks()",
        "            ledger._write_marks()",
    ),
    Mutant(
        "ledger: remains of a write not wiped out",
        "ledger.py",
        '        remains = max(len(data.rstrip(b"\\0")) - self._end, 0)\n',
        "        remains = 0\n",
    ),
    Mutant(
        "ledger: marks say too much",
        "ledger.py",
        "            self._files.write(self._file.handle, (record,), self._end)\n            self._files.sync",
        "            self._files.write(self._file.handle, (packed_marks(self._commit, self._end + len(record)),), MARKS_AT)\n            self._files.write(self._file.handle, (record,), self._end)\n            self._files.sync",
    ),
    Mutant(
        "ledger: marks never move",
        "ledger.py",
        "            self._end += len(record)\n            self._write_marks()\n",
        "            self._end += len(record)\n",
    ),
    Mutant(
        "ledger: failure not fenced",
        "ledger.py",
        '        self._fenced = f"{action} failed: {error.strerror or error}"\n        _logger.error("%s: %s", self._path, self._fenced)\n        return LogFenced(self._path, self._fenced)\n',
        '        return LogFenced(self._path, f"{action} failed: {error.strerror or error}")\n',
    ),
    Mutant(
        "ledger: no space kept back",
        "ledger.py",
        "        if needed + RESERVE_BYTES_MIN <= self._size:\n            return\n",
        "        if needed <= self._size:\n            return\n",
    ),
    Mutant(
        "ledger: a full disk fences",
        "ledger.py",
        "            if error.errno not in _FULL:\n",
        "            if True:\n",
    ),
    Mutant(
        "ledger: rewrite drops entries",
        "ledger.py",
        "        content = whole_file(self._facts, self._commit)\n",
        "        content = whole_file(self._facts._replace(entries=()), self._commit)\n",
    ),
    Mutant(
        "ledger: rewrite drops the ballot",
        "ledger.py",
        "        content = whole_file(self._facts, self._commit)\n",
        "        content = whole_file(self._facts._replace(ballot=NO_FACTS.ballot), self._commit)\n",
    ),
    Mutant(
        "ledger: rewrite goes on with the old file",
        "ledger.py",
        "        self._file, self._end, self._size = file, len(content), len(content) + RESERVE_BYTES\n        self._rewrite_at = self._end",
        "        self._rewrite_at = self._end",
    ),
    Mutant(
        "ledger: rewrite that may be undone not fenced",
        "ledger.py",
        '            self._fence("replacing the file", error)\n            return\n',
        "            return\n",
    ),
    Mutant(
        "ledger: rewrite that fails fences",
        "ledger.py",
        "            with suppress(OSError):\n                self._files.remove(_temporary(self._path))\n            return\n",
        '            self._fence("rewriting", error)\n            return\n',
    ),
    Mutant(
        "ledger: never rewritten",
        "ledger.py",
        "        if self._end < self._rewrite_at:\n            return\n",
        "        if self._end:\n            return\n",
    ),
    Mutant(
        "ledger: rewritten though it is live",
        "ledger.py",
        "        if 2 * len(content) > self._end:\n            return\n",
        "",
    ),
    Mutant(
        "ledger: CRC not checked",
        "ledger_format.py",
        "    return body if _checksum(position, body) == checksum else None\n",
        "    return body\n",
    ),
    Mutant(
        "ledger: CRC without position",
        "ledger_format.py",
        "_PLACE.pack(position, len(body))",
        "_PLACE.pack(0, len(body))",
    ),
    Mutant(
        "ledger: head not checked",
        "ledger_format.py",
        "    if magic != _MAGIC or data[: _HEAD.size] != _HEAD.pack(magic, version, crc32c(data[: _HEAD.size - 4])):\n",
        "    if False:\n",
    ),
    Mutant(
        "ledger: middle damage taken for tail: mark",
        "ledger_format.py",
        "    if end < durable:\n",
        "    if False:\n",
    ),
    Mutant(
        "ledger: middle damage taken for tail: sound record behind",
        "ledger_format.py",
        " in _TYPES and _record_at(data, position) is not None:\n",
        " in _TYPES and False:\n",
    ),
    Mutant(
        "ledger: first record taken for tail",
        "ledger_format.py",
        "    if end == _RECORDS_AT:\n",
        "    if False:\n",
    ),
    Mutant(
        "ledger: torn marks trusted",
        "ledger_format.py",
        "    if data[MARKS_AT : MARKS_AT + _MARKS.size] != packed_marks(commit, durable) or durable < _RECORDS_AT:\n",
        "    if durable < _RECORDS_AT:\n",
    ),
    Mutant(
        "ledger: ballot term may fall",
        "ledger_format.py",
        "    if new.term < old.term or (new",
        "    if (new",
    ),
    Mutant(
        "ledger: vote may change",
        "ledger_format.py",
        " or (new.term == old.term and old.vote not in (NO_VOTE, new.vote)):\n",
        ":\n",
    ),
    Mutant(
        "ledger: truncate forgotten at reload",
        "ledger_format.py",
        "            facts = after(facts, body)\n",
        "            facts = facts if body[0] == _TRUNCATE else after(facts, body)\n",
    ),
    Mutant(
        "ledger: entries out of order",
        "ledger_format.py",
        "        _check_order(facts.base, facts.entries, added)\n",
        "",
    ),
    Mutant(
        "ledger: rebase keeps the entry at the base",
        "ledger_format.py",
        "if entry.index > base.index))\n",
        "if entry.index >= base.index))\n",
    ),
    Mutant(
        "ledger: reset forgets the ballot",
        "ledger.py",
        "ballot or self.ballot, ()",
        "ballot or NO_FACTS.ballot, ()",
    ),
    Mutant(
        "ledger: reset keeps the entries",
        "ledger.py",
        "ballot or self.ballot, ()",
        "ballot or self.ballot, tuple(e for e in self.entries if e.index > base.index)",
    ),
    Mutant(
        "ledger: commit index falls",
        "ledger.py",
        "        if index > self.commit:\n            self._commit",
        "        if index != self.commit:\n            self._commit",
    ),
]


def copy_project(target: Path) -> None:
    """What the tests of storage need, where it may be damaged."""
    for folder in ("src", "tests/unit/storage", "tests/support"):
        shutil.copytree(ROOT / folder, target / folder)
    shutil.copy(ROOT / "pyproject.toml", target)


def run_tests(project: Path, tests: list[str]) -> tuple[bool, str]:
    """Whether all of these tests pass, and the first that does not."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--timeout=60"]
        + [f"tests/unit/storage/{name}.py" for name in tests],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}/src:{project}/tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line.partition("::")[2] for line in result.stdout.splitlines() if line.startswith("FAILED")]
    return result.returncode == 0, failed[0].partition(" - ")[0] if failed else result.stdout[-300:]


def tests_for(mutant: Mutant) -> list[str]:
    """The tests that may notice."""
    if mutant.name.startswith("journal: "):
        return ["test_lives", "test_journal", "test_journal_room", "test_crash"]
    return LEDGER_TESTS if mutant.module.startswith("ledger") else TESTS


def try_mutant(project: Path, mutant: Mutant) -> bool:
    """Whether the mutant is found; says by which test."""
    path = project / "src/drmq/storage" / mutant.module
    source = path.read_text()
    if source.count(mutant.right) != 1:
        print(f"STALE   {mutant.name}: its text is in {mutant.module} {source.count(mutant.right)} times")
        return False
    path.write_text(source.replace(mutant.right, mutant.wrong))
    started = time.monotonic()
    passed, first_failure = run_tests(project, tests_for(mutant))
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
        passed, first_failure = run_tests(Path(directory), sorted({name for one in chosen for name in tests_for(one)}))
        if not passed:
            print(f"the tests fail without any mutant: {first_failure}")
            return 2
        found = sum(try_mutant(Path(directory), mutant) for mutant in chosen)
    print(f"{found} of {len(chosen)} found")
    return int(found < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
