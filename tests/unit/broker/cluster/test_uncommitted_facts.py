"""The controller's catalog runs ahead of what is committed. Nothing is given up for what may never have been."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from typing import Any

import pytest

from drmq.broker.cluster.metadata import CatalogCoordinator
from drmq.broker.partitions.derived_state import encode_state
from drmq.broker.replication.entry_log import encode_trim
from drmq.catalog import BrokerRemoved, TopicCreated, encode_fact
from drmq.kafka import delete_topics, describe_configs, describe_topic_partitions, metadata, offset_commit
from drmq.model import ApiError, ErrorCode, NodeId, Offset, TopicId, node_of
from drmq.raft import Configuration, Leadership, LogIndex, Role, SnapshotChunk, SnapshotMeta, Term
from drmq.testing.files import FakeFiles
from drmq.wire import ApiKey
from drmq.wire.fields import spec_of
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest
from drmq.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsRequestConfig, AlterConfigsRequestResource
from drmq.wire.messages.delete_topics import DeleteTopicsRequest
from drmq.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from drmq.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)
from drmq.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest
from support.broker_harness import Harness, over_the_wire
from support.harness_leader import receive
from support.other_nodes import add_node
from support.replica_harness import SELF, FrozenClock, ReplicaHarness


class Held:
    """Threads of a broker that stand still until they are let go."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._writer = threading.Event()
        self._replicas = threading.Event()

    def hold_writer(self) -> None:
        """Nothing gets to a log: what is appended is not committed."""
        is_held = threading.Event()

        def hold() -> None:
            is_held.set()
            self._writer.wait()

        broker = self._harness.broker
        broker.writer.run(broker.metadata.log.partition.log, hold)
        is_held.wait()

    def hold_replicas(self) -> None:
        """No partition is made: whoever is about to make one waits."""
        replicas = self._harness.broker._pools.replicas
        for _ in range(replicas._max_workers):  # type: ignore[attr-defined]
            replicas.submit(self._replicas.wait)

    def let_writer_go(self) -> None:
        self._writer.set()

    def let_replicas_go(self) -> None:
        self._replicas.set()


@pytest.fixture
def held(harness: Harness) -> Iterator[Held]:
    held = Held(harness)
    yield held
    held.let_replicas_go()
    held.let_writer_go()


