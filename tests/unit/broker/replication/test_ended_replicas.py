"""A replica whose disk fails permanently, or that a bug has ended: its group continues without waiting for it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from drmq.broker import Partition
from drmq.catalog import TopicDefaults, effective
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, Offset
from drmq.model.names import METADATA_GROUP
from drmq.storage import StorageError
from drmq.testing.files import FakeFiles
from support.batches import a_batch
from support.replica_harness import SELF, ReplicaHarness
from unit.broker.replication.test_group_host import (
    ASLEEP_TICKS,
    COPY_TICKS,
    LEARNER,
    OPTIONS,
    TOPIC,
    Place,
    Room,
    add_learner,
)
from unit.broker.replication.test_replica import GROUP, lead_with_quorum


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room(4)
    made.loop.set_exception_handler(lambda loop, context: None)
    yield made
    made.close()


def fail(*what: object) -> None:
    raise AssertionError("wrong code")


# ---- a group hears of it ---------------------------------------------------------------------------


def fence(room: Room, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync of a log without writes fails: the journal switches its files, and the log had entries there."""
    log = place.partition.log
    monkeypatch.setattr(type(log), "is_fenced", property(lambda each: each is log))
    room.call(lambda: place.table.on_failed(log, StorageError("sync failed"), log.flushed_offset))
    assert place.partition.replica.node is None


