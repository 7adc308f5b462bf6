"""Ranges, parked rows and records, each against the simplest thing that could be right."""

from __future__ import annotations

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.leases.parked import Parked, ParkedRow
from drmq.leases.queue_key import QueueKey
from drmq.leases.ranges import Ranges
from drmq.leases.records import (
    Buried,
    Fate,
    Leased,
    LeaseEnded,
    LeaseGranted,
    LeaseRecord,
    LeaseRenewed,
    LogTrimmed,
    QueueRemoved,
    QueueStarted,
    Reason,
    Settled,
    Unparked,
    record_from_bytes,
    record_to_bytes,
)
from drmq.model import TopicId, UnknownFormat

small = st.integers(0, 40)


@given(st.lists(st.tuples(st.booleans(), small, st.integers(0, 6), st.integers(0, 2)), max_size=40))
def test_ranges_behave_like_a_dictionary_of_offsets(script: list[tuple[bool, int, int, int]]) -> None:
    ranges, model = Ranges[int](), dict[int, int]()
    for adds, first, length, value in script:
        last = first + length
        cut = {offset: piece.value for piece in ranges.cut(first, last) for offset in range(piece[0], piece[1] + 1)}
        assert cut == {offset: model.pop(offset) for offset in range(first, last + 1) if offset in model}
        if adds:
            ranges.add(first, last, value)
            model |= dict.fromkeys(range(first, last + 1), value)
        found = {offset: piece.value for piece in ranges for offset in range(piece[0], piece[1] + 1)}
        assert found == model
        assert ranges.count == len(model)
        assert ranges.first == min(model, default=None)
        pieces = list(ranges)
        assert all(a.last + 1 < b.first or a.value != b.value for a, b in itertools.pairwise(pieces)), "merged"


@given(st.lists(st.tuples(small, small), max_size=30), small, st.integers(1, 30))
def test_parked_rows_come_out_when_they_are_due(rows: list[tuple[int, int]], due_ms: int, count_max: int) -> None:
    parked = Parked()
    for number, (due, _) in enumerate(rows):
        parked.add(due, ParkedRow(number, number, 1, 0))
    due_rows = sorted((due, number) for number, (due, _) in enumerate(rows) if due <= due_ms)
    taken = parked.take(due_ms, count_max)
    assert [row.first for row in taken] == [number for _, number in due_rows[:count_max]]
    assert parked.count == len(rows) - len(taken) == len(list(parked))
    left = [row.first for _, row in parked]
    assert parked.first() == min(left, default=None)


def test_trimming_cuts_parked_runs() -> None:
    parked = Parked()
    parked.add(5, ParkedRow(0, 9, 1, 0))
    parked.add(5, ParkedRow(10, 11, 1, 0))
    parked.add(9, ParkedRow(12, 20, 1, 0))
    parked.trim(15)
    assert list(parked) == [(9, ParkedRow(15, 20, 1, 0))]
    assert (parked.count, parked.due_times()) == (6, [9])


def test_a_parked_record_costs_few_bytes() -> None:
    """A hundred thousand of them fit into a few megabytes."""
    parked = Parked()
    for offset in range(1_000):
        parked.add(offset // 10, ParkedRow(offset, offset, 3, 1_700_000_000_000))
    assert sum(sys.getsizeof(rows) for rows in parked._rows.values()) < 60 * 1_000


names = st.text(max_size=20)
numbers = st.integers(0, 2**62)
keys = st.builds(QueueKey, names, st.binary(min_size=16, max_size=16).map(TopicId), st.integers(0, 2**31))
leased = st.builds(Leased, numbers, numbers, st.integers(0, 65_535), numbers)
settled = st.builds(
    Settled, numbers, numbers, st.sampled_from(Fate), st.integers(0, 65_535), numbers, numbers, st.sampled_from(Reason)
)
runs = st.lists(st.tuples(numbers, numbers), max_size=5).map(tuple)
records = st.one_of(
    st.builds(QueueStarted, keys, numbers),
    st.builds(LeaseGranted, keys, numbers, names, st.integers(0, 2**31), numbers, st.lists(leased).map(tuple)),
    st.builds(LeaseEnded, keys, names, st.lists(settled).map(tuple), numbers),
    st.builds(LeaseRenewed, keys, numbers, names, st.integers(0, 2**31), runs),
    st.builds(Unparked, keys, numbers, st.integers(0, 2**31)),
    st.builds(Buried, keys, runs),
    st.builds(LogTrimmed, keys, numbers),
    st.builds(QueueRemoved, keys),
)


@given(records)
def test_records_survive_their_bytes(record: LeaseRecord) -> None:
    assert record_from_bytes(*record_to_bytes(record)) == record


@given(records, st.data())
def test_a_record_that_is_cut_is_never_taken_for_another(record: LeaseRecord, data: st.DataObject) -> None:
    key, value = record_to_bytes(record)
    if value is not None:
        cut = data.draw(st.integers(0, len(value) - 1))
        with pytest.raises((ValueError, UnknownFormat)):
            record_from_bytes(key, value[:cut])
        with pytest.raises(ValueError, match="too many"):
            record_from_bytes(key, value + b"x")


def test_a_record_of_a_later_release_is_refused() -> None:
    key, _ = record_to_bytes(QueueStarted(QueueKey("g", TopicId(bytes(16)), 0), 0))
    with pytest.raises(UnknownFormat, match="kind ff"):
        record_from_bytes(key, b"\xff")
    with pytest.raises(UnknownFormat, match="key format 02"):
        record_from_bytes(b"\x02" + key[1:], b"\x01")
