"""From options and positions to the ranges that tasks read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drmq.model import TopicPartition
from drmq.spark.errors import OptionsError
from drmq.spark.filters import ALL, Conditions
from drmq.spark.offsets import Range, from_json, ranges_between, split
from drmq.spark.options import ReadOptions
from drmq.spark.view import View


def plan_between(options: ReadOptions, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
    """The tasks of a micro-batch: a function of its two logged positions and the options alone."""
    return _split(options, ranges_between(from_json(start), from_json(end)))


def plan_batch(options: ReadOptions, conditions: Conditions = ALL) -> list[Range]:
    """The tasks of a batch query, by what the brokers say now and by what the query needs."""
    view = View(options)
    try:
        view.check_existence()
        start, end = view.start(), view.end()
        start, end = _narrowed(view, start, end, conditions)
        ids = {name: topic.topic_id for name, topic in view.topics().items()}
    finally:
        view.close()
    backwards = [place for place in start if start[place] > end[place]]
    if backwards and conditions is ALL and options.start.kind == "offsets":
        place = backwards[0]
        raise OptionsError(
            [
                f"`startingOffsets` is {start[place]} for partition {place.partition} of `{place.topic}`, after "
                "its end "
                f"{end[place]}; begin at or before the end."
            ]
        )
    ranges = [
        Range(place.topic, ids[place.topic], place.partition, start[place], end[place])
        for place in sorted(start)
        if start[place] < end[place]
    ]
    return _split(options, ranges)


def _narrowed(
    view: View, start: dict[TopicPartition, int], end: dict[TopicPartition, int], conditions: Conditions
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Ranges without what no row of the answer can come from."""
    if conditions is ALL:
        return start, end
    places = [place for place in start if conditions.allow(place)]
    begins = {place: max(start[place], conditions.offset_min) for place in places}
    ends = {place: min(end[place], conditions.offset_max + 1) for place in places}
    if conditions.time_ms_min is not None:
        # Every record before the first one that is new enough is too old. Nothing of the kind holds for
        # the end: behind a record that is too new there may be older ones.
        for place, offset in view.at_times(dict.fromkeys(places, conditions.time_ms_min)).items():
            begins[place] = ends[place] if offset is None else max(begins[place], offset)
    return begins, ends


def _split(options: ReadOptions, ranges: list[Range]) -> list[Range]:
    return split(ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max)
