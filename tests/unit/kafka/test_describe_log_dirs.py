"""DescribeLogDirs: the size of each partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from drmq.broker import DiskLogs
from drmq.model import ErrorCode, NodeId
from drmq.storage import DataDirectory
from drmq.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponseResult,
)
from support.broker_harness import Harness


def sizes(result: DescribeLogDirsResponseResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_null_is_every_partition(harness: Harness, version: int) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 1, [b"x" * 100])
    answer = harness.ask(DescribeLogDirsRequest(None), version)
    assert answer.error_code == 0
    [result] = answer.results
    found = sizes(result)
    assert (result.error_code, result.log_dir) == (0, "memory")
    assert found["orders", 0] == 0
    assert found["orders", 1] == harness.partition("orders", 1).log.size_bytes > 100
    assert {name for name, _ in found} == {"orders", "__consumer_offsets"}
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)


def test_only_what_is_asked_for_and_there(harness: Harness) -> None:
    harness.create_topic("orders", 3)
    topics = [
        DescribeLogDirsRequestTopic("orders", [2, 7]),
        DescribeLogDirsRequestTopic("orders", [0]),
        DescribeLogDirsRequestTopic("nowhere", [0]),
    ]
    [result] = harness.ask(DescribeLogDirsRequest(topics)).results
    assert sorted(sizes(result)) == [("orders", 0), ("orders", 2)]
    [result] = harness.ask(DescribeLogDirsRequest([])).results
    assert result.topics == []


def test_a_disk_that_cannot_be_asked(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[int, int]:
        raise OSError("no such device")

    monkeypatch.setattr(harness.store, "disk_bytes", fail)
    [result] = harness.ask(DescribeLogDirsRequest(None)).results
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_the_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tools compare it with the paths that they were given."""
    monkeypatch.chdir(tmp_path)
    store = DiskLogs(DataDirectory("data", NodeId(1)))
    try:
        assert store.location == str(tmp_path / "data")
    finally:
        store.close()
