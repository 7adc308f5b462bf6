"""Topics as a broker offers them: the catalog's decisions carried out on logs.

The catalog says what is true; this module makes the disk agree, in an order that a crash cannot
spoil. A topic's logs are made before the catalog says that it exists, so a topic that exists has
its logs, and one whose log is missing has lost it. A topic's logs are removed after the catalog
says that it is gone, and the removal is noted in the catalog, so that a crash in between is made
good at the next start. Nothing is ever removed because nobody knows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drmq.broker.clock import Clock
from drmq.broker.machine import MachineLog
from drmq.broker.partition import Partition
from drmq.broker.partitions import PartitionTable
from drmq.broker.pending import durable
from drmq.catalog import Catalog, Fact, Topic, TopicConfig, TopicDefaults, effective, encode_fact
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.storage import StorageError

log = logging.getLogger("drmq.broker")

PRODUCER_IDS_PER_BLOCK = 1_000
"""Producer ids set aside by one record of the metadata log."""


class TopicService:
    """Creates, changes and deletes topics, and hands out producer ids. Lives on the event loop."""

    def __init__(
        self, catalog: Catalog, machine: MachineLog, table: PartitionTable, defaults: TopicDefaults, clock: Clock
    ) -> None:
        self.catalog = catalog
        self.machine = machine
        self.defaults = defaults
        self._table = table
        self._clock = clock
        self._producer_ids = range(0)
        self._changing = asyncio.Lock()
        """Held while partitions come to be, and to begin a deletion: both at once would work on the same files."""
        self.on_deleted: Callable[[Topic], None] = lambda topic: None
        """Called when a deletion is durable."""

    # ---- topics ---------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        topic_id: TopicId,
        partition_count: int,
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Topic:
        """Create a topic and wait until that is durable. Raises `ApiError` with nothing created."""
        facts = self.catalog.create_topic(name, topic_id, partition_count, configs, internal=internal)
        topic = Topic(topic_id, name, partition_count, {k: v for k, v in configs.items() if v is not None})
        if validate_only:
            return topic
        try:
            partitions = await self._table.create(topic, 0, self.config_of(topic))
        except (StorageError, OSError) as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {name!r} was not created: {error}") from error
        async with self._changing:
            try:
                # While the logs were made another request may have taken the name.
                facts = self.catalog.create_topic(name, topic_id, partition_count, configs, internal=internal)
                self._append(facts)
            except ApiError:
                await self._table.discard(topic, partitions)
                raise
            # Nobody may write to a topic that a crash can still undo.
            await self._durable(f"topic {name!r}")
            self._table.publish(topic, partitions)
        log.info("created topic %s with %d partitions", name, partition_count)
        return topic

    async def delete(self, topic: Topic) -> None:
        """Delete a topic: gone for clients when this returns, its disk space freed soon after."""
        async with self._changing:
            if topic.topic_id not in self.catalog.topics_by_id:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} is gone already")
            self._append(self.catalog.delete_topic(topic))
        await self._durable(f"the deletion of topic {topic.name!r}")
        partitions = self._table.withdraw(topic)
        self.on_deleted(topic)
        log.info("deleted topic %s", topic.name)
        await self._purge(topic, partitions)

    async def add_partitions(self, name: str, partition_count: int, *, validate_only: bool = False) -> None:
        """Raise a topic's partitions to `partition_count`. Raises `ApiError` with nothing changed."""
        async with self._changing:
            facts = self.catalog.add_partitions(name, partition_count)
            if validate_only:
                return
            topic = self.catalog.topic(name)
            grown = replace(topic, partition_count=partition_count)
            try:
                partitions = await self._table.create(grown, topic.partition_count, self.config_of(topic))
            except (StorageError, OSError) as error:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"no partitions were added: {error}") from error
            try:
                self._append(facts)
            except ApiError:
                await self._table.discard(grown, partitions)
                raise
            await self._durable(f"the new partitions of {name!r}")
            self._table.publish(grown, partitions)
            # The topic's settings may have changed while the logs were made.
            self._table.set_config(grown, self.config_of(self.catalog.topic(name)))

    async def set_configs(self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replace all of a topic's settings."""
        await self._change_configs(name, self.catalog.set_configs(name, configs), validate_only)

    async def change_configs(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change single settings of a topic; None returns one to its default."""
        await self._change_configs(name, self.catalog.change_configs(name, changes), validate_only)

    async def _change_configs(self, name: str, facts: list[Fact], validate_only: bool) -> None:
        if validate_only:
            return
        self._append(facts)
        topic = self.catalog.topic(name)
        self._table.set_config(topic, self.config_of(topic))
        await self._durable(f"the settings of {name!r}")

    async def finish_deletions(self) -> None:
        """Free the disk of topics that were deleted before the last stop."""
        for topic in list(self.catalog.purges_pending.values()):
            await self._purge(topic, [])

    def config_of(self, topic: Topic) -> TopicConfig:
        return effective(topic.configs, self.defaults)

    async def _purge(self, topic: Topic, partitions: Sequence[Partition]) -> None:
        try:
            await self._table.remove(topic, partitions)
        except (StorageError, OSError) as error:
            log.warning(
                "the files of deleted topic %s are still there (tried again at the next start): %s", topic.name, error
            )
            return
        facts = self.catalog.purged(topic.topic_id)
        if facts:
            self._append(facts)

    # ---- producer ids ---------------------------------------------------------------------------

    async def new_producer_id(self) -> int:
        """An id that no producer of this cluster ever had."""
        if not self._producer_ids:
            first = self.catalog.next_producer_id
            self._append(self.catalog.reserve_producer_ids(PRODUCER_IDS_PER_BLOCK))
            self._producer_ids = range(first, first + PRODUCER_IDS_PER_BLOCK)
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        await self._durable("a block of producer ids")
        return producer_id

    # ---- the metadata log -----------------------------------------------------------------------

    def restart(self, catalog: Catalog) -> None:
        """Go on with a catalog that was loaded anew, after the log lost what it had not written."""
        self.catalog = catalog
        self._producer_ids = range(0)
        for topic in catalog.topics.values():
            self._table.set_config(topic, self.config_of(topic))

    def _append(self, facts: Sequence[Fact]) -> None:
        self.machine.append((encode_fact(fact) for fact in facts), self._clock.wall_ms())
        for fact in facts:
            self.catalog.replay(fact)

    async def _durable(self, what: str) -> None:
        await durable(self.machine.when_durable, what)
