"""Turns options and positions into the ranges that tasks read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drmq.model import TopicPartition
from drmq.spark.errors import OptionsError
from drmq.spark.filters import INT64_MAX
from drmq.spark.offsets import Range, from_json, ranges_between, split
from drmq.spark.options import ReadOptions
from drmq.spark.view import View


def plan_between(options: ReadOptions, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
    """The tasks of a micro-batch: a pure function of its two logged positions and the options."""
    return _tasks(options, ranges_between(from_json(start), from_json(end)))


def plan_batch(options: ReadOptions) -> list[Range]:
    """The tasks of a batch query, from the current state of the brokers."""
    view = View(options)
    try:
        view.check_existence()
        start, end = view.start(), view.end()
        ids = {name: topic.topic_id for name, topic in view.topics().items()}
        _check_order(options, start, end)
        if options.filter.time_ms_min is not None:
            # All records before the first one that is new enough are too old. The same does not hold for the end: older
            # records may follow a record that is too new.
            found = view.at_times(dict.fromkeys(start, options.filter.time_ms_min))
            start = {p: end[p] if (at := found[p]) is None else max(start[p], at) for p in start}
    finally:
        view.close()
    return _tasks(options, [Range(p.topic, ids[p.topic], p.partition, start[p], end[p]) for p in sorted(start)])


def _check_order(options: ReadOptions, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    backwards = [place for place in start if start[place] > end[place]]
    if backwards and options.start.kind == "offsets":
        place = backwards[0]
        raise OptionsError(
            [
                f"`startingOffsets` is {start[place]} for partition {place.partition} of `{place.topic}`, after its "
                f"end {end[place]}. Start at or before the end."
            ]
        )


def _tasks(options: ReadOptions, ranges: list[Range]) -> list[Range]:
    """The ranges without what the filter excludes, split according to the options."""
    passing = options.filter
    kept = [
        replace(
            part,
            start=max(part.start, passing.offset_min),
            # The bound is inclusive, and adding 1 to the largest number would overflow.
            end=part.end if passing.offset_max == INT64_MAX else min(part.end, passing.offset_max + 1),
        )
        for part in ranges
        if passing.allows(part.topic, part.partition)
    ]
    return split(kept, partitions_min=options.partitions_min, records_max=options.records_per_partition_max)
