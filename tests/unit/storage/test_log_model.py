"""Random operations on a log and on a list of batches: both always agree, across reopening and crashes."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drmq.model import Offset
from drmq.records import iter_batches
from drmq.storage import Log, LogOptions, MemoryLog, SegmentLog
from drmq.testing.files import FakeFiles
from support.storage_samples import Batch, apply_retention, batch, joined, read_all

OPTIONS = [
    LogOptions(segment_bytes=1024, index_interval_bytes=64),
    LogOptions(segment_bytes=1500, index_interval_bytes=300),
    LogOptions(),
]
PATH = "/data/log"


class LogMachine(RuleBasedStateMachine):
    """A log beside its model: the batches in order, how many are flushed, and the start."""

    batches: list[Batch]
    log: Log

    @initialize(options=st.sampled_from(OPTIONS), first_offset=st.sampled_from([0, 5, 1 << 40]))
    def begin(self, options: LogOptions, first_offset: int) -> None:
        self.options = options
        self.first_offset = self.start = self.end = self.flushed = first_offset
        self.batches = []
        self.files = FakeFiles()
        self.log = self.make()
        self.epoch = 0
        self.seed = 0

    def make(self) -> Log:
        return SegmentLog(PATH, self.options, self.files, self.first_offset)

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 400), st.integers(-1, 50)), min_size=1, max_size=12),
        new_epoch=st.integers(0, 1),
    )
    def append(self, sizes: list[tuple[int, int, int]], new_epoch: int) -> None:
        self.epoch += new_epoch
        self.seed += 1
        added = []
        for count, size, timestamp in sizes:
            added.append(batch(self.end, count, size, timestamp, self.epoch, self.seed))
            self.end += count
        self.log.append(added)
        self.batches += added
        self.flushed = self.log.flushed_offset  # a segment that was sealed on the way is flushed

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule()
    def roll(self) -> None:
        is_empty = self.log.segment_count == 1 and self.log.size_bytes == 0
        self.log.roll()
        if not is_empty:
            self.flushed = self.log.flushed_offset

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_suffix(Offset(offset))
        self.batches = [one for one in self.batches if one[0].base_offset < offset]
        self.end = self.batches[-1][0].next_offset if self.batches else min(offset, self.end)
        self.end = max(self.end, self.log.start_offset)
        self.flushed = min(self.flushed, self.end)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, max(self.flushed, self.start)))
        self.log.drop_prefix(Offset(offset))
        self.start = offset
        self.forget_below_start()

    @rule(retention_ms=st.integers(-1, 60), retention_bytes=st.integers(-1, 3000))
    def retain(self, retention_ms: int, retention_bytes: int) -> None:
        before = self.start
        apply_retention(self.log, 60, retention_ms, retention_bytes)
        self.start = self.log.start_offset
        assert before <= self.start <= self.log.flushed_offset
        removed = [one for one in self.batches if before <= one[0].base_offset < self.start]
        if retention_bytes < 0:
            assert all(60 - header.max_timestamp > retention_ms >= 0 for header, _ in removed)
        if retention_ms < 0 and removed:
            assert self.log.size_bytes >= retention_bytes >= 0
        self.flushed = self.log.flushed_offset
        self.forget_below_start()

    def forget_below_start(self) -> None:
        self.batches = [one for one in self.batches if one[0].next_offset > self.start]

    @invariant()
    def offsets_agree(self) -> None:
        log = self.log
        assert log.start_offset == self.start
        assert log.end_offset == self.end
        assert self.flushed <= log.flushed_offset <= self.end
        self.flushed = log.flushed_offset

    @invariant()
    def content_agrees(self) -> None:
        readable = [one for one in self.batches if one[0].base_offset < self.flushed]
        assert read_all(self.log, 700) == joined(readable)

    @rule(data=st.data(), max_bytes=st.integers(0, 3000))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        ends = [self.start, *(header.next_offset for header, _ in self.batches if header.next_offset <= self.flushed)]
        up_to = data.draw(st.sampled_from(ends))
        offset = data.draw(st.integers(self.start, self.end))
        found = self.log.read(Offset(offset), max_bytes, Offset(up_to))
        assert found is not None
        wanted = [one for one in self.batches if one[0].next_offset > offset and one[0].base_offset < up_to]
        count = len(list(iter_batches(found)))
        assert bytes(found) == joined(wanted[:count])
        assert bool(count) == (offset < up_to)
        assert count <= 1 or len(found) <= max_bytes

    @rule(timestamp=st.integers(0, 60))
    def look_up_time(self, timestamp: int) -> None:
        readable = [one for one in self.batches if one[0].base_offset < self.flushed]
        expected = next((one for one in readable if one[0].max_timestamp >= timestamp), None)
        found = self.log.batch_at_time(timestamp, Offset(self.flushed))
        assert (found and (found.header, bytes(found.data))) == expected

    @invariant()
    def books_agree(self) -> None:
        assert [header for header, _ in self.log.headers(Offset(self.start), Offset(self.end))] == [
            header for header, _ in self.batches
        ]
        first: dict[int, int] = {}
        for header, _ in self.batches:
            first.setdefault(header.leader_epoch, max(header.base_offset, self.start))
        found = dict(self.log.epochs)
        assert {number: found[number] for number in first} == first  # type: ignore[index]
        newest = self.log.latest_time()
        if self.batches:
            assert newest.timestamp >= max(header.max_timestamp for header, _ in self.batches)
            for up_to in {self.batches[0][0].next_offset, self.batches[-1][0].base_offset}:
                below = [header.max_timestamp for header, _ in self.batches if header.base_offset < up_to]
                assert self.log.latest_time(up_to).timestamp >= max(below, default=-1)
                assert self.log.latest_time(up_to).base_offset < up_to


class SegmentLogMachine(LogMachine):
    """With what only a disk can do."""

    def reopen(self, change: Callable[[], FakeFiles]) -> None:
        self.files = change()
        self.log = self.make()
        self.end = self.log.end_offset
        self.batches = [one for one in self.batches if one[0].next_offset <= self.end]
        self.flushed = self.log.flushed_offset

    @rule()
    def close_and_reopen(self) -> None:
        self.log.close()
        self.flushed = self.end
        self.reopen(lambda: self.files)
        assert self.end == self.flushed

    @rule()
    def kill_and_reopen(self) -> None:
        before = self.end
        self.reopen(self.files.after_kill)
        assert self.end == before

    @rule(seed=st.integers(0, 1000))
    def cut_power_and_reopen(self, seed: int) -> None:
        before = self.flushed
        self.reopen(lambda: self.files.after_power_cut(seed))
        assert self.end >= before

    @precondition(lambda self: self.log.segment_count > 1)
    @rule()
    def lose_indexes(self) -> None:
        for name in self.files.list(PATH):
            if name.endswith(".index"):
                self.files.remove(f"{PATH}/{name}")


class MemoryLogMachine(LogMachine):
    """The same for the log in memory."""

    def make(self) -> Log:
        return MemoryLog("log", self.options, self.first_offset)


TestSegmentLogModel = SegmentLogMachine.TestCase
TestSegmentLogModel.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestMemoryLogModel = MemoryLogMachine.TestCase
TestMemoryLogModel.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
