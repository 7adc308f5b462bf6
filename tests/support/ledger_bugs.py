"""The planted bugs of the ledger; `tests/unit/storage/planted_bugs.py` tries them."""

from __future__ import annotations

from support.planted_bugs import PlantedBug

LEDGER_BUGS = [
    PlantedBug(
        "ledger: no fsync",
        symbol="Ledger._store",
        right="""
            self._files.sync(file.handle)
            self._end += len(record)
        """,
        wrong="self._end += len(record)",
    ),
    PlantedBug(
        "ledger: fsync before write",
        symbol="Ledger._store",
        right="""
            self._files.write(file.handle, (record,), self._end)
            self._files.sync(file.handle)
        """,
        wrong="""
            self._files.sync(file.handle)
            self._files.write(file.handle, (record,), self._end)
        """,
    ),
    PlantedBug(
        "ledger: shown before it is durable",
        symbol="Ledger._store",
        right="record = framed(self._end, body)",
        wrong="""
            record = framed(self._end, body)
            self._facts = facts
        """,
    ),
    PlantedBug(
        "ledger: no directory sync at create",
        symbol="_put_in_place",
        right="files.sync_directory(os.path.dirname(path))",
        wrong="",
    ),
    PlantedBug(
        "ledger: no sync of ancestors",
        symbol="Ledger.create",
        right="sync_ancestors(files, directory, pool.known_directories)",
        wrong="",
    ),
    PlantedBug(
        "ledger: file gets its name unsynced",
        symbol="_write_beside",
        right="files.sync(file.handle)",
        wrong="",
    ),
    PlantedBug(
        "ledger: created over another",
        symbol="Ledger.create",
        right='assert not files.exists(path), f"{path} exists; it must be opened, not created"',
        wrong="",
    ),
    PlantedBug(
        "ledger: what was found is not synced",
        symbol="Ledger._settle",
        right="self._files.sync(file.handle)",
        wrong="",
    ),
    PlantedBug(
        "ledger: what was found is synced but not written again",
        symbol="Ledger._settle",
        right="(data[durable : self._end], bytes(remains)), durable)",
        wrong="(bytes(remains),), self._end)",
    ),
    PlantedBug(
        "ledger: what was found may have no durable name",
        symbol="Ledger.open",
        right="files.sync_directory(directory)",
        wrong="",
    ),
    PlantedBug(
        "ledger: remains of a write not wiped out",
        symbol="Ledger._settle",
        right='remains = max(len(data.rstrip(b"\\0")) - self._end, 0)',
        wrong="remains = 0",
    ),
    PlantedBug(
        "ledger: marks say too much",
        symbol="Ledger._store",
        right="self._files.write(file.handle, (record,), self._end)",
        wrong="""
            self._files.write(file.handle, (packed_marks(self._commit, self._end + len(record)),), MARKS_AT)
            self._files.write(file.handle, (record,), self._end)
        """,
    ),
    PlantedBug(
        "ledger: marks never move",
        symbol="Ledger._store",
        right="self._write_marks(file)",
        wrong="",
    ),
    PlantedBug(
        "ledger: failure not fenced",
        symbol="Ledger._fence",
        right="""
            self._fenced = f"{action} failed: {error.strerror or error}"
            _logger.error("%s: %s", self._path, self._fenced)
            return LogFenced(self._path, self._fenced)
        """,
        wrong='return LogFenced(self._path, f"{action} failed: {error.strerror or error}")',
    ),
    PlantedBug(
        "ledger: no space kept back",
        symbol="Ledger._reserve",
        right="if needed + RESERVE_BYTES_MIN <= self._size:",
        wrong="if needed <= self._size:",
    ),
    PlantedBug(
        "ledger: a full disk fences",
        symbol="Ledger._reserve",
        right="if error.errno not in _FULL:",
        wrong="if True:",
    ),
    PlantedBug(
        "ledger: rewrite drops entries",
        symbol="Ledger._maybe_rewrite",
        right="content = whole_file(self._facts, self._commit)",
        wrong="content = whole_file(self._facts._replace(entries=()), self._commit)",
    ),
    PlantedBug(
        "ledger: rewrite drops the ballot",
        symbol="Ledger._maybe_rewrite",
        right="content = whole_file(self._facts, self._commit)",
        wrong="content = whole_file(self._facts._replace(ballot=NO_FACTS.ballot), self._commit)",
    ),
    PlantedBug(
        "ledger: rewrite goes on with the old file",
        symbol="Ledger._maybe_rewrite",
        right="""
            self._file.release()  # The next change opens the new file.
            self._end, self._size = len(content), len(content) + RESERVE_BYTES
            self._rewrite_at = self._end
        """,
        wrong="self._rewrite_at = self._end",
    ),
    PlantedBug(
        "ledger: rewrite that may be undone not fenced",
        symbol="Ledger._maybe_rewrite",
        right='self._fence("replacing the file", error)',
        wrong="",
    ),
    PlantedBug(
        "ledger: rewrite that fails fences",
        symbol="Ledger._maybe_rewrite",
        right="""
            with suppress(OSError):
                self._files.remove(_temporary(self._path))
        """,
        wrong='self._fence("rewriting", error)',
    ),
    PlantedBug(
        "ledger: never rewritten",
        symbol="Ledger._maybe_rewrite",
        right="if self._end < self._rewrite_at:",
        wrong="if self._end:",
    ),
    PlantedBug(
        "ledger: rewritten though it is live",
        symbol="Ledger._maybe_rewrite",
        right="""
            if 2 * len(content) > self._end:
                return
        """,
        wrong="",
    ),
    PlantedBug(
        "ledger: CRC not checked",
        symbol="_record_at",
        right="return body if _checksum(position, body) == checksum else None",
        wrong="return body",
    ),
    PlantedBug(
        "ledger: CRC without position",
        symbol="ledger_format:_checksum",
        right="_PLACE.pack(position, len(body))",
        wrong="_PLACE.pack(0, len(body))",
    ),
    PlantedBug(
        "ledger: head not checked",
        symbol="check_head",
        right="""
            if magic != _MAGIC or data[: _HEAD.size] != _HEAD.pack(magic, version, crc32c(data[: _HEAD.size - 4])):
        """,
        wrong="if False:",
    ),
    PlantedBug(
        "ledger: middle damage taken for tail: mark",
        symbol="check_end",
        right="if end < durable:",
        wrong="if False:",
    ),
    PlantedBug(
        "ledger: middle damage taken for tail: sound record behind",
        symbol="check_end",
        right="_record_at(data, position) is not None",
        wrong="False",
    ),
    PlantedBug(
        "ledger: first record taken for tail",
        symbol="check_end",
        right="if end == _RECORDS_AT:",
        wrong="if False:",
    ),
    PlantedBug(
        "ledger: torn marks trusted",
        symbol="read_marks",
        right="if data[MARKS_AT : MARKS_AT + _MARKS.size] != packed_marks(commit, durable) or durable < _RECORDS_AT:",
        wrong="if durable < _RECORDS_AT:",
    ),
    PlantedBug(
        "ledger: ballot term may fall",
        symbol="_check_ballot",
        right="new.term < old.term or",
        wrong="",
    ),
    PlantedBug(
        "ledger: vote may change",
        symbol="_check_ballot",
        right="or (new.term == old.term and old.vote not in (NO_VOTE, new.vote))",
        wrong="",
    ),
    PlantedBug(
        "ledger: truncate forgotten at reload",
        symbol="ledger_format:read_records",
        right="facts = after(facts, body)",
        wrong="facts = facts if body[0] == _TRUNCATE else after(facts, body)",
    ),
    PlantedBug(
        "ledger: entries out of order",
        symbol="after",
        right="_check_order(facts.base, facts.entries, added)",
        wrong="",
    ),
    PlantedBug(
        "ledger: rebase keeps the entry at the base",
        symbol="after",
        right="entry.index > base.index",
        wrong="entry.index >= base.index",
    ),
    PlantedBug(
        "ledger: reset forgets the ballot",
        symbol="Ledger.reset",
        right="ballot or self.ballot, ()",
        wrong="ballot or NO_FACTS.ballot, ()",
    ),
    PlantedBug(
        "ledger: reset keeps the entries",
        symbol="Ledger.reset",
        right="ballot or self.ballot, ()",
        wrong="ballot or self.ballot, tuple(e for e in self.entries if e.index > base.index)",
    ),
    PlantedBug(
        "ledger: commit index falls",
        symbol="Ledger.note_commit",
        right="if index > self.commit:",
        wrong="if index != self.commit:",
    ),
]
