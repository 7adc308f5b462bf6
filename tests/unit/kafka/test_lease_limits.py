"""What members of share groups can make a node keep by asking for records: queues, and names of groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drmq.broker import BrokerOptions
from drmq.groups.quota import GROUP_BYTES
from drmq.leases.queue import QUEUE_BYTES
from drmq.model import ErrorCode
from drmq.model.names import GROUP_ID_BYTES_MAX
from drmq.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from drmq.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from drmq.wire.messages.share_fetch import ShareFetchRequest
from support.broker_harness import Harness
from support.lease_requests import TOPIC, Leases, offsets

STATE_BYTES_MAX = 40_000
SHARE = STATE_BYTES_MAX // 4 // (QUEUE_BYTES + len("g00"))
"""Queues that one caller may begin."""


@pytest.fixture
def small() -> Iterator[Harness]:
    """A broker with room for few queues."""
    with Harness(options=BrokerOptions(group_state_bytes_max=STATE_BYTES_MAX)) as harness:
        yield harness


def begin(harness: Harness, leases: Leases, group: str, address: str = "127.0.0.1") -> ErrorCode:
    """Ask for records, which begins the queue of the group if there is none."""
    request = leases.request(count=1)
    request.group_id = group
    answer = harness.ask(request, address=address)
    assert answer.error_code == 0, answer.error_message
    part = answer.topics[0].partitions[0]
    if part.error_code == ErrorCode.POLICY_VIOLATION:
        assert "group_state_bytes_max" in part.error_message
    return ErrorCode(part.error_code)


@pytest.mark.parametrize("group", ["g" * (GROUP_ID_BYTES_MAX + 1), "é" * (GROUP_ID_BYTES_MAX // 2 + 1)])
def test_an_id_that_no_group_may_have_is_refused(harness: Harness, group: str) -> None:
    leases = Leases(harness)
    request = leases.request(count=1)
    request.group_id = group
    requests = [request, ShareFetchRequest(group, "m" * 22, 0), ShareAcknowledgeRequest(group, "m" * 22, 1)]
    for each in requests:
        answer = harness.ask(each)
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        assert str(GROUP_ID_BYTES_MAX) in answer.error_message
    assert not any(shard.machine.queues for shard in harness.broker.leases.shards.values())
    assert not len(harness.broker.services.lease_sessions)


def test_a_caller_begins_a_share_of_the_queues_and_goes_on_with_those_it_has(small: Harness) -> None:
    leases = Leases(small)
    small.produce(TOPIC, values=[b"x"] * 5)
    codes = [begin(small, leases, f"g{n:02}") for n in range(SHARE + 3)]
    assert codes == [ErrorCode.NONE] * SHARE + [ErrorCode.POLICY_VIOLATION] * 3
    request = leases.request(count=2)
    request.group_id = "g00"
    assert offsets(small.ask(request).topics[0].partitions[0]) == [1, 2]
    assert begin(small, leases, "h00", "127.0.0.2") is ErrorCode.NONE
    assert begin(small, leases, "h01") is ErrorCode.POLICY_VIOLATION


def test_the_queues_of_a_node_are_limited(small: Harness) -> None:
    leases = Leases(small)
    codes = [begin(small, leases, f"g{n:02}", f"127.0.1.{n}") for n in range(40)]
    begun = codes.count(ErrorCode.NONE)
    assert begun == STATE_BYTES_MAX // (QUEUE_BYTES + len("g00"))
    assert codes == [ErrorCode.NONE] * begun + [ErrorCode.POLICY_VIOLATION] * (40 - begun)
    assert begin(small, leases, "g00") is ErrorCode.NONE
    # What is removed makes room.
    small.run(small.broker.services.share_groups.remove_queues("g01"))
    assert begin(small, leases, "another") is ErrorCode.NONE


def test_the_entries_about_topics_and_restarted_queues_count_too(small: Harness) -> None:
    leases = Leases(small)
    service = small.broker.services.leases
    service.starts_at = service.starts.offset_of
    assert [begin(small, leases, f"g{n:02}") for n in range(SHARE // 2)] == [ErrorCode.NONE] * (SHARE // 2)
    assert begin(small, leases, "g99") is ErrorCode.POLICY_VIOLATION

    def reset(group: str) -> int:
        part = AlterShareGroupOffsetsRequestPartition(0, 0)
        topic = AlterShareGroupOffsetsRequestTopic(TOPIC, [part])
        answer = small.ask(AlterShareGroupOffsetsRequest(group, [topic]), address="127.0.0.2")
        assert answer.error_code == 0, answer.error_message
        return int(answer.responses[0].partitions[0].error_code)

    share = STATE_BYTES_MAX // 4 // (GROUP_BYTES + 2 * (QUEUE_BYTES + len("r0")))
    assert [reset(f"r{n}") for n in range(share)] == [0] * share
    assert reset("r0") == 0
    assert reset("r9") == ErrorCode.POLICY_VIOLATION
