"""DeleteTopics: by name, by id, and everything that hangs on a topic."""

from __future__ import annotations

import pytest

from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode
from drmq.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.offset_fetch import OffsetFetchRequest
from support.broker_harness import Harness


@pytest.mark.parametrize("version", range(1, 6))
def test_up_to_v5_by_name(harness: Harness, version: int) -> None:
    harness.create_topic("orders")
    answer = harness.ask(DeleteTopicsRequest(topic_names=["orders", "nowhere", "__consumer_offsets"]), version)
    assert [(each.name, each.error_code) for each in answer.responses] == [
        ("orders", 0),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert (answer.responses[1].error_message is not None) == (version >= 5)
    assert list(harness.broker.catalog.topics) == ["__consumer_offsets"]


def test_v6_by_name_or_by_id(harness: Harness) -> None:
    orders, bills = harness.create_topic("orders"), harness.create_topic("bills")
    request = DeleteTopicsRequest(
        [
            DeleteTopicsRequestTopic("orders"),
            DeleteTopicsRequestTopic(None, bills.topic_id),
            DeleteTopicsRequestTopic(None, b"?" * 16),
            DeleteTopicsRequestTopic(None),
            DeleteTopicsRequestTopic("both", b"!" * 16),
        ]
    )
    assert [(each.name, each.topic_id, each.error_code) for each in harness.ask(request, 6).responses] == [
        ("orders", orders.topic_id, 0),
        ("bills", bills.topic_id, 0),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST),
        ("both", b"!" * 16, ErrorCode.INVALID_REQUEST),
    ]


def test_a_topic_that_is_twice_in_a_request_stays(harness: Harness) -> None:
    harness.create_topic("orders")
    [answer] = harness.ask(DeleteTopicsRequest(topic_names=["orders", "orders"]), 5).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "orders" in harness.broker.catalog.topics


def test_a_topic_that_is_in_a_request_by_name_and_by_id_stays(harness: Harness) -> None:
    topic = harness.create_topic("orders")
    request = DeleteTopicsRequest([DeleteTopicsRequestTopic("orders"), DeleteTopicsRequestTopic(None, topic.topic_id)])
    answers = harness.ask(request, 6).responses
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert "in the request 2 times" in answers[1].error_message
    assert "orders" in harness.broker.catalog.topics


def test_its_partitions_and_the_offsets_of_its_readers_go_with_it(harness: Harness) -> None:
    harness.create_topic("orders")
    topics = [OffsetCommitRequestTopic("orders", partitions=[OffsetCommitRequestPartition(0, 5)])]
    harness.ask(OffsetCommitRequest("readers", topics=topics), 9)
    harness.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)
    with pytest.raises(ApiError, match="no partition"):
        harness.partition("orders")
    harness.create_topic("orders")
    assert harness.ask(OffsetFetchRequest("readers", None), 7).topics == []
