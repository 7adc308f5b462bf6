"""The planted bugs of the journal; `tests/unit/storage/planted_bugs.py` tries them."""

from __future__ import annotations

from support.planted_bugs import PlantedBug

JOURNAL_BUGS = [
    PlantedBug(
        "journal: ack before its sync",
        symbol="Journal._write",
        right="self._files.sync(handle)",
        wrong="pass",
    ),
    PlantedBug(
        "journal: a file is begun anew though a log has only it",
        symbol="Journal._make_room",
        right="""
            if not self._is_other_free:
                return False
        """,
        wrong="",
    ),
    PlantedBug(
        "journal: nothing says that the other file does not count any more",
        symbol="Journal._make_room",
        right="""
            if not self._write([], 0, self._begun_sequence):
                return False
        """,
        wrong="",
    ),
    PlantedBug(
        "journal: what was forgotten is put back",
        symbol="entries_by_log",
        right="if forgotten.get(entry.log, 0) < record.sequence:",
        wrong="if True:",
    ),
    PlantedBug(
        "journal: what came after the forgetting is void too",
        symbol="entries_by_log",
        right="if forgotten.get(entry.log, 0) < record.sequence:",
        wrong="if entry.log not in forgotten:",
    ),
    PlantedBug(
        "journal: forgets in memory only",
        symbol="Journal.forget",
        right='_write_forgotten(self._files, f"{self._root}/{FORGOTTEN_NAME}", forgotten)',
        wrong="",
    ),
    PlantedBug(
        "journal: forgetting one log forgets that another was forgotten",
        symbol="Journal.forget",
        right="forgotten = {log: sequence for log, sequence in self._forgotten.items() if sequence >= first}",
        wrong="forgotten = {}",
    ),
    PlantedBug(
        "journal: puts back in any order",
        symbol="counting_records",
        right="counting = sorted(record for record in records if record.sequence >= newest.first_sequence)",
        wrong="counting = [record for record in records if record.sequence >= newest.first_sequence]",
    ),
    PlantedBug(
        "journal: puts back what does not count",
        symbol="counting_records",
        right="sorted(record for record in records if record.sequence >= newest.first_sequence)",
        wrong="sorted(records)",
    ),
    PlantedBug(
        "journal: what is put back is not synced",
        symbol="_put_back",
        right="files.sync(file.handle)",
        wrong="pass",
    ),
    PlantedBug(
        "journal: a start does not begin it anew",
        symbol="Journal.__init__",
        right="if not self._open_files() or not self._begin_anew():",
        wrong="if not self._open_files():",
    ),
    PlantedBug(
        "journal: a start overwrites what counts",
        symbol="Journal.__init__",
        right="self._current, self._position, self._sequence = newest.file, newest.end, newest.sequence",
        wrong="self._current, self._position, self._sequence = newest.file, 0, newest.sequence",
    ),
    PlantedBug(
        "journal: missing records do not matter",
        symbol="replay",
        right="if missing_count:",
        wrong="if False:",
    ),
    PlantedBug(
        "journal: a log that is too short is not noticed",
        symbol="_put_back",
        right="if flushed is None or flushed.offset < last.end_offset:",
        wrong="if False:",
    ),
    PlantedBug(
        "journal: records share a page",
        symbol="_padded",
        right="return size + -size % PAGE_BYTES",
        wrong="return size + -size % 512",
    ),
    PlantedBug(
        "journal: checksums are not looked at",
        symbol="journal:read_records",
        right="crc32c(record, seed) != checksum",
        wrong="False",
    ),
    PlantedBug(
        "journal: goes on after its sync has failed",
        symbol="Journal._give_up",
        right="self._failure = error.strerror or str(error)",
        wrong="self._failure = None",
    ),
    PlantedBug(
        "journal: an end in order leaves entries",
        symbol="Journal.close",
        right="self._begin_anew()",
        wrong="pass",
    ),
    PlantedBug(
        "journal: a log rolls before it is synced",
        symbol="SegmentLog.roll",
        right="self.sync()",
        wrong="self.flush()",
    ),
    PlantedBug(
        "journal: a cut leaves the entries",
        symbol="SegmentLog.truncate_suffix",
        right="self._leave_journal()",
        wrong="",
    ),
    PlantedBug(
        "journal: a reset leaves the entries",
        symbol="SegmentLog.reset",
        right="self._leave_journal()",
        wrong="",
    ),
    PlantedBug(
        "journal: a new log has the entries of the one before it",
        symbol="SegmentLog.__init__",
        right="journal.forget(directory)",
        wrong="pass",
    ),
    PlantedBug(
        "journal: left before the log is synced",
        symbol="SegmentLog._leave_journal",
        right="self.sync()",
        wrong="",
    ),
    PlantedBug(
        "journal: a cut forgets how far the log is synced",
        symbol="SegmentLog.truncate_suffix",
        right="self._synced_offset = min(self._synced_offset, end_offset)",
        wrong="",
    ),
    PlantedBug(
        "journal: what is journaled counts as synced",
        symbol="SegmentLog.on_journaled",
        right="self._flushed_offset = unflushed.end_offset",
        wrong="self._flushed_offset = self._synced_offset = unflushed.end_offset",
    ),
    PlantedBug(
        "journal: bytes are journaled twice",
        symbol="SegmentLog.on_journaled",
        right="self._unflushed = []",
        wrong="",
    ),
    PlantedBug(
        "journal: closed in order, but not synced",
        symbol="SegmentLog.close",
        right="""
            if clean and self._fenced is None and not self._is_marked_clean:
                self.sync()
        """,
        wrong="""
            if clean and self._fenced is None and not self._is_marked_clean:
                self.flush()
        """,
    ),
    PlantedBug(
        "journal: believes an old mark of a clean stop",
        symbol="_put_back",
        right="and flushed.offset >= last.end_offset",
        wrong="",
    ),
    PlantedBug(
        "journal: given up with the older file first",
        symbol="Journal._remove_files",
        right="for file in (newest, 1 - newest):",
        wrong="for file in (1 - newest, newest):",
    ),
    PlantedBug(
        "journal: a log on a full disk cannot be deleted",
        symbol="SegmentLog.delete",
        right="with suppress(OSError):",
        wrong="if True:",
    ),
    PlantedBug(
        "journal: what a failed write left comes back",
        symbol="SegmentLog._cut_partial",
        right="self._files.sync(file.handle)",
        wrong="",
    ),
    PlantedBug(
        "journal: what a failed sync left is only synced",
        symbol="_settle",
        right="files.write(handle, (data,), position)",
        wrong="",
    ),
    PlantedBug(
        "journal: the index of what was cut may come back",
        symbol="SegmentLog.truncate_suffix",
        right="""
            self._files.sync_directory(self._directory)
            file = cut.file
        """,
        wrong="file = cut.file",
    ),
    PlantedBug(
        "journal: a sync in the background counts for what came meanwhile",
        symbol="SegmentLog.end_sync",
        right="self._synced_offset = begun.flushed.offset",
        wrong="self._synced_offset = self._flushed_offset",
    ),
    PlantedBug(
        "journal: nobody hears of a sync that failed in the background",
        symbol="SegmentLog.sync",
        right="self.end_sync()",
        wrong="self._begun = None",
    ),
    PlantedBug(
        "journal: two make a file longer",
        symbol="Journal.begin_lengthening",
        right="self._is_lengthening, self._may_lengthen = True, False",
        wrong="",
    ),
    PlantedBug(
        "journal: zeros over records",
        symbol="Journal._add_zeros",
        right="[bytes(end - self._sizes[file])], self._sizes[file])",
        wrong="[bytes(end - self._sizes[file])], 0)",
    ),
    PlantedBug(
        "journal: records where zeros will be",
        symbol="Journal._make_room",
        right="if self._position + needed <= self._sizes[self._current]:",
        wrong="if self._position + needed <= self._file_bytes:",
    ),
    PlantedBug(
        "journal: no log is synced before a file is full",
        symbol="Journal.due",
        right="if not due and self._position >= self._next_due:",
        wrong="if False:",
    ),
]
