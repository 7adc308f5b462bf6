"""A topic that is deleted and made again under its old name: what groups have committed is about one of the two."""

from __future__ import annotations

import pytest

from drmq.broker import GroupShardCoordinator, Partition
from drmq.catalog import Fact
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from support.broker_harness import Harness

GROUP, TOPIC = "readers", "orders"
NOTHING = -1


def commit(harness: Harness, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    answer = harness.ask(
        OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(TOPIC, partitions=[partition])]), 9
    )
    assert answer.topics[0].partitions[0].error_code == 0


def committed(harness: Harness) -> int:
    """What a consumer is told that asks about its partition; and the same must come if all is asked for."""
    named = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestGroupTopic(TOPIC, partition_indexes=[0])])
    [one] = harness.ask(OffsetFetchRequest(groups=[named]), 9).groups
    [everything] = harness.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)]), 9).groups
    offset: int = one.topics[0].partitions[0].committed_offset
    all_offsets = [each.committed_offset for topic in everything.topics for each in topic.partitions]
    assert all_offsets == ([] if offset == NOTHING else [offset])
    return offset


def shard(harness: Harness) -> GroupShardCoordinator:
    found = harness.broker.groups.shard_of(GROUP)
    assert isinstance(found, GroupShardCoordinator)
    return found


def lead_anew(harness: Harness) -> None:
    """What a coordinator does that has only now come to lead."""
    harness.call(shard(harness).on_follow)
    harness.call(shard(harness).on_lead)


def made_again(harness: Harness) -> list[Fact]:
    """The facts of a deletion and of a creation that follows it."""
    catalog = harness.broker.catalog
    facts = list(catalog.delete_topic(catalog.topic(TOPIC)))
    without = catalog.copy()
    for fact in facts:
        without.replay(fact)
    return [*facts, *without.create_topic(TOPIC, harness.broker.new_topic_id(), 1, {}, internal=False)]


def test_a_new_topic_begins_without_offsets_also_where_both_facts_arrive_at_once(harness: Harness) -> None:
    """As on a node whose metadata was two facts behind."""
    harness.create_topic(TOPIC)
    commit(harness, 1_000)
    harness.call(lambda: harness.broker.metadata.append(made_again(harness)))
    assert TOPIC in harness.broker.catalog.topics
    assert committed(harness) == NOTHING
    lead_anew(harness)
    assert committed(harness) == NOTHING


def test_a_coordinator_that_has_not_heard_of_the_new_topic_keeps_its_offsets(harness: Harness) -> None:
    harness.create_topic(TOPIC)
    commit(harness, 1_000)
    harness.run(harness.broker.topics.delete(harness.broker.catalog.topic(TOPIC)))
    behind = harness.broker.catalog.copy()
    harness.create_topic(TOPIC)
    commit(harness, 7)
    harness.broker.metadata.coordinator._kept = behind
    lead_anew(harness)
    assert committed(harness) == 7


def test_a_late_word_of_the_deletion_takes_nothing_from_the_new_topic(harness: Harness) -> None:
    deleted = harness.create_topic(TOPIC)
    harness.run(harness.broker.topics.delete(harness.broker.catalog.topic(TOPIC)))
    harness.create_topic(TOPIC)
    commit(harness, 7)
    harness.call(lambda: harness.broker.topics.on_deleted(deleted))
    assert committed(harness) == 7


def test_what_the_log_refused_to_forget_is_told_to_nobody(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic(TOPIC)
    commit(harness, 1_000)
    check_may_append = Partition.check_may_append

    def refuse(partition: Partition, size_bytes: int) -> None:
        if partition is shard(harness).log.partition:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "too much waits for the followers")
        check_may_append(partition, size_bytes)

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "check_may_append", refuse)
        harness.run(harness.broker.topics.delete(harness.broker.catalog.topic(TOPIC)))
        harness.settle()
    harness.create_topic(TOPIC)
    assert len(shard(harness).machine.replicated.offsets) == 1
    assert committed(harness) == NOTHING
    commit(harness, 7)
    assert committed(harness) == 7
