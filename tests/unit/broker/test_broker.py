"""The broker as a whole: what it refuses to start on, and what a stop leaves behind."""

from __future__ import annotations

import asyncio
import threading

import pytest

from drmq.broker import StateUnreadable
from drmq.broker.clock import ExpiryClock
from drmq.broker.partitions.log_store import MemoryLogs
from drmq.broker.partitions.partition_table import StoppedPartition
from drmq.model import ErrorCode, Offset, TopicId
from drmq.storage import Log, LogOptions
from drmq.testing.files import FakeFiles
from support.batches import a_batch
from support.broker_harness import DATA_DIRECTORY, Harness, LoopClock
from support.polling import PATIENCE_S


def test_topics_without_their_metadata_are_refused() -> None:
    """A node that lost its catalog must not take itself for a new one: its topics would be gone."""
    files = FakeFiles()
    with Harness(files) as harness:
        harness.create_topic("t")
    for name in files.list(f"{DATA_DIRECTORY}/internal/__cluster_metadata/0"):
        files.remove(f"{DATA_DIRECTORY}/internal/__cluster_metadata/0/{name}")
    files.remove_directory(f"{DATA_DIRECTORY}/internal/__cluster_metadata/0")
    with pytest.raises(StateUnreadable, match="metadata log that describes them is gone"):
        Harness(files)


METADATA_LOG = f"{DATA_DIRECTORY}/internal/__cluster_metadata/0"


@pytest.mark.parametrize(("name", "position"), [("00000000000000000000.log", 80), ("ledger", 520)])
def test_damaged_metadata_is_no_reason_to_restore_an_old_file(name: str, position: int) -> None:
    """In a cluster that would forget votes: the node starts with an empty data directory there."""
    files = FakeFiles()
    with Harness(files) as harness:
        harness.create_topic("t")
    files.flip_bit(f"{METADATA_LOG}/{name}", position)
    with pytest.raises(StateUnreadable, match="the metadata log cannot be read") as refused:
        Harness(files)
    said = str(refused.value)
    assert "start this one with an empty data directory" in said
    assert "restore this file" not in said
    assert "remove this replica" not in said


def test_where_a_partition_starts_is_known_without_the_file_that_says_it() -> None:
    """So who is told to remove it, because it is damaged, loses nothing and gets nothing back that was deleted."""
    files = FakeFiles()
    with Harness(files) as harness:
        topic_id = harness.create_topic("t").topic_id
        harness.produce("t", 0, [b"x"] * 4)
        harness.produce("t", 0, [b"y"] * 4)
        harness.run(harness.broker.services.lookups.delete_records(harness.partition("t"), Offset(4)))
        harness.run(harness.broker.maintain())
        harness.settle()
        assert harness.partition("t").log.start_offset == 4
    path = f"{DATA_DIRECTORY}/topics/t.{topic_id.hex()}/0/start"
    files.flip_bit(path, 8)
    with Harness(files) as stopped:
        slot = stopped.broker.partitions.slots(topic_id)[0]
        assert isinstance(slot, StoppedPartition)
        assert f"{path}, position 0, offset -1: the start offset is unreadable" in slot.reason
        assert "with the node stopped, remove this file" in slot.reason
    files.remove(path)
    with Harness(files) as again:
        assert (again.partition("t").start_offset, again.partition("t").high_watermark) == (4, 8)


def test_a_stopped_broker_is_what_it_was() -> None:
    files = FakeFiles()
    with Harness(files) as harness:
        harness.create_topic("t", 2, retention_ms="1000")
        harness.produce("t", 1, [b"x", b"y"])
    with Harness(files) as again:
        topic = again.broker.catalog.topic("t")
        assert (topic.partition_count, dict(topic.configs)) == (2, {"retention.ms": "1000"})
        assert again.partition("t", 1).high_watermark == 2
        assert again.partition("t", 0).high_watermark == 0


class SlowToMake(MemoryLogs):
    """A disk that takes its time to make files."""

    def __init__(self) -> None:
        super().__init__()
        self.may_make = threading.Event()
        self.may_make.set()

    def create_log(self, topic: str, topic_id: TopicId, index: int, options: LogOptions) -> Log:
        assert self.may_make.wait(PATIENCE_S)
        return super().create_log(topic, topic_id, index, options)


def test_clients_do_not_wait_for_replicas_that_are_being_made() -> None:
    """As many as there are threads for it, and more, are stuck in the making."""
    store = SlowToMake()
    with Harness(store=store) as harness:
        harness.create_topic("old")
        harness.produce("old")
        store.may_make.clear()
        creating = harness.loop.create_task(harness.broker.topics.create("new", harness.broker.new_topic_id(), 20, {}))
        harness.settle()
        found = harness.run(
            asyncio.wait_for(
                harness.broker.services.lookups.offset_at_time(harness.partition("old"), 0), PATIENCE_S / 2
            )
        )
        assert found is not None
        assert found[0] == 0
        assert not creating.done()
        store.may_make.set()
        assert harness.run(creating).partition_count == 20


