"""How a streaming query advances from one logged position to the next.

While there is nothing to do, Spark asks for the end of the next micro-batch about eighty times a second. If nothing is
new, the request is held for up to a tenth of a second until a partition grows: this means fewer requests, and an
earlier response than polling.

Returned positions are sorted and complete. If nothing is new, the returned position is the same one that Spark passed
in, because Spark compares them as texts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from drmq.client import ClientError
from drmq.model import ErrorCode, TopicPartition
from drmq.spark.errors import DataLoss, TopicChanged
from drmq.spark.fetching import RECHECK_PAUSES_S, Fetcher
from drmq.spark.offsets import (
    Position,
    Range,
    fitting_count,
    from_json,
    is_beginning,
    limit_bytes,
    limit_rows,
    to_json,
)
from drmq.spark.options import ReadOptions
from drmq.spark.view import TopicView, View

WAIT_S = 0.1
PUBLISH_PAUSE_S = 10.0
"""The pause after a failure to publish progress. Otherwise an unavailable coordinator would delay every batch."""

_log = logging.getLogger(__name__)


class StreamProgress:
    """The planner's state of one query. Owned by one thread, which closes it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._view = View(options)
        self._waiter = Fetcher(
            options.bootstrap,
            client_id=options.client_id,
            timeout_s=1.0,
            read_committed=options.read_committed,
            fetch_bytes=1,
        )
        self._begin: Position | None = None
        self._target: Position | None = None
        self._end_seen: Position | None = None
        self._moved_at = time.monotonic()
        self._published: Position | None = None
        self._unpublished: Position | None = None
        self._publish_failure = ""
        self._publish_not_before = time.monotonic()
        self._gone: Set[str] = frozenset()
        """Topics that are known to be missing."""

    def close(self) -> None:
        if self._unpublished is not None:
            # The last chance: a run with `availableNow` may end during the pause after a failure.
            self._try_to_publish(self._unpublished)
        self._view.close()
        self._waiter.close()

    def initial(self) -> dict[str, Any]:
        """Where a query without a checkpoint starts."""
        self._view.check_existence()
        return to_json(self._view.position(self._view.start()))

    def stop_at_present_end(self) -> None:
        """From now on, behave as if nothing were appended after the current end."""
        if self._options.fail_on_data_loss:
            self._view.check_existence()
        else:
            # A deleted topic must not stop the others; a topic that a broker does not know yet is waited for.
            self._view.topics(fresh=True)
            self._topics(self._view.named())
        places = self._view.places()
        self._target = self._view.position(self._view.latest(places))

    def end_seen(self) -> dict[str, Any] | None:
        """The end of the topics at the last request."""
        return None if self._end_seen is None else to_json(self._end_seen)

    def latest(self, logged: Mapping[str, Any], *, is_limited: bool) -> Mapping[str, Any]:
        """The end of the micro-batch that starts at `logged`; `logged` itself if there is nothing to do.

        Exception: Spark runs the first batch even if it is empty, so its end is always a complete position.
        """
        is_first = is_beginning(logged)
        start = self._first_start() if is_first else from_json(logged)
        if is_first:
            logged = to_json(start)
        # Everything before `start` is done: Spark asks for the next batch only then. After the last batch of an
        # `availableNow` run, this is the only indication.
        self.publish(logged)
        end = self._end(start)
        if self._target is None and not _is_new(start, end):
            self._waiter.wait(dict(start.offsets), WAIT_S)
            end = self._end(start)
        if is_first:
            end = replace(end, starts=_first_starts(start, end))
        self._end_seen = end
        if not _is_new(start, end) or (is_limited and self._should_wait(start, end)):
            return logged
        if is_limited:
            end = self._limited(start, end)
        self._moved_at = time.monotonic()
        return to_json(end)

    def publish(self, logged: Mapping[str, Any]) -> None:
        """Commit a finished position for the option `groupId`.

        A failure is logged once and is not fatal. After a pause, the latest position is tried.
        """
        position = from_json(logged)
        if self._options.group_id is None or position == self._published:
            return
        self._unpublished = position
        if time.monotonic() >= self._publish_not_before:
            self._try_to_publish(position)

    def _try_to_publish(self, position: Position) -> None:
        group_id = self._options.group_id
        assert group_id is not None, position
        try:
            self._view.publish(group_id, position.offsets)
            self._published, self._unpublished = position, None
            self._publish_failure = ""
        except ClientError as error:
            self._publish_not_before = time.monotonic() + PUBLISH_PAUSE_S
            if str(error) != self._publish_failure:
                self._publish_failure = str(error)
                _log.warning("the progress of the query could not be published for group %s: %s", group_id, error)

    # ---- the next end --------------------------------------------------------------------------------

    def _first_start(self) -> Position:
        """The start of the first batch; the same at every call."""
        if self._begin is None:
            begin = from_json(self.initial())
            self._begin = replace(begin, starts=begin.offsets)
        return self._begin

    def _end(self, start: Position) -> Position:
        """Everything that can be read now, including topics and partitions that `start` does not contain.

        The list of topics may be a second old. If it contradicts what the leaders report, a topic may have been deleted
        or created again since: then the list is refreshed, and the new result counts.
        """
        found = self._end_as_seen(start, is_current=False)
        if found is None:
            self._view.topics(fresh=True)
            found = self._end_as_seen(start, is_current=True)
        assert found is not None, start
        return found

    def _end_as_seen(self, start: Position, *, is_current: bool) -> Position | None:
        """The end according to the cached topics; None if they seem to have changed, unless the cache `is_current`."""
        topics = self._topics(start.topic_ids.keys())
        self._check_topics(start, topics)
        ids = {name: view.topic_id for name, view in topics.items()}
        there = [TopicPartition(name, index) for name, view in topics.items() for index in view.partitions]
        places = [place for place in there if self._is_wanted(place, ids[place.topic])]
        # What is not read now, because its topic is gone or appeared too late, keeps its position. Only the partitions
        # of an earlier topic with the same name are dropped.
        kept = {
            place
            for place in start.offsets.keys() - set(places)
            if ids.get(place.topic, start.topic_ids[place.topic]) == start.topic_ids[place.topic]
        }
        fresh = [p for p in places if p not in start.offsets or start.topic_ids[p.topic] != ids[p.topic]]
        try:
            ends = self._view.latest(places)
            starts = self._view.earliest(fresh) if fresh else {}
        except ClientError as error:
            if is_current or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None
        if not is_current and any(ends[p] < start.offsets[p] for p in places if p not in starts):
            return None
        for place in places:
            if self._target is not None:
                ends[place] = min(ends[place], self._target.offsets[place])
            if place in starts:
                ends[place] = max(ends[place], starts[place])
            elif ends[place] < start.offsets[place]:
                ends[place] = self._shortened(place, start.offsets[place], ends[place])
        offsets = {place: start.offsets[place] for place in kept} | ends
        names = {place.topic for place in offsets}
        return Position(
            {name: ids.get(name) or start.topic_ids[name] for name in sorted(names)},
            offsets,
            {place: starts[place] for place in fresh},
        )

    def _is_wanted(self, place: TopicPartition, topic_id: str) -> bool:
        """With `availableNow`, only what existed at its start."""
        if self._target is None:
            return True
        return place in self._target.offsets and self._target.topic_ids[place.topic] == topic_id

    def _topics(self, wanted: Set[str]) -> dict[str, TopicView]:
        """The current topics. If some are missing, asks again: a broker that just started may not know them yet."""
        topics = self._view.topics()
        for pause_s in RECHECK_PAUSES_S:
            if wanted - topics.keys() <= self._gone:
                return topics
            time.sleep(pause_s)
            topics = self._view.topics(fresh=True)
        self._gone = wanted - topics.keys()
        return topics

    def _check_topics(self, start: Position, topics: dict[str, TopicView]) -> None:
        for name, topic_id in start.topic_ids.items():
            if name not in topics:
                if self._options.fail_on_data_loss:
                    raise TopicChanged(
                        f"Topic `{name}` was deleted. With `failOnDataLoss` = false the query continues without it."
                    )
            elif topics[name].topic_id != topic_id and self._options.fail_on_recreated:
                raise TopicChanged(
                    f"Topic `{name}` was deleted and created again, so the position of the query is invalid. Start "
                    "with a new checkpoint, or set `onTopicRecreated` to earliest to continue with the beginning of "
                    "the new topic."
                )

    def _shortened(self, place: TopicPartition, read: int, end: int) -> int:
        """The end of a partition that ends before what was read. With `availableNow` this may only seem so."""
        if self._target is not None and self._target.offsets[place] <= read:
            return read
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"Partition {place.partition} of `{place.topic}` ends at offset {end}, but the query has read it up to "
                f"{read}: its log was truncated. Find out why, or set `failOnDataLoss` to false to continue from the "
                "new end."
            )
        return end

    def _should_wait(self, start: Position, end: Position) -> bool:
        """Whether `minOffsetsPerTrigger` requires more records, and `maxTriggerDelay` allows waiting for them."""
        least = self._options.rows_per_trigger_min
        if least is None or self._target is not None:
            return False
        is_late = time.monotonic() - self._moved_at >= self._options.trigger_delay_s_max
        return not is_late and sum(_sizes(start, end).values()) < least

    def _limited(self, start: Position, end: Position) -> Position:
        begins = {place: end.offsets[place] - size for place, size in _sizes(start, end).items()}
        growing = {place: offset for place, offset in end.offsets.items() if offset > begins[place]}
        begins = {place: begins[place] for place in growing}
        limited = growing
        if self._options.rows_per_trigger_max is not None:
            limited = limit_rows(begins, limited, self._options.rows_per_trigger_max)
        if self._options.bytes_per_trigger_max is not None:
            sizes = self._view.record_sizes()
            limited = limit_bytes(begins, limited, self._options.bytes_per_trigger_max, sizes)
            limited = self._fitting(end.topic_ids, begins, limited, self._options.bytes_per_trigger_max, sizes)
        return Position(end.topic_ids, {**end.offsets, **limited}, end.starts)

    def _fitting(
        self,
        topic_ids: Mapping[str, str],
        begins: Mapping[TopicPartition, int],
        limited: Mapping[TopicPartition, int],
        bytes_max: int,
        sizes: Mapping[TopicPartition, float],
    ) -> dict[TopicPartition, int]:
        """Fewer records where the actual ones are larger than the average, from which `limited` was computed.

        Each partition gets the share of `bytes_max` that it has by the average.
        """
        counts = {place: limited[place] - begins[place] for place in limited}
        shares = {place: count * max(1.0, sizes.get(place, 1.0)) for place, count in counts.items() if count > 0}
        whole = sum(shares.values())
        ends = dict(limited)
        for place, share in shares.items():
            part = Range(place.topic, topic_ids[place.topic], place.partition, begins[place], limited[place])

            def size_at(number: int, part: Range = part) -> float:
                return self._waiter.record_size(part, part.start + number)

            ends[place] = begins[place] + fitting_count(counts[place], bytes_max * share / whole, size_at)
        return ends


def _sizes(start: Position, end: Position) -> dict[TopicPartition, int]:
    """The number of offsets between two positions, for each partition of the later one."""
    return {
        place: offset - (end.starts[place] if place in end.starts else min(offset, start.offsets.get(place, offset)))
        for place, offset in end.offsets.items()
    }


def _first_starts(start: Position, end: Position) -> dict[TopicPartition, int]:
    """The start of every partition in the first batch; the position before it contains none."""
    return {
        place: end.starts[place] if place in end.starts else min(start.offsets[place], offset)
        for place, offset in end.offsets.items()
    }


def _is_new(start: Position, end: Position) -> bool:
    """Whether there is anything to read or to log: a new partition must be logged even while it is empty."""
    return end.offsets != start.offsets or end.topic_ids != start.topic_ids
