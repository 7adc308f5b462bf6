"""A ledger with damage: refused wherever a vote might be missing, repaired where only an unfinished call is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c

from drmq.storage.ledger import Ballot, Ledger, LedgerCorrupt
from drmq.storage.ledger_format import MARKS_AT, Facts, LedgerTooNew, framed, whole_record
from drmq.testing.files import FakeFiles
from support.ledger_samples import BASE, DIRECTORY, PATH, entry, go_on, shown

HEAD_BYTES = 512


def records_end(files: FakeFiles) -> int:
    """Where the records end, if the last of them does not end in a zero."""
    return len(files.content(PATH).rstrip(b"\0"))


def lose_marks(files: FakeFiles) -> None:
    """As after a power cut that tore them."""
    content = files.content(PATH)
    files.replace_content(PATH, content[:MARKS_AT] + bytes(20) + content[MARKS_AT + 20 :])


def damaged(change: Callable[[FakeFiles], None]) -> FakeFiles:
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    ledger.save_ballot(Ballot(1, 1))
    ledger.append([entry(1, 1, b"some payload")])
    ledger.save_ballot(Ballot(2, 0x55 << 56))
    ledger.close()
    change(files)
    return files


def refused(files: FakeFiles) -> LedgerCorrupt:
    content = files.content(PATH)
    with pytest.raises(LedgerCorrupt, match="nothing was changed") as caught:
        Ledger.open(DIRECTORY, files)
    assert files.content(PATH) == content
    return caught.value


def test_a_flipped_bit_anywhere_in_the_records_or_the_head_is_refused() -> None:
    end = records_end(damaged(lambda files: None))
    for position in [*range(12), *range(HEAD_BYTES, end)]:
        error = refused(damaged(lambda files, at=position: files.flip_bit(PATH, at, at % 8)))  # type: ignore[misc]
        assert error.position <= position


def test_a_flipped_bit_in_the_marks_is_harmless() -> None:
    for position in range(12, 64):
        files = damaged(lambda files, at=position: files.flip_bit(PATH, at, at % 8))  # type: ignore[misc]
        assert Ledger.open(DIRECTORY, files).ballot == Ballot(2, 0x55 << 56)


def test_a_flipped_bit_behind_the_records_is_wiped_out(caplog: pytest.LogCaptureFixture) -> None:
    for distance in (0, 1, 7, 8, 100, 4000):
        files = damaged(lambda files: None)
        end = records_end(files)
        files.flip_bit(PATH, end + distance)
        caplog.clear()
        ledger = Ledger.open(DIRECTORY, files)
        assert f"wiped out {distance + 1} bytes of an unfinished write at {end}" in caplog.text
        assert records_end(files) == end
        promised = go_on(ledger)
        assert shown(Ledger.open(DIRECTORY, files)) == promised


def test_a_file_cut_anywhere_is_refused() -> None:
    content = damaged(lambda files: None).content(PATH)
    end = len(content.rstrip(b"\0"))
    for size in range(end):
        refused(damaged(lambda files, to=size: files.replace_content(PATH, content[:to])))  # type: ignore[misc]
    files = damaged(lambda files: files.replace_content(PATH, content[:end]))
    promised = go_on(Ledger.open(DIRECTORY, files))
    assert shown(Ledger.open(DIRECTORY, files.after_power_cut(0))) == promised


def test_zeros_in_place_of_records_are_refused() -> None:
    content = damaged(lambda files: None).content(PATH)
    end = len(content.rstrip(b"\0"))
    for start in (0, HEAD_BYTES, HEAD_BYTES + 60, end - 30, end - 1):
        for stop in (start + 1, start + 40, end):
            zeroed = content[:start] + bytes(stop - start) + content[stop:]
            if zeroed != content:
                refused(damaged(lambda files, to=zeroed: files.replace_content(PATH, to)))  # type: ignore[misc]
    refused(damaged(lambda files: files.replace_content(PATH, bytes(len(content)))))
    refused(damaged(lambda files: files.replace_content(PATH, b"")))


def test_without_marks_a_bad_record_before_a_sound_one_is_refused_and_a_bad_last_one_is_cut() -> None:
    """A power cut may tear the marks. Then only the last record can be taken for an unfinished write."""
    files = damaged(lose_marks)
    content, end = files.content(PATH), records_end(files)
    last = end - 25
    for position in range(HEAD_BYTES, end):
        files.replace_content(PATH, content)
        files.flip_bit(PATH, position, position % 8)
        if position < last:
            assert "sound one follows" in str(refused(files)) or position < HEAD_BYTES + 70
        else:
            ledger = Ledger.open(DIRECTORY, files)
            assert shown(ledger) == (BASE, Ballot(1, 1), (entry(1, 1, b"some payload"),))
            promised = go_on(ledger)
            assert shown(Ledger.open(DIRECTORY, files)) == promised


def test_the_first_record_is_never_an_unfinished_write() -> None:
    files = FakeFiles()
    Ledger.create(DIRECTORY, BASE, files)
    lose_marks(files)
    files.flip_bit(PATH, HEAD_BYTES + 9)
    assert refused(files).problem == "the first record is unreadable"


def test_a_record_in_a_payload_is_no_record() -> None:
    """A torn write may end in the middle of a payload, whatever that is."""
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    inner = framed(HEAD_BYTES, whole_record(Facts(BASE, Ballot(77, 7), ())))
    before = records_end(files)
    ledger.append([entry(1, 1, inner)])
    content = files.content(PATH)
    files.replace_content(PATH, content[:before] + bytes(20) + content[before + 20 :])
    lose_marks(files)
    assert shown(Ledger.open(DIRECTORY, files)) == (BASE, Ballot(0), ())


def test_a_later_version_is_named() -> None:
    files = damaged(lambda files: None)
    content = files.content(PATH)
    head = content[:4] + (2).to_bytes(4, "little")
    files.replace_content(PATH, head + crc32c(head).to_bytes(4, "little") + content[12:])
    with pytest.raises(LedgerTooNew, match=r"version 2 of the format.*nothing was changed"):
        Ledger.open(DIRECTORY, files)


def test_a_sound_record_that_breaks_a_rule_is_refused() -> None:
    files = damaged(lambda files: None)
    content, end = files.content(PATH), records_end(files)
    for body in (b"\x02" + bytes(16), b"\x09", b"\x02short"):
        record = framed(end, body)
        files.replace_content(PATH, content[:end] + record + bytes(100))
        assert refused(files).position == end


def test_an_older_copy_cannot_be_told_from_the_file() -> None:
    """Why a ledger must not be restored from a backup, and the message says so."""
    files = FakeFiles()
    ledger = Ledger.create(DIRECTORY, BASE, files)
    ledger.save_ballot(Ballot(1, 1))
    copy = files.content(PATH)
    ledger.save_ballot(Ballot(2, 2))
    ledger.close()
    files.replace_content(PATH, copy)
    assert Ledger.open(DIRECTORY, files).ballot == Ballot(1, 1)
    files.flip_bit(PATH, HEAD_BYTES)
    assert "do not restore an older copy" in str(refused(files))
