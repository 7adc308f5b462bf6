"""Why nothing moves, asked of a broker, and disks that are full."""

import time
from typing import Any

import pytest

from drmq.client import Admin, LogDir, Refused
from drmq.client.topics import LEADER_GRACE_S
from drmq.model import ErrorCode, TopicPartition
from drmq.records import batch_is_intact
from drmq.wire import ApiKey
from drmq.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from drmq.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from drmq.wire.messages.produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic
from support.fake_broker import FakeBroker, broker

P0, P1, P2 = (TopicPartition("t", index) for index in range(3))


def with_topic(fake: FakeBroker) -> FakeBroker:
    """Two partitions with a leader, and one without."""
    leaders = [1, 1, -1]
    topic = MetadataResponseTopic(
        name="t",
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader) for index, leader in enumerate(leaders)
        ],
    )
    fake.answers[ApiKey.METADATA] = lambda request: fake.metadata(topics=[topic])
    return fake


def test_partitions_that_cannot_be_read_are_told_with_their_codes() -> None:
    """Each is asked at its own offset; what has no leader needs no question."""
    asked: list[tuple[int, int]] = []

    def fetch(request: Any) -> FetchResponse:
        asked.extend((entry.partition, entry.fetch_offset) for entry in request.topics[0].partitions)
        codes = {0: 0, 1: ErrorCode.KAFKA_STORAGE_ERROR}
        partitions = [FetchResponsePartition(partition_index=index, error_code=codes[index]) for index, _ in asked]
        return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=partitions)])

    with broker({ApiKey.FETCH: fetch}) as fake, Admin(str(with_topic(fake).address)) as admin:
        found = admin.probes.reads({P0: 3, P1: 5, P2: 7})
    assert asked == [(0, 3), (1, 5)]
    assert {place: error.code for place, error in found.items()} == {
        P1: ErrorCode.KAFKA_STORAGE_ERROR,
        P2: ErrorCode.LEADER_NOT_AVAILABLE,
    }
    assert "Partition 1 of topic `t` cannot be read" in str(found[P1])
    assert "drmq log verify" in str(found[P2])


def test_a_probe_of_writing_can_never_be_kept() -> None:
    """Its checksum is wrong; that a broker refuses it as corrupt says that all is well."""

    def produce(request: Any) -> ProduceResponse:
        entries = request.topic_data[0].partition_data
        assert not any(batch_is_intact(entry.records) for entry in entries)
        codes = {0: ErrorCode.CORRUPT_MESSAGE, 1: ErrorCode.NOT_ENOUGH_REPLICAS}
        answers = [
            ProduceResponsePartition(index=entry.index, error_code=codes[entry.index], error_message="two are needed")
            for entry in entries
        ]
        return ProduceResponse(responses=[ProduceResponseTopic(name="t", partition_responses=answers)])

    with broker({ApiKey.PRODUCE: produce}) as fake, Admin(str(with_topic(fake).address)) as admin:
        found = admin.probes.writes([P0, P1])
    assert set(found) == {P1}
    assert str(found[P1]) == "Partition 1 of topic `t` cannot be written: two are needed (NOT_ENOUGH_REPLICAS)."


def test_partition_without_a_leader_is_reported_soon() -> None:
    """An election is waited for, but not the whole timeout, and the partition is what is named."""
    began = time.monotonic()
    with (
        broker() as fake,
        Admin(str(with_topic(fake).address), timeout_s=30) as admin,
        pytest.raises(Refused, match="Partition 2 of topic `t` has no leader: it is stopped") as caught,
    ):
        admin.topics.offsets({P2: -1})
    assert LEADER_GRACE_S <= time.monotonic() - began < LEADER_GRACE_S + 5
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("total", "usable", "full"),
    [
        (10**12, 10**10, False),
        (10**12, 10**10 - 1, True),
        (10**9, 10**8, False),
        (10**9, 10**8 - 1, True),
        (10**9, 0, True),
        (-1, -1, False),
    ],
)
def test_nearly_full_disk(total: int, usable: int, full: bool) -> None:
    """Less than 1 % or 100 MB; a broker that does not tell has no full disk."""
    assert LogDir(1, "/data", {}, total, usable).is_nearly_full is full
