"""Appends, reads and questions reach their leader from any node, once, by a deadline, and with their caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest

from drmq.broker import Broker
from drmq.broker.cluster.membership import OutcomeOpen
from drmq.broker.services.caller import Caller, unknown_caller
from drmq.broker.services.gate import OPEN, Gate
from drmq.broker.services.router import Router
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, Offset
from drmq.model.names import CONSUMER_OFFSETS
from drmq.records import read_header
from drmq.testing import Cluster, cluster
from drmq.transport.peers import PeerOptions
from drmq.wire import ApiKey, read_response, write_request
from drmq.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from drmq.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from support.batches import a_batch
from support.broker_harness import Harness
from support.gates import NamedGate, RecordingGate

T = TypeVar("T")

ALICE = Caller("User:alice", "till", "10.0.0.7", "KAFKA")
NODES = (1, 2, 3)
PATIENCE_S = 90.0
numbers = count()


class Room:
    """A cluster, and what a test does on its nodes."""

    def __init__(self, nodes: Cluster) -> None:
        self.nodes = nodes

    def broker(self, node_id: int) -> Broker:
        return self.nodes.node(node_id).broker

    def run(self, node_id: int, work: Coroutine[Any, Any, T]) -> T:
        """Await something on a node's own loop."""
        loop = self.nodes._threads[node_id].loop
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_S)

    def router(self, node_id: int) -> Router:
        return self.broker(node_id).services.router

    def speak_version(self, version: int) -> None:
        """All nodes take each other for nodes of this version."""
        for node_id in NODES:
            network = self.broker(node_id).network
            network.protocol_version = lambda node_id: version  # type: ignore[method-assign]

    def use(self, gate: Gate) -> None:
        for node_id in NODES:
            self.broker(node_id).services.gate = gate

    def controller(self) -> int:
        return next(node_id for node_id in NODES if self.broker(node_id).is_controller)

    def others(self, node_id: int) -> list[int]:
        return [other for other in NODES if other != node_id]

    def create_topic(self, *replicas: int) -> str:
        """A topic of one partition on these nodes, which all nodes know the leader of."""
        name = f"topic-{next(numbers)}"
        controller = self.controller()
        broker = self.broker(controller)
        nodes = [[NodeId(node_id) for node_id in replicas]]
        self.run(controller, broker.topics.create(name, broker.new_topic_id(), 1, {}, replicas=nodes))
        self.wait_known(name)
        return name

    def wait_known(self, topic: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if all(self.nodes.call(node_id, lambda n=node_id: self.knows(n, topic)) for node_id in NODES):  # type: ignore[misc]
                return
            time.sleep(0.01)
        raise TimeoutError(f"not all nodes know the leader of {topic}")

    def knows(self, node_id: int, topic: str) -> bool:
        broker = self.broker(node_id)
        known = broker.metadata.committed_catalog.topics.get(topic)
        return known is not None and broker.services.cluster.partition(known, 0).leader != -1

    def append(self, node_id: int, topic: str, **options: Any) -> Offset:
        return self.run(node_id, self.router(node_id).append(ALICE, topic, 0, a_batch(), **options))

    def read(self, node_id: int, topic: str, offset: int = 0, **options: Any) -> int:
        """How many bytes there are from an offset on; checks that they are a batch of that offset."""
        work = self.router(node_id).read(ALICE, topic, 0, Offset(offset), 1 << 20, **options)
        result = self.run(node_id, work)
        assert read_header(bytes(result.data)).base_offset == offset
        assert result.high_watermark > offset
        return len(result.data)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(nodes=3) as running:
        yield running


@pytest.fixture
def room(nodes: Cluster) -> Iterator[Room]:
    room = Room(nodes)
    room.speak_version(2)
    room.use(OPEN)
    yield room
    room.use(OPEN)


# ---- partitions -------------------------------------------------------------------------------------


def test_any_node_appends_and_reads(room: Room) -> None:
    topic = room.create_topic(1, 2, 3)
    assert [room.append(node_id, topic) for node_id in NODES] == [0, 1, 2]
    for node_id in NODES:
        assert room.read(node_id, topic, 1) > 0


def test_the_leader_asks_its_gate_with_the_caller(room: Room) -> None:
    topic = room.create_topic(1)
    for node_id in (1, 2):
        gate = RecordingGate()
        room.broker(1).services.gate = gate
        room.append(node_id, topic)
        room.read(node_id, topic)
        assert gate.seen == [("APPEND", ALICE), ("READ", ALICE)]
        room.broker(1).services.gate = NamedGate(topic)
        for attempt in (room.append, room.read):
            with pytest.raises(ApiError) as caught:
                attempt(node_id, topic)
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        room.broker(1).services.gate = OPEN


def test_a_change_of_leaders_is_followed(room: Room) -> None:
    topic = room.create_topic(1, 2, 3)
    leader = room.nodes.leader(topic)
    asker, successor = room.others(leader)
    group = GroupId(room.broker(leader).catalog.topic(topic).topic_id, 0)
    for turn in range(3):
        room.append(asker, topic)
        room.nodes.call(leader, partial(room.broker(leader).elect, group, NodeId(successor)))
        assert room.append(asker, topic) == 2 * turn + 1, "what was acknowledged is there, once"
        leader, successor = room.nodes.leader(topic), leader
        if leader == successor:
            pytest.fail("it was not handed over")
    for node_id in NODES:
        assert room.read(node_id, topic, 5) > 0


def test_a_partition_without_a_leader_is_waited_for_and_then_given_up(nodes: Cluster) -> None:
    room = Room(nodes)
    room.speak_version(2)
    victim = next(node_id for node_id in NODES if node_id != room.controller())
    asker = next(node_id for node_id in room.others(victim))
    topic = room.create_topic(victim)
    nodes.kill(victim)
    for attempt in (room.append, room.read):
        with pytest.raises(ApiError) as caught:
            attempt(asker, topic, timeout_s=2.0)
        assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE or isinstance(caught.value, OutcomeOpen)
    with pytest.raises(ApiError) as caught:
        room.read(asker, topic, timeout_s=0.5)
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    waiting = asyncio.run_coroutine_threadsafe(
        room.router(asker).append(ALICE, topic, 0, a_batch(), timeout_s=PATIENCE_S), nodes._threads[asker].loop
    )
    nodes.start(victim)
    room.speak_version(2)
    assert waiting.result(PATIENCE_S) == 0, "nothing of what was refused is in the log"


def test_a_leader_that_does_not_answer_by_the_deadline_leaves_the_outcome_open(room: Room) -> None:
    topic = room.create_topic(1)
    room.append(2, topic)
    room.nodes.pause(1)
    try:
        with pytest.raises(OutcomeOpen) as caught:
            room.append(2, topic, timeout_s=0.3)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        room.nodes.resume(1)
    room.wait_known(topic)


@pytest.mark.parametrize("has_sequence", [True, False])
def test_an_answer_that_is_lost_costs_no_batch_and_doubles_none(
    room: Room, monkeypatch: pytest.MonkeyPatch, has_sequence: bool
) -> None:
    topic = room.create_topic(1)
    room.append(2, topic)
    router = room.router(2)
    ask = router._ask
    lost: list[bytes] = []

    async def lose_first(*args: Any) -> bytes:
        answer = await ask(*args)
        if not lost:
            lost.append(answer)
            raise OutcomeOpen(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return answer

    monkeypatch.setattr(router, "_ask", lose_first)
    batch = a_batch(producer_id=7, epoch=0, sequence=0) if has_sequence else a_batch()
    work = router.append(ALICE, topic, 0, batch)
    if has_sequence:
        assert room.run(2, work) == 1, "the leader finds the batch that it has"
    else:
        with pytest.raises(OutcomeOpen):
            room.run(2, work)
    assert room.append(1, topic) == 2


def test_what_is_not_there_is_refused_at_once(room: Room) -> None:
    topic = room.create_topic(1)
    for name, index in (("nowhere", 0), (topic, 7)):
        with pytest.raises(ApiError) as caught:
            room.run(2, room.router(2).append(ALICE, name, index, a_batch()))
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(ApiError) as caught:
        room.run(2, room.router(2).read(ALICE, topic, 0, Offset(99), 1000))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(ApiError) as caught:
        room.run(2, room.router(2).append(ALICE, topic, 0, bytes(PeerOptions().request_frame_bytes_max)))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(ApiError) as caught:
        room.run(2, room.router(2).append(ALICE, topic, 0, b"no batch at all"))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_node_of_an_older_version_is_not_asked_what_it_does_not_understand(room: Room) -> None:
    topic = room.create_topic(1)
    room.append(2, topic)
    room.speak_version(1)
    for attempt in (room.append, room.read):
        with pytest.raises(ApiError) as caught:
            attempt(2, topic)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert room.append(1, topic) == 1, "the leader itself needs no other node"


# ---- the controller and coordinators ----------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_request_for_the_controller_goes_with_its_caller(room: Room, version: int) -> None:
    controller = room.controller()
    asker = room.others(controller)[0]
    gate = RecordingGate()
    room.broker(controller).services.gate = gate
    room.speak_version(version)
    name = f"forwarded-{version}"
    request = CreateTopicsRequest([CreateTopicsRequestTopic(name, 1, 1)])
    frame = bytes(write_request(ApiKey.CREATE_TOPICS, 5, 1, "till", request))[4:]
    answer = room.run(asker, room.router(asker).forward(ALICE, frame))
    _, response = read_response(ApiKey.CREATE_TOPICS, 5, bytes(answer)[4:])
    assert response.topics[0].error_code == 0
    assert gate.seen == [("CREATE_TOPICS", ALICE if version == 2 else unknown_caller("till"))]
    assert name in room.broker(asker).catalog.topics, "the node knows what it has answered"


@pytest.mark.parametrize("version", [1, 2])
def test_a_topic_is_created_for_a_caller_of_another_node(room: Room, version: int) -> None:
    controller = room.controller()
    asker = room.others(controller)[0]
    gate = RecordingGate()
    room.broker(controller).services.gate = gate
    room.speak_version(version)
    creation = room.broker(asker).services.topic_creation
    room.run(asker, creation.auto_create(ALICE, f"asked-for-{version}"))
    assert gate.seen == [("AUTO_CREATE", ALICE if version == 2 else unknown_caller())]
    room.broker(controller).services.gate = NamedGate("forbidden")
    if version == 2:
        with pytest.raises(ApiError) as caught:
            room.run(asker, creation.auto_create(ALICE, "forbidden"))
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_is_asked_with_the_caller(room: Room, version: int) -> None:
    room.run(1, room.broker(1).services.topic_creation.create_internal(CONSUMER_OFFSETS))
    group_id = "readers"
    index = room.broker(1).groups.index_of(group_id)
    coordinator = room.nodes.leader(CONSUMER_OFFSETS, index)
    asker = room.others(coordinator)[0]
    gate = RecordingGate()
    room.broker(coordinator).services.gate = gate
    room.speak_version(version)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=None)])
    frame = bytes(write_request(ApiKey.OFFSET_FETCH, 9, 1, "till", request))[4:]
    router = room.router(asker)
    answer = room.run(
        asker,
        router.retry(
            lambda: router.ask_coordinator(ALICE, CONSUMER_OFFSETS, index, frame), PATIENCE_S, may_repeat=True
        ),
    )
    _, response = read_response(ApiKey.OFFSET_FETCH, 9, bytes(answer)[4:])
    assert [(group.group_id, group.error_code) for group in response.groups] == [(group_id, 0)]
    assert set(gate.seen) == {("OFFSET_FETCH", ALICE if version == 2 else unknown_caller("till"))}


