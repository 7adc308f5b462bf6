"""What the brokers report about the topics of a query: which partitions exist, and where they begin and end.

Used by the planner, which Spark keeps alive as long as the query. The existing partitions are requested at most once a
second, their ends each time. If a cluster that has responded before stops responding, it is waited for until
`timeoutMs`; if it never responded, the query fails at once.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drmq.client import EARLIEST, LATEST, Admin, ClientError, Deadline, OffsetAt, Refused, Topic
from drmq.model import ErrorCode, TopicPartition, topic_id_text
from drmq.spark.errors import DataLoss, OptionsError, TopicChanged
from drmq.spark.fetching import MOVED
from drmq.spark.offsets import Position
from drmq.spark.options import EARLIEST as EARLIEST_MARK
from drmq.spark.options import LATEST as LATEST_MARK
from drmq.spark.options import ReadOptions, Where

TOPICS_AGE_S_MAX = 1.0
SIZES_AGE_S_MAX = 5.0
PUBLISH_S_MAX = 2.0
_SHOWN_MAX = 5
_PAUSE_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic in its current state."""

    topic_id: str
    partitions: tuple[int, ...]


class View:
    """Requests about the topics that `options` select. Owned by one thread, which closes it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin = Admin(options.bootstrap, client_id=options.client_id, timeout_s=options.timeout_s)
        self._topics: dict[str, TopicView] = {}
        self._topics_at = -1e9
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_at = -1e9

    def close(self) -> None:
        self._admin.close()

    def topics(self, *, fresh: bool = False) -> dict[str, TopicView]:
        """The selected topics that exist, each with its selected partitions."""
        if fresh or time.monotonic() - self._topics_at > TOPICS_AGE_S_MAX:
            self._topics = self._ask_topics()
            self._topics_at = time.monotonic()
        return self._topics

    def _ask_topics(self) -> dict[str, TopicView]:
        selection = self._options.selection
        if selection.pattern is not None:
            pattern = re.compile(selection.pattern)
            found = [t for t in self._admin.topics.all() if not t.is_internal and pattern.fullmatch(t.name)]
            return {topic.name: _view(topic) for topic in found}
        if selection.topics:
            described = {name: self._describe(name) for name in selection.topics}
            return {name: _view(topic) for name, topic in described.items() if topic is not None}
        views: dict[str, TopicView] = {}
        for name in sorted({place.topic for place in selection.partitions}):
            topic = self._describe(name)
            if topic is not None:
                there = {partition.index for partition in topic.partitions}
                wanted = {place.partition for place in selection.partitions if place.topic == name}
                if wanted - there:
                    missing = ", ".join(map(str, sorted(wanted - there)))
                    raise OptionsError(
                        [f"`assign` contains partition {missing} of `{name}`, which has {len(there)} partitions."]
                    )
                views[name] = TopicView(topic_id_text(topic.topic_id), tuple(sorted(wanted)))
        return views

    def _describe(self, name: str) -> Topic | None:
        try:
            return self._admin.topics.describe(name)
        except ClientError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise

    def places(self) -> list[TopicPartition]:
        """Every selected partition that exists."""
        return [TopicPartition(name, index) for name, view in self.topics().items() for index in view.partitions]

    def named(self) -> frozenset[str]:
        """The topics that the options name; empty for a pattern."""
        selection = self._options.selection
        return frozenset(selection.topics or {place.topic for place in selection.partitions})

    def check_existence(self) -> None:
        """Raise unless every named topic exists. For the start of a query."""
        there = self.topics(fresh=True)
        missing = sorted(self.named() - there.keys())
        if missing:
            what = f"Topic `{missing[0]}` does" if len(missing) == 1 else f"Topics {', '.join(missing)} do"
            raise TopicChanged(
                f"{what} not exist at {self._options.bootstrap}. `drmq topic ls` lists all topics, "
                f"`drmq topic create {missing[0]}` creates it."
            )

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        found = self._offsets(dict.fromkeys(places, EARLIEST))
        return {place: at.offset for place, at in found.items()}

    def latest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last one that may be read at the query's isolation level."""
        found = self._offsets(dict.fromkeys(places, LATEST))
        return {place: at.offset for place, at in found.items()}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than a time in milliseconds; None if there is none."""
        found = self._offsets(times)
        return {place: at.offset if at.offset >= 0 else None for place, at in found.items()}

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Ask the leaders. A partition that has no leader, or whose leader's disk fails, is retried until `timeoutMs`.

        The client gives up after two seconds in the first case and at once in the second, for a user at a prompt. A
        query can wait until a node has restarted, or another replica has taken over, as its workers do.
        """
        deadline = Deadline(self._options.timeout_s)
        while True:
            try:
                return self._admin.topics.offsets(wanted, read_committed=self._options.read_committed)
            except ClientError as error:
                was_retried_by_client = error.retriable and error.grace_s is None
                if error.code not in MOVED or was_retried_by_client or deadline.left_s() <= _PAUSE_S:
                    raise
            time.sleep(_PAUSE_S)

    def record_sizes(self) -> dict[TopicPartition, float]:
        """The average size on disk of each partition's records, without partitions for which it is unknown."""
        if time.monotonic() - self._sizes_at > SIZES_AGE_S_MAX:
            try:
                self._sizes = self._ask_sizes()
            except Refused as error:
                # The sizes are only a first estimate; the actual records are examined next. A broker whose disk fails,
                # or a topic that was just deleted, is no reason to stop.
                _log.info("the sizes of records are unknown: %s", error)
            self._sizes_at = time.monotonic()
        return self._sizes

    def _ask_sizes(self) -> dict[TopicPartition, float]:
        places = self.places()
        starts, ends = self.earliest(places), self.latest(places)
        # The largest of several replicas: a lagging one would make its records look too small.
        on_disk: dict[TopicPartition, int] = {}
        for log_dir in self._admin.log_dirs():
            for place, size in log_dir.sizes.items():
                on_disk[place] = max(size, on_disk.get(place, 0))
        return {
            place: on_disk.get(place, 0) / (ends[place] - starts[place])
            for place in places
            if ends[place] > starts[place]
        }

    def publish(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group from outside. Raises `ClientError`, also if the group has members.

        With a short timeout: the query waits for it, but does not depend on it.
        """
        self._admin.groups.commit(group_id, offsets, timeout_s=min(PUBLISH_S_MAX, self._options.timeout_s))

    # ---- positions from the options ------------------------------------------------------------------

    def position(self, offsets: Mapping[TopicPartition, int]) -> Position:
        """Offsets together with the ids of their topics."""
        ids = {name: view.topic_id for name, view in self.topics().items()}
        return Position({name: ids[name] for name in sorted({place.topic for place in offsets})}, dict(offsets))

    def start(self) -> dict[TopicPartition, int]:
        """Where the query starts, by its options."""
        options, places = self._options, self.places()
        where = options.start
        if where.kind == "latest":
            return self.latest(places)
        earliest = self.earliest(places)
        if where.kind == "earliest":
            return earliest
        latest = self.latest(places)
        if where.kind == "offsets":
            _check_cover("startingOffsets", where, places)
            marks = {EARLIEST_MARK: earliest, LATEST_MARK: latest}
            named = {
                place: marks[where.each[place]][place] if where.each[place] in marks else where.each[place]
                for place in places
            }
            return self._within("startingOffsets", named, earliest, latest)
        times = self._times("startingOffsetsByTimestamp", where, places)
        found = self.at_times(times)
        missing = [place for place in places if found[place] is None]
        if missing and not options.missing_time_is_latest and any(latest[place] > earliest[place] for place in missing):
            option = "startingTimestamp" if where.kind == "time" else "startingOffsetsByTimestamp"
            raise OptionsError(
                [
                    f"`{option}`: no record of {_shown(missing)} is that new. Choose an earlier time, or set "
                    "`startingOffsetsByTimestampStrategy` to latest to start at the end."
                ]
            )
        return {place: latest[place] if (offset := found[place]) is None else offset for place in places}

    def end(self) -> dict[TopicPartition, int]:
        """Where a batch stops, by its options."""
        where, places = self._options.end, self.places()
        latest = self.latest(places)
        if where.kind == "latest":
            return latest
        if where.kind == "offsets":
            _check_cover("endingOffsets", where, places)
            named = {p: latest[p] if where.each[p] == LATEST_MARK else where.each[p] for p in places}
            return self._within("endingOffsets", named, self.earliest(places), latest)
        found = self.at_times(self._times("endingOffsetsByTimestamp", where, places))
        return {place: latest[place] if (at := found[place]) is None else at for place in places}

    def _times(self, option: str, where: Where, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        if where.kind == "time":
            return dict.fromkeys(places, where.time_ms)
        _check_cover(option, where, places)
        return {place: where.each[place] for place in places}

    def _within(
        self,
        option: str,
        named: Mapping[TopicPartition, int],
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Existing offsets: others fail the query or, with `failOnDataLoss=false`, are replaced by the nearest one."""
        outside = [p for p, offset in named.items() if not earliest[p] <= offset <= latest[p]]
        if outside and self._options.fail_on_data_loss:
            place = outside[0]
            raise DataLoss(
                f"`{option}` is {named[place]} for partition {place.partition} of `{place.topic}`, "
                f"which has offsets from {earliest[place]} to {latest[place]}. Choose one of these, "
                "or set `failOnDataLoss` to false to use the nearest one."
            )
        return {p: min(max(offset, earliest[p]), latest[p]) for p, offset in named.items()}


def _view(topic: Topic) -> TopicView:
    return TopicView(topic_id_text(topic.topic_id), tuple(partition.index for partition in topic.partitions))


def _check_cover(option: str, where: Where, places: Iterable[TopicPartition]) -> None:
    """Check that each partition is named, and no other one: a typing error would otherwise skip records."""
    there = set(places)
    problems = []
    if there - where.each.keys():
        problems.append(
            f"`{option}` does not contain {_shown(there - where.each.keys())}. It must contain every partition."
        )
    if where.each.keys() - there:
        problems.append(f"`{option}` contains {_shown(where.each.keys() - there)}, which the query does not read.")
    if problems:
        raise OptionsError(problems)


def _shown(places: Iterable[TopicPartition]) -> str:
    names = [str(place) for place in sorted(places)]
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return ", ".join(names[:_SHOWN_MAX]) + more
