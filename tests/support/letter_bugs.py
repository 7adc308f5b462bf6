"""The planted bugs in reading and writing dead letters; `tests/unit/planted_bugs.py` tries them."""

from __future__ import annotations

from support.planted_bugs import PlantedBug

LETTER_BUGS = {
    "tests/unit/broker/services/test_dead_letters.py": [
        PlantedBug(
            "dead letters are decompressed beside others",
            symbol="DeadLetters._read",
            right="async with broker.services.decompressing:",
            wrong="if True:",
        ),
    ],
    "tests/unit/broker/services/redrive/test_letter_pages.py": [
        PlantedBug(
            "letters are decompressed beside others",
            symbol="LetterPages._page",
            right="self._broker.services.decompressing if is_packed else nullcontext()",
            wrong="nullcontext()",
        ),
        PlantedBug(
            "one caller has all turns to read letters",
            symbol="LetterPages.__init__",
            right="FairQueue(_PAGES_MAX, 1)",
            wrong="FairQueue(99, 99)",
        ),
        PlantedBug(
            "a page of letters has no end inside a batch",
            symbol="page_of",
            right="if kept_bytes >= bytes_max:",
            wrong="if False:",
        ),
        PlantedBug(
            "letters behind the end of a page are left out",
            symbol="page_of",
            right="return Page(letters, record.offset,",
            wrong="return Page(letters, header.next_offset,",
        ),
        PlantedBug(
            "a page of letters ends only after letters",
            symbol="page_of",
            right="if plain_bytes >= bytes_max or kept_bytes",
            wrong="if kept_bytes",
        ),
        PlantedBug(
            "a broken batch of letters costs nothing",
            symbol="page_of",
            right="0 if header.codec == Codec.NONE else size_max",
            wrong="0",
        ),
        PlantedBug(
            "a broken batch of letters is on one page",
            symbol="page_of",
            right="max(1, (bytes_max - kept_bytes) // _STRANGER_BYTES)",
            wrong="99",
        ),
        PlantedBug(
            "a request for letters decompresses without an end",
            symbol="RedriveService._pages",
            right="if plain_bytes >= _REQUEST_BYTES_MAX:",
            wrong="if False:",
        ),
        PlantedBug(
            "records of an ordinary topic are looked for as letters",
            symbol="RedriveService.status",
            right="self._letter_topic(name) if with_letters else self._topic(name)",
            wrong="self._topic(name)",
        ),
    ],
}
"""By the tests that must notice them."""