# ---- the retry policy -------------------------------------------------------------------------------


class Attempts:
    """Fails with the errors it is given, one after the other, and then succeeds."""

    def __init__(self, *errors: ApiError) -> None:
        self._errors = list(errors)
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@pytest.fixture
def alone() -> Iterator[Harness]:
    with Harness() as harness:
        yield harness


MOMENT = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")
OPEN_END = OutcomeOpen(ErrorCode.REQUEST_TIMED_OUT, "no answer")
FINAL = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")


def test_refusals_of_the_moment_are_tried_again(alone: Harness) -> None:
    attempts = Attempts(MOMENT, ApiError(ErrorCode.NOT_CONTROLLER, ""), ApiError(ErrorCode.LEADER_NOT_AVAILABLE, ""))
    assert alone.run(alone.broker.services.router.retry(attempts, 10.0)) == "done"
    assert attempts.count == 4


@pytest.mark.parametrize("error", [FINAL, OPEN_END])
def test_what_is_final_or_may_have_been_done_is_not(alone: Harness, error: ApiError) -> None:
    attempts = Attempts(error)
    with pytest.raises(type(error)):
        alone.run(alone.broker.services.router.retry(attempts, 10.0))
    assert attempts.count == 1


def test_what_can_be_done_twice_is_tried_again_after_an_open_end(alone: Harness) -> None:
    attempts = Attempts(OPEN_END, OPEN_END)
    assert alone.run(alone.broker.services.router.retry(attempts, 10.0, may_repeat=True)) == "done"


