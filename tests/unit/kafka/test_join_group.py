"""JoinGroup: what differs between its versions, and what happens to one whose connection closes."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from support.broker_harness import Harness


def a_join(member_id: str = "", **changes: object) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"r"), JoinGroupRequestProtocol("sticky", b"s")],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize("version", range(4))
def test_up_to_v3_a_new_member_is_in_at_once(harness: Harness, version: int) -> None:
    answer: JoinGroupResponse = harness.ask(a_join(), version, client_id="app")
    assert answer.error_code == ErrorCode.NONE
    assert answer.generation_id == 1
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("app-")
    assert answer.protocol_name == "range"
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"r")]


@pytest.mark.parametrize("version", range(4, 10))
def test_from_v4_a_new_member_is_first_told_its_id(harness: Harness, version: int) -> None:
    told: JoinGroupResponse = harness.ask(a_join(), version)
    assert told.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id
    joined: JoinGroupResponse = harness.ask(a_join(told.member_id), version)
    assert joined.error_code == ErrorCode.NONE
    assert joined.member_id == told.member_id
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


def test_the_order_of_protocols_is_the_members_preference(harness: Harness) -> None:
    answer: JoinGroupResponse = harness.ask(
        a_join(protocols=[JoinGroupRequestProtocol("sticky", b"s"), JoinGroupRequestProtocol("range", b"r")]), 0
    )
    assert answer.protocol_name == "sticky"


@pytest.mark.parametrize("version", range(10))
def test_an_error_comes_back_with_the_members_own_id(harness: Harness, version: int) -> None:
    answer: JoinGroupResponse = harness.ask(a_join("who", session_timeout_ms=1), version)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.member_id == "who"
    assert answer.generation_id == -1
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(10))
def test_a_shard_whose_log_fails_is_not_available(harness: Harness, version: int) -> None:
    with harness.failing_shards():
        answer: JoinGroupResponse = harness.ask(a_join("who"), version)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answer.member_id == "who"


def test_a_join_that_waits_is_parked_and_given_up_with_its_connection(harness: Harness) -> None:
    """The group goes on without a client that is gone, and does not wait for its session to end."""
    leader, _ = harness.join("readers")
    waiting = harness.send(a_join(), 3)
    assert not waiting.done()
    harness.call(harness.parked[-1].cancel)
    again: JoinGroupResponse = harness.ask(a_join(leader), 5)
    assert again.error_code == ErrorCode.NONE
    assert [member.member_id for member in again.members] == [leader]
    assert not waiting.done()
    waiting.cancel()
    harness.settle()


def test_a_member_that_stays_away_is_dropped_when_the_round_ends(harness: Harness) -> None:
    harness.join("readers")
    waiting = harness.send(a_join(), 3)
    assert not waiting.done()
    harness.advance(25_000)
    answer: JoinGroupResponse = harness.run(waiting)
    assert answer.error_code == ErrorCode.NONE
    assert len(answer.members) == 1
    assert answer.generation_id == 2


def test_the_address_of_the_client_is_kept(harness: Harness) -> None:
    from drmq.wire.messages.describe_groups import DescribeGroupsRequest

    harness.ask(a_join(), 0, client_id="app")
    [group] = harness.ask(DescribeGroupsRequest(["readers"])).groups
    assert [(member.client_id, member.client_host) for member in group.members] == [("app", "/127.0.0.1")]
