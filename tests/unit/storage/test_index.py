"""The sparse index, leader epochs, checked spans and the walk over a file: the small parts, each alone."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import LeaderEpoch, Offset
from drmq.storage import EpochStart, EpochTable
from drmq.storage.index import HEADER_SIZE, SparseIndex, Summary, decode_body, decode_header, encode
from drmq.storage.spans import SPANS_MAX, Spans
from drmq.storage.walk import BadBatch, check, find_batch, walk
from drmq.testing.files import FakeFiles
from support.storage_samples import batch, joined, row


def sample() -> SparseIndex:
    index = SparseIndex(Offset(1000), 100)
    for offset, position, time in ((1000, 0, -1), (1010, 100, 50), (1025, 230, 50), (1030, 350, 90)):
        index.add(Offset(offset), position, time)
    return index


def test_lookups_find_the_entry_before() -> None:
    index = sample()
    assert [index.before_offset(Offset(o)) for o in (1000, 1009, 1010, 1024, 1025, 9999)] == [0, 0, 100, 100, 230, 350]
    assert [index.after_offset(Offset(o), 500) for o in (1000, 1001, 1025, 1026, 1031)] == [0, 100, 230, 350, 500]
    assert [index.before_position(p, Offset(1 << 50)) for p in (0, 99, 100, 349, 350, 999)] == [
        0,
        0,
        100,
        230,
        350,
        350,
    ]
    assert index.before_position(999, Offset(1012)) == 100
    assert [index.before_time(t) for t in (-1, 0, 50, 51, 90, 91)] == [0, 0, 0, 230, 230, 350]


def test_an_entry_is_due_after_an_interval() -> None:
    index = SparseIndex(Offset(0), 100)
    assert index.is_due(0)
    index.add(Offset(0), 0, -1)
    assert not index.is_due(99)
    assert index.is_due(100)


def test_a_cut_index_knows_only_what_is_left() -> None:
    assert list(sample().cut(230).positions) == [0, 100]
    assert len(sample().cut(0)) == 0


def test_an_index_file_gives_back_what_went_in() -> None:
    summary = Summary(Offset(1000), Offset(1040), 420, 7, 95, Offset(1033))
    epochs = EpochTable([EpochStart(LeaderEpoch(3), Offset(1000)), EpochStart(LeaderEpoch(4), Offset(1020))])
    data = encode(sample(), summary, epochs)
    header = decode_header(data)
    assert header is not None
    assert header.summary == summary
    body = decode_body(header, data[HEADER_SIZE:])
    assert body is not None
    index, found = body
    assert (index.offsets, index.positions, index.times) == (sample().offsets, sample().positions, sample().times)
    assert (index.interval_bytes, index.base_offset, found) == (100, 1000, epochs)
    for end in range(HEADER_SIZE):
        assert decode_header(data[:end]) is None
    assert decode_body(header, data[HEADER_SIZE:-1]) is None
    assert decode_body(header, data[HEADER_SIZE:] + b"x") is None


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), max_size=40))
def test_spans_never_claim_what_was_not_added(ranges: list[tuple[int, int]]) -> None:
    spans, added = Spans(), set[int]()
    for start, size in ranges:
        spans.add(start, start + size)
        added |= set(range(start, start + size))
        assert spans.covers(start, start + size)
    for start in range(0, 230, 7):
        if spans.covers(start, start + 5):
            assert added >= set(range(start, start + 5))


def test_spans_merge_and_are_bounded() -> None:
    spans = Spans()
    for start in range(0, 1000, 10):
        spans.add(start, start + 10)
    assert spans.covers(0, 1000)
    scattered = Spans()
    for start in range(1000):
        scattered.add(start * 10, start * 10 + 1 + start % 3)
    assert len(scattered._spans) == SPANS_MAX


def make_file(content: bytes) -> tuple[FakeFiles, int]:
    files = FakeFiles()
    handle = files.open("/f", create=True)
    files.write(handle, [content], 0)
    return files, handle


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("chunk_bytes", [64, 100, 150, 1000, 1 << 20])
def test_a_walk_meets_every_batch(verify: bool, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drmq.storage.walk.CHUNK_BYTES", chunk_bytes if verify else chunk_bytes * 64)
    batches = [batch(5, 2, 300), batch(7, 1, 0), batch(8, 9, 77), batch(17, 1, 1000)]
    content = joined(batches)
    files, handle = make_file(content)
    found = list(walk(files, handle, 0, len(content), Offset(5), verify=verify))
    assert [header for _, header in found] == [header for header, _ in batches]


def test_a_walk_stops_at_every_torn_end() -> None:
    content = joined(row(0, 3))
    size = len(content) // 3
    for end in range(len(content)):
        files, handle = make_file(content[:end])
        if end % size == 0:
            assert len(list(walk(files, handle, 0, end, Offset(0)))) == end // size
            continue
        with pytest.raises(BadBatch) as caught:
            list(walk(files, handle, 0, end, Offset(0)))
        assert (caught.value.position, caught.value.offset) == (end // size * size, end // size)


@given(st.binary(max_size=300))
def test_no_bytes_break_a_walk(data: bytes) -> None:
    files, handle = make_file(data)
    with suppress(BadBatch):
        assert list(walk(files, handle, 0, len(data), Offset(0))) == []


def test_checked_bytes_are_whole_dense_and_begin_where_asked() -> None:
    batches = row(10, 4, count=3)
    check(joined(batches), 0, Offset(11))
    check(b"", 0, Offset(0))
    wrong: list[tuple[bytes, int]] = [
        (joined(batches), 9),
        (joined(batches), 13),
        (joined([batches[0], batches[2]]), 10),
        (joined(batches)[:-1], 10),
        (joined(batches)[:50], 10),
        (bytes(100), 0),
    ]
    for data, offset in wrong:
        with pytest.raises(BadBatch):
            check(data, 0, Offset(offset))


def test_a_sound_batch_is_found_wherever_it_lies() -> None:
    wanted = batch(50)[1]
    for junk in (b"", b"\2" * 40, bytes(1000), batch(40)[1][:-1]):
        assert find_batch(junk + wanted, Offset(45)) == len(junk)
    assert find_batch(wanted, Offset(50)) is None
    assert find_batch(wanted[:-1] + b"x", Offset(45)) is None
    assert find_batch(b"\2" * 500, Offset(0)) is None


def test_epochs_only_rise() -> None:
    table = EpochTable().with_batches(
        [(LeaderEpoch(e), Offset(o)) for e, o in ((-1, 0), (0, 1), (0, 2), (4, 3), (2, 4))]
    )
    assert list(table) == [(0, 1), (4, 3)]
    assert table.latest == 4
    assert table.without_prefix(Offset(2)) == ((0, 2), (4, 3))
    assert table.without_prefix(Offset(3)) == ((4, 3),)
    assert table.without_prefix(Offset(0)) == table
    assert table.without_suffix(Offset(3)) == ((0, 1),)