class TwoClocks:
    wall = 1_000_000
    monotonic = 0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def pass_by(self, time_ms: int) -> None:
        self.wall += time_ms
        self.monotonic += time_ms


HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def test_time_that_passes_is_believed() -> None:
    clock = TwoClocks()
    expiry = ExpiryClock(clock)
    for _ in range(3):
        clock.pass_by(HOUR_MS)
        assert expiry.now_ms() == clock.wall
        # A little at a time it may be set.
        clock.wall += 30_000
        assert expiry.now_ms() == clock.wall
        assert expiry.doubt is None


@pytest.mark.parametrize(("ahead_ms", "believed_after_ms"), [(2 * HOUR_MS, 2 * HOUR_MS), (10 * DAY_MS, DAY_MS)])
def test_a_clock_that_is_ahead_is_believed_once_it_was_steady_for_long(ahead_ms: int, believed_after_ms: int) -> None:
    clock = TwoClocks()
    expiry = ExpiryClock(clock)
    clock.wall += ahead_ms
    believed_ms = clock.wall - ahead_ms
    for _ in range(believed_after_ms // 60_000):
        assert expiry.now_ms() == believed_ms + clock.monotonic
        assert expiry.doubt is not None
        clock.pass_by(60_000)
    assert expiry.now_ms() == clock.wall
    assert expiry.doubt is None


def test_a_clock_that_is_set_again_and_again_is_not_believed() -> None:
    clock = TwoClocks()
    expiry = ExpiryClock(clock)
    start_ms = clock.wall
    for _ in range(100):
        clock.wall += 10 * HOUR_MS
        clock.pass_by(HOUR_MS)
        assert expiry.now_ms() == start_ms + clock.monotonic


def test_a_clock_that_is_set_right_again_has_done_no_harm() -> None:
    clock = TwoClocks()
    expiry = ExpiryClock(clock)
    clock.wall += 10 * DAY_MS
    expiry.now_ms()
    clock.pass_by(HOUR_MS)
    expiry.now_ms()
    clock.wall -= 10 * DAY_MS
    assert expiry.now_ms() == clock.wall
    assert expiry.doubt is None


def test_a_clock_that_is_behind_is_believed_at_once() -> None:
    clock = TwoClocks()
    expiry = ExpiryClock(clock)
    clock.wall -= DAY_MS
    assert expiry.now_ms() == clock.wall
    # Set right again, it is ahead of the time that has passed.
    clock.wall += DAY_MS
    assert expiry.now_ms() == clock.wall - DAY_MS


def fill_segments(harness: Harness) -> None:
    harness.create_topic("t", segment_bytes="1024", retention_ms=str(HOUR_MS))
    for _ in range(10):
        batch = a_batch([b"x" * 300], timestamp_ms=harness.clock.wall_ms())
        assert harness.append("t", batch)[1] is ErrorCode.NONE


def test_a_clock_that_stays_days_ahead_expires_nothing_early() -> None:
    """Until it was steady for a day, of which the log speaks all the while."""
    with Harness() as harness:
        fill_segments(harness)
        real = harness.clock.wall_ms
        harness.clock.wall_ms = lambda: real() + 3 * DAY_MS  # type: ignore[method-assign]
        for _ in range(30):
            harness.advance(60_000)
            harness.run(harness.broker.maintain())
        assert harness.partition("t").start_offset == 0
        # By the time that has passed they are old, whatever the clock says.
        harness.advance(HOUR_MS)
        harness.run(harness.broker.maintain())
        assert harness.partition("t").start_offset > 0


@pytest.mark.parametrize(("ahead_ms", "level"), [(HOUR_MS // 2, "INFO"), (3 * DAY_MS, "WARNING")])
def test_a_node_that_was_down_for_minutes_warns_of_no_clock(
    ahead_ms: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has not noted the time meanwhile, so the clock is always ahead after a crash."""
    caplog.set_level("INFO", "drmq.broker")
    with Harness() as harness:
        real = harness.clock.wall_ms
        harness.clock.wall_ms = lambda: real() + ahead_ms  # type: ignore[method-assign]
        harness.run(harness.broker.maintain())
    [found] = [record for record in caplog.records if "the clock is" in record.getMessage()]
    assert found.levelname == level


def test_a_start_with_a_clock_that_is_days_ahead_expires_nothing_early(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeFiles()
    with Harness(files) as harness:
        fill_segments(harness)
        harness.run(harness.broker.maintain())
    real = LoopClock.wall_ms
    monkeypatch.setattr(LoopClock, "wall_ms", lambda clock: real(clock) + 3 * DAY_MS)
    with Harness(files) as again:
        again.run(again.broker.maintain())
        again.advance(60_000)
        again.run(again.broker.maintain())
        assert again.partition("t").start_offset == 0
