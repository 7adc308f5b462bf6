"""Topics and their settings as a replicated state machine.

Each operation checks its input against the present state and returns the facts that carry it
out, or raises `ApiError` and changes nothing. `replay` is the only method that writes. Whoever
drives the catalog appends the facts to the metadata log, replays them, and answers once they are
durable. So every replica, and every restart, comes to the same state.

`replay` accepts any fact in any state: a fact about a topic that is not there (because an earlier
one of the same batch removed it) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from drmq.catalog.records import (
    Fact,
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
)
from drmq.catalog.topic_configs import DEFINITIONS, check_config
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.model.names import check_topic_name, is_internal

PARTITIONS_MAX = 10_000
"""Partitions that one topic may have: each costs a directory and open files."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it is now. Replaced, never changed."""

    topic_id: TopicId
    name: str
    partition_count: int
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)


class Catalog:
    """All topics by name and by id, and the next producer id. Belongs to one driver."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[TopicId, Topic] = {}
        self.purges_pending: dict[TopicId, Topic] = {}
        """Deleted topics whose files are not yet known to be gone."""
        self.next_producer_id = 0

    # ---- questions ------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of this name, or `ApiError` (UNKNOWN_TOPIC_OR_PARTITION)."""
        topic = self.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id.hex()}")
        return topic

    # ---- operations: facts out, nothing changed -------------------------------------------------

    def create_topic(
        self, name: str, topic_id: TopicId, partition_count: int, configs: Mapping[str, str | None], *, internal: bool
    ) -> list[Fact]:
        """Create a topic. `internal` is set by the broker itself, never by a client."""
        check_topic_name(name)
        if is_internal(name) and not internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is one of DRMQ's own topics")
        if name in self.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
        twin = next((other for other in self.topics if _collides(other, name)), None)
        if twin is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} differs from {twin!r} only in '.' and '_', which metric names cannot tell apart",
            )
        if not 1 <= partition_count <= PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: allowed are 1 to {PARTITIONS_MAX}"
            )
        return [TopicCreated(topic_id, name, partition_count, _checked(configs))]

    def delete_topic(self, topic: Topic) -> list[Fact]:
        if topic.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is one of DRMQ's own topics")
        return [TopicDeleted(topic.topic_id)]

    def purged(self, topic_id: TopicId) -> list[Fact]:
        return [TopicPurged(topic_id)] if topic_id in self.purges_pending else []

    def add_partitions(self, name: str, partition_count: int) -> list[Fact]:
        """Raise a topic's partitions to `partition_count`."""
        topic = self.topic(name)
        if topic.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is one of DRMQ's own topics")
        if partition_count <= topic.partition_count:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {topic.partition_count} partitions; the number can only be raised",
            )
        if partition_count > PARTITIONS_MAX:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions: allowed are 1 to {PARTITIONS_MAX}"
            )
        return [PartitionsAdded(topic.topic_id, partition_count)]

    def set_configs(self, name: str, configs: Mapping[str, str | None]) -> list[Fact]:
        """Replace all settings of a topic (AlterConfigs)."""
        topic = self.topic(name)
        return [TopicConfigsSet(topic.topic_id, _checked(configs))]

    def change_configs(self, name: str, changes: Mapping[str, str | None]) -> list[Fact]:
        """Set single settings of a topic, or with None return them to their default."""
        topic = self.topic(name)
        configs = dict(topic.configs)
        for key, value in changes.items():
            if value is None:
                if key not in DEFINITIONS:
                    check_config(key, value)
                configs.pop(key, None)
            else:
                check_config(key, value)
                configs[key] = value
        return [TopicConfigsSet(topic.topic_id, configs)]

    def reserve_producer_ids(self, count: int) -> list[Fact]:
        """Set aside the ids from `next_producer_id` on, so that a restart gives none of them out again."""
        return [ProducerIdsReserved(self.next_producer_id + count)]

    # ---- replicated state -----------------------------------------------------------------------

    def replay(self, fact: Fact) -> None:
        """Make a fact true."""
        if isinstance(fact, TopicCreated):
            self._put(Topic(fact.topic_id, fact.name, fact.partition_count, fact.configs))
        elif isinstance(fact, TopicDeleted):
            topic = self.topics_by_id.pop(fact.topic_id, None)
            if topic is not None:
                del self.topics[topic.name]
                self.purges_pending[topic.topic_id] = topic
        elif isinstance(fact, TopicPurged):
            self.purges_pending.pop(fact.topic_id, None)
        elif isinstance(fact, ProducerIdsReserved):
            self.next_producer_id = max(self.next_producer_id, fact.next_id)
        else:
            known = self.topics_by_id.get(fact.topic_id)
            if known is None:
                return
            if isinstance(fact, PartitionsAdded):
                self._put(replace(known, partition_count=max(known.partition_count, fact.partition_count)))
            else:
                self._put(replace(known, configs=fact.configs))

    def snapshot(self) -> Iterable[Fact]:
        """Facts that lead from an empty catalog to this one."""
        yield ProducerIdsReserved(self.next_producer_id)
        # The deleted ones first: a name may live again while its former bearer's files wait to be removed.
        for topic in self.purges_pending.values():
            yield _creation(topic)
            yield TopicDeleted(topic.topic_id)
        for topic in self.topics_by_id.values():
            yield _creation(topic)

    def _put(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic


def _creation(topic: Topic) -> TopicCreated:
    return TopicCreated(topic.topic_id, topic.name, topic.partition_count, dict(topic.configs))


def _checked(configs: Mapping[str, str | None]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, value in configs.items():
        check_config(name, value)
        assert value is not None
        checked[name] = value
    return checked


def _collides(one: str, other: str) -> bool:
    return one.replace(".", "_") == other.replace(".", "_")
