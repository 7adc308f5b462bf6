"""Files as the catalog says: made once, never made anew in place of lost ones, removed only by a decision."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from drmq.broker import Partition, StoppedPartition
from drmq.broker.cluster.assignments import _AT_ONCE
from drmq.catalog import BrokerRegistered, Catalog, Fact, Topic
from drmq.model import ApiError, ErrorCode, GroupId, MemberId, NodeId, member_id
from drmq.raft import Configuration
from drmq.testing.files import FakeFiles, PowerCut
from support.broker_harness import DATA_DIRECTORY, Harness
from support.other_nodes import add_node, add_topic, append

METADATA = f"{DATA_DIRECTORY}/internal/__cluster_metadata/0"


def path_of(harness: Harness, topic: str = "orders", index: int = 0) -> str:
    return f"{DATA_DIRECTORY}/topics/{topic}.{harness.broker.catalog.topic(topic).topic_id.hex()}/{index}"


def stopped_reason(harness: Harness, topic: str = "orders", index: int = 0) -> str:
    with pytest.raises(ApiError) as caught:
        harness.partition(topic, index)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return caught.value.message


def remove_all(files: FakeFiles, path: str) -> None:
    for name in files.list(path):
        files.remove(f"{path}/{name}")
    files.remove_directory(path)


# ---- what is lost stays lost -----------------------------------------------------------------------


def test_lost_files_are_not_made_anew(harness: Harness, files: FakeFiles) -> None:
    """A replica that has forgotten its votes and its records must not take part as if it were new."""
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    remove_all(disk, path)
    with Harness(disk) as again:
        assert "are gone" in stopped_reason(again)
        assert not disk.is_directory(path)


class JoiningLate(Harness):
    """A broker that meets its past before it has found its cluster, as one does that waits for a controller."""

    slots_before: object = None

    def _join(self) -> None:
        while "orders" not in self.broker.catalog.topics:
            self.run(asyncio.sleep(0.001))
        self.run(self.broker.assignments.settled())
        self.slots_before = dict(self.broker.partitions.slots(self.broker.catalog.topic("orders").topic_id))
        super()._join()


def test_a_restarted_node_does_nothing_by_a_catalog_that_may_be_old(harness: Harness, files: FakeFiles) -> None:
    """What it says about files may have been so once, and they were removed since. That is not a loss."""
    harness.create_topic("orders")
    harness.produce("orders")
    harness.close()
    with JoiningLate(files.after_kill()) as again:
        assert again.slots_before == {}
        assert again.partition("orders", 0).next_offset == 1


def test_a_deleted_topic_is_not_remembered_even_where_it_could_not_be_opened(
    harness: Harness, files: FakeFiles
) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    group = harness.partition("orders", 0).group
    harness.close()
    disk = files.after_kill()
    remove_all(disk, path)
    with Harness(disk) as again:
        assert "are gone" in stopped_reason(again)
        assert group in again.broker.assignments._made
        again.run(again.broker.topics.delete(again.broker.catalog.topic("orders")))
        again.run(again.broker.assignments.settled())
        assert group not in again.broker.assignments._made
    with Harness(disk.after_kill()) as last:
        assert group not in last.broker.assignments._made


def test_a_log_without_its_ledger_is_stopped(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    disk.remove(f"{path}/ledger")
    with Harness(disk) as again:
        assert "ledger" in stopped_reason(again)
        assert any(name.endswith(".log") for name in disk.list(path))


def test_a_ledger_without_its_log_is_stopped(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    for name in disk.list(path):
        if name != "ledger":
            disk.remove(f"{path}/{name}")
    with Harness(disk) as again:
        assert "segments are missing" in stopped_reason(again)


@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_records_outlive_the_note_of_what_was_made(harness: Harness, files: FakeFiles, damage: str) -> None:
    harness.create_topic("orders")
    harness.produce("orders", values=[b"a", b"b"])
    harness.close()
    disk = files.after_kill()
    [note] = [name for name in disk.list(METADATA) if name.startswith("made-")]
    if damage == "removed":
        disk.remove(f"{METADATA}/{note}")
    else:
        disk.flip_bit(f"{METADATA}/{note}", 60)
    with Harness(disk) as again:
        assert again.partition("orders").high_watermark == 2
        assert again.produce("orders") == 2


def test_what_was_never_whole_is_made_again(harness: Harness, files: FakeFiles) -> None:
    """The power went between the making of a log and that of its ledger."""
    harness.create_topic("orders")
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    [note] = [name for name in disk.list(METADATA) if name.startswith("made-")]
    disk.remove(f"{METADATA}/{note}")
    disk.remove(f"{path}/ledger")
    with Harness(disk) as again:
        assert again.produce("orders") == 0


def test_a_partition_that_went_and_comes_back_is_made_anew(harness: Harness, files: FakeFiles) -> None:
    created = harness.create_topic("orders")
    harness.produce("orders")
    group = GroupId(created.topic_id, 0)
    harness.run(harness.broker.assignments._remove(group))
    harness.run(harness.broker.partitions.in_pool(harness.broker.assignments._note_made))
    harness.close()
    with Harness(files.after_kill()) as again:
        assert again.partition("orders").high_watermark == 0


def test_a_stopped_partition_that_moves_away_takes_its_files_along(harness: Harness, files: FakeFiles) -> None:
    """Otherwise it would be stopped again when it comes back, and moving it away and back is how it is repaired."""
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    disk.remove(f"{path}/ledger")
    with Harness(disk) as again:
        assert "ledger" in stopped_reason(again)
        broker = again.broker
        again.run(broker.assignments._remove_closed(broker.catalog.topic("orders"), 0))
        assert not disk.is_directory(path)
        again.run(broker.partitions.in_pool(broker.assignments._note_made))
        again.close()
    with Harness(disk.after_kill()) as anew:
        assert anew.partition("orders").high_watermark == 0


def move_away(harness: Harness, files: FakeFiles) -> None:
    """A partition goes to another node, and its files here cannot be removed."""
    created = harness.create_topic("orders", 2)
    harness.produce("orders", 0)
    harness.produce("orders", 1)
    add_node(harness, 2)
    catalog = harness.broker.catalog
    append(harness, catalog.start_reassignment(created, 0, [NodeId(2)]))
    files.fail("rename", errno.EIO, path_part="orders")
    append(harness, catalog.finish_reassignment(catalog.topic("orders"), 0))
    harness.run(harness.broker.assignments.settled())
    assert files.is_directory(path_of(harness))


def test_files_that_could_not_be_removed_go_when_their_topic_is_looked_at_again(
    harness: Harness, files: FakeFiles
) -> None:
    move_away(harness, files)
    group = GroupId(harness.broker.catalog.topic("orders").topic_id, 0)
    assert group in harness.broker.assignments._made
    append(harness, harness.broker.catalog.change_configs("orders", {"segment.ms": "500"}))
    harness.run(harness.broker.assignments.settled())
    assert not files.is_directory(path_of(harness))
    assert group not in harness.broker.assignments._made
    assert harness.produce("orders", 1) == 1


def test_files_that_could_not_be_removed_go_after_a_while(harness: Harness, files: FakeFiles) -> None:
    """Nobody has to restart a node because its disk refused something once, or twice."""
    move_away(harness, files)
    files.fail("remove", errno.EIO, path_part="orders")
    for is_there_after in (True, False):
        harness.advance(61_000)
        harness.run(harness.broker.assignments.settled())
        assert files.is_directory(path_of(harness)) == is_there_after
    assert harness.produce("orders", 1) == 1


def test_files_of_a_deleted_topic_that_could_not_be_removed_go_after_a_while(
    harness: Harness, files: FakeFiles
) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    files.fail("rename", errno.EIO, path_part="orders", fail_count=2)
    append(harness, harness.broker.catalog.delete_topic(harness.broker.catalog.topic("orders")))
    harness.run(harness.broker.assignments.settled())
    assert files.is_directory(path)
    harness.advance(61_000)
    harness.run(harness.broker.assignments.settled())
    assert not files.is_directory(path)


def test_files_that_could_not_be_removed_go_at_the_next_start(harness: Harness, files: FakeFiles) -> None:
    move_away(harness, files)
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    with Harness(disk) as again:
        assert not disk.is_directory(path)
        assert again.produce("orders", 1) == 1


def test_files_that_are_newer_than_the_catalog_stay(harness: Harness, files: FakeFiles) -> None:
    """They came by a move that the catalog does not know: its log was put back from a backup."""
    move_away(harness, files)
    group = GroupId(harness.broker.catalog.topic("orders").topic_id, 0)
    harness.broker.assignments._made[group] = member_id(NodeId(1), 9)
    append(harness, harness.broker.catalog.change_configs("orders", {"segment.ms": "500"}))
    harness.run(harness.broker.assignments.settled())
    assert files.is_directory(path_of(harness))


# ---- the power goes --------------------------------------------------------------------------------


def every_crash(
    before: Callable[[Harness], None], during: Callable[[Harness], Coroutine[Any, Any, object]]
) -> Iterator[tuple[FakeFiles, bool]]:
    """The disks that are left when the power goes at every step of `during`, and whether that was done."""
    crash_at = 0
    while True:
        crash_at += 1
        files = FakeFiles()
        harness = Harness(files)
        before(harness)
        files.crash_at = files.step + crash_at
        is_done = attempt(harness, during(harness))
        harness.crash()
        yield files, is_done
        if is_done:
            assert crash_at > 5
            return


def attempt(harness: Harness, work: Coroutine[Any, Any, object]) -> bool:
    """Let it go on until it is done, or the power is gone."""
    assert harness.files is not None
    harness.loop.set_exception_handler(lambda loop, context: None)
    task = harness.loop.create_task(work)
    while not task.done() and not harness.files.is_off:
        # A power cut that a thread of the pool meets ends the loop's turn.
        with suppress(PowerCut):
            harness.run(asyncio.sleep(0.001))
    if harness.files.is_off:
        task.cancel()
        with suppress(PowerCut):
            harness.run(asyncio.wait([task]))
        return False
    return task.exception() is None


def test_a_topic_that_is_being_created_is_there_or_not_after_a_power_cut() -> None:
    outcomes = set()
    for files, is_done in every_crash(lambda harness: None, create):
        for seed in range(2):
            with Harness(files.after_power_cut(seed)) as again:
                is_there = "orders" in again.broker.catalog.topics
                outcomes.add(is_there)
                assert is_there or not is_done
                if not is_there:
                    again.create_topic("orders", 2)
                again.settle()
                assert [again.produce("orders", index) for index in (0, 1)] == [0, 0]
    assert outcomes == {True, False}


async def create(harness: Harness) -> None:
    await harness.broker.topics.create("orders", harness.broker.new_topic_id(), 2, {})


def test_a_topic_that_is_being_deleted_is_there_or_not_after_a_power_cut() -> None:
    def before(harness: Harness) -> None:
        harness.create_topic("orders", 2)
        harness.produce("orders", 1)

    async def delete(harness: Harness) -> None:
        await harness.broker.topics.delete(harness.broker.catalog.topic("orders"))
        await harness.broker.assignments.settled()

    outcomes = set()
    for files, is_done in every_crash(before, delete):
        disk = files.after_power_cut(1)
        with Harness(disk) as again:
            is_there = "orders" in again.broker.catalog.topics
            outcomes.add(is_there)
            if is_there:
                assert not is_done
                assert again.partition("orders", 1).high_watermark == 1
                assert again.produce("orders", 1) == 1
            else:
                left = [name for name in disk.list(f"{DATA_DIRECTORY}/topics") if name.startswith("orders")]
                assert left == []
    assert outcomes == {True, False}


def test_a_first_start_that_ends_anywhere_is_begun_again() -> None:
    crash_at = 0
    while True:
        crash_at += 1
        files = FakeFiles(crash_at=crash_at)
        try:
            harness = Harness(files)
        except PowerCut:
            with Harness(files.after_power_cut(crash_at)) as again:
                again.create_topic("orders")
                assert again.produce("orders") == 0
        else:
            harness.crash()
            break
    assert crash_at > 30


# ---- members ---------------------------------------------------------------------------------------


def test_a_leader_adds_who_is_missing_as_a_learner_first(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Each change that is committed is a line of the log, with its reason."""
    harness.create_topic("orders")
    partition = harness.partition("orders")

    def step(*wanted: int) -> bool:
        members = tuple(MemberId(NodeId(node_id)) for node_id in wanted)
        return harness.call(lambda: harness.broker.assignments._step(partition, members, "a test"))

    caplog.set_level(logging.INFO, "drmq.broker")
    assert step(1)
    assert not step(1, 2)
    harness.settle()
    node = partition.replica.node
    assert node is not None
    assert node.configuration == Configuration.of([NodeId(1)], [NodeId(2)])
    # The newcomer has not answered, so nothing waits for it, and it is not counted.
    assert not step(1, 2)
    harness.settle()
    assert node.configuration == Configuration.of([NodeId(1)], [NodeId(2)])
    assert harness.produce("orders") == 0
    assert not step(1)
    harness.settle()
    assert node.configuration == Configuration.of([NodeId(1)])
    assert [record.getMessage() for record in caplog.records if "members" in record.getMessage()] == [
        f"orders-0: members are now 1, learner 2 (were 1), in term {node.term}: a test",
        f"orders-0: members are now 1 (were 1, learner 2), in term {node.term}: a test",
    ]


