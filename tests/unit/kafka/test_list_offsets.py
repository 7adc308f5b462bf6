"""ListOffsets: the ends of a log, and places in it by time."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode, Offset
from drmq.wire import ApiKey
from drmq.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsRequestPartition, ListOffsetsRequestTopic
from support.batches import a_batch
from support.broker_harness import Harness
from support.kafka_line import versions


def ask(
    harness: Harness, timestamp: int, version: int = 7, *, topic: str = "t", epoch: int = -1
) -> tuple[int, int, int]:
    """Error, offset and timestamp that a question about partition 0 is answered with."""
    entry = ListOffsetsRequestPartition(0, epoch, timestamp)
    answer = harness.ask(ListOffsetsRequest(topics=[ListOffsetsRequestTopic(topic, [entry])]), version)
    (found,) = answer.topics[0].partitions
    return found.error_code, found.offset, found.timestamp


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
    filled.run(filled.broker.delete_records(filled.partition("t"), Offset(1)))
    assert ask(filled, -2) == (0, 1, -1)
    assert ask(filled, 100)[1] == 1


def test_what_is_not_there(filled: Harness) -> None:
    assert ask(filled, -1, topic="nowhere")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(filled, -1, epoch=3)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(filled, -99)[0] == ErrorCode.INVALID_REQUEST
    assert ask(filled, -4, 8) == (0, 0, -1)
    assert ask(filled, -5, 9) == (0, -1, -1)
