"""After a failure everyone is told, and nothing that was decided on lost records goes on: found in a review."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from drmq import groups
from drmq.broker import Partition
from drmq.broker.partitions import PRODUCERS_SNAPSHOT
from drmq.broker.producers import ProducerTable
from drmq.catalog import TopicDefaults, effective
from drmq.model import ApiError, ErrorCode, Offset, TopicId
from drmq.storage import Log, MemoryLog, SegmentLog, StorageError, Writer
from drmq.testing.files import FakeFiles
from support.batches import a_batch
from support.broker_harness import Harness


@pytest.fixture
def files() -> FakeFiles:
    return FakeFiles()


@pytest.fixture
def harness(files: FakeFiles) -> Iterator[Harness]:
    with Harness(files) as harness:
        yield harness


class Silent:
    """The events of a writer whose reports the test makes itself."""

    def on_written(self, results: list[tuple[Log, Offset]]) -> None: ...

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None: ...

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None: ...

    def on_crashed(self, error: BaseException) -> None: ...


def a_partition(log: Log) -> Partition:
    config = effective({}, TopicDefaults())
    return Partition("orders", TopicId(bytes(16)), 0, log, Writer(Silent()), config, ProducerTable())


class Watcher:
    def __init__(self) -> None:
        self.bytes: list[int] = []

    def on_progress(self, partition: Partition) -> None:
        self.bytes.append(partition.committed_bytes)


# ---- those who wait --------------------------------------------------------------------------------


def test_a_retry_behind_a_newer_batch_is_answered_when_the_newer_one_fails() -> None:
    """The retry's batch is durable. After a failed sync nothing more is reported, so nobody else would tell it."""
    partition = a_partition(MemoryLog())
    heard: list[tuple[str, ErrorCode]] = []

    def send(name: str, sequence: int) -> None:
        appended = partition.append(a_batch(producer_id=1, epoch=0, sequence=sequence), 0)
        partition.when_durable(appended.next_offset, lambda error: heard.append((name, error)))

    send("first", 0)
    send("second", 1)
    send("first again", 0)
    partition.on_flushed(Offset(1))
    assert heard == [("first", ErrorCode.NONE)]
    partition.on_failed("the disk is gone", Offset(1))
    assert sorted(heard[1:]) == [("first again", ErrorCode.NONE), ("second", ErrorCode.KAFKA_STORAGE_ERROR)]


def test_what_was_written_before_a_failed_append_wakes_its_readers() -> None:
    files = FakeFiles()
    partition = a_partition(SegmentLog("/log", files=files))
    events = partition._writer
    watcher = Watcher()
    partition.append(a_batch(), 0)
    events.run_cycle()
    files.fail("write", errno.ENOSPC)
    partition.append(a_batch(), 0)
    events.run_cycle()
    partition.on_failed("no space", Offset(1))
    partition.watch(watcher)
    partition.recover(ProducerTable())
    partition.on_flushed(Offset(1))
    assert watcher.bytes == [len(a_batch())]


# ---- what lives on a log ---------------------------------------------------------------------------


def test_a_shard_that_cannot_be_loaded_again_answers_nothing(
    harness: Harness, files: FakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state holds records that its log lost. To go on with it would be to promise them."""
    shard = harness.broker.groups.shard_of("readers")
    answers: list[groups.GroupResponse | ErrorCode] = []

    def commit(offset: int) -> None:
        request = groups.OffsetCommitRequest("readers", (groups.OffsetToCommit("orders", 0, Offset(offset)),))
        harness.call(lambda: shard.handle(request, answers.append))
        harness.settle()

    def refuse(partition: Partition) -> groups.GroupShard:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(harness.broker, "_load_shard", refuse)
    files.fail("write", errno.ENOSPC, path_part="__consumer_offsets")
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
        harness.loop.create_task(harness.broker.partitions.save_producers(partition, force=True))

    harness.call(append_and_save)
    harness.settle()
    snapshots = harness.store.snapshots("orders", topic.topic_id, 0)
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == [1]
    assert partition.log.flushed_offset == 1


def test_a_snapshot_that_was_not_saved_is_not_taken_for_saved(harness: Harness, files: FakeFiles) -> None:
    topic = harness.create_topic("orders")
    partition = harness.partition("orders")
    files.fail("write", errno.ENOSPC, path_part="orders")

    def append_and_save() -> None:
        partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
        harness.loop.create_task(harness.broker.partitions.save_producers(partition, force=True))

    harness.call(append_and_save)
    while partition.failure is not None:
        harness.settle()
    snapshots = harness.store.snapshots("orders", topic.topic_id, 0)
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == []
    assert harness.append("orders", a_batch(producer_id=1, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    harness.run(harness.broker.partitions.save_producers(partition, force=True))
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == [1]


def test_a_repeat_is_refused_while_the_partition_is_closed_and_new_afterwards(
    harness: Harness, files: FakeFiles
) -> None:
    """A batch whose append failed is not in the log, so its retry is no repeat."""
    harness.create_topic("orders")
    partition = harness.partition("orders")
    files.fail("write", errno.ENOSPC, path_part="orders")
    assert harness.append("orders", a_batch([b"lost"], producer_id=1, epoch=0, sequence=0))[1] is not ErrorCode.NONE
    with pytest.raises(ApiError):
        partition.append(a_batch([b"kept"], producer_id=1, epoch=0, sequence=0), 0)
    while partition.failure is not None:
        harness.settle()
    assert harness.append("orders", a_batch([b"kept"], producer_id=1, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    assert harness.append("orders", a_batch([b"kept"], producer_id=1, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    assert partition.next_offset == 1