def test_a_move_that_was_finished_under_another_target_is_not_finished(harness: Harness) -> None:
    """The leader's word came late. Were it believed, every node with a copy would remove it."""
    created = harness.create_topic("orders")
    broker, metadata = harness.broker, harness.broker.metadata
    group = GroupId(created.topic_id, 0)

    def register(node_id: int) -> None:
        metadata.append(
            broker.catalog.register_broker(
                NodeId(node_id), f"{node_id:04x}", host="h", port=1, peer_host="h", peer_port=2
            )
        )

    def target(node_id: int) -> int:
        metadata.append(broker.catalog.start_reassignment(created, 0, [NodeId(node_id)]))
        return broker.catalog.topic("orders").partitions[0].moves

    for node_id in (2, 3):
        harness.call(lambda node_id=node_id: register(node_id))  # type: ignore[misc]
    first = harness.call(lambda: target(2))
    second = harness.call(lambda: target(3))
    harness.run(broker.assignments.on_reassigned(group, first))
    assert broker.catalog.reassignments == {group: (3,)}
    harness.run(broker.assignments.on_reassigned(group, second))
    assert broker.catalog.reassignments == {}


def test_files_of_a_hosting_that_is_over_are_those_of_another_member(harness: Harness, files: FakeFiles) -> None:
    """What is noted as made for an earlier hosting, and gone, is not missed in the next."""
    created = harness.create_topic("orders")
    harness.produce("orders")
    assignments = harness.broker.assignments
    group = GroupId(created.topic_id, 0)
    path = path_of(harness)
    assignments._made[group] = member_id(NodeId(1), 7)
    harness.run(harness.broker.partitions.in_pool(assignments._note_made))
    harness.close()
    disk = files.after_kill()
    with Harness(disk) as again:
        # The files are there: to have more than a newcomer harms nobody.
        assert again.partition("orders").high_watermark == 1
        again.broker.assignments._made[group] = member_id(NodeId(1), 7)
        again.run(again.broker.partitions.in_pool(again.broker.assignments._note_made))
        again.close()
    disk = disk.after_kill()
    remove_all(disk, path)
    with Harness(disk) as again:
        assert again.partition("orders").high_watermark == 0