def wait_until(harness: Harness, is_so: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if is_so():
            return
        harness.run(asyncio.sleep(0.001))
    raise AssertionError("it did not come")


def refuse_facts(files: FakeFiles) -> None:
    """The disk takes no more of the metadata log, be it there or in the journal; once."""
    files.fail("write", errno.ENOSPC, path_part="__cluster_metadata")
    files.fail("write", errno.ENOSPC, path_part="journal")


def test_files_outlive_a_deletion_that_is_never_committed(harness: Harness, files: FakeFiles, held: Held) -> None:
    """The worker comes to a topic late, for the sake of an earlier fact. A deletion that was decided meanwhile and is
    not committed is nothing to act upon."""
    broker = harness.broker
    orders = harness.create_topic("orders")
    harness.produce("orders", values=[b"acknowledged"])
    before = harness.partition("orders")
    held.hold_replicas()
    other = harness.loop.create_task(broker.topics.create("other", broker.new_topic_id(), 1, {}))
    wait_until(harness, lambda: broker.assignments._worker is not None)
    harness.run(broker.topics.change_configs("orders", {"retention.ms": "100000000"}))
    assert orders.topic_id in broker.assignments._waiting

    held.hold_writer()
    deletion = harness.loop.create_task(broker.topics.delete(broker.catalog.topic("orders")))
    wait_until(harness, lambda: "orders" not in broker.catalog.topics)
    held.let_replicas_go()
    wait_until(harness, lambda: orders.topic_id not in broker.assignments._waiting)
    harness.run(asyncio.sleep(0.01))
    refuse_facts(files)
    held.let_writer_go()
    with pytest.raises(ApiError) as caught:
        harness.run(deletion)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    harness.advance(60_000)
    wait_until(harness, lambda: broker.is_controller and broker.assignments._worker is None)
    harness.run(asyncio.wait([other]))
    assert "orders" in broker.catalog.topics
    assert harness.partition("orders") is before
    assert before.config.retention_ms == 100_000_000
    assert harness.produce("orders") == 1
    harness.close()
    with Harness(files.after_kill()) as again:
        assert again.partition("orders").high_watermark == 2


def test_offsets_outlive_a_deletion_that_is_never_committed(harness: Harness, files: FakeFiles, held: Held) -> None:
    """A shard that begins to lead drops the offsets of deleted topics: of those whose deletion is certain."""
    broker = harness.broker
    harness.create_topic("orders")
    held.hold_writer()
    deletion = harness.loop.create_task(broker.topics.delete(broker.catalog.topic("orders")))
    wait_until(harness, lambda: "orders" not in broker.catalog.topics)
    assert broker.groups.deleted_topics() == set()
    held.let_writer_go()
    harness.run(deletion)
    assert broker.groups.deleted_topics() == {"orders"}


def test_members_change_by_committed_facts_only(harness: Harness, held: Held) -> None:
    """The next move may have the same number. Whoever came with this one would be taken for part of that one."""
    broker, metadata = harness.broker, harness.broker.metadata
    created = harness.create_topic("orders")
    partition = harness.partition("orders")
    facts = broker.catalog.register_broker(NodeId(2), "0002", host="h", port=1, peer_host="h", peer_port=2)
    harness.call(lambda: metadata.append(facts))
    held.hold_writer()
    harness.run(asyncio.sleep(0))
    metadata.append(broker.catalog.start_reassignment(created, 0, [NodeId(1), NodeId(2)]))
    broker.assignments.on_role(partition)
    harness.run(broker.assignments.change_members())
    node = partition.replica.node
    assert node is not None
    assert node.configuration == Configuration.of([NodeId(1)])

    held.let_writer_go()
    wait_until(harness, lambda: metadata.applied_offset == metadata.next_offset)
    harness.run(broker.assignments.change_members())
    assert [node_of(member) for member in node.configuration.learners] == [2]


# ---- refusals --------------------------------------------------------------------------------------


def outcome(harness: Harness, task: asyncio.Task[Any]) -> ErrorCode:
    harness.run(asyncio.wait([task]))
    error = task.exception()
    if error is None:
        return ErrorCode.NONE
    assert isinstance(error, ApiError)
    return error.code


@pytest.mark.parametrize("is_refused", [True, False], ids=["the-disk-refuses", "the-disk-takes-it"])
def test_a_name_is_not_taken_before_its_topic_is_committed(
    harness: Harness, files: FakeFiles, held: Held, is_refused: bool
) -> None:
    topics = harness.broker.topics
    held.hold_writer()
    first, second = (
        harness.loop.create_task(topics.create("orders", harness.broker.new_topic_id(), 1, {})) for _ in range(2)
    )
    harness.run(asyncio.sleep(0.01))
    assert not first.done()
    assert not second.done()
    if is_refused:
        refuse_facts(files)
    held.let_writer_go()
    stored = ErrorCode.KAFKA_STORAGE_ERROR if is_refused else ErrorCode.NONE
    assert outcome(harness, first) is stored
    assert outcome(harness, second) is (stored if is_refused else ErrorCode.TOPIC_ALREADY_EXISTS)


@pytest.mark.parametrize("is_refused", [True, False], ids=["the-disk-refuses", "the-disk-takes-it"])
def test_nobody_is_told_that_a_topic_is_gone_before_that_is_committed(
    harness: Harness, files: FakeFiles, held: Held, is_refused: bool
) -> None:
    harness.create_topic("orders")
    held.hold_writer()

    async def delete() -> list[Any]:
        return (
            await delete_topics.handle(harness._context(1, "test"), DeleteTopicsRequest(topic_names=["orders"]))
        ).responses

    first, second = (harness.loop.create_task(delete()) for _ in range(2))
    harness.run(asyncio.sleep(0.01))
    assert not first.done()
    assert not second.done()
    if is_refused:
        refuse_facts(files)
    held.let_writer_go()
    codes = [harness.run(task)[0].error_code for task in (first, second)]
    if is_refused:
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    else:
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def alter_incrementally() -> IncrementalAlterConfigsRequest:
    changes = [IncrementalAlterConfigsRequestConfig("cleanup.policy", 2, "delete")]
    return IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequestResource(2, "orders", changes)])


def alter() -> AlterConfigsRequest:
    changes = [AlterConfigsRequestConfig("retention.ms", "1")]
    return AlterConfigsRequest([AlterConfigsRequestResource(2, "orders", changes)])


def add_voter() -> AddRaftVoterRequest:
    return AddRaftVoterRequest(None, voter_id=2)


