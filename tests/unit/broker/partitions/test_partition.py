"""A partition: offsets are assigned, batches become durable, waiting requests get correct answers.

The writer is the real one, worked by hand: nothing is written before `work`.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from drmq.broker.partitions.partition import OWN_BATCH_BYTES_MAX, PRODUCED_BATCH_BYTES_MAX, Partition
from drmq.columnar.framing import COMPILED
from drmq.model import ApiError, ErrorCode, MemberId, NodeId, Offset
from drmq.raft import AppendRequest, Entry, EntryKind, LogIndex, Term
from drmq.records import HEADER_SIZE, encode_batch, iter_batches, read_header
from drmq.records.header import stamp_crc
from drmq.records.record import Record
from drmq.testing.files import FakeFiles
from drmq.transport.peers import PeerOptions
from drmq.transport.peers.outbox import Outbox
from support.batches import a_batch
from support.replica_harness import ReplicaHarness


class Watcher:
    def __init__(self) -> None:
        self.calls = 0

    def on_progress(self, partition: Partition) -> None:
        self.calls += 1


def refusal(desk: ReplicaHarness, batch: memoryview) -> ErrorCode:
    before = desk.partition.next_offset
    with pytest.raises(ApiError) as caught:
        desk.partition.append(batch, 5_000)
    assert desk.partition.next_offset == before
    return caught.value.code


# ---- what the broker itself appends ------------------------------------------------------------------


def own_batch(size_bytes: int) -> bytearray:
    """A batch of exactly this size, with one record."""
    overhead = len(encode_batch([Record(Offset(0), 0, None, bytes(size_bytes))])) - size_bytes
    return encode_batch([Record(Offset(0), 0, None, bytes(size_bytes - overhead))])


def test_the_largest_batch_of_a_state_machine_fits_into_a_frame_to_a_peer() -> None:
    desk = ReplicaHarness()
    largest = own_batch(OWN_BATCH_BYTES_MAX)
    assert len(largest) == OWN_BATCH_BYTES_MAX
    one = LogIndex(1)
    entry = Entry(one, one, Term(1), EntryKind.PAYLOAD, bytes(largest), len(largest))
    leader, follower = MemberId(NodeId(1)), MemberId(NodeId(2))
    message = AppendRequest(leader, follower, Term(1), LogIndex(0), Term(0), (entry,), LogIndex(0))
    assert Outbox(PeerOptions().append_frame_bytes_max).add_message(desk.partition.group, message)
    assert desk.partition.append_own(largest).next_offset == 1


def test_a_larger_one_is_refused_and_the_next_is_taken() -> None:
    desk = ReplicaHarness()
    with pytest.raises(ApiError, match="too large") as caught:
        desk.partition.append_own(own_batch(OWN_BATCH_BYTES_MAX + 1))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert desk.partition.next_offset == 0
    assert desk.partition.append_own(own_batch(1_000)).next_offset == 1


def test_a_producers_batch_fits_into_a_frame_to_a_peer_whatever_its_topic_allows() -> None:
    """One that does not could never be committed, nor anything after it."""
    desk = ReplicaHarness(max_message_bytes=str(2 * PRODUCED_BATCH_BYTES_MAX))
    assert refusal(desk, memoryview(own_batch(PRODUCED_BATCH_BYTES_MAX + 1))) is ErrorCode.MESSAGE_TOO_LARGE
    largest = own_batch(PRODUCED_BATCH_BYTES_MAX)
    one = LogIndex(1)
    entry = Entry(one, one, Term(1), EntryKind.PAYLOAD, bytes(largest), len(largest))
    leader, follower = MemberId(NodeId(1)), MemberId(NodeId(2))
    message = AppendRequest(leader, follower, Term(1), LogIndex(0), Term(0), (entry,), LogIndex(0))
    assert Outbox(PeerOptions().append_frame_bytes_max).add_message(desk.partition.group, message)
    assert desk.partition.append(memoryview(largest), 5_000).next_offset == 1


# ---- offsets and visibility -------------------------------------------------------------------------


def test_offsets_are_dense_and_visible_once_durable() -> None:
    desk = ReplicaHarness()
    assert desk.append(b"a", b"b") == 2
    assert desk.append(b"c") == 3
    assert (desk.partition.high_watermark, desk.log.end_offset, desk.partition.next_offset) == (0, 0, 3)
    desk.work()
    assert (desk.partition.high_watermark, desk.log.end_offset, desk.partition.next_offset) == (3, 3, 3)
    stored = desk.log.read(Offset(0), 1 << 20, Offset(3))
    assert stored is not None
    assert [header.base_offset for _, header in iter_batches(stored)] == [0, 2]


def test_visible_bytes_are_counted() -> None:
    desk = ReplicaHarness()
    sizes = [len(a_batch([b"x" * count])) for count in (1, 100)]
    desk.append(b"x")
    desk.work()
    assert desk.partition.committed_bytes == sizes[0]
    desk.append(b"x" * 100)
    desk.work()
    assert desk.partition.committed_bytes == sum(sizes)


def test_waiters_are_told_in_order_once_what_they_wait_for_is_there() -> None:
    desk = ReplicaHarness()
    first = desk.append()
    desk.hear_durable("first", first)
    desk.hear_written("second", desk.append(wants_written=True))
    assert desk.heard == []
    desk.work()
    assert sorted(desk.heard) == [("first", ErrorCode.NONE), ("second", ErrorCode.NONE)]
    desk.hear_durable("late", first)
    desk.hear_written("late", first)
    assert desk.heard[2:] == [("late", ErrorCode.NONE)] * 2


def test_watchers_hear_of_progress_until_they_leave() -> None:
    desk, watcher = ReplicaHarness(), Watcher()
    desk.partition.watch(watcher)
    desk.append()
    assert watcher.calls == 0
    desk.work()
    assert watcher.calls == 1
    desk.partition.unwatch(watcher)
    desk.append()
    desk.work()
    assert watcher.calls == 1


# ---- what is refused --------------------------------------------------------------------------------


def test_bad_batches_are_refused_with_nothing_changed() -> None:
    desk = ReplicaHarness(max_message_bytes="200")
    broken = a_batch()
    broken[-1] ^= 1
    assert refusal(desk, broken) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(desk, a_batch([b"x" * 200])) is ErrorCode.MESSAGE_TOO_LARGE
    transactional = encode_batch([Record(Offset(0), 0, None, b"x")], transactional=True)
    assert refusal(desk, memoryview(transactional)) is ErrorCode.INVALID_TXN_STATE
    assert refusal(desk, a_batch(producer_id=1, epoch=0, sequence=-1)) is ErrorCode.INVALID_RECORD


def test_a_repeat_gets_the_offset_of_the_original_also_while_that_is_on_its_way() -> None:
    desk = ReplicaHarness()
    appended = desk.partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
    repeat = desk.partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
    assert (repeat.base_offset, repeat.next_offset) == (appended.base_offset, appended.next_offset) == (0, 1)
    desk.hear_durable("repeat", repeat.next_offset)
    assert desk.heard == []
    desk.work()
    assert desk.heard == [("repeat", ErrorCode.NONE)]
    assert desk.log.end_offset == 1
    assert refusal(desk, a_batch(producer_id=1, epoch=0, sequence=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.skipif(COMPILED is None, reason="the compiled decoder was not built")
def test_uncompressed_bytes_that_are_no_records_are_refused() -> None:
    """They were acknowledged, and stopped every consumer."""
    desk = ReplicaHarness()
    batch = a_batch([b"a value", b"another"])
    batch[HEADER_SIZE:] = b"x" * (len(batch) - HEADER_SIZE)
    stamp_crc(batch)
    assert refusal(desk, batch) is ErrorCode.INVALID_RECORD
    assert desk.partition.append(a_batch([b"a value", b"another"]), 5_000).next_offset == 2


def test_what_follows_a_batch_that_was_refused_is_not_called_out_of_order() -> None:
    """librdkafka would begin a new epoch, and send again what it has no answer for: twice in the log."""
    desk = ReplicaHarness()
    partition = desk.partition
    partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
    partition.is_leader = False
    assert refusal(desk, a_batch(producer_id=1, epoch=0, sequence=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.is_leader = True
    assert refusal(desk, a_batch(producer_id=1, epoch=0, sequence=2)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(desk, a_batch(producer_id=1, epoch=0, sequence=3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for sequence in (1, 2, 3):
        assert partition.append(a_batch(producer_id=1, epoch=0, sequence=sequence), 5_001).base_offset == sequence
    # All is in order again, so that a true gap is one.
    assert refusal(desk, a_batch(producer_id=1, epoch=0, sequence=9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_true_gap_is_told_in_the_end() -> None:
    """A refusal excuses what follows it for a while only."""
    desk = ReplicaHarness()
    partition = desk.partition
    partition.append(a_batch(producer_id=1, epoch=0, sequence=0), 0)
    partition.is_leader = False
    for now_ms in (1_000, 9_000):
        with pytest.raises(ApiError):
            partition.append(a_batch(producer_id=1, epoch=0, sequence=1), now_ms)
    partition.is_leader = True
    for now_ms, code in ((10_999, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11_000, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        with pytest.raises(ApiError) as caught:
            partition.append(a_batch(producer_id=1, epoch=0, sequence=2), now_ms)
        assert caught.value.code is code, now_ms


def test_the_brokers_time_is_stamped_where_the_topic_says_so() -> None:
    desk = ReplicaHarness(message_timestamp_type="LogAppendTime")
    batch = a_batch(timestamp_ms=1)
    assert desk.partition.append(batch, 5_000).append_time_ms == 5_000
    assert read_header(batch).max_timestamp == 5_000
    desk.work()
    assert desk.log.latest_time().timestamp == 5_000
    assert ReplicaHarness().partition.append(a_batch(timestamp_ms=1), 5_000).append_time_ms == -1


@pytest.mark.parametrize(
    ("timestamp_ms", "is_refused"),
    [(5_000, False), (4_900, False), (4_899, True), (5_050, False), (5_051, True), (-1, False)],
)
def test_timestamps_far_from_the_brokers_clock_are_refused(timestamp_ms: int, is_refused: bool) -> None:
    limits: dict[str, Any] = {"message_timestamp_before_max_ms": "100", "message_timestamp_after_max_ms": "50"}
    desk = ReplicaHarness(**limits)
    batch = a_batch(timestamp_ms=timestamp_ms)
    if not is_refused:
        assert desk.partition.append(batch, 5_000).base_offset == 0
    else:
        with pytest.raises(ApiError) as caught:
            desk.partition.append(batch, 5_000)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
        assert desk.partition.next_offset == 0
    stamped = ReplicaHarness(**limits, message_timestamp_type="LogAppendTime")
    assert stamped.partition.append(a_batch(timestamp_ms=timestamp_ms), 5_000).append_time_ms == 5_000


def test_a_repeat_is_found_whatever_its_age() -> None:
    """It was accepted when it came first. If it were refused now, the producer would take it for lost."""
    desk = ReplicaHarness(message_timestamp_before_max_ms="100")
    partition = desk.partition
    for now_ms in (1_000, 9_000):
        assert (
            partition.append(a_batch(producer_id=1, epoch=0, sequence=0, timestamp_ms=1_000), now_ms).base_offset == 0
        )


# ---- failures ---------------------------------------------------------------------------------------


def failing_desk() -> tuple[ReplicaHarness, FakeFiles]:
    files = FakeFiles()
    return ReplicaHarness(files), files


def fill_disk(files: FakeFiles) -> None:
    """The next batch finds no room. The ledger has kept its own."""
    files.fail("write", errno.ENOSPC, path_part=".log")


def test_a_failed_append_voids_everything_behind_it() -> None:
    desk, files = failing_desk()
    desk.hear_durable("kept", desk.append())
    desk.work()
    fill_disk(files)
    desk.hear_durable("lost", desk.append())
    desk.hear_written("lost too", desk.append(wants_written=True))
    desk.turn()
    desk.writer.run_cycle()
    lost = ErrorCode.KAFKA_STORAGE_ERROR
    desk.turn()
    assert desk.heard == [("kept", ErrorCode.NONE), ("lost too", lost), ("lost", lost)]
    assert desk.partition.high_watermark == 1
    assert refusal(desk, a_batch()) is lost


def test_nobody_waits_for_void_offsets_that_other_batches_will_get() -> None:
    desk, files = failing_desk()
    fill_disk(files)
    void = desk.append()
    desk.turn()
    desk.writer.run_cycle()
    desk.turn()
    desk.hear_durable("too late", void)
    desk.hear_written("too late", void)
    assert desk.heard == [("too late", ErrorCode.KAFKA_STORAGE_ERROR)] * 2
    desk.work()
    assert desk.append() == void
    desk.work()
    assert len(desk.heard) == 2


def test_after_recovery_offsets_go_on_where_the_log_ends() -> None:
    desk, files = failing_desk()
    desk.append()
    desk.work()
    epoch = desk.partition.leader_epoch
    fill_disk(files)
    desk.append(b"lost")
    desk.work()
    assert desk.partition.leader_epoch > epoch
    desk.hear_durable("again", desk.append(b"again"))
    desk.work()
    assert desk.heard == [("again", ErrorCode.NONE)]
    assert (desk.log.end_offset, desk.partition.high_watermark) == (2, 2)


def test_a_failed_sync_ends_appending() -> None:
    desk, files = failing_desk()
    files.fail("sync", errno.EIO, path_part=".log")
    desk.hear_durable("unsure", desk.append())
    desk.work()
    assert desk.heard == [("unsure", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert desk.log.is_fenced
    assert desk.partition.high_watermark == 0
    assert refusal(desk, a_batch()) is ErrorCode.KAFKA_STORAGE_ERROR


def test_readers_go_on_although_the_disk_takes_no_more() -> None:
    desk, files = failing_desk()
    desk.produce(b"kept")
    files.fail("sync", errno.EIO, path_part=".log")
    desk.produce(b"unsure")
    assert desk.partition.may_read
    desk.partition.check_readable()
    heard: list[ErrorCode] = []
    desk.partition.confirm_leadership(heard.append)
    assert (heard, desk.partition.high_watermark) == ([ErrorCode.NONE], 1)
    with pytest.raises(ApiError):
        desk.partition.check_serving()
    desk.partition.close()
    assert not desk.partition.may_read


def test_of_several_replicas_one_that_fails_serves_nobody() -> None:
    """Another may lead by now, and know more."""
    desk = ReplicaHarness(FakeFiles(), members=(1, 2, 3))
    desk.replica._fail("the disk is gone", is_final=True)
    assert not desk.partition.may_read
    with pytest.raises(ApiError) as caught:
        desk.partition.check_readable()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_closing_ends_all_waiting() -> None:
    desk, watcher = ReplicaHarness(), Watcher()
    desk.partition.watch(watcher)
    desk.hear_durable("waiting", desk.append())
    desk.partition.close()
    assert desk.heard == [("waiting", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert watcher.calls == 1
    assert refusal(desk, a_batch()) is ErrorCode.KAFKA_STORAGE_ERROR