def test_after_the_deadline_the_last_refusal_is_the_answer(alone: Harness) -> None:
    attempts = Attempts(*[MOMENT] * 100)
    with pytest.raises(ApiError) as caught:
        alone.run(alone.broker.services.router.retry(attempts, 1.0))
    assert caught.value is MOMENT
    # It waits between attempts. On a busy machine there are few.
    assert 1 < attempts.count < 50


def test_a_node_alone_serves_its_own_partitions(alone: Harness) -> None:
    alone.create_topic("t")
    router = alone.broker.services.router
    assert alone.run(router.append(ALICE, "t", 0, a_batch())) == 0
    assert alone.run(router.read(ALICE, "t", 0, Offset(0), 1000)).high_watermark == 1
    with alone.failing(alone.partition("t")), pytest.raises(ApiError) as caught:
        alone.run(router.append(ALICE, "t", 0, a_batch(), timeout_s=0.2))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_batch_that_is_not_safe_in_time_has_an_open_outcome(alone: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was appended: to append it again would be to have it twice."""
    alone.create_topic("t")
    services = alone.broker.services
    monkeypatch.setattr(services.appends, "when_safe", lambda *_: None)
    with pytest.raises(OutcomeOpen) as caught:
        alone.run(services.router.append(ALICE, "t", 0, a_batch(), timeout_s=0.2))
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert alone.partition("t").next_offset == 1
