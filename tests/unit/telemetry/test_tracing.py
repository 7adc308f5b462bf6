"""Traces as text, and what happens in a program that does not trace: nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from drmq.kafka.produce_traces import SPANS_PER_BATCH, parents_in
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch
from drmq.telemetry.tracing import HEADER, TraceParent, parent_of, parse

TEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_as_text() -> None:
    found = parse(TEXT)
    assert found == TraceParent(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)
    assert found is not None
    assert found.is_sampled
    assert str(found) == TEXT
    assert parse(TEXT.encode()) == found
    later = parse(TEXT.replace("00-", "01-", 1) + "-more")
    assert later == found, "later versions may add to it"
    unsampled = parse(TEXT[:-1] + "0")
    assert unsampled is not None
    assert not unsampled.is_sampled


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        TEXT[:-1],
        TEXT + "-more",
        TEXT + "0",
        "ff" + TEXT[2:],
        TEXT.upper(),
        TEXT.replace("4", "g", 1),
        "00-" + "0" * 32 + TEXT[35:],
        TEXT[:36] + "0" * 16 + "-01",
        b"\xff" * 55,
    ],
)
def test_what_is_no_trace_is_ignored(text: str | bytes | None) -> None:
    assert parse(text) is None


def batch(*values: bytes | None, codec: Codec = Codec.NONE) -> memoryview:
    records = [
        Record(Offset(index), 0, None, b"v" * 50, () if value is None else (("a", b"b"), (HEADER, value)))
        for index, value in enumerate(values)
    ]
    return memoryview(encode_batch(records, codec=codec))


def test_traces_are_found_in_the_bytes_of_a_batch() -> None:
    other = TEXT.replace("4736", "4737")
    assert parents_in(batch(None, TEXT.encode(), None, other.encode(), TEXT.encode())) == [
        TEXT.encode(),
        other.encode(),
    ]
    assert parents_in(batch(None, b"not one")) == []
    assert parents_in(batch(TEXT.encode(), codec=Codec.GZIP)) == [], "compressed batches are not looked at"
    assert parents_in(memoryview(b"")) == []
    many = [TEXT.replace("4736", f"{number:04x}").encode() for number in range(100)]
    assert parents_in(batch(*many)) == many[:SPANS_PER_BATCH]


def test_a_batch_that_ends_in_the_middle_of_a_trace_has_no_valid_one() -> None:
    whole = batch(TEXT.encode())
    at = bytes(whole).index(HEADER.encode())
    for end in range(at, at + 60):
        assert all(parse(found) is None for found in parents_in(whole[:end]))


def test_the_trace_of_a_record() -> None:
    assert parent_of([("a", b"b"), (HEADER, TEXT.encode())]) == parse(TEXT)
    assert parent_of([("a", b"b"), (HEADER, None)]) is None
    assert parent_of(None) is None


def test_nothing_of_opentelemetry_is_imported_by_itself() -> None:
    """Also where it is installed: a client, a node and a gateway that do not trace do not pay for it."""
    program = """
import sys
import drmq
from drmq.client import sender, traces, worker
from drmq.gateway import app
from drmq.server import node
from drmq.telemetry import tracing
assert tracing.current() is None and tracing.begin_sending("t", None) is None
assert tracing.begin_request("r", {}, None) is None
with tracing.active(None):
    pass
loaded = [name for name in sys.modules if name.startswith("opentelemetry")]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
