"""Records as text: formats, JSON, and the way back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.server.cli.record_text import (
    BadRecord,
    NewRecord,
    ReadRecord,
    compile_format,
    from_json,
    from_text,
    to_json,
    unescape,
)

HEADER_NAMES = st.characters(codec="utf-8", exclude_characters="\0")
RECORD = ReadRecord("orders", 3, 42, 1_793_534_400_000, b"key", b"value", [("a", b"1"), ("b", None)])


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t %p %o", b"orders 3 42"),
        ("%k=%v|%s", b"key=value|value"),
        ("%h", b"a=1,b="),
        ("%T %d", b"1793534400000 2026-11-01T12:00:00.000Z"),
        ("%K/%S", b"3/5"),
        (r"100%%\n\t\\\x00\0", b"100%\n\t\\\0\0"),
        ("grün", "grün".encode()),
        ("", b""),
    ],
)
def test_format(text: str, printed: bytes) -> None:
    """Each sign stands for what the manual says."""
    assert compile_format(text)(RECORD) == printed


def test_null_prints_nothing_and_has_size_minus_one() -> None:
    """A null and an empty value can be told apart by size."""
    empty = ReadRecord("t", 0, 0, -1, None, None, [])
    assert compile_format("[%k][%v][%K][%S][%d]")(empty) == b"[][][-1][-1][-]"


@pytest.mark.parametrize("text", ["%", "%z", "\\", "\\q", "\\x1", "abc%"])
def test_unknown_format_is_refused(text: str) -> None:
    """A typing mistake does not print something else."""
    with pytest.raises(ValueError, match="Allowed"):
        compile_format(text)


def test_separator_may_be_escaped() -> None:
    """`-K '\\t'` is a tab, and a percent sign is itself."""
    assert unescape("\\t") == b"\t"
    assert unescape("%") == b"%"


def test_json_of_text_and_of_bytes() -> None:
    """UTF-8 is a string, null is null, other bytes are base64."""
    record = ReadRecord("t", 0, 1, 5, None, b"\xff\x00", [("h", b"\xfe"), ("n", None)])
    content = json.loads(to_json(record))
    assert content["key"] is None
    assert content["value"] == {"base64": "/wA="}
    assert content["headers"] == [["h", {"base64": "/g=="}], ["n", None]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"value": "\\ud800"}', "surrogate"),
        ('{"value": 1, "headers": {"h": "\\ud800"}}', "surrogate"),
        ('{"value": 1, "headers": {"\\ud800": "h"}}', "surrogate"),
        ('{"value": 1, "headers": [["\\udcff", "h"]]}', "surrogate"),
        ('{"value": 1, "headers": {"a\\u0000b": "h"}}', "NUL"),
        ("[" * 100_000, "levels"),
        ('{"value": 1, "partition": 2147483648}', '"partition" is 2147483648'),
        ('{"value": 1, "partition": -1}', '"partition" is -1'),
        ('{"value": 1, "timestamp_ms": -2}', '"timestamp_ms" is -2'),
        ('{"value": 1, "timestamp_ms": "noon"}', "is not a time"),
        (f'{{"value": 1, "timestamp_ms": {"9" * 5_000}}}', "not JSON"),
        (f'{{"value": 1, "timestamp_ms": "{"9" * 5_000}"}}', "after the year 9999"),
    ],
)
def test_what_a_client_would_choke_on_is_refused(line: str, reason: str) -> None:
    """With a reason, so that the line can be named."""
    with pytest.raises(BadRecord, match=reason):
        from_json(line)


def test_record_without_a_time_has_none_again() -> None:
    """`consume -o json` prints -1 for it."""
    assert from_json('{"value": "x", "timestamp_ms": -1}').timestamp_ms is None


def test_half_a_surrogate_pair_inside_json_stays_as_it_was_written() -> None:
    assert from_json('{"value": {"a": "\\ud800"}}').value == b'{"a":"\\ud800"}'


@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(st.text(HEADER_NAMES, max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    st.integers(0, 2**40),
)
def test_json_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    """What `consume -o json` prints, `produce --input json` sends again, byte for byte."""
    record = ReadRecord("t", 2, 7, timestamp_ms, key, value, headers)
    assert from_json(to_json(record)) == NewRecord(key, value, headers, 2, timestamp_ms)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"value": "a"}', b"a"),
        ('{"value": null}', None),
        ('{"value": {"total": 10}}', b'{"total":10}'),
        ('{"value": [1, "ü"]}', '[1,"ü"]'.encode()),
        ('{"value": 7}', b"7"),
        ('{"value": {"base64": "/wA="}}', b"\xff\x00"),
    ],
)
def test_value_may_be_any_json(line: str, value: bytes | None) -> None:
    """An object is sent as its JSON text."""
    assert from_json(line).value == value


def test_headers_may_be_an_object() -> None:
    """The short form, for people."""
    assert from_json('{"value": "x", "headers": {"a": "1"}}').headers == [("a", b"1")]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"value": "x", "partition": "one"}',
        '{"value": "x", "partition": true}',
        '{"value": "x", "headers": 5}',
        '{"value": "x", "headers": [["a"]]}',
        '{"value": {"base64": "?"}}',
        '{"value": {"base64": 5}}',
    ],
)
def test_line_that_is_no_record(line: str) -> None:
    """Each is refused with a reason."""
    with pytest.raises(BadRecord):
        from_json(line)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [(b"k:v", b"k", b"v"), (b"k:v:w", b"k", b"v:w"), (b"v", None, b"v"), (b":v", b"", b"v"), (b"", None, b"")],
)
def test_text_with_a_key(line: bytes, key: bytes | None, value: bytes) -> None:
    """The first separator splits; without one there is no key."""
    assert from_text(line, b":") == NewRecord(key, value, [])