def ask(harness: Harness, request: object) -> asyncio.Task[ErrorCode]:
    """Ask while the disk is held, and nothing can be waited for that it has to do."""
    key = ApiKey(spec_of(type(request)).api_key)
    handler = import_module(f"drmq.kafka.{key.name.lower()}")

    async def code() -> ErrorCode:
        answer = await handler.handle(harness._context(1, "test"), request)
        return ErrorCode((answer.responses[0] if hasattr(answer, "responses") else answer).error_code)

    task = harness.loop.create_task(code())
    harness.run(asyncio.sleep(0.01))
    return task


@pytest.mark.parametrize("request_for", [alter_incrementally, alter], ids=["incrementally", "as-a-whole"])
@pytest.mark.parametrize("is_refused", [True, False], ids=["the-disk-refuses", "the-disk-takes-it"])
def test_nobody_is_told_that_a_topic_without_settings_is_gone_before_that_is_committed(
    harness: Harness, files: FakeFiles, held: Held, request_for: Callable[[], object], is_refused: bool
) -> None:
    harness.create_topic("orders")
    held.hold_writer()
    deletion = ask(harness, DeleteTopicsRequest(topic_names=["orders"]))
    change = ask(harness, request_for())
    assert not deletion.done()
    assert not change.done()
    if is_refused:
        refuse_facts(files)
    held.let_writer_go()
    refused, gone = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.run(deletion) is (refused if is_refused else ErrorCode.NONE)
    assert harness.run(change) is (refused if is_refused else gone)


@pytest.mark.parametrize("request_for", [lambda: UnregisterBrokerRequest(2), add_voter], ids=["drain", "add-voter"])
def test_nobody_is_told_that_a_node_is_gone_before_that_is_committed(
    harness: Harness, held: Held, request_for: Callable[[], object]
) -> None:
    add_node(harness, 2)
    held.hold_writer()
    harness.broker.metadata.append([BrokerRemoved(NodeId(2))])
    asked = ask(harness, request_for())
    assert not asked.done()
    held.let_writer_go()
    assert harness.run(asked) is ErrorCode.BROKER_ID_NOT_REGISTERED


def depose(harness: Harness) -> None:
    """Another node controls the cluster. What this one has decided and not committed may come to be, or not."""
    partition = harness.broker.metadata.log.partition
    partition.on_leadership(Leadership(Role.FOLLOWER, Term(partition.leader_epoch + 1), NodeId(2)))


def test_a_controller_that_is_deposed_meanwhile_says_so_in_the_words_of_controllers(
    harness: Harness, held: Held
) -> None:
    """Clients ask again after NOT_CONTROLLER, elsewhere. After a word about partitions they give up."""
    harness.create_topic("orders")
    held.hold_writer()
    deletion = ask(harness, DeleteTopicsRequest(topic_names=["orders"]))
    change = ask(harness, alter_incrementally())
    created = harness.loop.create_task(harness.broker.topics.create("other", harness.broker.new_topic_id(), 1, {}))
    harness.run(asyncio.sleep(0.01))
    depose(harness)
    codes = [harness.run(deletion), harness.run(change), outcome(harness, created)]
    assert codes == [ErrorCode.NOT_CONTROLLER] * 3
    error = created.exception()
    assert isinstance(error, ApiError)
    assert "topic 'other'" in error.message
    assert "the controller of this cluster is node 2" in error.message
    held.let_writer_go()
    harness.settle()


@pytest.mark.parametrize("request_for", [alter_incrementally, alter], ids=["incrementally", "as-a-whole"])
def test_a_node_that_is_not_the_controller_does_not_say_what_is_not_there(
    harness: Harness, request_for: Callable[[], object]
) -> None:
    """It may be behind: the topic may have been created, and this node not have heard of it."""
    depose(harness)
    assert harness.run(ask(harness, request_for())) is ErrorCode.NOT_CONTROLLER


# ---- what any node tells of the cluster ------------------------------------------------------------


def at_once(answer: object) -> object:
    """The result of a coroutine that has nothing to wait for, also in a callback of the event loop."""
    assert isinstance(answer, Coroutine)
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


def seen_topics(harness: Harness) -> set[str]:
    """The topics that clients are told of, by whatever they ask with; all must say the same."""
    context, names = harness._context(12, "test"), ["orders", "new", "newer"]
    harness.broker.new_partitions._leaderless.clear()  # so that no answer waits for leaders
    named = metadata.handle(context, MetadataRequest([MetadataRequestTopic(name=name) for name in names], False))
    every = at_once(metadata.handle(context, MetadataRequest(None)))
    assert isinstance(named, MetadataResponse)
    assert isinstance(every, MetadataResponse)
    every = over_the_wire(every, 12)
    wanted = [DescribeTopicPartitionsRequestTopic(name) for name in names]
    pages = describe_topic_partitions.handle(context, DescribeTopicPartitionsRequest(wanted))
    assert isinstance(pages, DescribeTopicPartitionsResponse)
    settings = describe_configs.handle(
        context, DescribeConfigsRequest([DescribeConfigsRequestResource(2, name, None) for name in names])
    )
    seen = {topic.name for topic in named.topics if topic.error_code == 0}
    assert {topic.name for topic in every.topics if not topic.is_internal} == seen
    assert {topic.name for topic in pages.topics if topic.error_code == 0} == seen
    assert {each.resource_name for each in settings.results if each.error_code == 0} == seen
    return {name for name in seen if name is not None}


