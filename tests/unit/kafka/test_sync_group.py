"""SyncGroup: assignments to their members, the protocol from v5 on."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.broker_harness import Harness


@pytest.mark.parametrize("version", range(6))
def test_a_member_asks_again_for_what_it_was_given(harness: Harness, version: int) -> None:
    member_id, generation = harness.join("readers")
    answer: SyncGroupResponse = harness.ask(SyncGroupRequest("readers", generation, member_id), version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.assignment == b"everything"
    assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version == 5 else (None, None))


def test_from_v5_a_member_that_believes_in_another_protocol_is_refused(harness: Harness) -> None:
    member_id, generation = harness.join("readers")
    request = SyncGroupRequest("readers", generation, member_id, protocol_type="consumer", protocol_name="sticky")
    assert harness.ask(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.ask(request, 4).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_a_past_generation_is_refused(harness: Harness, version: int) -> None:
    member_id, generation = harness.join("readers")
    answer: SyncGroupResponse = harness.ask(SyncGroupRequest("readers", generation - 1, member_id), version)
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
    assert answer.assignment == b""


def test_a_shard_whose_log_fails_is_not_available(harness: Harness) -> None:
    with harness.failing_shards():
        assert harness.ask(SyncGroupRequest("readers", 1, "who")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
