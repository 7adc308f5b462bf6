"""LeaveGroup: one member in the old versions, a list in the new."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from support.broker_harness import Harness


@pytest.mark.parametrize("version", range(3))
def test_up_to_v2_a_members_own_error_is_the_error(harness: Harness, version: int) -> None:
    member_id, _ = harness.join("readers")
    assert harness.ask(LeaveGroupRequest("readers", "stranger"), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.ask(LeaveGroupRequest("readers", member_id), version).error_code == ErrorCode.NONE
    assert harness.ask(LeaveGroupRequest("readers", member_id), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_from_v3_each_member_has_its_own_error(harness: Harness, version: int) -> None:
    member_id, _ = harness.join("readers")
    members = [LeaveGroupRequestMember("stranger"), LeaveGroupRequestMember(member_id, reason="done")]
    answer: LeaveGroupResponse = harness.ask(LeaveGroupRequest("readers", members=members), version)
    assert answer.error_code == ErrorCode.NONE
    assert [(member.member_id, member.error_code) for member in answer.members] == [
        ("stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        (member_id, ErrorCode.NONE),
    ]


def test_an_administrator_removes_a_static_member_by_its_instance(harness: Harness) -> None:
    harness.join("readers", instance_id="host-1")
    members = [LeaveGroupRequestMember("", "host-1")]
    answer: LeaveGroupResponse = harness.ask(LeaveGroupRequest("readers", members=members))
    assert [(member.group_instance_id, member.error_code) for member in answer.members] == [("host-1", ErrorCode.NONE)]


@pytest.mark.parametrize("version", range(6))
def test_a_group_without_a_name_is_refused(harness: Harness, version: int) -> None:
    request = LeaveGroupRequest("", "who", [LeaveGroupRequestMember("who")])
    assert harness.ask(request, version).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(6))
def test_a_shard_whose_log_fails_is_not_available(harness: Harness, version: int) -> None:
    with harness.failing_shards():
        request = LeaveGroupRequest("readers", "who", [LeaveGroupRequestMember("who")])
        assert harness.ask(request, version).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
