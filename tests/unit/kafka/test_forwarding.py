"""Requests for the controller that arrive elsewhere: passed on, held while there is none, never done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from drmq.broker import Broker, ClusterOptions
from drmq.broker.cluster.membership import OutcomeOpen
from drmq.broker.services.caller import Caller
from drmq.model import ApiError, ErrorCode
from drmq.model.names import CLUSTER_METADATA
from drmq.wire import ApiKey, read_request_header, write_request, write_response
from drmq.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)
from drmq.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness

VERSION = 5
REQUEST = CreateTopicsRequest([CreateTopicsRequestTopic("t", 1, 1)])
NO_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, "the cluster is controlled by nobody")


class Elsewhere:
    """The controller, on another node: answers with what the test has put in, in this order."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[Exception | Callable[[memoryview], memoryview]] = []
        self.is_here = False
        harness.broker.cluster = ClusterOptions(peer_port=10_000)
        monkeypatch.setattr(Broker, "is_controller", property(lambda broker: self.is_here))
        monkeypatch.setattr(type(harness.broker.metadata), "is_controller", property(lambda metadata: self.is_here))
        monkeypatch.setattr(harness.broker.services.router, "forward", self.forward)

    async def forward(self, caller: Caller, frame: memoryview) -> memoryview:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(frame)


def created(frame: memoryview) -> memoryview:
    header = read_request_header(frame)
    answer = CreateTopicsResponse(topics=[CreateTopicsResponseTopic("t", num_partitions=77)])
    return memoryview(write_response(header.api_key, header.api_version, header.correlation_id, answer))


@pytest.fixture
def elsewhere(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    return Elsewhere(harness, monkeypatch)


def wait(harness: Harness, line: KafkaHarness) -> Any:
    for _ in range(200):
        if line.answered():
            break
        harness.run(asyncio.sleep(0.01))
    return line.answer()


def test_the_controllers_answer_is_relayed_as_it_is(harness: Harness, elsewhere: Elsewhere) -> None:
    elsewhere.answers = [created]
    line = KafkaHarness(harness)
    [topic] = line.ask(REQUEST, VERSION).topics
    assert (topic.error_code, topic.num_partitions) == (0, 77)
    assert "t" not in harness.broker.catalog.topics


def test_a_request_waits_for_the_next_controller(harness: Harness, elsewhere: Elsewhere) -> None:
    elsewhere.answers = [NO_CONTROLLER, NO_CONTROLLER, created]
    line = KafkaHarness(harness)
    line.send(REQUEST, VERSION)
    assert not line.answered()
    assert wait(harness, line).topics[0].error_code == 0


def test_it_is_carried_out_here_once_this_is_the_controller(harness: Harness, elsewhere: Elsewhere) -> None:
    elsewhere.answers = [NO_CONTROLLER]
    line = KafkaHarness(harness)
    line.send(REQUEST, VERSION)
    assert not line.answered()
    elsewhere.is_here = True
    assert wait(harness, line).topics[0].error_code == 0
    assert "t" in harness.broker.catalog.topics


def test_the_wait_is_bounded(harness: Harness, elsewhere: Elsewhere) -> None:
    elsewhere.answers = [NO_CONTROLLER]
    line = KafkaHarness(harness)
    line.send(REQUEST, VERSION)
    harness.advance(6_000)
    assert wait(harness, line).topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_what_may_have_been_done_is_not_asked_for_again(harness: Harness, elsewhere: Elsewhere) -> None:
    elsewhere.answers = [OutcomeOpen(ErrorCode.NOT_CONTROLLER, "no answer within 30 s"), created]
    line = KafkaHarness(harness)
    line.send(REQUEST, VERSION)
    assert wait(harness, line).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert elsewhere.answers == [created]


def test_what_any_node_knows_is_answered_here(harness: Harness, elsewhere: Elsewhere) -> None:
    wanted = DescribeQuorumRequestTopic("t", [DescribeQuorumRequestPartition(0)])
    line = KafkaHarness(harness)
    answer = line.ask(DescribeQuorumRequest([wanted]), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_any_node_can_do_is_not_taken_from_other_nodes(harness: Harness) -> None:
    router = KafkaHarness(harness).server.broker.services.router
    about_metadata = DescribeQuorumRequest([DescribeQuorumRequestTopic(CLUSTER_METADATA, [])])
    assert harness.run(router.serve_forwarded(None, memoryview(_frame(about_metadata))))
    about_others = DescribeQuorumRequest([DescribeQuorumRequestTopic("t", [])])
    with pytest.raises(ApiError, match="are not forwarded between nodes"):
        harness.run(router.serve_forwarded(None, memoryview(_frame(about_others))))


def _frame(request: DescribeQuorumRequest) -> bytes:
    return bytes(write_request(ApiKey.DESCRIBE_QUORUM, 2, 1, "test", request))[4:]
