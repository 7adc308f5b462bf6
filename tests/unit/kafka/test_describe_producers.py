"""DescribeProducers: who has written to a partition, with the last sequence number."""

from __future__ import annotations

from drmq.model import ErrorCode
from drmq.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from support.batches import a_batch
from support.broker_harness import Harness


def test_each_producer_with_its_last_sequence(harness: Harness) -> None:
    harness.create_topic("orders")
    partition = harness.broker.partitions.by_name("orders", 0)
    for producer_id, epoch, sequence in ((7, 0, 0), (7, 0, 2), (9, 3, 5), (-1, -1, -1)):
        batch = a_batch([b"a", b"b"], producer_id=producer_id, epoch=epoch, sequence=sequence)
        harness.call(lambda batch=batch: partition.append(batch, 1_000))  # type: ignore[misc]
    request = DescribeProducersRequest([DescribeProducersRequestTopic("orders", [0, 0])])
    [topic] = harness.ask(request, 0).topics
    [described] = topic.partitions
    assert (topic.name, described.partition_index, described.error_code) == ("orders", 0, 0)
    assert [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.coordinator_epoch)
        for each in described.active_producers
    ] == [(7, 0, 3, -1), (9, 3, 6, -1)]
    assert all(each.last_timestamp > 0 for each in described.active_producers)
    assert {each.current_txn_start_offset for each in described.active_producers} == {-1}


def test_a_follower_answers_too_and_a_failed_replica_does_not(harness: Harness) -> None:
    """`kafka-transactions find-hanging` asks each broker for all its replicas."""
    harness.create_topic("orders")
    partition = harness.partition("orders")
    batch = a_batch(producer_id=7, epoch=0, sequence=0)
    harness.call(lambda: partition.append(batch, 1_000))
    request = DescribeProducersRequest([DescribeProducersRequestTopic("orders", [0])])
    partition.is_leader = partition.is_serving = False
    [described] = harness.ask(request, 0).topics[0].partitions
    assert [each.producer_id for each in described.active_producers] == [7]
    partition.failure = "no space left"
    [described] = harness.ask(request, 0).topics[0].partitions
    assert (described.error_code, described.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "no space left")


def test_what_is_not_here_is_an_error(harness: Harness) -> None:
    harness.create_topic("orders")
    topics = [DescribeProducersRequestTopic("orders", [1]), DescribeProducersRequestTopic("nowhere", [0])]
    answer = harness.ask(DescribeProducersRequest(topics), 0)
    assert [[each.error_code for each in topic.partitions] for topic in answer.topics] == [
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert all(each.error_message for topic in answer.topics for each in topic.partitions)