def test_a_partition_that_cannot_be_opened_delays_no_start_and_is_tried_again(
    harness: Harness, files: FakeFiles
) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 1)
    path = path_of(harness, index=1)
    harness.close()
    disk = files.after_kill()
    disk.fail("open", errno.EMFILE, path_part=path, fail_count=1000)
    with Harness(disk) as again:
        assert "Too many open files" in stopped_reason(again, index=1)
        assert again.partition("orders", 0).is_serving
        again.advance(3_000)
        again.run(asyncio.sleep(0.2))
        assert "Too many open files" in stopped_reason(again, index=1)
        disk.forget_faults()
        again.advance(60_000)
        again.run(eventually_served(again, "orders", 1))
        assert again.partition("orders", 1).high_watermark == 1


async def eventually_served(harness: Harness, topic: str, index: int) -> None:
    for _ in range(1000):
        with suppress(ApiError):
            if harness.partition(topic, index).is_serving:
                return
        await asyncio.sleep(0.01)
    raise AssertionError("it is never served")


def test_attempts_to_open_are_budgeted_and_cost_only_themselves(harness: Harness, files: FakeFiles) -> None:
    count = 3 * _AT_ONCE
    harness.create_topic("orders", count)
    parent = path_of(harness).rpartition("/")[0]
    harness.close()
    disk = files.after_kill()
    disk.fail("open", errno.EMFILE, path_part=parent, fail_count=1_000_000)
    with Harness(disk) as again:
        opened: list[int] = []
        bring = again.broker.assignments._bring

        def noted(wanted: Any) -> Any:
            opened.append(wanted.index)
            return bring(wanted)

        again.broker.assignments._bring = noted  # type: ignore[method-assign]
        for _ in range(2):
            before = len(opened)
            again.advance(5_000)
            again.run(asyncio.sleep(0.3))
            assert before < len(opened) <= before + _AT_ONCE
        assert len(set(opened)) == len(opened), "each has its turn"


