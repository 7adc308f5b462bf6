"""Internal topics: clients cannot create, delete or write them, and cannot read those that may hold secrets."""

from __future__ import annotations

import pytest

from drmq.model import ApiError, ErrorCode
from drmq.model.names import CLUSTER_METADATA, CONSUMER_OFFSETS, METADATA_GROUP
from drmq.testing.files import FakeFiles
from drmq.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from drmq.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from drmq.wire.messages.delete_topics import DeleteTopicsRequest
from drmq.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.batches import a_batch
from support.broker_harness import Harness

INTERNAL = [CONSUMER_OFFSETS, CLUSTER_METADATA, "__share_group_state", "__mine", "__"]


@pytest.fixture
def harness() -> Harness:
    return Harness(FakeFiles())


@pytest.mark.parametrize("name", INTERNAL)
def test_a_reserved_name_cannot_be_created(harness: Harness, name: str) -> None:
    with harness:
        before = set(harness.broker.catalog.topics)
        created = harness.ask(CreateTopicsRequest([CreateTopicsRequestTopic(name, 1, 1)]), 5)
        assert created.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        found = harness.ask(MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=True), 9)
        assert found.topics[0].error_code in (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE if name in before else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert set(harness.broker.catalog.topics) == before


def test_an_internal_topic_cannot_be_deleted_or_trimmed(harness: Harness) -> None:
    with harness:
        deleted = harness.ask(DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS]), 5)
        assert deleted.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        trim = DeleteRecordsRequestTopic(CONSUMER_OFFSETS, [DeleteRecordsRequestPartition(0, 0)])
        trimmed = harness.ask(DeleteRecordsRequest([trim], 1_000), 2)
        assert trimmed.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert CONSUMER_OFFSETS in harness.broker.catalog.topics


def test_a_client_cannot_produce_to_an_internal_topic(harness: Harness) -> None:
    with harness:
        partition = harness.broker.partitions.by_name(CONSUMER_OFFSETS, 0)
        with pytest.raises(ApiError, match="reserved") as refused:
            harness.call(lambda: partition.append(memoryview(a_batch()), 0))
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert partition.next_offset == 0


def test_the_metadata_log_cannot_be_read_by_name_or_by_id(harness: Harness) -> None:
    with harness:
        partitions = harness.broker.partitions
        with pytest.raises(ApiError, match="cannot read") as by_name:
            partitions.by_name(CLUSTER_METADATA, 0)
        with pytest.raises(ApiError, match="cannot read") as by_id:
            partitions.by_id(METADATA_GROUP.topic_id, 0)
        assert {by_name.value.code, by_id.value.code} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        asked = ListOffsetsRequestTopic(CLUSTER_METADATA, [ListOffsetsRequestPartition(0, timestamp=-1)])
        answer = harness.ask(ListOffsetsRequest(topics=[asked]), 7)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_committed_offsets_can_be_read(harness: Harness) -> None:
    """Tools read `__consumer_offsets`; there is no secret in it."""
    with harness:
        assert harness.broker.partitions.by_name(CONSUMER_OFFSETS, 0).topic == CONSUMER_OFFSETS
