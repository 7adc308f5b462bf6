"""Answers that point a client to another broker: the leader's id, epoch and address, and a nearer replica."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire import (
    ApiKey,
    FetchResult,
    NodeEndpoint,
    ProduceResult,
    hinted_leaders,
    read_response,
    write_fetch_response,
    write_produce_response,
)
from drmq.wire.messages.fetch import FetchResponse, FetchResponseLeader, FetchResponseNode
from drmq.wire.messages.produce import ProduceResponse, ProduceResponseLeader, ProduceResponseNode

LEADER = NodeEndpoint(2, "two.example", 9192, "rack-b")
OTHER = NodeEndpoint(3, "three.example", 9292)


def topic(version: int) -> str | bytes:
    return b"i" * 16 if version >= 13 else "t"


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_to_another_than_the_leader(version: int) -> None:
    """The leader and its address from v10; before, the code alone tells the client to ask for metadata."""
    results = [
        ProduceResult(topic(version), 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=(2, 7)),
        ProduceResult(topic(version), 1, base_offset=5),
    ]
    frame = write_produce_response(version, 1, results, node_endpoints=[LEADER, OTHER])
    answer: ProduceResponse = read_response(ApiKey.PRODUCE, version, memoryview(frame)[4:])[1]
    refused, taken = answer.responses[0].partition_responses
    assert (refused.error_code, taken.base_offset) == (6, 5)
    assert taken.current_leader == ProduceResponseLeader(-1, -1)
    if version >= 10:
        assert refused.current_leader == ProduceResponseLeader(2, 7)
        assert answer.node_endpoints == [ProduceResponseNode(*LEADER), ProduceResponseNode(*OTHER)]
    else:
        assert refused.current_leader == ProduceResponseLeader(-1, -1)
        assert answer.node_endpoints == []


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_from_another_than_the_leader(version: int) -> None:
    """The leader from v12, its address from v16."""
    results = [
        FetchResult(topic(version), 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=(2, 7)),
        FetchResult(topic(version), 1, records=[b"batch"]),
    ]
    frame = b"".join(write_fetch_response(version, 1, results, node_endpoints=[LEADER]))
    answer: FetchResponse = read_response(ApiKey.FETCH, version, frame[4:])[1]
    refused, served = answer.responses[0].partitions
    assert (refused.error_code, served.records) == (6, b"batch")
    assert served.current_leader == FetchResponseLeader(-1, -1)
    assert refused.current_leader == (FetchResponseLeader(2, 7) if version >= 12 else FetchResponseLeader(-1, -1))
    assert answer.node_endpoints == ([FetchResponseNode(*LEADER)] if version >= 16 else [])


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_from_a_nearer_replica(version: int) -> None:
    """A consumer that names its rack can be sent to a follower, from v11, and gets no records with that."""
    results = [FetchResult(topic(version), 0, high_watermark=9, preferred_read_replica=3)]
    frame = b"".join(write_fetch_response(version, 1, results))
    answer: FetchResponse = read_response(ApiKey.FETCH, version, frame[4:])[1]
    (partition,) = answer.responses[0].partitions
    assert partition.preferred_read_replica == (3 if version >= 11 else -1)
    assert (partition.high_watermark, partition.records) == (9, b"")


def test_hinted_leaders_are_named_once() -> None:
    """Each broker once, in order; results without a hint and leaders that are not known name none."""
    hints = [(3, 1), None, (2, 7), (-1, 4), (3, 2)]
    assert hinted_leaders([FetchResult("t", n, current_leader=hint) for n, hint in enumerate(hints)]) == [3, 2]
    assert hinted_leaders([ProduceResult("t", n, current_leader=hint) for n, hint in enumerate(hints)]) == [3, 2]
    assert hinted_leaders([]) == []
