"""The dispatcher: order, unknown requests, bugs, and what a lost connection leaves behind."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest

from drmq.kafka import list_groups
from drmq.model import ErrorCode
from drmq.wire import APIS, ApiKey, read_response
from drmq.wire.messages.api_versions import ApiVersionsRequest
from drmq.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from drmq.wire.messages.heartbeat import HeartbeatRequest
from drmq.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from drmq.wire.messages.list_groups import ListGroupsRequest
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    return KafkaHarness(harness)


@pytest.mark.parametrize("key", list(APIS))
def test_every_advertised_api_has_a_handler(key: int) -> None:
    """What is advertised is served: a client takes a key as a promise."""
    module = import_module(f"drmq.kafka.{ApiKey(key).name.lower()}")
    assert callable(module.handle)


def test_a_request_from_the_future_is_told_what_it_may_ask(line: KafkaHarness) -> None:
    head = (18).to_bytes(2, "big") + (77).to_bytes(2, "big") + (5).to_bytes(4, "big") + b"\0\0\0"
    line.send_frame(head + b"whatever the future holds")
    buffers = line.paper.answers[0].buffers
    assert buffers is not None
    correlation_id, answer = read_response(ApiKey.API_VERSIONS, 0, bytes(buffers[0])[4:])
    assert correlation_id == 5
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    "frame",
    [
        (999).to_bytes(2, "big") + b"\0\0" + b"\0\0\0\1" + b"\xff\xff",
        (3).to_bytes(2, "big") + (99).to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff",
        (0).to_bytes(2, "big") + (99).to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff",
        (1).to_bytes(2, "big") + (99).to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff",
        (3).to_bytes(2, "big") + (1).to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff\x7f\xff\xff\xff",
        b"\0\3",
    ],
    ids=["unknown api", "unknown version", "produce too new", "fetch too new", "endless array", "half a header"],
)
def test_nonsense_closes_the_connection(line: KafkaHarness, frame: bytes) -> None:
    line.send_frame(frame)
    assert line.paper.closed
    assert line.paper.reason


def test_a_bug_costs_the_connection_and_no_more(
    line: KafkaHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(context: object, request: object) -> object:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(list_groups, "handle", broken)
    line.send(ListGroupsRequest(), 4)
    assert line.paper.closed
    assert "ZeroDivisionError" in caplog.text


def test_a_coroutine_holds_up_the_connection_until_it_is_done(harness: Harness, line: KafkaHarness) -> None:
    line.send(CreateTopicsRequest(topics=[CreateTopicsRequestTopic("new", 1, 1)]), 5)
    assert line.paper.paused or line.answered()
    for _ in range(100):
        if line.answered():
            break
        harness.settle()
    assert line.answer().topics[0].error_code == 0
    assert line.paper.paused == []


def test_later_answers_wait_for_earlier_ones(harness: Harness, line: KafkaHarness) -> None:
    """A parked join does not stop a heartbeat from being carried out, only from being answered first."""
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    harness.join("g")
    line.send(join, 3)
    line.send(HeartbeatRequest("g", 1, "nobody"), 2)
    assert line.paper.answers[0].buffers is None
    assert line.paper.answers[1].buffers is not None


def test_a_lost_connection_takes_its_parked_join_along(harness: Harness, line: KafkaHarness) -> None:
    """A newcomer whose client has gone must not keep the group waiting."""
    member, _ = harness.join("g")
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    line.send(join, 3)
    line.paper.closed = True
    harness.call(lambda: line.server.on_close(line.connection))
    rejoined = harness.ask(
        JoinGroupRequest(
            group_id="g",
            member_id=member,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"changed")],
        ),
        5,
    )
    assert rejoined.error_code == 0
    assert len(rejoined.members) == 1


def test_answered_joins_are_not_remembered(harness: Harness, line: KafkaHarness) -> None:
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    for _ in range(5):
        line.send(join, 3)
        harness.advance(30_000)
    assert all(not parked for parked in line.server._parked.values())


def test_software_names_are_checked(line: KafkaHarness) -> None:
    good = line.ask(ApiVersionsRequest("librdkafka", "2.16.1"), 3)
    assert good.error_code == 0
    assert line.paper.software == "librdkafka 2.16.1"
    for name in ("", "-x", "a b", "ü"):
        assert line.ask(ApiVersionsRequest(name, "1"), 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_our_own_apis_are_listed_to_our_own_clients_only(line: KafkaHarness, version: int) -> None:
    """kafka-python fails on numbers that Kafka does not have. A client says its name from v3 on."""
    for name in ("drmq", "kafka-python"):
        listed = {row.api_key for row in line.ask(ApiVersionsRequest(name, "1"), version).api_keys}
        assert listed == {key for key, api in APIS.items() if (version >= 3 and name == "drmq") or not api.key.is_own}


def test_a_client_that_looks_for_another_cluster_is_sent_away(harness: Harness, line: KafkaHarness) -> None:
    right = ApiVersionsRequest("x", "1", cluster_id=harness.broker.cluster_id, node_id=1)
    assert line.ask(right, 5).error_code == 0
    for wrong in (ApiVersionsRequest("x", "1", cluster_id="other"), ApiVersionsRequest("x", "1", node_id=9)):
        assert line.ask(wrong, 5).error_code == ErrorCode.REBOOTSTRAP_REQUIRED


def test_full_queues_pause_the_producer(harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the limit of bytes that wait for the disk a connection is not read, and later it is again."""
    queue = SimpleNamespace(queued_bytes=1 << 40, run=harness.broker.writer.run)
    with monkeypatch.context() as patched:
        patched.setattr(harness.broker.services.appends, "_writer", queue)
        line.send_frame((0).to_bytes(2, "big") + (3).to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff" + _EMPTY_PRODUCE)
        assert line.paper.paused
    harness.advance(10)
    assert line.paper.paused == []


_EMPTY_PRODUCE = b"\xff\xff" + b"\xff\xff" + (1000).to_bytes(4, "big") + (0).to_bytes(4, "big")
