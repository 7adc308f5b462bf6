"""Positions in topics as Spark logs them, and the arithmetic on them. Pure.

Spark writes the end of each micro-batch to its checkpoint before the batch runs, as JSON, and compares such texts *as
texts*. A position therefore has exactly one representation, and it is sorted:

    {"v":1,"t":{"orders":{"id":"8d…","p":{"0":{"o":123},"1":{"o":7,"s":4}}}}}

`id` is the topic's id, which changes if a topic is deleted and created again. `o` is the next offset to read. `s` is
the start of a partition. It is present only in the end of the batch in which the partition first appears, and so for
all partitions in the end of a query's first batch. With it, a batch can be planned from its two positions alone, and a
repeated batch is planned as it was the first time, whatever has changed in the cluster since.

Spark logs only ends. It asks for the start of the first batch whenever it plans that batch, also when it repeats the
batch after a crash. The answer is `BEGINNING`: a marker without partitions, so that all partitions are new in the end
of the batch.

Ranges are half-open, `[start, end)`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from drmq.model import TopicPartition
from drmq.spark.errors import SparkSideError

VERSION = 1

BEGINNING: Mapping[str, Any] = {"v": VERSION, "t": {}, "beginning": True}
"""The start of a query's first batch, as Spark sees it. It is never an end, and so never logged."""


def is_beginning(position: Mapping[str, Any]) -> bool:
    """Whether this is `BEGINNING`, and not a position that happens to have no partitions."""
    return bool(position.get("beginning"))


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition that one task reads: `start <= offset < end`."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """The number of offsets in the range. Compaction and control records can leave fewer records."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Position:
    """The progress in each partition: the ids of the topics, and the next offset of each partition.

    `starts` has the first offset of partitions that the previous position does not contain.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)


def to_json(position: Position) -> dict[str, Any]:
    """The position as Spark logs it. Equal positions give equal texts."""
    topics: dict[str, Any] = {name: {"id": position.topic_ids[name], "p": {}} for name in sorted(position.topic_ids)}
    for place in sorted(position.offsets):
        entry = {"o": position.offsets[place]}
        if place in position.starts:
            entry["s"] = position.starts[place]
        topics[place.topic]["p"][str(place.partition)] = entry
    return {"v": VERSION, "t": topics}


def from_json(logged: Mapping[str, Any]) -> Position:
    """Parse a position written by `to_json`. Raises `SparkSideError` for anything else."""
    if logged.get("v") != VERSION:
        raise SparkSideError(
            f"The checkpoint contains an offset of version {logged.get('v')!r}, but this version of drmq reads version "
            f"{VERSION}. It was written by another source or by a newer drmq. Use that one, or start with a new "
            "checkpoint."
        )
    try:
        ids: dict[str, str] = {}
        offsets: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        for name, topic in logged["t"].items():
            ids[name] = str(topic["id"])
            for index, entry in topic["p"].items():
                place = TopicPartition(name, int(index))
                offsets[place] = int(entry["o"])
                if "s" in entry:
                    starts[place] = int(entry["s"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SparkSideError(
            f"The checkpoint contains an invalid offset ({error!r}): {logged!r}. "
            "Restore the checkpoint, or start with a new one."
        ) from None
    return Position(ids, offsets, starts)


def ranges_between(start: Position, end: Position) -> list[Range]:
    """The ranges between two logged positions, in order. Uses no other information."""
    found = []
    for place in sorted(end.offsets):
        topic_id = end.topic_ids[place.topic]
        first = _first_offset(place, topic_id, start, end)
        if first < end.offsets[place]:
            found.append(Range(place.topic, topic_id, place.partition, first, end.offsets[place]))
    return found


def _first_offset(place: TopicPartition, topic_id: str, start: Position, end: Position) -> int:
    if place in end.starts and (place not in start.offsets or start.topic_ids.get(place.topic) != topic_id):
        return end.starts[place]
    # Without a logged start, the partition counts as read: guessing one could repeat or skip records.
    return start.offsets.get(place, end.offsets[place])


# ---- limits ------------------------------------------------------------------------------------------


def distribute(limit: int, sizes: Mapping[TopicPartition, int], turn: int = 0) -> dict[TopicPartition, int]:
    """Shares of `limit` in proportion to `sizes`: none exceeds its size, and the sum is `min(limit, total)`.

    The remainder from rounding goes first to partitions that would get nothing, starting with another one each `turn`:
    a small partition next to a huge one is read slowly, but it is read.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    places = sorted(place for place, size in sizes.items() if size > 0)
    shares = dict.fromkeys(sizes, 0)
    for place in places:
        shares[place] = limit * sizes[place] // total
    left = limit - sum(shares.values())
    unserved = [place for place in places if shares[place] == 0]
    others = [place for place in places if 0 < shares[place] < sizes[place]]
    queue = _rotated(unserved, turn * left) + _rotated(others, turn * left)
    for place in queue[:left]:
        shares[place] += 1
    return shares


