"""Reading near the client (KIP-392): where the leader sends it, and what a follower answers."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.broker import ClusterOptions, Partition
from drmq.model import ErrorCode, NodeId, Offset
from drmq.raft import NO_INDEX, IndexRange, LogIndex
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from support.broker_harness import NODE, Harness
from support.kafka_harness import KafkaHarness
from support.other_nodes import add_node, append, heard

NOBODY = -1
HERE, THERE = "south", "north"


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    """This node leads, in the south; nodes 2 and 3 follow, 2 of them in the north."""
    harness.broker.cluster = ClusterOptions(rack=HERE)
    harness.create_topic("t")
    harness.produce("t", values=[b"a", b"b"])
    add_node(harness, 2, rack=THERE)
    add_node(harness, 3, rack="east")
    harness.partition("t").in_sync = (NODE, NodeId(2), NodeId(3))
    return KafkaHarness(harness)


def request(harness: Harness, rack: str, offset: int = 0, **others: int) -> FetchRequest:
    wanted = FetchRequestPartition(0, fetch_offset=offset, partition_max_bytes=1000)
    topic = FetchRequestTopic("t", harness.broker.catalog.topic("t").topic_id, [wanted])
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, **others}, topics=[topic], rack_id=rack)  # type: ignore[arg-type]


def fetched(harness: Harness, line: KafkaHarness, rack: str, offset: int = 0, version: int = 17) -> Any:
    [[result]] = [topic.partitions for topic in line.ask(request(harness, rack, offset), version).responses]
    return result


def follow(harness: Harness, leader: int | None = 2) -> Partition:
    """This node follows from now on, as far as clients can tell."""
    partition = harness.partition("t")
    partition.is_leader = partition.is_serving = False
    partition.leader = None if leader is None else NodeId(leader)
    return partition


@pytest.mark.parametrize("version", [11, 12, 17])
def test_the_leader_names_the_replica_in_the_clients_rack(harness: Harness, line: KafkaHarness, version: int) -> None:
    result = fetched(harness, line, THERE, version=version)
    assert (result.error_code, result.preferred_read_replica, result.records) == (0, 2, b"")
    assert result.high_watermark == 2


@pytest.mark.parametrize("rack", ["", HERE, "west"])
def test_whom_nobody_is_nearer_the_leader_serves(harness: Harness, line: KafkaHarness, rack: str) -> None:
    result = fetched(harness, line, rack)
    assert (result.error_code, result.preferred_read_replica, bool(result.records)) == (0, NOBODY, True)


def test_clients_that_cannot_be_told_are_served(harness: Harness, line: KafkaHarness) -> None:
    assert fetched(harness, line, THERE, version=10).records


def test_only_a_replica_that_keeps_up_and_is_there(harness: Harness, line: KafkaHarness) -> None:
    def preferred() -> int:
        found: int = fetched(harness, line, THERE).preferred_read_replica
        return found

    assert preferred() == 2
    heard(harness).discard(NodeId(2))
    assert preferred() == NOBODY
    heard(harness).add(NodeId(2))
    harness.partition("t").in_sync = (NODE, NodeId(3))
    assert preferred() == NOBODY
    harness.partition("t").in_sync = (NODE, NodeId(2))
    append(harness, harness.broker.catalog.fence(NodeId(2)))
    assert preferred() == NOBODY


def test_a_client_is_sent_away_without_a_wait(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, THERE, 2, max_wait_ms=60_000, min_bytes=1_000_000), 17)
    assert line.answered()


def test_an_incremental_answer_says_it_too(harness: Harness, line: KafkaHarness) -> None:
    first = line.ask(request(harness, "", 2, session_id=0, session_epoch=0), 17)
    again = line.ask(request(harness, THERE, 2, session_id=first.session_id, session_epoch=1), 17)
    [[result]] = [topic.partitions for topic in again.responses]
    assert result.preferred_read_replica == 2


@pytest.mark.parametrize("offset", [-1, 3])
def test_offsets_are_checked_before_a_client_is_sent_away(harness: Harness, line: KafkaHarness, offset: int) -> None:
    assert fetched(harness, line, THERE, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_serves_its_rack(harness: Harness, line: KafkaHarness) -> None:
    follow(harness)
    result = fetched(harness, line, HERE)
    assert (result.error_code, result.high_watermark, bool(result.records)) == (0, 2, True)
    for rack in ("", THERE):
        assert fetched(harness, line, rack).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("offset", [2, 3, 1_000])
def test_what_a_follower_has_not_reached_is_not_out_of_range(harness: Harness, line: KafkaHarness, offset: int) -> None:
    follow(harness)
    result = fetched(harness, line, HERE, offset)
    assert (result.error_code, result.records) == (0, b"")


def test_what_a_follower_has_no_more_is_the_leaders_to_answer(harness: Harness, line: KafkaHarness) -> None:
    harness.run(harness.broker.services.lookups.delete_records(harness.partition("t"), Offset(1)))
    follow(harness)
    assert fetched(harness, line, HERE, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(harness, line, HERE, 1).error_code == 0


def test_a_follower_without_a_leader_serves_nobody(harness: Harness, line: KafkaHarness) -> None:
    follow(harness, leader=None)
    assert fetched(harness, line, HERE).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_waits_at_a_follower_until_there_is_enough(harness: Harness, line: KafkaHarness) -> None:
    partition = follow(harness)
    line.send(request(harness, HERE, 2, max_wait_ms=60_000, min_bytes=1_000), 17)
    partition.committed_bytes += 400
    harness.call(partition._wake)
    assert not line.answered()
    partition.committed_bytes += 600
    harness.call(partition._wake)
    assert line.answered()


# ---- a follower that has just begun ----------------------------------------------------------------


def follow_since_a_moment(harness: Harness) -> Partition:
    """As a follower is after its restart: with its log and a leader, and no word of what is committed."""
    partition = follow(harness)
    partition.high_watermark = partition.log.start_offset
    partition._committed_index = NO_INDEX
    return partition


def learn(harness: Harness, partition: Partition, next_offset: int) -> None:
    """Its leader says what is committed."""
    end = LogIndex(next_offset + 1)
    harness.call(lambda: partition.on_committed(IndexRange(LogIndex(1), end), Offset(next_offset)))


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("version", [11, 12, 17])
def test_a_follower_that_does_not_know_the_high_watermark_says_so(
    harness: Harness, line: KafkaHarness, offset: int, version: int
) -> None:
    """Also at the start of its log: "no error, and the end is here" would be the end of the partition for a reader."""
    follow_since_a_moment(harness)
    result = fetched(harness, line, HERE, offset, version)
    assert (result.error_code, result.records) == (ErrorCode.OFFSET_NOT_AVAILABLE, b"")
    assert (result.high_watermark, result.last_stable_offset) == (-1, -1)


def test_a_fetch_waits_for_the_high_watermark(harness: Harness, line: KafkaHarness) -> None:
    partition = follow_since_a_moment(harness)
    line.send(request(harness, HERE, 1, max_wait_ms=60_000), 17)
    assert not line.answered()
    learn(harness, partition, 2)
    [[result]] = [topic.partitions for topic in line.answer().responses]
    assert (result.error_code, result.high_watermark, bool(result.records)) == (0, 2, True)


def test_a_follower_with_nothing_to_be_committed_is_at_its_end(harness: Harness, line: KafkaHarness) -> None:
    """Its log is empty, and begins where it ends: nobody is going to say that anything of it is committed."""
    partition = follow_since_a_moment(harness)
    partition.high_watermark = partition.next_offset
    result = fetched(harness, line, HERE, 2)
    assert (result.error_code, result.high_watermark, result.records) == (0, 2, b"")
