"""The pieces that compiled and hand-written readers share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.wire import ProtocolError
from drmq.wire.codec import check_count, read_uvarint, skip_tags, write_uvarint
from drmq.wire.fields import Versions


@given(st.integers(0, 2**35 - 1))
def test_uvarint_round_trip(value: int) -> None:
    out = bytearray(b"x")
    write_uvarint(value, out)
    assert read_uvarint(out + b"tail", 1) == (value, len(out))


def test_uvarint_of_more_than_five_bytes_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(b"\x80" * 5 + b"\x01", 0)


def test_count_must_fit_the_bytes_left() -> None:
    check_count(3, 4, 10, 22)
    for count, end in [(4, 22), (-1, 22), (200_001, 10**9)]:
        with pytest.raises(ProtocolError):
            check_count(count, 4, 10, end)


def test_skip_tags_stops_behind_the_block() -> None:
    assert skip_tags(b"\x02\x00\x01a\x05\x00rest", 0, 11) == 6
    with pytest.raises(ProtocolError):
        skip_tags(b"\x01\x00\x05ab", 0, 5)


@pytest.mark.parametrize(
    ("text", "inside", "outside"), [("3+", [3, 99], [2]), ("0-2", [0, 2], [3]), ("7", [7], [6, 8])]
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
