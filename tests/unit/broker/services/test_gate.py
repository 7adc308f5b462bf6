"""The stages of the gate, their order, and that a gate without checks lets everything pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from drmq.broker.services.caller import ANONYMOUS, Caller
from drmq.broker.services.gate import (
    ADMITTED,
    OPEN,
    Gate,
    Operation,
    Permission,
    ResourceType,
    on_cluster,
    on_group,
    on_topic,
    refusal,
)
from drmq.model import ApiError, ErrorCode

CALLER = Caller(ANONYMOUS, "c", "10.0.0.1", "KAFKA")
WRITE, READ = on_topic(Operation.WRITE, "a"), on_topic(Operation.READ, "b")


def needed(request: Sequence[Permission]) -> Iterable[Permission]:
    return request


class Noting(Gate):
    """Notes its stages."""

    def __init__(self) -> None:
        self.stages: list[object] = []

    def authenticate(self, caller: Caller) -> None:
        self.stages.append(caller)

    def authorise(self, caller: Caller, api: str, permissions: Sequence[Permission]) -> Iterable[Permission]:
        self.stages.append((api, permissions))
        return permissions[:1]

    def throttle(self, caller: Caller, api: str, cost_bytes: int) -> int:
        self.stages.append(cost_bytes)
        return 30


def test_the_stages_come_in_their_order() -> None:
    gate = Noting()
    admission = gate.admit(CALLER, "PRODUCE", 10, needed, (WRITE, READ, WRITE))
    assert gate.stages == [CALLER, ("PRODUCE", (WRITE, READ)), 10], "and a permission is asked for once"
    assert admission == (frozenset({WRITE}), 30)


def test_who_is_not_known_gets_no_further() -> None:
    class Closed(Noting):
        def authenticate(self, caller: Caller) -> None:
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED, "who?")

    gate = Closed()
    with pytest.raises(ApiError):
        gate.admit(CALLER, "PRODUCE", 10, needed, (WRITE,))
    assert gate.stages == []


def test_a_gate_without_checks_answers_as_the_open_one_does() -> None:
    assert Gate().admit(CALLER, "FETCH", 10, needed, (WRITE, READ)) == ADMITTED
    assert OPEN.admit(CALLER, "FETCH", 10, needed, (WRITE, READ)) is ADMITTED
    assert Gate().allows(CALLER, "FETCH", READ)
    assert OPEN.allows(CALLER, "FETCH", READ)


def test_the_open_gate_does_not_ask_what_a_request_needs() -> None:
    def fail(request: object) -> Iterable[Permission]:
        raise AssertionError("every Produce and Fetch would pay for it")

    assert OPEN.admit(CALLER, "FETCH", 10, fail, None) is ADMITTED


@pytest.mark.parametrize(
    ("permission", "code"),
    [
        (WRITE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (on_group(Operation.READ, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (on_cluster(Operation.ALTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (
            Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t"),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_a_refusal_names_what_is_lacking(permission: Permission, code: ErrorCode) -> None:
    error = refusal(CALLER, permission)
    assert error.code is code
    assert permission.operation.name in error.message
    assert permission.name in error.message
