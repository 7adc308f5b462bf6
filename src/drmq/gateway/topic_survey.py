"""All topics at one time, with what is appended to each."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from drmq.client import Admin, Bounds, ClientError, Topic
from drmq.gateway.types import TopicView
from drmq.model import TopicPartition


@dataclass(slots=True)
class TopicsNow:
    """All topics but the internal ones, and where their partitions end."""

    at_s: float
    topics: list[TopicView]
    places: list[TopicPartition]
    ends: dict[TopicPartition, int]


class TopicSurvey:
    """Looks at topics. Used by one thread at a time."""

    def __init__(self) -> None:
        self._before: TopicsNow | None = None

    def look(self, admin: Admin) -> TopicsNow:
        """All topics. Raises `ClientError`."""
        found = [topic for topic in admin.topics.all() if not topic.is_internal]
        bounds, sizes = bounds_of(admin, found), sizes_of(admin)
        ends = {place: each.end for place, each in bounds.items()}
        places = [TopicPartition(topic.name, each.index) for topic in found for each in topic.partitions]
        now = TopicsNow(time.monotonic(), [view_of(topic, bounds, sizes) for topic in found], places, ends)
        if self._before is not None:
            self._add_rates(now, self._before)
        self._before = now
        return now

    def _add_rates(self, now: TopicsNow, before: TopicsNow) -> None:
        elapsed_s = max(0.001, now.at_s - before.at_s)
        grown: dict[str, int] = {}
        for place, end in now.ends.items():
            if place in before.ends:
                grown[place.topic] = grown.get(place.topic, 0) + max(0, end - before.ends[place])
        for topic in now.topics:
            if topic.name in grown:
                topic.rate = round(grown[topic.name] / elapsed_s, 3)


def view_of(topic: Topic, bounds: dict[TopicPartition, Bounds], sizes: dict[TopicPartition, list[int]]) -> TopicView:
    """A topic as the API shows it."""
    places = [TopicPartition(topic.name, each.index) for each in topic.partitions]
    ranges = [bounds[place] for place in places if place in bounds]
    return TopicView(
        topic.name,
        topic.topic_id.hex(),
        topic.is_internal,
        len(topic.partitions),
        max((len(each.replicas) for each in topic.partitions), default=0),
        sum(sum(sizes.get(place, ())) for place in places),
        sum(each.end - each.start for each in ranges),
        sum(each.leader is None for each in topic.partitions),
        sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions),
    )


def bounds_of(admin: Admin, topics: Iterable[Topic]) -> dict[TopicPartition, Bounds]:
    """The offsets of all partitions that have a leader. Others must not hide them."""
    places = [
        TopicPartition(topic.name, each.index)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None and not topic.is_internal
    ]
    try:
        return admin.topics.bounds(places) if places else {}
    except ClientError:
        return {}


def sizes_of(admin: Admin) -> dict[TopicPartition, list[int]]:
    """The sizes of all replicas of each partition."""
    sizes: dict[TopicPartition, list[int]] = defaultdict(list)
    for directory in admin.log_dirs():
        for place, size in directory.sizes.items():
            sizes[place].append(size)
    return sizes
