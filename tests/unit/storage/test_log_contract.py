"""What every log promises, checked for the log in memory, on a real disk and on a fake one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from drmq.model import NO_LEADER_EPOCH, Offset
from drmq.records import iter_batches
from drmq.storage import Log, LogClosed, LogOptions, MemoryLog, OffsetOutOfRange, SegmentLog
from drmq.testing.files import FakeFiles
from support.storage_samples import Batch, append, apply_retention, batch, epoch, joined, read_all, row

MakeLog = Callable[..., Log]
SMALL = LogOptions(segment_bytes=1024, index_interval_bytes=128)


@pytest.fixture(params=["memory", "os", "fake"])
def make_log(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLog:
    def make(options: LogOptions = SMALL, first_offset: int = 0) -> Log:
        if request.param == "memory":
            return MemoryLog("log", options, first_offset)
        if request.param == "os":
            return SegmentLog(f"{tmp_path}/logs/log", options, first_offset=first_offset)
        return SegmentLog("/logs/log", options, FakeFiles(), first_offset)

    return make


@pytest.fixture
def log(make_log: MakeLog) -> Log:
    return make_log()


def as_read(log: Log, offset: int, max_bytes: int, up_to: int | None = None, cached_only: bool = False) -> bytes | None:
    data = log.read(Offset(offset), max_bytes, Offset(log.flushed_offset if up_to is None else up_to), cached_only)
    return None if data is None else bytes(data)


def test_a_new_log_is_empty(make_log: MakeLog) -> None:
    log = make_log(first_offset=7)
    assert (log.start_offset, log.flushed_offset, log.end_offset, log.size_bytes) == (7, 7, 7, 0)
    assert (list(log.epochs), log.latest_time(), log.segment_count) == ([], (-1, -1), 1)
    assert as_read(log, 7, 100) == b""
    assert list(log.headers(Offset(7), Offset(7))) == []
    assert log.batch_at_time(0, Offset(7)) is None
    assert not log.is_fenced
    assert log.name


def test_only_what_is_flushed_counts_as_flushed(log: Log) -> None:
    log.append(row(0, 3, count=2))
    assert (log.flushed_offset, log.end_offset) == (0, 6)
    log.flush()
    assert (log.flushed_offset, log.end_offset) == (6, 6)


def test_a_read_returns_the_bytes_that_were_appended(log: Log) -> None:
    batches = append(log, 60, count=3, size=33)
    assert log.segment_count > 3
    for max_bytes in (1, 100, 300, 1 << 20):
        for cached_only in (False, True):
            assert read_all(log, max_bytes, cached_only=cached_only) == joined(batches)


def test_a_read_begins_with_the_batch_that_contains_the_offset(log: Log) -> None:
    batches = append(log, 40, count=5, size=20)
    for offset in range(200):
        assert as_read(log, offset, 1) == batches[offset // 5][1]


def test_a_read_returns_whole_batches_within_its_limit(log: Log) -> None:
    batches = append(log, 12, size=20)
    size = len(batches[0][1])
    for start in (0, 3, 7):
        for limit in range(0, 6 * size, 7):
            data = as_read(log, start, limit)
            count = max(limit // size, 1)
            assert data == joined(batches[start : start + count]), (start, limit)


def test_a_first_batch_larger_than_the_limit_is_returned_whole(log: Log) -> None:
    small, large = append(log, 1, size=10), append(log, 1, size=900)
    assert as_read(log, 1, 10) == large[0][1]
    assert as_read(log, 0, 100) == small[0][1]


def test_a_batch_larger_than_a_segment_has_one_for_itself(log: Log) -> None:
    batches = [*append(log, 1), *append(log, 1, size=5000), *append(log, 2)]
    assert log.segment_count == 3
    assert read_all(log) == joined(batches)


def test_nothing_at_or_beyond_up_to_is_returned(log: Log) -> None:
    batches = append(log, 50, count=2, size=9)
    for up_to in range(0, 100, 2):
        for offset in range(0, up_to + 1, 7):
            data = as_read(log, offset, 1 << 20, up_to)
            assert data is not None
            found = [header.base_offset for _, header in iter_batches(data)]
            assert all(base < up_to for base in found)
            assert data == joined(batches[offset // 2 : offset // 2 + len(found)])
            assert bool(found) == (offset < up_to)


def test_an_offset_outside_the_log_is_an_error(log: Log) -> None:
    append(log, 3)
    log.drop_prefix(Offset(2))
    for offset in (-1, 0, 1, 4):
        with pytest.raises(OffsetOutOfRange) as caught:
            as_read(log, offset, 100)
        assert (caught.value.offset, caught.value.start_offset, caught.value.end_offset) == (offset, 2, 3)
    assert as_read(log, 3, 100) == b""


def test_a_batch_must_follow_the_one_before(log: Log) -> None:
    append(log, 2)
    for wrong in (0, 1, 3):
        with pytest.raises(AssertionError):
            log.append([batch(wrong)])
    header, data = batch(2)
    with pytest.raises(AssertionError):
        log.append([(header, data + b"x")])
    assert log.end_offset == 2


def test_headers_are_those_of_the_batches(log: Log) -> None:
    batches = append(log, 40, count=3, size=25)
    expected = [(header, len(data)) for header, data in batches]
    assert list(log.headers(Offset(0), log.end_offset)) == expected
    assert list(log.headers(Offset(10), Offset(50))) == expected[3:17]


def test_leader_epochs_tell_where_each_began_and_ended(log: Log) -> None:
    for number in (0, 2, 5):
        append(log, 10, epoch=number, size=60)
    assert list(log.epochs) == [(0, 0), (2, 10), (5, 20)]
    ends = {asked: log.end_of_epoch(epoch(asked)) for asked in (0, 1, 2, 4, 5, 9)}
    assert ends == {0: (0, 10), 1: (0, 10), 2: (2, 20), 4: (2, 20), 5: (5, 30), 9: (5, 30)}


def test_an_epoch_before_all_known_ends_where_the_first_begins(make_log: MakeLog) -> None:
    log = make_log(first_offset=4)
    assert log.end_of_epoch(epoch(3)) == (NO_LEADER_EPOCH, -1)
    append(log, 2, epoch=5)
    assert log.end_of_epoch(epoch(3)) == (3, 4)


def test_epochs_follow_the_log_when_it_is_cut_at_either_end(log: Log) -> None:
    for number in range(4):
        append(log, 10, epoch=number, size=60)
    log.drop_prefix(Offset(15))
    assert list(log.epochs) == [(1, 15), (2, 20), (3, 30)]
    assert [log.epoch_at(Offset(offset)) for offset in (14, 15, 19, 20, 39, 40)] == [-1, 1, 1, 2, 3, -1]
    log.truncate_suffix(Offset(30))
    assert list(log.epochs) == [(1, 15), (2, 20)]
    assert log.epoch_at(Offset(30)) == NO_LEADER_EPOCH
    append(log, 1, epoch=7)
    assert list(log.epochs) == [(1, 15), (2, 20), (7, 30)]


def times(log: Log, stamps: list[int]) -> list[Batch]:
    batches = [batch(log.end_offset + number, timestamp=stamp) for number, stamp in enumerate(stamps)]
    log.append(batches)
    log.flush()
    return batches


def test_a_time_leads_to_the_first_batch_that_is_not_older(log: Log) -> None:
    stamps = [5, 9, 7, 20, 20, 3, 21, 50, 40, 60] * 6
    stamps = [stamp + 100 * (number // 10) for number, stamp in enumerate(stamps)]
    batches = times(log, stamps)
    for wanted in range(0, 700, 3):
        expected = next((found for found in batches if found[0].max_timestamp >= wanted), None)
        found = log.batch_at_time(wanted, log.flushed_offset)
        assert (found and found.header) == (expected and expected[0])
        assert found is None or bytes(found.data) == (expected and expected[1])


def test_a_time_lookup_starts_where_it_is_told_to(log: Log) -> None:
    batches = times(log, [5, 90, 7, 20, 20, 3, 21, 50, 40, 60] * 6)
    for start in range(log.end_offset + 1):
        later = (found for found in batches if found[0].next_offset > start and found[0].max_timestamp >= 21)
        expected = next(later, None)
        found = log.batch_at_time(21, log.flushed_offset, Offset(start))
        assert (found and found.header) == (expected and expected[0])


def test_a_time_lookup_stops_at_up_to_and_skips_what_was_dropped(log: Log) -> None:
    times(log, [10, 20, 30, 5])
    assert log.batch_at_time(25, Offset(2)) is None
    log.drop_prefix(Offset(2))
    found = log.batch_at_time(0, log.flushed_offset)
    assert found is not None
    assert found.header.base_offset == 2


def test_the_latest_time_names_the_batch_that_holds_it(log: Log) -> None:
    times(log, [10, 99, 30, 99] + [50] * 40)
    assert log.latest_time() == (99, 1)
    times(log, [100])
    assert log.latest_time() == (100, 44)
    for up_to, expected in [(44, (99, 1)), (2, (99, 1)), (1, (10, 0)), (0, (-1, -1))]:
        assert log.latest_time(Offset(up_to)) == expected


def test_truncation_removes_the_batches_from_an_offset_on(log: Log) -> None:
    batches = append(log, 60, count=2, size=30)
    for offset in (118, 77, 40, 3, 0):
        log.truncate_suffix(Offset(offset))
        kept = [one for one in batches if one[0].base_offset < offset]
        assert log.end_offset == (kept[-1][0].next_offset if kept else 0)
        assert log.flushed_offset == log.end_offset
        assert read_all(log) == joined(kept)
        assert log.size_bytes == len(joined(kept))
        again = append(log, 3, count=2, seed=offset)
        assert read_all(log) == joined([*kept, *again])
        assert log.latest_time().timestamp == max(header.max_timestamp for header, _ in [*kept, *again])
        batches = [*kept, *again]


def test_truncation_beyond_the_end_changes_nothing(log: Log) -> None:
    append(log, 3)
    log.truncate_suffix(Offset(3))
    log.truncate_suffix(Offset(9))
    assert log.end_offset == 3


def test_truncation_takes_the_largest_time_with_it(log: Log) -> None:
    times(log, [10, 30, 20, 90])
    log.truncate_suffix(Offset(3))
    assert log.latest_time() == (30, 1)


def test_unflushed_batches_can_be_truncated(log: Log) -> None:
    kept = append(log, 2)
    append(log, 20, flush=False)
    log.truncate_suffix(Offset(2))
    assert (log.flushed_offset, log.end_offset) == (2, 2)
    assert read_all(log) == joined(kept)


def test_dropping_a_prefix_moves_the_start_and_frees_segments(log: Log) -> None:
    batches = append(log, 60)
    before = (log.segment_count, log.size_bytes)
    log.drop_prefix(Offset(31))
    assert log.start_offset == 31
    assert read_all(log) == joined(batches[31:])
    assert log.segment_count < before[0]
    assert log.size_bytes < before[1]
    log.drop_prefix(Offset(5))
    assert log.start_offset == 31


def test_dropping_everything_leaves_an_empty_log_that_goes_on(log: Log) -> None:
    append(log, 20)
    log.drop_prefix(Offset(20))
    assert (log.start_offset, log.end_offset, log.size_bytes, log.segment_count) == (20, 20, 0, 1)
    batches = append(log, 2)
    assert read_all(log) == joined(batches)


def test_a_segment_is_sealed_when_its_first_record_is_old(log: Log) -> None:
    log.options = LogOptions(segment_ms=1000)
    times(log, [5000, 9000])
    assert not log.maybe_roll(6000)
    assert log.maybe_roll(6001)
    assert log.segment_count == 2
    assert not log.maybe_roll(99999)


def test_options_can_be_replaced_on_a_live_log(log: Log) -> None:
    append(log, 60)
    count = log.segment_count
    log.options = LogOptions(segment_bytes=1 << 20)
    append(log, 60)
    assert log.segment_count == count


def test_retention_by_time_removes_segments_whose_newest_record_is_old(log: Log) -> None:
    for stamp in (1000, 2000, 3000):
        append(log, 5, timestamp=stamp)
        log.roll()
    assert apply_retention(log, 2504, retention_ms=1500) == 0
    assert apply_retention(log, 2505, retention_ms=1500) == 1
    assert log.start_offset == 5
    assert apply_retention(log, 99999, retention_ms=1500) == 2
    assert (log.start_offset, log.end_offset, log.size_bytes) == (15, 15, 0)


def test_retention_spares_a_young_segment_and_all_behind_it(log: Log) -> None:
    for stamp in (9000, 1000):
        append(log, 5, timestamp=stamp)
        log.roll()
    assert apply_retention(log, 9500, retention_ms=1000) == 0


def test_retention_rolls_an_active_segment_that_is_all_expired(log: Log) -> None:
    append(log, 3, timestamp=1000)
    assert apply_retention(log, 5000, retention_ms=1000) == 1
    assert (log.start_offset, log.end_offset, log.segment_count) == (3, 3, 1)
    assert apply_retention(log, 5000, retention_ms=1000) == 0
    append(log, 1)


def test_retention_by_size_keeps_at_least_that_much(log: Log) -> None:
    batches = append(log, 60)
    size = len(batches[0][1])
    assert apply_retention(log, 0, retention_bytes=log.size_bytes) == 0
    assert apply_retention(log, 0, retention_bytes=25 * size) > 0
    assert 25 * size <= log.size_bytes < 25 * size + SMALL.segment_bytes
    assert apply_retention(log, 0, retention_bytes=0) > 0
    assert log.segment_count == 1
    assert log.start_offset < log.end_offset == 60, "the active segment is not removed for its size"


def test_retention_removes_nothing_beyond_the_high_watermark(log: Log) -> None:
    append(log, 60, timestamp=1000)
    assert apply_retention(log, 99999, retention_ms=1, keep_from=Offset(25)) > 0
    assert log.start_offset <= 25
    assert apply_retention(log, 99999, retention_bytes=0, keep_from=Offset(25)) == 0


def test_retention_never_removes_what_is_not_flushed(log: Log) -> None:
    append(log, 3, flush=False)
    assert apply_retention(log, 99999, retention_ms=1) == 0
    assert log.start_offset == 0


def test_no_limit_means_nothing_is_removed(log: Log) -> None:
    append(log, 60, timestamp=1)
    log.options = LogOptions()
    assert apply_retention(log, 1 << 60) == 0


def test_a_closed_log_refuses(log: Log) -> None:
    append(log, 2)
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        log.append([batch(2)])
    with pytest.raises(LogClosed):
        as_read(log, 0, 100)
    assert (log.start_offset, log.flushed_offset, log.end_offset) == (0, 2, 2)


def test_a_deleted_log_refuses(log: Log) -> None:
    append(log, 2, flush=False)
    log.delete()
    with pytest.raises(LogClosed):
        log.append([batch(2)])
