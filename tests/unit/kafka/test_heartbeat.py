"""Heartbeat: keeps a session alive, and tells whom it does not know."""

from __future__ import annotations

import pytest

from drmq.model import ErrorCode
from drmq.wire.messages.heartbeat import HeartbeatRequest
from support.broker_harness import Harness


@pytest.mark.parametrize("version", range(5))
def test_a_member_is_welcome_and_a_stranger_is_not(harness: Harness, version: int) -> None:
    member_id, generation = harness.join("readers")
    assert harness.ask(HeartbeatRequest("readers", generation, member_id), version).error_code == ErrorCode.NONE
    for request, error in (
        (HeartbeatRequest("readers", generation + 1, member_id), ErrorCode.ILLEGAL_GENERATION),
        (HeartbeatRequest("readers", generation, "stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest("others", generation, member_id), ErrorCode.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest("", generation, member_id), ErrorCode.INVALID_GROUP_ID),
    ):
        assert harness.ask(request, version).error_code == error


def test_heartbeats_keep_a_session_and_silence_ends_it(harness: Harness) -> None:
    member_id, generation = harness.join("readers")
    beat = HeartbeatRequest("readers", generation, member_id)
    for _ in range(3):
        harness.advance(8_000)
        assert harness.ask(beat).error_code == ErrorCode.NONE
    harness.advance(11_000)
    assert harness.ask(beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_fenced_by_its_successor(harness: Harness) -> None:
    old, generation = harness.join("readers", instance_id="host-1")
    new, _ = harness.join("readers", instance_id="host-1")
    assert old != new
    answer = harness.ask(HeartbeatRequest("readers", generation, old, "host-1"))
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