def _rotated(places: list[TopicPartition], by: int) -> list[TopicPartition]:
    if not places:
        return places
    by %= len(places)
    return places[by:] + places[:by]


def limit_rows(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int
) -> dict[TopicPartition, int]:
    """Ends that are in total at most `rows_max` offsets after `start`, divided in proportion."""
    assert rows_max > 0, rows_max
    sizes = {place: end[place] - start[place] for place in end}
    turn = sum(start.values()) // rows_max
    shares = distribute(rows_max, sizes, turn)
    return {place: start[place] + shares[place] for place in end}


def limit_bytes(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    bytes_max: int,
    record_sizes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Ends that are about `bytes_max` bytes after `start`, by the average record size of each partition.

    At least one record; otherwise a stream of records that exceed the limit would make no progress.
    """
    assert bytes_max > 0, bytes_max
    weights = {place: max(1.0, record_sizes.get(place, 1.0)) for place in end}
    sizes = {place: int((end[place] - start[place]) * weights[place]) for place in end}
    if sum(sizes.values()) <= bytes_max:
        return dict(end)
    turn = sum(start.values())
    shares = distribute(bytes_max, sizes, turn)
    ends = {place: min(end[place], start[place] + int(shares[place] / weights[place])) for place in end}
    if all(ends[place] == start[place] for place in ends):
        return limit_rows(start, end, 1)
    return ends


def fitting_count(count: int, bytes_max: float, size_at: Callable[[int], float]) -> int:
    """How many of `count` records fit into `bytes_max`, judging by the sizes of the first and the last one.

    `size_at` returns the size of the record with an index. If sizes only rise or only fall, the result is never too
    large; larger records in between are not noticed. If it is too much, half as many are tried, so that few records are
    examined. At least one; otherwise a stream would not get past a record that exceeds the limit.
    """
    assert count > 0, count
    first = size_at(0)
    count = max(1, min(count, int(bytes_max / first) if first > 0 else count))
    while count > 1 and count * size_at(count - 1) > bytes_max:
        count //= 2
    return count


# ---- splitting ---------------------------------------------------------------------------------------


def split(ranges: Iterable[Range], *, partitions_min: int | None, records_max: int | None) -> list[Range]:
    """The same offsets in more and smaller ranges, in order.

    No range is longer than `records_max`, and there are at least `partitions_min` ranges if there are enough offsets.
    The longest ranges are split first, into equal parts.
    """
    whole = [part for part in ranges if part.count > 0]
    pieces = [1 if records_max is None else -(-part.count // records_max) for part in whole]
    missing = (partitions_min or 0) - sum(pieces)
    # A heap of the sizes of the pieces, negated so that the longest piece comes first.
    heap = [(-part.count / pieces[i], i) for i, part in enumerate(whole)]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, i = heapq.heappop(heap)
        if pieces[i] < whole[i].count:
            pieces[i] += 1
            missing -= 1
            heapq.heappush(heap, (-whole[i].count / pieces[i], i))
    return [piece for part, count in zip(whole, pieces, strict=True) for piece in _cut(part, count)]


def _cut(part: Range, count: int) -> Iterator[Range]:
    for i in range(count):
        start = part.start + part.count * i // count
        end = part.start + part.count * (i + 1) // count
        yield Range(part.topic, part.topic_id, part.partition, start, end)
