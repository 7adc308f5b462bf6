"""Positions in topics as Spark logs them, and the arithmetic on them. Pure.

Spark writes the end of each micro-batch to its checkpoint before the batch runs, as JSON, and
compares such texts *as texts*. So there is one way to write a position, and it is sorted:

    {"v":1,"t":{"orders":{"id":"8d…","p":{"0":{"o":123},"1":{"o":7,"s":4}}}}}

`id` is the topic's id, which a topic that was deleted and created again does not share. `o` is the
next offset to read. `s` stands only in the end of the batch that first sees a partition, and so for
all partitions in the end of a query's first batch: where it begins. With it a batch can be planned from its
two positions alone, and a batch that runs again is planned as it was the first time, whatever the
cluster has become since.

Spark logs ends only. Where the first batch begins it asks for whenever it plans that batch, also when it
runs it again after a crash. `BEGINNING` is the answer: a mark that names no partition, so that all
are new in the end of the batch.

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
"""The start of a query's first batch, as Spark sees it. Only that: it is never an end, and so never logged."""


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
        """Offsets in the range. Compaction and control records leave fewer records than that."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Position:
    """How far each partition is read: for each topic its id, and for each partition the next offset.

    `starts` has the first offset of partitions that the position before does not name.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)


def to_json(position: Position) -> dict[str, Any]:
    """The position as Spark logs it; equal positions give equal texts."""
    topics: dict[str, Any] = {name: {"id": position.topic_ids[name], "p": {}} for name in sorted(position.topic_ids)}
    for place in sorted(position.offsets):
        entry = {"o": position.offsets[place]}
        if place in position.starts:
            entry["s"] = position.starts[place]
        topics[place.topic]["p"][str(place.partition)] = entry
    return {"v": VERSION, "t": topics}


def from_json(logged: Mapping[str, Any]) -> Position:
    """The position that `to_json` wrote. Raises `SparkSideError` for anything else."""
    if logged.get("v") != VERSION:
        raise SparkSideError(
            f"The checkpoint holds an offset of form {logged.get('v')!r}, and this version of drmq reads form "
            f"{VERSION}. "
            "It was written by another source or by a newer drmq: use that one, or start with a new checkpoint."
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
            f"The checkpoint holds an offset that cannot be read ({error!r}): {logged!r}. "
            "Restore the checkpoint, or start with a new one."
        ) from None
    return Position(ids, offsets, starts)


def ranges_between(start: Position, end: Position) -> list[Range]:
    """What lies between two logged positions, in order; nothing else is asked."""
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
    # Without a logged beginning the partition is as good as read: inventing one could repeat or skip records.
    return start.offsets.get(place, end.offsets[place])


# ---- limits ------------------------------------------------------------------------------------------


def distribute(limit: int, sizes: Mapping[TopicPartition, int], turn: int = 0) -> dict[TopicPartition, int]:
    """Shares of `limit` in proportion to `sizes`: none above its size, all together `min(limit, total)`.

    What rounding leaves over goes first to partitions that would get nothing, beginning with another
    one each `turn`: a small partition beside a huge one is read slowly, and not never.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    places = sorted(place for place, size in sizes.items() if size > 0)
    shares = dict.fromkeys(sizes, 0)
    for place in places:
        shares[place] = limit * sizes[place] // total
    left = limit - sum(shares.values())
    hungry = [place for place in places if shares[place] == 0]
    others = [place for place in places if 0 < shares[place] < sizes[place]]
    queue = _rotated(hungry, turn * left) + _rotated(others, turn * left)
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
    """Ends that are at most `rows_max` offsets after `start` altogether; partitions share in proportion."""
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
    """Ends that are about `bytes_max` bytes after `start`, by the average size of each partition's records.

    At least one record, or a stream of records larger than the limit would stand still.
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
    """How many of `count` records are `bytes_max` bytes at most, going by their first and their last one.

    `size_at` tells the size of the record of a number. Where sizes only rise or only fall, that is never too many; a
    hump between the two is not seen. Half as many are tried where it is too much, so that few records
    are looked at. At least one, or a stream would stand still before a record that is larger than the limit.
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

    No range is longer than `records_max`, and there are at least `partitions_min` as far as there are
    offsets enough. The longest ranges are cut first, into equal parts.
    """
    whole = [part for part in ranges if part.count > 0]
    pieces = [1 if records_max is None else -(-part.count // records_max) for part in whole]
    missing = (partitions_min or 0) - sum(pieces)
    # By the size of its pieces; the negative number makes the smallest entry of the heap the longest piece.
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