def test_another_leader_is_elected_where_one_ends_in_its_sleep(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node is up, so nodes that watch each other notice nothing."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    fence(room, before, monkeypatch)
    room.ticks(3 * OPTIONS.election_timeout_ticks)
    assert room.leader is not before
    assert room.produce(room.leader) == [ErrorCode.NONE]
    notice = room.place(4).host.leaders[before.partition.group]
    assert notice.leader == room.leader.node_id
    assert before.node_id not in notice.in_sync


def test_a_follower_that_ends_in_its_sleep_is_not_in_sync(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    follower = next(room.place(node) for node in (1, 2, 3) if node != leader.node_id)
    fence(room, follower, monkeypatch)
    room.ticks(2 * OPTIONS.election_timeout_ticks)
    assert follower.node_id not in leader.partition.in_sync
    assert room.leader is leader


def test_what_a_node_led_is_forgotten_when_it_goes(room: Room) -> None:
    """It may return without it: with an empty disk, or with a damaged one."""
    room.call(lambda: room.place(2).add(0, (2,)))
    group = GroupId(TOPIC.topic_id, 0)
    assert room.place(1).host.leaders[group].leader == 2
    room.remove(2)
    assert group not in room.place(1).host.leaders


# ---- over is over ----------------------------------------------------------------------------------


def refuse_an_append(desk: ReplicaHarness, files: FakeFiles) -> None:
    files.fail("write", errno.ENOSPC, path_part=".log")
    desk.append()
    desk.turn()


@pytest.mark.parametrize("is_failing_already", [True, False], ids=["while-it-begins-again", "before-its-disk-fails"])
def test_what_a_bug_has_ended_does_not_begin_again(is_failing_already: bool) -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    lead_with_quorum(desk)
    refuse_an_append(desk, files)
    if is_failing_already:
        desk.writer.run_cycle()
        desk._calls.popleft()()
        assert desk.replica._restarting
    desk.replica.on_bug(AssertionError("wrong code"))
    desk.work()
    assert desk.replica.node is None
    assert desk.partition.failure is not None
    assert "stopped by a bug" in desk.partition.failure


# ---- nobody is forgotten ---------------------------------------------------------------------------


class Broken:
    """A reader with a bug."""

    def on_progress(self, partition: Partition) -> None:
        fail()


def watch(desk: ReplicaHarness, offset: Offset) -> None:
    desk.partition.watch(Broken())


def wait_for(desk: ReplicaHarness, offset: Offset) -> None:
    desk.partition.when_durable(offset, fail)


@pytest.mark.parametrize("break_one", [watch, wait_for])
def test_all_who_wait_are_told_though_one_has_a_bug(break_one: Callable[[ReplicaHarness, Offset], None]) -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    lead_with_quorum(desk)
    heard: list[ErrorCode] = []
    desk.partition.confirm_leadership(heard.append)
    desk.work()
    offset = desk.append()
    break_one(desk, offset)
    desk.partition.when_durable(offset, heard.append)
    with pytest.raises(AssertionError, match="wrong code"):
        desk.replica.on_bug(AssertionError("another"))
    assert heard == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not desk.replica._reads


def test_a_bug_in_one_group_does_not_keep_a_lost_node_from_others(room: Room) -> None:
    room.call(lambda: [room.place(node).add(index, (1, 2, 3)) for index in range(3) for node in (1, 2, 3)])
    room.ticks(ASLEEP_TICKS)
    host = room.place(1).host
    led = next(partition for partition in host if partition.is_leader)
    away = next(node for node in (2, 3) if any(partition.leader == node for partition in host))
    led.config = effective({"min.insync.replicas": "3"}, TopicDefaults())
    led._ack_waiters.append((Offset(10**6), fail))
    room.remove(away)
    assert led.replica.node is None
    assert all(
        partition.replica.node is not None and partition.replica.node.leader_id != away
        for partition in host
        if partition is not led
    )


def test_a_partition_that_cannot_begin_keeps_no_other_from_it(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    place = room.place(1)
    made = [place.table.make(TOPIC, index, effective({}, TopicDefaults()), (SELF,)) for index in range(2)]
    monkeypatch.setattr(made[0].replica, "start", fail)

    def publish() -> None:
        for partition in made:
            place.table.publish(partition)

    room.call(publish)
    assert room.call(partial(made[1].append, a_batch(), 0)).base_offset == 0
    with pytest.raises(ApiError, match="restart the node"):
        made[0].append(a_batch(), 0)


def test_a_node_that_is_about_to_end_refuses_in_order() -> None:
    """Its replicas take part no longer, and a request may come all the same."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    lead_with_quorum(desk)
    desk.replica.stop()
    heard: list[ErrorCode] = []
    desk.partition.confirm_leadership(heard.append)
    assert heard == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    for work in (partial(desk.partition.append, a_batch(), 0), partial(desk.partition.trim, Offset(0), heard.append)):
        with pytest.raises(ApiError) as caught:
            work()
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---- a full disk -----------------------------------------------------------------------------------


@pytest.mark.parametrize("learners", [(), (NodeId(2),)], ids=["alone", "with-a-learner"])
def test_a_sole_voter_on_a_full_disk_does_not_lead_again_and_again(learners: tuple[NodeId, ...]) -> None:
    """Each time it would write a vote and an entry to a disk that has no room."""
    files = FakeFiles()
    desk = ReplicaHarness(files)
    if learners:
        desk.replica.change_members([SELF], learners, "a test")
        desk.work()
    desk.produce(b"a")
    files.fail("write", errno.ENOSPC, path_part=".log", fail_count=10**6)
    term = desk.replica.ledger.ballot.term
    for _ in range(50):
        with contextlib.suppress(ApiError):
            desk.append()
        desk.work()
    assert desk.replica.ledger.ballot.term <= term + 1


# ---- acknowledgements ------------------------------------------------------------------------------


def test_who_waits_for_more_replicas_than_are_asked_for_now_is_answered(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.make_group(min_insync_replicas="3")
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    slow = next(room.place(node) for node in (1, 2, 3) if node != leader.node_id)
    run_cycle: Any = slow.writer.run_cycle
    monkeypatch.setattr(slow.writer, "run_cycle", lambda: None)
    has_work = type(slow.writer).has_work.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(slow.writer), "has_work", property(lambda writer: writer is not slow.writer and has_work(writer))
    )
    heard = room.produce(leader)
    assert heard == []
    room.call(lambda: leader.table.set_config(TOPIC, effective({"min.insync.replicas": "1"}, TopicDefaults())))
    assert heard == [ErrorCode.NONE]
    monkeypatch.undo()
    assert slow.writer.run_cycle == run_cycle


# ---- the metadata ----------------------------------------------------------------------------------


def test_metadata_does_not_wait_for_copies_of_records(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that joins stays a learner of the metadata, and receives every decision at once."""
    meta_index = 99
    monkeypatch.setattr("drmq.broker.replication.replica.METADATA_GROUP", GroupId(TOPIC.topic_id, meta_index))
    assert METADATA_GROUP.partition == 0
    room.call(lambda: room.place(2).add(meta_index, ()))
    metadata = room.call(lambda: room.place(1).add(meta_index, (1,)))
    room.call(lambda: metadata.replica.change_members([SELF], [LEARNER], "a test"))
    room.ticks(30)
    add_learner(room, partitions=4, batches=4)
    room.ticks(2 * COPY_TICKS)
    room.call(lambda: metadata.append(a_batch(), 0))
    room.ticks(OPTIONS.heartbeat_ticks)
    learner = room.place(2).host.get(metadata.group)
    assert learner is not None
    assert learner.high_watermark == 1
