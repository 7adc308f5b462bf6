"""OffsetForLeaderEpoch: where epochs end."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from support.broker_harness import Harness


def end_of(
    harness: Harness, epoch: int, current: int = -1, topic: str = "orders", index: int = 0, version: int | None = None
) -> tuple[int, int, int]:
    entry = OffsetForLeaderEpochRequestPartition(index, current, epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequestTopic(topic, [entry])])
    [[answer]] = [each.partitions for each in harness.ask(request, version).topics]
    assert answer.partition == index
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.fixture
def two_epochs(harness: Harness) -> Harness:
    """Records 0 to 2 of epoch 1, 3 to 4 of epoch 4, which is the current one."""
    harness.create_topic("orders")
    for _ in range(3):
        harness.produce("orders")
    partition = harness.partition("orders")
    for _ in range(3):
        with harness.failing(partition):
            pass
    for _ in range(2):
        harness.produce("orders")
    assert partition.leader_epoch == 4
    return harness


@pytest.mark.parametrize("version", range(2, 5))
def test_where_epochs_end(two_epochs: Harness, version: int) -> None:
    assert end_of(two_epochs, 1, version=version) == (0, 1, 3)
    assert end_of(two_epochs, 2, version=version) == (0, 1, 3)
    assert end_of(two_epochs, 4, version=version) == (0, 4, 5)


def test_epochs_that_never_were(two_epochs: Harness) -> None:
    assert end_of(two_epochs, 0) == (0, 0, 0)
    assert end_of(two_epochs, 5) == (0, -1, -1)
    assert end_of(two_epochs, -1) == (0, -1, -1)


def test_the_current_epoch_of_an_empty_partition_ends_at_its_start(harness: Harness) -> None:
    harness.create_topic("orders")
    assert end_of(harness, 1) == (0, 1, 0)


def test_a_client_with_another_leader_in_mind(two_epochs: Harness) -> None:
    assert end_of(two_epochs, 1, current=4) == (0, 1, 3)
    assert end_of(two_epochs, 1, current=3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end_of(two_epochs, 1, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


def test_unknown_partitions(two_epochs: Harness) -> None:
    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of(two_epochs, 1, index=1) == missing
    assert end_of(two_epochs, 1, topic="nowhere") == missing