def test_a_partition_with_lost_files_is_not_tried_again(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    path = path_of(harness)
    harness.close()
    disk = files.after_kill()
    disk.remove(f"{path}/ledger")
    with Harness(disk) as again:
        topic_id = again.broker.catalog.topic("orders").topic_id
        again.advance(10_000)
        assert isinstance(again.broker.partitions.slots(topic_id)[0], StoppedPartition)


# ---- what a fact costs -----------------------------------------------------------------------------


class Looks:
    """Notes which partitions are looked at."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        assignments = harness.broker.assignments
        self.files: list[tuple[str, int]] = []
        self.members: list[tuple[str, int]] = []
        settle_one, note_former = assignments._settle_one, assignments._note_former

        def look_at_files(topic: Topic, index: int) -> Coroutine[Any, Any, bool]:
            self.files.append((topic.name, index))
            return settle_one(topic, index)

        def look_at_members(partition: Partition) -> None:
            self.members.append((partition.topic, partition.index))
            note_former(partition)

        monkeypatch.setattr(assignments, "_settle_one", look_at_files)
        monkeypatch.setattr(assignments, "_note_former", look_at_members)


def test_a_fact_costs_what_it_changes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of partitions on a node, a fact about one of them must not look at the others."""
    harness.create_topic("others", 5)
    harness.create_topic("orders", 5)
    monkeypatch.setattr(harness.broker.controller, "_watch_brokers", lambda: None)  # nobody hears of node 2
    add_node(harness, 2)
    looks = Looks(harness, monkeypatch)
    broker, catalog = harness.broker, harness.broker.catalog

    def after(facts: Sequence[Fact]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        looks.files.clear()
        looks.members.clear()
        append(harness, facts)
        harness.run(broker.assignments.settled())
        return looks.files, looks.members

    assert after(catalog.change_configs("orders", {"retention.ms": "1000"})) == ([], [])
    assert harness.partition("orders").config.retention_ms == 1000
    assert after(catalog.fence(NodeId(2))) == ([], [])
    assert after(catalog.unfence(NodeId(2))) == ([], [])
    moved = catalog.start_reassignment(catalog.topic("orders"), 3, [NodeId(2)])
    assert after(moved) == ([("orders", 3)], [("orders", 3)])
    again = BrokerRegistered(NodeId(2), 1, "another", "node-2", 9092, "node-2", 10092, None, ["broker"], 1, "")
    assert after([again]) == ([], [("orders", 3)])
    added = catalog.add_partitions("orders", 6, [[NodeId(1)]])
    assert after(added)[0] == [("orders", 5)]
    assert harness.produce("orders", 5) == 0


def test_the_controller_does_not_copy_its_catalog_for_each_decision(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Catalog] = []
    copy = Catalog.copy

    def counted(catalog: Catalog) -> Catalog:
        copies.append(catalog)
        return copy(catalog)

    monkeypatch.setattr(Catalog, "copy", counted)
    harness.create_topic("first")
    for number in range(5):
        harness.create_topic(f"topic-{number}")
    assert len(copies) <= 1
    assert harness.broker.metadata.committed_catalog.topics == harness.broker.catalog.topics


def test_topics_that_are_created_together_are_recorded_together(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of created partitions is stored as a whole. Once for each topic would be too often."""
    broker = harness.broker
    stored: list[int] = []
    note = broker.assignments._note_made

    def counted() -> None:
        stored.append(len(broker.assignments._made))
        note()

    monkeypatch.setattr(broker.assignments, "_note_made", counted)
    before = len(broker.assignments._made)

    async def create() -> None:
        await asyncio.gather(
            *(broker.topics.create(f"topic-{number}", broker.new_topic_id(), 2, {}) for number in range(50))
        )

    harness.run(create())
    assert len(broker.assignments._made) == before + 100
    assert len(stored) < 10


def test_many_partitions_that_cannot_be_opened_are_tried_again_together(
    harness: Harness, files: FakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round in vain makes the pause longer: a node without descriptors has better things to do."""
    files.fail("make_directory", errno.EMFILE, path_part="orders", skip_count=1, fail_count=1 << 30)
    topic = add_topic(harness, "orders", *[[1]] * 20)
    harness.run(harness.broker.assignments.settled())
    assert "Too many open files" in stopped_reason(harness)
    looks = Looks(harness, monkeypatch)
    rounds = []
    for _ in range(30):
        harness.advance(1_000)
        harness.run(harness.broker.assignments.settled())
        rounds.append(len(looks.files))
        looks.files.clear()
    assert {count for count in rounds if count} == {20}
    assert 3 <= sum(bool(count) for count in rounds) <= 5
    files.forget_faults()
    harness.advance(31_000)
    harness.run(harness.broker.assignments.settled())
    assert len(harness.broker.partitions.slots(topic.topic_id)) == 20
    harness.advance(3_000)  # an election in each
    assert harness.produce("orders", 19) == 0
