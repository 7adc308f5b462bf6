"""DeleteRecords: the start of a partition moves up."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.storage import LogFenced
from drmq.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from support.broker_harness import Harness


def delete(
    harness: Harness, offset: int, topic: str = "orders", index: int = 0, version: int | None = None
) -> tuple[int, int]:
    partitions = [DeleteRecordsRequestPartition(index, offset)]
    answer = harness.ask(DeleteRecordsRequest([DeleteRecordsRequestTopic(topic, partitions)]), version)
    [[result]] = [each.partitions for each in answer.topics]
    assert result.partition_index == index
    return result.low_watermark, result.error_code


@pytest.fixture
def ten_records(harness: Harness) -> Harness:
    harness.create_topic("orders")
    for _ in range(10):
        harness.produce("orders")
    return harness


@pytest.mark.parametrize("version", range(3))
def test_what_lies_below_is_gone(ten_records: Harness, version: int) -> None:
    assert delete(ten_records, 4, version=version) == (4, 0)
    assert ten_records.partition("orders").start_offset == 4


def test_minus_one_is_everything(ten_records: Harness) -> None:
    assert delete(ten_records, -1) == (10, 0)
    assert ten_records.produce("orders") == 10


def test_an_offset_below_the_start_changes_nothing(ten_records: Harness) -> None:
    delete(ten_records, 4)
    assert delete(ten_records, 2) == (4, 0)
    assert delete(ten_records, 0) == (4, 0)


def test_an_offset_outside_is_an_error(ten_records: Harness) -> None:
    assert delete(ten_records, 11) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete(ten_records, -2) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)


def test_unknown_and_internal_partitions(ten_records: Harness) -> None:
    assert delete(ten_records, 1, index=1) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(ten_records, 1, "nowhere") == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert delete(ten_records, 0, "__consumer_offsets") == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert delete(ten_records, 0, "__cluster_metadata") == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_disk_that_fails_is_a_storage_error(ten_records: Harness) -> None:
    partition = ten_records.partition("orders")
    with ten_records.failing(partition):
        assert delete(ten_records, 4) == (-1, ErrorCode.KAFKA_STORAGE_ERROR)
    assert partition.start_offset == 0


def test_what_cannot_be_freed_is_deleted_all_the_same(
    ten_records: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise LogFenced("orders-0", "sync failed")

    monkeypatch.setattr(type(ten_records.partition("orders").log), "drop_prefix", fail)
    assert delete(ten_records, 4) == (4, 0)
    ten_records.settle()
    assert ten_records.partition("orders").start_offset == 4
    assert "deleted records are still on the disk" in caplog.text
    monkeypatch.undo()


def test_many_partitions_in_one_request(harness: Harness) -> None:
    harness.create_topic("orders", 3)
    for index in range(3):
        harness.produce("orders", index, [b"a", b"b"])
    partitions = [DeleteRecordsRequestPartition(index, index) for index in range(4)]
    answer = harness.ask(DeleteRecordsRequest([DeleteRecordsRequestTopic("orders", partitions)]))
    assert [(each.partition_index, each.low_watermark, each.error_code) for each in answer.topics[0].partitions] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
        (3, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
