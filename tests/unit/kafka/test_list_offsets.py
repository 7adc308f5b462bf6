"""ListOffsets: the ends of a log, and places in it by time."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode, Offset
from drmq.testing import FakeFiles
from drmq.wire import ApiKey
from drmq.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponsePartition,
)
from support.batches import a_batch
from support.broker_harness import Harness
from support.kafka_harness import versions


def ask(
    harness: Harness, timestamp: int, version: int = 7, *, topic: str = "t", epoch: int = -1
) -> tuple[int, int, int]:
    """Error, offset and timestamp that a question about partition 0 is answered with."""
    found = answered(harness, timestamp, version, topic=topic, epoch=epoch)
    return found.error_code, found.offset, found.timestamp


def place(harness: Harness, timestamp: int, version: int = 7) -> tuple[int, int]:
    """Offset, and the leader epoch that goes with it."""
    found = answered(harness, timestamp, version)
    assert found.error_code == 0
    return found.offset, found.leader_epoch


def answered(
    harness: Harness, timestamp: int, version: int, *, topic: str = "t", epoch: int = -1
) -> ListOffsetsResponsePartition:
    entry = ListOffsetsRequestPartition(0, epoch, timestamp)
    answer = harness.ask(ListOffsetsRequest(topics=[ListOffsetsRequestTopic(topic, [entry])]), version)
    found: ListOffsetsResponsePartition
    (found,) = answer.topics[0].partitions
    return found


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """Offsets 0 to 4, with the times 100, 100, 300, 200, 400."""
    harness.create_topic("t")
    for timestamp_ms, count in ((100, 2), (300, 1), (200, 1), (400, 1)):
        harness.append("t", a_batch([b"x"] * count, timestamp_ms=timestamp_ms))
    return harness


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_the_ends(filled: Harness, version: int) -> None:
    assert ask(filled, -1, version) == (0, 5, -1)
    assert ask(filled, -2, version) == (0, 0, -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (0, 0, 100),
        (100, 0, 100),
        (101, 2, 300),
        (200, 2, 300),
        (300, 2, 300),
        (301, 4, 400),
        (400, 4, 400),
        (401, -1, -1),
    ],
)
def test_the_first_record_that_is_not_older(filled: Harness, timestamp: int, offset: int, found: int) -> None:
    assert ask(filled, timestamp) == (0, offset, found)


def test_the_newest_record_by_time(filled: Harness) -> None:
    assert ask(filled, -3) == (0, 4, 400)
    filled.append("t", a_batch([b"x"], timestamp_ms=50))
    assert ask(filled, -3) == (0, 4, 400)


def test_an_empty_log_has_no_times(harness: Harness) -> None:
    harness.create_topic("t")
    assert ask(harness, 100) == (0, -1, -1)
    assert ask(harness, -3) == (0, -1, -1)
    assert ask(harness, -1) == (0, 0, -1)


def test_the_start_moves_with_deleted_records(filled: Harness) -> None:
    filled.run(filled.broker.services.lookups.delete_records(filled.partition("t"), Offset(1)))
    assert ask(filled, -2) == (0, 1, -1)
    assert ask(filled, 100)[1] == 1


def test_what_is_not_there(filled: Harness) -> None:
    assert ask(filled, -1, topic="nowhere")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, -1, epoch=3)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(filled, -99)[0] == ErrorCode.INVALID_REQUEST
    assert ask(filled, -4, 8) == (0, 0, -1)
    assert ask(filled, -5, 9) == (0, -1, -1)


# ---- leader epochs ---------------------------------------------------------------------------------


def next_leader(harness: Harness) -> None:
    with harness.failing(harness.partition("t")):
        pass


@pytest.fixture
def led_by_four(harness: Harness) -> Harness:
    """Offsets 0 and 1 of epoch 1, 2 and 3 of epoch 2, 4 of epoch 3, with the times 100, 300, 200; epoch 4 is empty."""
    harness.create_topic("t")
    for timestamp_ms, count in ((100, 2), (300, 2), (200, 1)):
        harness.append("t", a_batch([b"x"] * count, timestamp_ms=timestamp_ms))
        next_leader(harness)
    assert harness.partition("t").leader_epoch == 4
    return harness


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-1, (5, 4)), (-2, (0, 1)), (-3, (2, 2)), (0, (0, 1)), (101, (2, 2)), (301, (-1, -1))],
)
def test_the_epoch_is_that_of_the_batch_at_the_offset(
    led_by_four: Harness, timestamp: int, expected: tuple[int, int]
) -> None:
    assert place(led_by_four, timestamp) == expected


def test_the_epoch_of_what_is_local_and_of_what_is_nowhere(led_by_four: Harness) -> None:
    assert place(led_by_four, -4, 8) == (0, 1)
    assert place(led_by_four, -5, 9) == (-1, -1)


def test_a_log_that_begins_inside_an_epoch(led_by_four: Harness) -> None:
    led_by_four.run(led_by_four.broker.services.lookups.delete_records(led_by_four.partition("t"), Offset(3)))
    assert place(led_by_four, -2) == (3, 2)
    assert place(led_by_four, 0) == (3, 2)
    led_by_four.run(led_by_four.broker.services.lookups.delete_records(led_by_four.partition("t"), Offset(4)))
    assert place(led_by_four, -2) == (4, 3)


def test_retention_leaves_the_epochs_of_what_stays() -> None:
    with Harness(FakeFiles()) as harness:
        harness.create_topic("t", retention_ms="1000", segment_bytes="1024")
        for _ in range(3):
            for _ in range(2):
                harness.append("t", a_batch([b"x" * 900], timestamp_ms=harness.clock.wall_ms()))
            next_leader(harness)
        assert place(harness, -2) == (0, 1)
        harness.advance(30_000)
        harness.append("t", a_batch([b"x" * 900], timestamp_ms=harness.clock.wall_ms()))
        next_leader(harness)
        harness.run(harness.broker.maintain())
        assert place(harness, -2) == (6, 4)
        assert place(harness, -1) == (7, 5)


def test_where_there_is_no_batch_the_present_leader_writes_the_first(harness: Harness) -> None:
    harness.create_topic("t")
    next_leader(harness)
    assert place(harness, -2) == (0, 2)
    assert place(harness, -1) == (0, 2)
    assert place(harness, -3) == (-1, -1)
    harness.append("t", a_batch([b"x"] * 2))
    next_leader(harness)
    harness.run(harness.broker.services.lookups.delete_records(harness.partition("t"), Offset(2)))
    assert place(harness, -2) == (2, 3)
