"""Creates, changes and deletes topics, and changes settings of brokers and groups: the catalog decides, and this module
waits until the decision is committed.

Everything here runs on the controller. Other nodes forward such requests to it. A topic exists when the fact is
committed. Its partitions can be used when they have leaders, and the creator of a topic gets its answer only then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from drmq.broker.cluster.metadata import Metadata
from drmq.broker.cluster.new_partitions import NEW_FOR_S, NewPartitions
from drmq.catalog import Catalog, Fact, Topic, TopicConfig, TopicCreated, TopicDefaults, check_capacity, effective
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicId

log = logging.getLogger("drmq.broker")

_LOOK_S = 0.2
"""How often a single node that waits for leaders checks whether their replicas could be created."""


class TopicService:
    """Creates, changes and deletes topics, and changes settings. Used on the controller's event loop."""

    def __init__(
        self, metadata: Metadata, new_partitions: NewPartitions, defaults: TopicDefaults, replicas_max: int
    ) -> None:
        self.defaults = defaults
        self.replicas_max = replicas_max
        self._metadata = metadata
        self._new_partitions = new_partitions
        self.on_deleted: Callable[[Topic], None] = lambda topic: None
        """Called on the controller when a deletion is committed."""
        self.stopped: Callable[[GroupId], str | None] = lambda group: None
        """Returns the reason why a partition on this node cannot be used, or None."""

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
        described: list[Topic] = []

        def create(catalog: Catalog) -> Sequence[Fact]:
            facts = catalog.create_topic(
                name,
                topic_id,
                partition_count,
                configs,
                internal=internal,
                replication_factor=replication_factor,
                replicas=replicas,
            )
            created = facts[0]
            assert isinstance(created, TopicCreated)
            described.append(catalog.described(created))
            if not internal:
                check_capacity(catalog, facts, self.replicas_max)
            return () if validate_only else facts

        await self._metadata.decide(create, f"topic {name!r}")
        if validate_only:
            return described[0]
        topic = self._metadata.catalog.topic(name)
        log.info("created topic %s with %d partition%s", name, partition_count, "" if partition_count == 1 else "s")
        await self._wait_for_leaders(topic)
        return topic

    async def delete(self, topic: Topic) -> None:
        """Delete a topic. Clients no longer see it when this returns; its disk space is freed soon after."""

        def find(catalog: Catalog) -> Topic:
            present = catalog.topics_by_id.get(topic.topic_id)
            if present is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has already been deleted")
            return present

        await self.delete_found(find, f"topic {topic.name!r}")

    async def delete_found(self, find: Callable[[Catalog], Topic], what: str) -> Topic:
        """Delete the topic that `find` finds in the controller's catalog, and return it. `what` names it in errors."""
        found: list[Topic] = []

        def delete(catalog: Catalog) -> Sequence[Fact]:
            found.append(find(catalog))
            return catalog.delete_topic(found[0])

        await self._metadata.decide(delete, f"the deletion of {what}")
        self.on_deleted(found[0])
        log.info("deleted topic %s", found[0].name)
        return found[0]

    async def add_partitions(
        self,
        name: str,
        partition_count: int,
        *,
        replicas: Sequence[Sequence[NodeId]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase the number of a topic's partitions to `partition_count`.

        If it raises `ApiError`, nothing has changed.
        """

        def add(catalog: Catalog) -> Sequence[Fact]:
            facts = catalog.add_partitions(name, partition_count, replicas)
            check_capacity(catalog, facts, self.replicas_max)
            return () if validate_only else facts

        await self._metadata.decide(add, f"the new partitions of {name!r}")
        if not validate_only:
            await self._wait_for_leaders(self._metadata.catalog.topic(name))

    async def set_configs(self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replace all of a topic's settings."""

        def change(catalog: Catalog) -> Sequence[Fact]:
            facts = catalog.set_configs(name, configs)
            return () if validate_only else facts

        await self._metadata.decide(change, f"the settings of {name!r}")

    async def change_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change individual settings of a topic; None returns a setting to its default."""
        await self.derive_configs(name, lambda topic: changes, validate_only=validate_only)

    async def derive_configs(
        self, name: str, changes: Callable[[Topic], Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Change individual settings of a topic to values that `changes` derives from the current topic."""

        def change(catalog: Catalog) -> Sequence[Fact]:
            facts = catalog.change_configs(name, changes(catalog.topic(name)))
            return () if validate_only else facts

        await self._metadata.decide(change, f"the settings of {name!r}")

    async def derive_broker_configs(
        self,
        node_id: NodeId | None,
        changes: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Change settings of a broker, or of all for None, to values that `changes` derives from the current ones."""

        def change(catalog: Catalog) -> Sequence[Fact]:
            present = catalog.broker_configs.get(node_id, {})
            facts = catalog.change_broker_configs(node_id, changes(present), replace_all=replace_all)
            return () if validate_only else facts

        await self._metadata.decide(change, "the settings of brokers")

    async def derive_group_configs(
        self,
        group: str,
        changes: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        *,
        replace_all: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Change settings of a lease group to values that `changes` derives from the current ones."""

        def change(catalog: Catalog) -> Sequence[Fact]:
            present = catalog.group_configs.get(group, {})
            facts = catalog.change_group_configs(group, changes(present), replace_all=replace_all)
            return () if validate_only else facts

        await self._metadata.decide(change, f"the settings of group {group!r}")

    async def _wait_for_leaders(self, topic: Topic) -> None:
        """Wait until the new partitions of a topic have leaders, as long as they are new."""
        new = self._new_partitions
        while topic.topic_id in new:
            is_alone = len(self._metadata.catalog.brokers) == 1
            if is_alone:
                # No other node has a replica that could be used instead of one that is stopped.
                found = (self.stopped(GroupId(topic.topic_id, index)) for index in new.leaderless(topic.topic_id))
                reason = next((each for each in found if each is not None), None)
                if reason is not None:
                    raise ApiError(
                        ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name!r} was created, but cannot be used: {reason}"
                    )
            await new.wait((topic.topic_id,), _LOOK_S if is_alone else NEW_FOR_S)
