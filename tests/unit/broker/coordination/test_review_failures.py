"""After a failure everyone is told, and nothing that was decided on lost records goes on: found in a review."""

from __future__ import annotations

import errno

import pytest

from drmq import groups
from drmq.broker import GroupShardCoordinator, Partition, StateUnreadable
from drmq.broker.partitions.derived_state import PRODUCERS_SNAPSHOT, MachineState
from drmq.model import ApiError, ErrorCode, Offset
from drmq.testing.files import FakeFiles
from support.batches import a_batch
from support.broker_harness import Harness
from support.replica_harness import ReplicaHarness


class Watcher:
    def __init__(self) -> None:
        self.bytes: list[int] = []

    def on_progress(self, partition: Partition) -> None:
        self.bytes.append(partition.committed_bytes)


# ---- those who wait --------------------------------------------------------------------------------


def test_a_retry_behind_a_newer_batch_is_answered_when_the_newer_one_fails() -> None:
    """The retry's batch is durable. After a failed sync nothing more is reported, so nobody else would tell it."""
    files = FakeFiles()
    desk = ReplicaHarness(files)

    def send(name: str, sequence: int) -> None:
        appended = desk.partition.append(a_batch(producer_id=1, epoch=0, sequence=sequence), 0)
        desk.hear_durable(name, appended.next_offset)

    send("first", 0)
    desk.work()
    assert desk.heard == [("first", ErrorCode.NONE)]
    files.fail("sync", errno.EIO, path_part=".log")
    send("second", 1)
    send("first again", 0)
    desk.work()
    assert sorted(desk.heard[1:]) == [("first again", ErrorCode.NONE), ("second", ErrorCode.KAFKA_STORAGE_ERROR)]


def test_what_was_written_before_a_failed_append_wakes_its_readers() -> None:
    """The first of two batches is in the log, its commit was never reported, and the partition begins again."""
    files = FakeFiles()
    desk, watcher = ReplicaHarness(files), Watcher()
    files.fail("write", errno.ENOSPC, path_part=".log", skip_count=1)
    desk.append()
    desk.turn()
    desk.writer.run_cycle()
    desk.append()
    desk.partition.watch(watcher)
    desk.work()
    assert watcher.bytes[-1] == len(a_batch())
    assert (desk.partition.high_watermark, desk.partition.next_offset) == (1, 1)


# ---- what lives on a log ---------------------------------------------------------------------------


def test_a_shard_that_cannot_be_loaded_again_answers_nothing(
    harness: Harness, files: FakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state holds records that its log lost. To go on with it would be to promise them."""
    shard = harness.broker.groups.shard_of("readers")
    assert isinstance(shard, GroupShardCoordinator)
    answers: list[groups.GroupResponse | ErrorCode] = []

    def commit(offset: int) -> None:
        request = groups.OffsetCommitRequest("readers", (groups.OffsetToCommit("orders", 0, Offset(offset)),))
        harness.call(lambda: shard.submit(request, answers.append))
        harness.settle()

    def refuse(state: MachineState) -> None:
        raise StateUnreadable("no")

    monkeypatch.setattr(MachineState, "load", refuse)
    files.fail("write", errno.ENOSPC, path_part=shard.log.partition.log.name + "/0")
    commit(5)
    commit(6)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert shard.log.partition.failure is not None


def test_a_bug_in_one_round_of_maintenance_does_not_end_all_rounds(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    def fail() -> None:
        rounds.append(len(rounds))
        raise AssertionError("a bug")

    task = harness.loop.create_task(harness.broker._repeat(60.0, fail))
    harness.settle()
    for _ in range(3):
        harness.advance(61_000)
    assert len(rounds) >= 3
    task.cancel()


# ---- producers -------------------------------------------------------------------------------------


def test_no_snapshot_of_producers_tells_of_batches_that_power_can_take(harness: Harness, files: FakeFiles) -> None:
    """What an older snapshot rests on may be deleted right after; this one must not become void."""
    topic = harness.create_topic("orders")
    partition = harness.partition("orders")

    def append_and_save() -> None:
        partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
        harness.loop.create_task(harness.broker.maintenance.save_producers(partition, force=True))

    harness.call(append_and_save)
    harness.settle()
    snapshots = harness.store.snapshots("orders", topic.topic_id, 0)
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == [1]
    assert partition.log.flushed_offset == 1


def test_a_snapshot_that_was_not_saved_is_not_taken_for_saved(harness: Harness, files: FakeFiles) -> None:
    topic = harness.create_topic("orders")
    partition = harness.partition("orders")
    files.fail("write", errno.ENOSPC, path_part=partition.log.name + "/0")

    def append_and_save() -> None:
        partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
        harness.loop.create_task(harness.broker.maintenance.save_producers(partition, force=True))

    harness.call(append_and_save)
    while not partition.is_serving:
        harness.settle()
    snapshots = harness.store.snapshots("orders", topic.topic_id, 0)
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == []
    assert harness.append("orders", a_batch(producer_id=1, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    harness.run(harness.broker.maintenance.save_producers(partition, force=True))
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == [1]


def test_a_repeat_is_refused_while_the_partition_is_closed_and_new_afterwards() -> None:
    """A batch whose append failed is not in the log, so its retry is no repeat."""
    files = FakeFiles()
    desk = ReplicaHarness(files)

    def send(value: bytes) -> Offset:
        return desk.partition.append(a_batch([value], producer_id=1, epoch=0, sequence=0), 0).base_offset

    files.fail("write", errno.ENOSPC, path_part=".log")
    send(b"lost")
    desk.turn()
    desk.writer.run_cycle()
    desk.turn()
    with pytest.raises(ApiError) as caught:
        send(b"kept")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    desk.work()
    assert [send(b"kept"), send(b"kept")] == [0, 0]
    desk.work()
    assert (desk.partition.next_offset, desk.partition.high_watermark) == (1, 1)
