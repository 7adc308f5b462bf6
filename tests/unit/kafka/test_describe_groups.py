"""DescribeGroups: groups of many shards, and what an unknown one looks like in each version."""

from __future__ import annotations

import pytest

from drmq.kafka.operations import GROUP_OPERATIONS
from drmq.model import ErrorCode
from drmq.wire.fields import NO_AUTHORIZED_OPERATIONS
from drmq.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from support.broker_harness import Harness


@pytest.mark.parametrize("version", range(7))
def test_a_group_with_its_member(harness: Harness, version: int) -> None:
    member_id, _ = harness.join("readers", topics=["orders"])
    [group] = harness.ask(DescribeGroupsRequest(["readers"]), version).groups
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    [member] = group.members
    assert (member.member_id, member.client_id, member.member_assignment) == (member_id, "test", b"everything")
    assert group.authorized_operations == NO_AUTHORIZED_OPERATIONS


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead_and_from_v6_an_error(harness: Harness, version: int) -> None:
    [group] = harness.ask(DescribeGroupsRequest(["nobody"]), version).groups
    assert (group.group_id, group.group_state) == ("nobody", "Dead")
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert (group.error_message is not None) == (version >= 6)


def test_the_order_of_the_answer_is_that_of_the_request(harness: Harness) -> None:
    names = [f"group-{number}" for number in range(8)]
    for name in names:
        harness.join(name)
    asked = names[::-1]
    answer: DescribeGroupsResponse = harness.ask(DescribeGroupsRequest(asked))
    assert [group.group_id for group in answer.groups] == asked
    assert {group.group_state for group in answer.groups} == {"Stable"}


@pytest.mark.parametrize("version", range(3, 7))
def test_operations_are_told_when_asked_for(harness: Harness, version: int) -> None:
    harness.join("readers")
    [group] = harness.ask(DescribeGroupsRequest(["readers"], True), version).groups
    assert group.authorized_operations == GROUP_OPERATIONS


def test_only_the_groups_of_a_failing_shard_are_errors(harness: Harness) -> None:
    names = [f"group-{number}" for number in range(8)]
    for name in names:
        harness.join(name)
    broken = harness.broker.groups.shards[0]
    with harness.failing_shards(broken):
        answer = harness.ask(DescribeGroupsRequest(names))
    for group in answer.groups:
        is_broken = harness.broker.groups.shard_of(group.group_id) is broken
        assert group.error_code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if is_broken else 0)
