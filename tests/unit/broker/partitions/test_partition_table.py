"""The table of partitions: what stops one leaves the others alone, and its producers' table is never a stale one."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from drmq.broker import Partition
from drmq.broker.partitions.derived_state import PRODUCERS_SNAPSHOT, load_producers
from drmq.broker.partitions.partition_table import log_options
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.catalog import TopicDefaults, effective
from drmq.model import ApiError, ErrorCode, GroupId, Offset, TopicId
from drmq.storage import SegmentLog, SnapshotStore
from drmq.testing.files import FakeFiles
from support.batches import a_batch, a_header
from support.broker_harness import DATA_DIRECTORY, Harness


def log_path(harness: Harness, topic: str, index: int = 0) -> str:
    return f"{DATA_DIRECTORY}/topics/{topic}.{harness.broker.catalog.topic(topic).topic_id.hex()}/{index}"


def test_lookups_by_name_and_by_id(harness: Harness) -> None:
    topic = harness.create_topic("orders", 2)
    table = harness.broker.partitions
    assert table.by_name("orders", 1) is table.by_id(topic.topic_id, 1)
    lookups: list[tuple[Callable[[], Partition], ErrorCode]] = [
        (lambda: table.by_name("orders", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: table.by_name("orders", -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: table.by_name("nowhere", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda: table.by_id(TopicId(b"?" * 16), 0), ErrorCode.UNKNOWN_TOPIC_ID),
        (lambda: table.by_id(topic.topic_id, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for lookup, code in lookups:
        with pytest.raises(ApiError) as caught:
            lookup()
        assert caught.value.code is code


def test_a_damaged_partition_is_stopped_and_its_neighbours_go_on(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders", 2)
    for index in (0, 1):
        for _ in range(3):
            harness.produce("orders", index)
    path = log_path(harness, "orders")
    harness.close()
    disk = files.after_kill()
    [segment] = [f"{path}/{name}" for name in disk.list(path) if name.endswith(".log")]
    disk.replace_content(segment, disk.content(segment)[:-1])
    with Harness(disk) as again:
        with pytest.raises(ApiError, match="only 68 are there") as caught:
            again.partition("orders", 0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert again.produce("orders", 1) == 3


def test_a_partition_whose_directory_is_gone_is_stopped(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders", 2)
    path = log_path(harness, "orders")
    harness.close()
    disk = files.after_kill()
    for name in disk.list(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)
    with Harness(disk) as again:
        with pytest.raises(ApiError, match="gone") as caught:
            again.partition("orders", 0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert again.produce("orders", 1) == 0
        again.run(again.broker.topics.delete(again.broker.catalog.topic("orders")))


def test_after_a_failed_append_the_partition_goes_on_by_itself(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    assert harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    files.fail("write", errno.ENOSPC, path_part=log_path(harness, "orders") + "/0")
    assert harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=1)) == (1, ErrorCode.KAFKA_STORAGE_ERROR)
    harness.settle()
    assert harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=1)) == (1, ErrorCode.NONE)
    assert harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    assert harness.partition("orders").high_watermark == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_retry_is_recognised_after_a_restart(harness: Harness, files: FakeFiles, is_clean: bool) -> None:
    harness.create_topic("orders")
    for sequence in range(3):
        harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=sequence))
    if is_clean:
        harness.close()
        disk = files.after_kill()
    else:
        harness.crash()
        disk = files.after_power_cut(1)
    with Harness(disk) as again:
        assert again.append("orders", a_batch(producer_id=7, epoch=0, sequence=1)) == (1, ErrorCode.NONE)
        assert again.append("orders", a_batch(producer_id=7, epoch=0, sequence=3)) == (3, ErrorCode.NONE)


def test_a_retry_is_recognised_although_its_record_was_deleted(harness: Harness, files: FakeFiles) -> None:
    harness.create_topic("orders")
    harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=0))
    harness.run(harness.broker.services.lookups.delete_records(harness.partition("orders"), Offset(1)))
    harness.crash()
    with Harness(files.after_power_cut(1)) as again:
        assert again.partition("orders").start_offset == 1
        assert again.append("orders", a_batch(producer_id=7, epoch=0, sequence=0)) == (0, ErrorCode.NONE)


def test_old_timestamps_do_not_make_a_producer_idle(harness: Harness) -> None:
    """A client loads data of ten years ago: the retry of a batch of a minute ago is still a retry."""
    harness.create_topic("orders", retention_ms="-1")
    harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=0, timestamp_ms=1))
    harness.run(harness.broker.maintain())
    assert harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=0)) == (0, ErrorCode.NONE)
    harness.advance(harness.broker.options.producer_expiry_ms + 1)
    harness.run(harness.broker.maintain())
    assert harness.append("orders", a_batch(producer_id=7, epoch=0, sequence=0)) == (1, ErrorCode.NONE)


def test_a_snapshot_of_batches_that_were_lost_never_counts() -> None:
    """Its offset lies beyond the end now, and must not come true when other batches have moved the end there."""
    files = FakeFiles()
    log, snapshots = SegmentLog("/orders", files=files), SnapshotStore("/orders", files)
    stale = ProducerTable()
    stale.apply(a_header(7, 0, 0, base_offset=4), seen_ms=0)
    snapshots.save(PRODUCERS_SNAPSHOT, Offset(5), stale.to_bytes())
    assert len(load_producers(log, snapshots, Offset(0), now_ms=0)) == 0
    assert snapshots.offsets(PRODUCERS_SNAPSHOT) == []


def test_a_round_of_maintenance_goes_on_after_a_partition_that_fails(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a-broken", "orders"):
        harness.create_topic(name, retention_ms="1000", segment_bytes="1024")
        for _ in range(3):
            harness.produce(name, values=[b"x" * 900])
    harness.advance(30_000)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(harness.partition("a-broken").log, "retention_start", fail)
    harness.run(harness.broker.maintain())
    assert "maintenance of Partition(a-broken-0) failed" in caplog.text
    assert harness.partition("a-broken").start_offset == 0
    assert harness.partition("orders").start_offset >= 2


def test_settings_of_a_topic_reach_its_logs() -> None:
    configs = {"segment.bytes": "2048", "segment.ms": "77", "index.interval.bytes": "128"}
    options = log_options(effective(configs, TopicDefaults()), GroupId(TopicId(b"t" * 16), 0))
    assert (options.segment_bytes, options.segment_ms, options.index_interval_bytes) == (2048, 77, 128)


def test_jitter_shortens_segments_differently_in_each_partition() -> None:
    config = effective({"segment.ms": "10000", "segment.jitter.ms": "4000"}, TopicDefaults())
    groups = [GroupId(TopicId(b"t" * 16), index) for index in range(50)]
    times = [log_options(config, group).segment_ms for group in groups]
    assert all(6_000 <= each <= 10_000 for each in times)
    assert len(set(times)) > 10
    assert times == [log_options(config, group).segment_ms for group in groups]
    exact = effective({"segment.ms": "1", "segment.jitter.ms": "4000"}, TopicDefaults())
    assert {log_options(exact, group).segment_ms for group in groups} == {1}