def test_clients_see_a_topic_until_its_deletion_is_committed(harness: Harness, held: Held) -> None:
    harness.create_topic("orders")
    held.hold_writer()
    deletion = ask(harness, DeleteTopicsRequest(topic_names=["orders"]))
    assert "orders" not in harness.broker.catalog.topics
    assert not deletion.done()
    assert seen_topics(harness) == {"orders"}
    held.let_writer_go()
    assert harness.run(deletion) is ErrorCode.NONE
    assert seen_topics(harness) == set()


@pytest.mark.parametrize("version", [8, 10], ids=["by-name", "by-id"])
def test_offsets_are_kept_until_a_deletion_is_committed(harness: Harness, held: Held, version: int) -> None:
    """Told that the topic is unknown, a consumer would drop its position."""
    topic = harness.create_topic("orders")
    held.hold_writer()
    deletion = ask(harness, DeleteTopicsRequest(topic_names=["orders"]))
    assert "orders" not in harness.broker.catalog.topics
    position = OffsetCommitRequestPartition(0, 0)
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(topic.name, topic.topic_id, [position])])

    async def commit() -> ErrorCode:
        answer = offset_commit.handle(harness._context(version, "test"), request)
        stored = await answer if isinstance(answer, asyncio.Future) else answer
        return ErrorCode(stored.topics[0].partitions[0].error_code)

    committed = harness.loop.create_task(commit())
    harness.run(asyncio.sleep(0.01))
    assert not deletion.done()
    assert not committed.done()
    held.let_writer_go()
    assert harness.run(committed) is ErrorCode.NONE


def test_a_partition_is_elsewhere_only_once_its_creation_is_committed(harness: Harness, held: Held) -> None:
    facts, table = harness.broker.metadata, harness.broker.partitions
    topic_id = harness.broker.new_topic_id()
    held.hold_writer()
    facts.append(harness.broker.catalog.create_topic("new", topic_id, 1, {}, internal=False))
    with pytest.raises(ApiError, match="there is no partition"):
        table.by_name("new", 0)
    with pytest.raises(ApiError, match="there is no topic"):
        table.by_id(topic_id, 0)


def test_clients_see_a_topic_when_its_creation_is_committed_and_not_when_the_next_one_is(
    harness: Harness, held: Held
) -> None:
    """A busy controller always has decisions that are not committed. Who was answered sees what was made for him."""
    facts = harness.broker.metadata
    harness.create_topic("orders")
    held.hold_writer()
    busy = Held(harness)
    told: list[tuple[ErrorCode, set[str]]] = []

    def create(name: str) -> None:
        topic_id = harness.broker.new_topic_id()
        facts.append(harness.broker.catalog.create_topic(name, topic_id, 1, {}, internal=False))

    def go_on(error: ErrorCode) -> None:
        busy.hold_writer()
        create("newer")
        facts.append(harness.broker.catalog.delete_topic(harness.broker.catalog.topic("orders")))
        told.append((error, seen_topics(harness)))

    try:
        create("new")
        facts.log.when_durable(go_on)
        assert seen_topics(harness) == {"orders"}
        held.let_writer_go()
        wait_until(harness, lambda: bool(told))
        assert told == [(ErrorCode.NONE, {"orders", "new"})]
        assert seen_topics(harness) == {"orders", "new"}
        assert harness.broker.catalog.topics.keys() >= {"new", "newer"}
    finally:
        busy.let_writer_go()
    wait_until(harness, lambda: facts.applied_offset == facts.next_offset)
    assert seen_topics(harness) == {"new", "newer"}
    assert facts.committed_catalog.topics == facts.catalog.topics


def test_a_deposed_controller_forgets_what_was_not_committed(harness: Harness, held: Held) -> None:
    harness.create_topic("orders")
    held.hold_writer()
    ask(harness, DeleteTopicsRequest(topic_names=["orders"]))
    depose(harness)
    assert seen_topics(harness) == {"orders"}
    held.let_writer_go()
    harness.settle()


