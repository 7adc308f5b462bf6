"""Positions, limits and splits keep their promises for all inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import TopicPartition
from drmq.spark.errors import SparkSideError
from drmq.spark.offsets import (
    Position,
    Range,
    distribute,
    fitting_count,
    from_json,
    limit_bytes,
    limit_rows,
    ranges_between,
    split,
    to_json,
)

places = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 12))
sizes = st.dictionaries(places, st.integers(0, 10_000), max_size=12)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    offsets = draw(st.dictionaries(places, st.integers(0, 2**62), max_size=12))
    starts = {place: draw(st.integers(0, offset)) for place, offset in offsets.items() if draw(st.booleans())}
    topics = sorted({place.topic for place in offsets})
    return Position({name: draw(st.text("abcdef", min_size=1)) for name in topics}, offsets, starts)


@given(positions())
def test_a_logged_position_comes_back(position: Position) -> None:
    """Through JSON, as Spark's checkpoint does it."""
    assert from_json(json.loads(json.dumps(to_json(position)))) == position


@given(positions(), st.randoms())
def test_equal_positions_are_equal_texts(position: Position, random: object) -> None:
    """However the dictionaries were filled: Spark compares offsets as texts."""
    shuffled = list(position.offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = Position(dict(reversed(list(position.topic_ids.items()))), dict(shuffled), dict(position.starts))
    assert json.dumps(to_json(again)) == json.dumps(to_json(position))


def test_the_form_of_a_logged_position() -> None:
    """Checkpoints outlive versions of the code, so this text may only change together with its version."""
    place, new = TopicPartition("orders", 0), TopicPartition("orders", 10)
    position = Position({"orders": "AbC"}, {new: 7, place: 123}, {new: 4})
    assert json.dumps(to_json(position)) == (
        '{"v": 1, "t": {"orders": {"id": "AbC", "p": {"0": {"o": 123}, "10": {"o": 7, "s": 4}}}}}'
    )


@pytest.mark.parametrize(
    "logged", [{}, {"v": 2, "t": {}}, {"v": 1}, {"v": 1, "t": {"a": {"p": {}}}}, {"v": 1, "t": []}]
)
def test_a_foreign_offset_is_refused(logged: dict[str, object]) -> None:
    """With a text that says what to do about the checkpoint."""
    with pytest.raises(SparkSideError, match="checkpoint"):
        from_json(logged)


# ---- ranges ------------------------------------------------------------------------------------------


def test_ranges_between_two_positions() -> None:
    """Known partitions go on, new ones begin where the end says, recreated topics begin anew, others stay."""
    known, new, recreated, unknown = (TopicPartition(name, 0) for name in ("known", "new", "recreated", "unknown"))
    start = Position({"known": "1", "recreated": "old"}, {known: 5, recreated: 900})
    end = Position(
        {"known": "1", "new": "2", "recreated": "fresh", "unknown": "4"},
        {known: 9, new: 8, recreated: 3, unknown: 6},
        {new: 2, recreated: 1},
    )
    assert ranges_between(start, end) == [
        Range("known", "1", 0, 5, 9),
        Range("new", "2", 0, 2, 8),
        Range("recreated", "fresh", 0, 1, 3),
    ]


def test_a_start_counts_only_in_the_batch_that_saw_the_partition_first() -> None:
    """The end of one batch is the start of the next, and its marks must not take the reader back."""
    place = TopicPartition("a", 0)
    first = Position({"a": "1"}, {place: 8}, {place: 2})
    assert ranges_between(first, first) == []
    assert ranges_between(first, Position({"a": "1"}, {place: 10})) == [Range("a", "1", 0, 8, 10)]


# ---- limits ------------------------------------------------------------------------------------------


@given(st.integers(1, 20_000), sizes, st.integers(0, 1000))
def test_shares_fill_the_limit_and_no_more(limit: int, sizes: Mapping[TopicPartition, int], turn: int) -> None:
    shares = distribute(limit, sizes, turn)
    assert shares.keys() == sizes.keys()
    assert all(0 <= shares[place] <= sizes[place] for place in sizes)
    assert sum(shares.values()) == min(limit, sum(sizes.values()))


@given(st.integers(1, 50), st.dictionaries(places, st.integers(1, 100_000), min_size=1, max_size=12))
def test_no_partition_starves(limit: int, available: dict[TopicPartition, int]) -> None:
    """Reading on and on with any limit, every partition moves before long, however large the others are."""
    start = dict.fromkeys(available, 0)
    moved: set[TopicPartition] = set()
    for _ in range(4 * len(available) + 4):
        end = limit_rows(start, available, limit)
        moved |= {place for place in end if end[place] > start[place]}
        start = end
    assert moved == set(available)


@given(sizes, st.integers(1, 1_000_000), st.dictionaries(places, st.floats(0.1, 100_000)))
def test_the_byte_limit_holds_by_the_averages(
    sizes: dict[TopicPartition, int], limit: int, averages: dict[TopicPartition, float]
) -> None:
    """Except that one record is always allowed, or a stream of huge records would stand still."""
    start = dict.fromkeys(sizes, 100)
    end = {place: 100 + size for place, size in sizes.items()}
    limited = limit_bytes(start, end, limit, averages)
    assert all(start[place] <= limited[place] <= end[place] for place in end)
    read = {place: limited[place] - start[place] for place in end}
    weight = sum(count * max(1.0, averages.get(place, 1.0)) for place, count in read.items())
    # Sizes are rounded down to whole bytes, one for each partition.
    assert weight <= limit + len(sizes) or sum(read.values()) == 1
    if sum(sizes.values()):
        assert sum(read.values()) >= 1


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=300), st.booleans(), st.integers(1, 500_000))
def test_records_that_grow_or_shrink_fit(sizes: list[int], is_falling: bool, limit: int) -> None:
    """The first and the last one tell, and only a few are looked at. Equal ones fill the limit."""
    sizes.sort(reverse=is_falling)
    looked_at: list[int] = []

    def size_at(number: int) -> int:
        looked_at.append(number)
        return sizes[number]

    count = fitting_count(len(sizes), limit, size_at)
    assert 1 <= count <= len(sizes)
    assert sum(sizes[:count]) <= limit or count == 1
    assert len(looked_at) <= 2 + len(sizes).bit_length()
    if len(set(sizes)) == 1:
        assert count == max(1, min(len(sizes), limit // sizes[0]))


def test_sizes_that_nobody_knows_change_nothing() -> None:
    assert fitting_count(7, 10, lambda number: 0.0) == 7


# ---- splitting ---------------------------------------------------------------------------------------

ranges = st.lists(
    st.builds(
        lambda partition, start, size: Range("t", "id", partition, start, start + size),
        st.integers(0, 99),
        st.integers(0, 10**9),
        st.integers(0, 5_000),
    ),
    max_size=8,
    unique_by=lambda part: part.partition,
)


@given(ranges, st.none() | st.integers(1, 64), st.none() | st.integers(1, 2_000))
def test_splits_cover_the_same_offsets_once(parts: list[Range], least: int | None, most: int | None) -> None:
    """In order, without gap or overlap, as many and as small as asked."""
    pieces = split(parts, partitions_min=least, records_max=most)
    joined: list[Range] = []
    for piece in pieces:
        assert piece.count > 0
        assert most is None or piece.count <= most
        if joined and joined[-1].partition == piece.partition:
            assert joined[-1].end == piece.start
            joined[-1] = Range("t", "id", piece.partition, joined[-1].start, piece.end)
        else:
            joined.append(piece)
    assert joined == [part for part in parts if part.count]
    assert len(pieces) >= min(least or 0, sum(part.count for part in parts))


@given(ranges, st.integers(1, 64))
def test_the_longest_is_cut_first(parts: list[Range], least: int) -> None:
    """No range was cut once more while a piece of another was longer than its own."""
    pieces = split(parts, partitions_min=least, records_max=None)
    longest = max((piece.count for piece in pieces), default=0)
    for part in parts:
        count = sum(piece.partition == part.partition for piece in pieces)
        if count > 1:
            assert longest <= -(-part.count // (count - 1))


@given(ranges, st.none() | st.integers(1, 64), st.none() | st.integers(1, 2_000))
def test_splits_are_repeatable(parts: list[Range], least: int | None, most: int | None) -> None:
    """A batch that runs again is planned as the first time."""
    assert split(parts, partitions_min=least, records_max=most) == split(parts, partitions_min=least, records_max=most)
