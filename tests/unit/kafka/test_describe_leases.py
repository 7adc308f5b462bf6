"""DescribeLeases: the queues of a group with their lag and age, and what is leased to whom."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.kafka.describe_leases import LEASES_MAX
from drmq.leases import LeaseOptions, QueueKey
from drmq.model import ErrorCode
from drmq.model.names import SHARE_GROUP_STATE
from drmq.wire.messages.describe_leases import DescribeLeasesRequest
from drmq.wire.messages.lease_fetch import LeaseSettlement
from support.broker_harness import WALL_START_MS, Harness
from support.gates import NamedGate
from support.lease_requests import ACCEPT, GROUP, REJECT, RELEASE, TOPIC, Leases


def describe(harness: Harness, topics: list[str] | None = None, leases_max: int = 0, group: str = GROUP) -> Any:
    answer = harness.ask(DescribeLeasesRequest(group, topics, leases_max))
    assert answer.error_code == 0, answer.error_message
    return answer


@pytest.fixture
def leases(harness: Harness) -> Leases:
    return Leases(harness, partitions=2)


def test_a_queue_is_described_by_counts(harness: Harness, leases: Leases) -> None:
    # So that what is given up stays: nothing can be written to a topic that is not there and is not created.
    harness.broker.services.dead_letters.look_at = lambda shard: None  # type: ignore[method-assign]
    harness.broker.leases.on_changed = lambda shard: None
    for count in (3, 7):
        harness.produce(TOPIC, 1, [b"x"] * count)
    leases.take(6, partitions=(1,))
    leases.ask(
        LeaseSettlement(0, 0, ACCEPT),
        LeaseSettlement(1, 1, RELEASE, delay_ms=60_000),
        LeaseSettlement(2, 2, RELEASE, delay_ms=0),
        LeaseSettlement(3, 3, REJECT),
        partitions=(1,),
    )
    answer = describe(harness)
    assert answer.dead_letter_topic == f"dlq.{GROUP}"
    [queue] = answer.queues
    assert (queue.topic, queue.topic_id, queue.partition_index) == (TOPIC, leases.topic_id, 1)
    assert (queue.start_offset, queue.end_offset, queue.high_watermark) == (1, 6, 10)
    assert (queue.held_count, queue.returned_count, queue.parked_count, queue.dying_count) == (2, 1, 1, 1)
    assert queue.open_count == 9, "all but the one that was accepted"
    assert WALL_START_MS <= queue.oldest_open_ms <= harness.clock.wall_ms()
    assert queue.next_due_ms >= WALL_START_MS + 60_000
    assert not queue.is_paused
    assert queue.leases == []


def test_the_oldest_open_record_is_that_of_the_first_batch_that_is_not_done(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    first_ms = harness.clock.wall_ms()
    harness.advance(10_000)
    harness.produce(TOPIC)
    leases.take(2)
    [queue] = describe(harness).queues
    assert queue.oldest_open_ms <= first_ms
    leases.settle(ACCEPT, 0)
    [queue] = describe(harness).queues
    assert first_ms + 10_000 <= queue.oldest_open_ms
    leases.settle(ACCEPT, 1)
    [queue] = describe(harness).queues
    assert (queue.open_count, queue.oldest_open_ms) == (0, -1)


def test_leases_are_listed_up_to_the_limit_over_all_queues(harness: Harness, leases: Leases) -> None:
    for index in range(2):
        for _ in range(3):
            harness.produce(TOPIC, index)
            leases.take(1, partitions=(index,), member=f"m{index}")
    first, second = describe(harness, leases_max=100).queues
    assert [(each.first_offset, each.member_id, each.attempt) for each in first.leases] == [
        (0, "m0", 1),
        (1, "m0", 1),
        (2, "m0", 1),
    ]
    assert all(0 < each.left_ms <= LeaseOptions().duration_ms for each in second.leases)
    assert len({each.token for each in second.leases}) == 3
    first, second = describe(harness, leases_max=4).queues
    assert (len(first.leases), len(second.leases)) == (3, 1)


def test_only_the_named_topics_are_described(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    leases.take(1)
    assert [queue.topic for queue in describe(harness, [TOPIC]).queues] == [TOPIC]
    [missing] = describe(harness, ["nothing"]).queues
    assert (missing.topic, missing.error_code) == ("nothing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert describe(harness, []).queues == []


def test_a_group_that_does_not_exist_has_no_queues(harness: Harness) -> None:
    assert describe(harness, group="nobody").queues == []


@pytest.mark.parametrize("leases_max", [-1, LEASES_MAX + 1])
def test_a_malformed_request_is_refused(harness: Harness, leases_max: int) -> None:
    answer = harness.ask(DescribeLeasesRequest(GROUP, None, leases_max))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_shard_that_does_not_answer_is_a_row_and_the_others_answer(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drmq.broker.services.lease_queries._TIMEOUT_S", 0.05)
    leases, groups = Leases(harness, partitions=32), harness.broker.leases
    shards = [groups.index_of(QueueKey(GROUP, leases.topic_id, index)) for index in range(32)]
    other = next(index for index in range(32) if shards[index] != shards[0])
    for index in (0, other):
        harness.produce(TOPIC, index)
        leases.take(1, partitions=(index,))
    shard = groups.shards[shards[0]]
    with harness.failing(shard.log.partition):
        queue, failed = describe(harness).queues
    assert (queue.topic, queue.partition_index, queue.error_code) == (TOPIC, other, 0)
    assert (failed.topic, failed.partition_index) == (SHARE_GROUP_STATE, shard.log.partition.index)
    assert failed.error_code != 0
    assert failed.error_message


def test_topics_that_the_caller_may_not_see_are_left_out(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    leases.take(1)
    harness.broker.services.gate = NamedGate(TOPIC)
    assert describe(harness).queues == []


def test_a_paused_queue_says_so(harness: Harness, leases: Leases) -> None:
    harness.broker.leases.options_of = lambda group: LeaseOptions(parked_max=1)
    harness.produce(TOPIC, values=[b"x"] * 3)
    leases.take(1)
    leases.settle(RELEASE, 0, delay_ms=60_000)
    [queue] = describe(harness).queues
    assert queue.is_paused
    assert leases.take(1).deliveries == []
