"""The partitions of a consumer, and which broker leads each: kept up to date by a task.

The coordinator names partitions by the id of their topic; names and leaders are in the metadata, of which any broker
has a copy that may be old. So metadata is fetched again when a broker says that it does not lead a partition, when one
cannot be reached, when partitions are assigned that are not known, and now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from drmq.client.errors import ClientError
from drmq.client.leases.brokers import Brokers
from drmq.client.leases.membership import Assignment
from drmq.client.leases.source import NO_LEADER, Source
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

_REFRESH_S = 60.0
_RETRY_S = 0.1
_RETRY_S_MAX = 1.0


class Leaders:
    """Which partitions there are to work on. Owned by the session, which runs `run` as a task."""

    def __init__(
        self, brokers: Brokers, *, on_changed: Callable[[], None], on_failed: Callable[[ClientError], None]
    ) -> None:
        self._brokers = brokers
        self._on_changed = on_changed
        self._on_failed = on_failed
        self._topics: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()
        """Topics that exist."""
        self._assignment: Assignment = frozenset()
        self._sources: dict[tuple[bytes, int], Source] = {}
        self._is_stale = asyncio.Event()

    @property
    def sources(self) -> Iterable[Source]:
        return self._sources.values()

    @property
    def leader_ids(self) -> set[int]:
        return {source.leader_id for source in self.sources if source.leader_id != NO_LEADER}

    @property
    def is_complete(self) -> bool:
        """Whether all topics exist and all assigned partitions are known."""
        return self._known >= self._topics and not self._unknown

    @property
    def is_asked(self) -> bool:
        """Whether every assigned partition was asked for records, and every topic looked for."""
        return not self._unknown and all(source.was_asked for source in self.sources if source.is_assigned)

    @property
    def _unknown(self) -> Assignment:
        return self._assignment - self._sources.keys()

    def source(self, topic_id: bytes, partition: int) -> Source | None:
        return self._sources.get((topic_id, partition))

    def follow(self, topics: frozenset[str]) -> None:
        self._topics = topics
        self.refresh()

    def assign(self, assignment: Assignment) -> None:
        """Take from these partitions, and no others. What is held of others can still be settled."""
        self._assignment = assignment
        self._mark_assigned()
        if self._unknown:
            self.refresh()
        self._on_changed()

    def refresh(self) -> None:
        """Fetch the metadata again soon."""
        self._is_stale.set()

    def _mark_assigned(self) -> None:
        for key, source in self._sources.items():
            source.is_assigned = key in self._assignment

    async def run(self) -> None:
        """Keep up with the leaders until cancelled."""
        retry_s = _RETRY_S
        while True:
            try:
                async with asyncio.timeout(_REFRESH_S):
                    await self._is_stale.wait()
            except TimeoutError:
                pass
            self._is_stale.clear()
            topics = self._topics | {source.topic for source in self.sources if source.is_in_use}
            if not topics:
                continue
            try:
                self._learn(await self._brokers.metadata(sorted(topics)))
                is_settled = not self._unknown and all(
                    source.leader_id != NO_LEADER for source in self.sources if source.is_assigned or source.is_in_use
                )
            except ClientError as error:
                self._on_failed(error)
                is_settled = False
            # Brokers that say "not here" must not be asked a thousand times a second where else to go.
            await asyncio.sleep(retry_s)
            if is_settled:
                retry_s = _RETRY_S
            else:
                self._is_stale.set()
                retry_s = min(2 * retry_s, _RETRY_S_MAX)

    def _learn(self, answer: MetadataResponse) -> None:
        self._known = frozenset(topic.name for topic in answer.topics if topic.name and not topic.error_code)
        for topic in answer.topics:
            if not topic.error_code and topic.name:
                self._learn_topic(topic.name, topic)
        in_use = {key for key, source in self._sources.items() if source.is_in_use}
        self._sources = {
            key: source
            for key, source in self._sources.items()
            if key in in_use or key in self._assignment or source.topic in self._topics
        }
        self._mark_assigned()
        self._on_changed()

    def _learn_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        for part in topic.partitions:
            key = (topic.topic_id, part.partition_index)
            source = self._sources.get(key)
            if source is None:
                source = self._sources[key] = Source(name, topic.topic_id, part.partition_index)
            # A broker that lags behind must not undo what a newer leader has said.
            if part.leader_epoch >= source.leader_epoch or part.leader_epoch < 0:
                source.leader_id, source.leader_epoch = part.leader_id, part.leader_epoch
