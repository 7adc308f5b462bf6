"""The planted bugs of the journal; `tests/unit/storage/mutants.py` tries them."""

# ruff: noqa: E501 (lines are quoted as they stand in the source)
from __future__ import annotations

from support.mutant import Mutant

MUTANTS = [
    Mutant(
        "journal: ack before its sync",
        "journal.py",
        "            self._files.sync(handle)\n        except OSError as error:\n            self._give_up",
        "            pass\n        except OSError as error:\n            self._give_up",
    ),
    Mutant(
        "journal: a file is begun anew though a log has only it",
        "journal.py",
        "        if self._unsynced(other):\n            return False\n",
        "",
    ),
    Mutant(
        "journal: nothing says that the other file does not count any more",
        "journal.py",
        "        if not self._write([], 0, self._begun_sequence):\n            return False\n        self._present[other] = {}",
        "        self._present[other] = {}",
    ),
    Mutant(
        "journal: what was forgotten is put back",
        "journal.py",
        "if forgotten.get(entry.log, 0) < record.sequence:",
        "if True:",
    ),
    Mutant(
        "journal: what came after the forgetting is void too",
        "journal.py",
        "if forgotten.get(entry.log, 0) < record.sequence:",
        "if entry.log not in forgotten:",
    ),
    Mutant(
        "journal: forgets in memory only",
        "journal.py",
        '            _write_forgotten(self._files, f"{self._root}/{FORGOTTEN_NAME}", forgotten)\n',
        "",
    ),
    Mutant(
        "journal: forgetting one log forgets that another was forgotten",
        "journal.py",
        "forgotten = {log: sequence for log, sequence in self._forgotten.items() if sequence >= first}",
        "forgotten = {}",
    ),
    Mutant(
        "journal: puts back in any order",
        "journal.py",
        "    counting = sorted(record for record in records if record.sequence >= newest.first_sequence)",
        "    counting = [record for record in records if record.sequence >= newest.first_sequence]",
    ),
    Mutant(
        "journal: puts back what does not count",
        "journal.py",
        "sorted(record for record in records if record.sequence >= newest.first_sequence)",
        "sorted(records)",
    ),
    Mutant(
        "journal: what is put back is not synced",
        "journal.py",
        "            files.sync(file.handle)\n    if flushed",
        "            pass\n    if flushed",
    ),
    Mutant(
        "journal: a start does not begin it anew",
        "journal.py",
        "if not self._open_files() or not self._begin_anew():",
        "if not self._open_files():",
    ),
    Mutant(
        "journal: a start overwrites what counts",
        "journal.py",
        "self._current, self._position, self._sequence = newest.file, newest.end, newest.sequence",
        "self._current, self._position, self._sequence = newest.file, 0, newest.sequence",
    ),
    Mutant(
        "journal: missing records do not matter",
        "journal.py",
        "    if missing_count:\n",
        "    if False:\n",
    ),
    Mutant(
        "journal: a log that is too short is not noticed",
        "journal.py",
        "    if flushed is None or flushed.offset < last.end_offset:",
        "    if False:",
    ),
    Mutant(
        "journal: records share a page",
        "journal.py",
        "    return size + -size % PAGE_BYTES\n",
        "    return size + -size % 512\n",
    ),
    Mutant(
        "journal: checksums are not looked at",
        "journal.py",
        "crc32c(record, seed) != checksum",
        "False",
    ),
    Mutant(
        "journal: goes on after its sync has failed",
        "journal.py",
        "        self._failure = error.strerror or str(error)\n",
        "        self._failure = None\n",
    ),
    Mutant(
        "journal: an end in order leaves entries",
        "journal.py",
        "                self._begin_anew()\n            self._failure",
        "                pass\n            self._failure",
    ),
    Mutant(
        "journal: a log rolls before it is synced",
        "segment_log.py",
        "        # one before it is durable to its end.\n        self.sync()\n",
        "        # one before it is durable to its end.\n        self.flush()\n",
    ),
    Mutant(
        "journal: a cut leaves the entries",
        "segment_log.py",
        "        self._leave_journal()\n        view = self._view\n",
        "        view = self._view\n",
    ),
    Mutant(
        "journal: a reset leaves the entries",
        "segment_log.py",
        "        self._leave_journal()\n        new = Segment",
        "        new = Segment",
    ),
    Mutant(
        "journal: a new log has the entries of the one before it",
        "segment_log.py",
        "            journal.forget(directory)\n",
        "            pass\n",
    ),
    Mutant(
        "journal: left before the log is synced",
        "segment_log.py",
        "        self.sync()\n        try:\n            self._journal.forget",
        "        try:\n            self._journal.forget",
    ),
    Mutant(
        "journal: a cut forgets how far the log is synced",
        "segment_log.py",
        "        self._synced_offset = min(self._synced_offset, end_offset)\n",
        "",
    ),
    Mutant(
        "journal: what is journaled counts as synced",
        "segment_log.py",
        "        self._flushed_offset = unflushed.end_offset\n        self._unflushed = []",
        "        self._flushed_offset = self._synced_offset = unflushed.end_offset\n        self._unflushed = []",
    ),
    Mutant(
        "journal: bytes are journaled twice",
        "segment_log.py",
        "        self._flushed_offset = unflushed.end_offset\n        self._unflushed = []",
        "        self._flushed_offset = unflushed.end_offset",
    ),
    Mutant(
        "journal: closed in order, but not synced",
        "segment_log.py",
        "        if clean and self._fenced is None and not self._is_marked_clean:\n            self.sync()\n",
        "        if clean and self._fenced is None and not self._is_marked_clean:\n            self.flush()\n",
    ),
    Mutant(
        "journal: believes an old mark of a clean stop",
        "journal.py",
        " and flushed.offset >= last.end_offset",
        "",
    ),
    Mutant(
        "journal: given up with the older file first",
        "journal.py",
        "for file in (newest, 1 - newest):",
        "for file in (1 - newest, newest):",
    ),
    Mutant(
        "journal: a log on a full disk cannot be deleted",
        "segment_log.py",
        "            with suppress(OSError):\n                # A full",
        "            if True:\n                # A full",
    ),
    Mutant(
        "journal: what a failed write left comes back",
        "segment_log.py",
        "            self._files.truncate(segment.file.handle, position)\n            self._files.sync(segment.file.handle)\n",
        "            self._files.truncate(segment.file.handle, position)\n",
    ),
    Mutant(
        "journal: what a failed sync left is only synced",
        "recovery.py",
        "            files.write(handle, (data,), position)\n",
        "",
    ),
    Mutant(
        "journal: the index of what was cut may come back",
        "segment_log.py",
        "            self._files.sync_directory(self._directory)\n            self._files.truncate",
        "            self._files.truncate",
    ),
    Mutant(
        "journal: a sync in the background counts for what came meanwhile",
        "segment_log.py",
        "        self._synced_offset = begun.flushed.offset\n",
        "        self._synced_offset = self._flushed_offset\n",
    ),
    Mutant(
        "journal: nobody hears of a sync that failed in the background",
        "segment_log.py",
        "        self.end_sync()\n        segment, end_offset",
        "        self._begun = None\n        segment, end_offset",
    ),
    Mutant(
        "journal: two make a file longer",
        "journal.py",
        "        self._is_lengthening, self._may_lengthen = True, False\n",
        "",
    ),
    Mutant(
        "journal: zeros over records",
        "journal.py",
        "[bytes(end - self._sizes[file])], self._sizes[file])",
        "[bytes(end - self._sizes[file])], 0)",
    ),
    Mutant(
        "journal: records where zeros will be",
        "journal.py",
        "if self._position + needed <= self._sizes[self._current]:",
        "if self._position + needed <= self._file_bytes:",
    ),
    Mutant(
        "journal: no log is synced before a file is full",
        "journal.py",
        "if not due and self._position >= self._next_due:",
        "if False:",
    ),
]