# ---- the two catalogs ------------------------------------------------------------------------------


def created(name: str, number: int) -> tuple[bytes, bytes]:
    return encode_fact(TopicCreated(TopicId(bytes([number]) * 16), name, [[NodeId(1)]], {}))


def test_the_committed_catalog_stays_until_what_was_decided_is_committed() -> None:
    machine = CatalogCoordinator(FrozenClock())
    machine.replay(*created("first", 1))
    machine.on_applied()
    assert machine.committed is machine.catalog
    machine.on_appending()
    machine.replay(*created("second", 2))
    machine.on_appending()
    machine.replay(*created("third", 3))
    assert machine.committed.topics.keys() == {"first"}
    assert machine.catalog.topics.keys() == {"first", "second", "third"}
    machine.on_applied()
    assert machine.committed is machine.catalog


def test_the_committed_catalog_does_not_go_back_to_a_snapshot() -> None:
    """A state that is made anew begins with a snapshot: older than what this node may have acted upon."""
    machine = CatalogCoordinator(FrozenClock())
    machine.replay(*created("first", 1))
    machine.replay(*created("second", 2))
    machine.on_applied()
    snapshot = machine.draft()
    snapshot.replay(*created("first", 1))
    machine.become(snapshot)
    assert machine.committed.topics.keys() == {"first", "second"}
    heard: list[set[TopicId]] = []
    machine.on_changed = heard.append
    machine.replay(*created("second", 2))
    machine.on_applied()
    assert machine.committed is machine.catalog
    assert len(heard[0]) == 2


def test_what_an_installed_snapshot_says_is_committed() -> None:
    """A follower was away, and gets the leader's snapshot. Nothing more has to be committed for it to act upon that."""
    machine = CatalogCoordinator(FrozenClock())
    heard: list[set[TopicId]] = []
    machine.on_changed = heard.append
    desk = ReplicaHarness(FakeFiles(), members=(1, 2, 3), machine=machine)
    for term, offset, names in ((1, 10, ["first"]), (2, 20, ["first", "second"])):
        body = encode_state(created(name, number) for number, name in enumerate(names))
        meta = SnapshotMeta(LogIndex(offset), Term(term), Configuration.of([1, 2, 3]), encode_trim(Offset(offset)))
        receive(desk, SnapshotChunk(NodeId(2), SELF, Term(term), meta, 0, body, True))
        desk.work()
        assert desk.partition.high_watermark == offset
        assert machine.committed is machine.catalog
        assert machine.committed.topics.keys() == set(names)
        assert len(heard.pop()) == len(names)
        assert heard == []


def test_what_a_start_finds_is_committed() -> None:
    """There is nothing older that this process has acted upon."""
    machine = CatalogCoordinator(FrozenClock())
    snapshot = machine.draft()
    snapshot.replay(*created("first", 1))
    machine.become(snapshot)
    assert machine.committed.topics.keys() == {"first"}


# ---- registrations ---------------------------------------------------------------------------------


def fields(directory_id: str) -> dict[str, object]:
    return {
        "directory_id": directory_id,
        "host": "h",
        "port": 1,
        "peer_host": "h",
        "peer_port": 2,
        "rack": None,
        "roles": ["broker"],
        "starts": 1,
        "boot_id": directory_id,
        "features": {"metadata.version": [1, 4], "share.version": [0, 1]},
    }


def test_a_registration_is_answered_with_what_it_decided_not_with_what_came_after_it(
    harness: Harness, held: Held
) -> None:
    """Two fresh disks claim to be node 2. Each is another incarnation, and none is told that of the other."""
    controller = harness.broker.controller
    held.hold_writer()
    asked = [harness.loop.create_task(controller.register(NodeId(2), fields(name))) for name in ("0a", "0b")]
    harness.run(asyncio.sleep(0))
    held.let_writer_go()
    answers = [harness.run(task) for task in asked]
    assert [(answer.directory_id, answer.incarnation) for answer in answers] == [("0a", 0), ("0b", 1)]


def test_a_node_that_registers_does_not_wait_for_facts_that_may_never_be_committed(
    harness: Harness, held: Held
) -> None:
    """It would wait for ever: a new controller's log is shorter."""
    broker, metadata = harness.broker, harness.broker.metadata
    known = broker.catalog.broker(NodeId(1))
    committed = metadata.applied_offset
    held.hold_writer()
    metadata.append(broker.catalog.reserve_producer_ids(1))
    assert broker.registrations.answer_for(known)["offset"] == committed
