"""Topics as the cluster offers them: the catalog's decisions, made durable and waited for.

Everything here is done by the controller. Other nodes pass such requests on to it. A topic exists when the fact is
committed; its partitions can be used when they have leaders, and whoever creates a topic is told only then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from drmq.broker.cluster.metadata import Metadata
from drmq.broker.replication.group_host import GroupHost
from drmq.catalog import Fact, Topic, TopicConfig, TopicCreated, TopicDefaults, effective
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicId

log = logging.getLogger("drmq.broker")

LEADERS_WAIT_S = 10.0
"""How long the creator of partitions is kept waiting for their leaders. They come later, if at all, without him."""


class TopicService:
    """Creates, changes and deletes topics. Lives on the controller's event loop."""

    def __init__(self, metadata: Metadata, host: GroupHost, defaults: TopicDefaults) -> None:
        self.defaults = defaults
        self._metadata = metadata
        self._host = host
        self.on_deleted: Callable[[Topic], None] = lambda topic: None
        """Called on the controller when a deletion is committed."""
        self.stopped: Callable[[GroupId], str | None] = lambda group: None
        """Why a partition on this node cannot be used, if so."""

    def config_of(self, topic: Topic) -> TopicConfig:
        return effective(topic.configs, self.defaults)

    async def create(
        self,
        name: str,
        topic_id: TopicId,
        partition_count: int,
        configs: Mapping[str, str | None],
        *,
        replication_factor: int = -1,
        replicas: Sequence[Sequence[NodeId]] | None = None,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Topic:
        """Create a topic and wait until it can be used. Raises `ApiError`."""
        self._metadata.check_controller()
        catalog = self._metadata.catalog
        async with self._metadata.certain_refusals():
            facts = catalog.create_topic(
                name,
                topic_id,
                partition_count,
                configs,
                internal=internal,
                replication_factor=replication_factor,
                replicas=replicas,
            )
        if validate_only:
            created = facts[0]
            assert isinstance(created, TopicCreated)
            return catalog.described(created)
        await self._commit(facts, f"topic {name!r}")
        topic = self._metadata.catalog.topic(name)
        log.info("created topic %s with %d partitions", name, partition_count)
        await self._led(topic, range(partition_count))
        return topic

    async def delete(self, topic: Topic) -> None:
        """Delete a topic: gone for clients when this returns, its disk space freed soon after."""
        self._metadata.check_controller()
        async with self._metadata.certain_refusals():
            if topic.topic_id not in self._metadata.catalog.topics_by_id:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} is gone already")
        await self._commit(self._metadata.catalog.delete_topic(topic), f"the deletion of topic {topic.name!r}")
        self.on_deleted(topic)
        log.info("deleted topic %s", topic.name)

    async def add_partitions(
        self,
        name: str,
        partition_count: int,
        *,
        replicas: Sequence[Sequence[NodeId]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise a topic's partitions to `partition_count`. Raises `ApiError` with nothing changed."""
        self._metadata.check_controller()
        async with self._metadata.certain_refusals():
            facts = self._metadata.catalog.add_partitions(name, partition_count, replicas)
        if validate_only:
            return
        before = self._metadata.catalog.topic(name).partition_count
        await self._commit(facts, f"the new partitions of {name!r}")
        await self._led(self._metadata.catalog.topic(name), range(before, partition_count))

    async def set_configs(self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replace all of a topic's settings."""
        self._metadata.check_controller()
        async with self._metadata.certain_refusals():
            facts = self._metadata.catalog.set_configs(name, configs)
        await self._change_configs(name, facts, validate_only)

    async def change_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change single settings of a topic; None returns one to its default."""
        self._metadata.check_controller()
        async with self._metadata.certain_refusals():
            facts = self._metadata.catalog.change_configs(name, changes)
        await self._change_configs(name, facts, validate_only)

    async def _change_configs(self, name: str, facts: list[Fact], validate_only: bool) -> None:
        if not validate_only:
            await self._commit(facts, f"the settings of {name!r}")

    async def _commit(self, facts: Sequence[Fact], what: str) -> None:
        self._metadata.append(facts)
        await self._metadata.committed(what)

    async def _led(self, topic: Topic, indexes: Iterable[int]) -> None:
        """Wait until partitions have leaders; a while at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LEADERS_WAIT_S
        waiting = {GroupId(topic.topic_id, index) for index in indexes}
        while True:
            waiting.difference_update(self._host.leaders.keys() & waiting)
            if not waiting or loop.time() > deadline:
                return
            reasons = [reason for group in waiting if (reason := self.stopped(group)) is not None]
            if reasons and len(self._metadata.catalog.brokers) == 1:
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name!r} is there, but cannot be used: {reasons[0]}"
                )
            if topic.topic_id not in self._metadata.catalog.topics_by_id:
                return
            await self._host.next_leader_news(min(0.2, max(0.0, deadline - loop.time())))
