"""Partitions that were created a moment ago and whose first leader this node does not know yet.

A topic exists when its creation is committed, but its replicas must still be created and elect their leaders, and the
leaders announce themselves to each node at a different moment. A client that asks in between would be told that the
topic has no leaders. So requests about leaders wait here until the first leaders are known, for a short time.

A partition is new only once. One that loses its leader later is not waited for: clients see at once that it has none.
A node that starts has no new partitions, and neither has one whose partitions found no leader within `NEW_FOR_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from drmq.broker.cluster.metadata import Metadata
from drmq.broker.replication.group_host import GroupHost
from drmq.model import GroupId, TopicId

NEW_FOR_S = 10.0
"""How long partitions are new if they find no leader."""


class NewPartitions:
    """The new partitions of all topics. Used on the event loop; costs nothing for partitions that are not new."""

    def __init__(self, metadata: Metadata, host: GroupHost) -> None:
        self._metadata = metadata
        self._host = host
        self._counts: dict[TopicId, int] = {}
        """How many partitions each topic had when it last changed."""
        self._leaderless: dict[TopicId, set[int]] = {}
        self._waiting: dict[TopicId, asyncio.Future[None]] = {}
        host.on_first_leader = self._on_first_leader

    def begin(self) -> None:
        """Take all partitions that exist as not new."""
        self._counts = {
            topic_id: topic.partition_count for topic_id, topic in self._metadata.committed_catalog.topics_by_id.items()
        }

    def on_changed(self, topics: Iterable[TopicId]) -> None:
        """Called when committed facts have changed these topics."""
        known = self._metadata.committed_catalog.topics_by_id
        leaders = self._host.leaders
        for topic_id in topics:
            topic = known.get(topic_id)
            if topic is None:
                self._counts.pop(topic_id, None)
                self._forget(topic_id)
                continue
            before, self._counts[topic_id] = self._counts.get(topic_id, 0), topic.partition_count
            added = range(before, topic.partition_count)
            # A leader may have announced itself before this node heard of the topic.
            leaderless = {index for index in added if GroupId(topic_id, index) not in leaders}
            if leaderless:
                self._leaderless.setdefault(topic_id, set()).update(leaderless)
                asyncio.get_running_loop().call_later(NEW_FOR_S, self._give_up, topic_id, leaderless)

    def __contains__(self, topic_id: TopicId) -> bool:
        """Whether a topic has a new partition without a known leader."""
        return topic_id in self._leaderless

    def leaderless(self, topic_id: TopicId) -> Collection[int]:
        """The new partitions of a topic that have no known leader."""
        return self._leaderless.get(topic_id, ())

    def topics(self) -> list[TopicId]:
        """All topics with new partitions that have no known leader."""
        return list(self._leaderless)

    async def wait(self, topics: Iterable[TopicId], timeout_s: float) -> None:
        """Wait until the new partitions of these topics have leaders, or are no longer new, or the time is up."""
        loop = asyncio.get_running_loop()
        waiting = [
            self._waiting.get(topic_id) or self._waiting.setdefault(topic_id, loop.create_future())
            for topic_id in topics
            if topic_id in self._leaderless
        ]
        if waiting:
            await asyncio.wait(waiting, timeout=timeout_s)

    def _on_first_leader(self, group: GroupId) -> None:
        if group.topic_id in self._leaderless:
            self._remove(group.topic_id, (group.partition,))

    def _give_up(self, topic_id: TopicId, indexes: Collection[int]) -> None:
        if topic_id in self._leaderless:
            self._remove(topic_id, indexes)

    def _remove(self, topic_id: TopicId, indexes: Iterable[int]) -> None:
        leaderless = self._leaderless[topic_id]
        leaderless.difference_update(indexes)
        if not leaderless:
            self._forget(topic_id)

    def _forget(self, topic_id: TopicId) -> None:
        self._leaderless.pop(topic_id, None)
        waiting = self._waiting.pop(topic_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
