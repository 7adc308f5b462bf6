"""A state machine's log: a snapshot and what came after it amount to everything, or the broker does not start."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.broker.machine import SNAPSHOT_NAME, KeyValue, StateUnreadable, encode_snapshot, load
from drmq.model import LeaderEpoch, Offset
from drmq.records import Record, encode_batch, read_header, stamp
from drmq.storage import Log, MemoryLog, SegmentLog, SnapshotStore
from drmq.testing.files import FakeFiles


class Desk:
    """A log with snapshots, as a broker leaves them behind."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.log: Log = SegmentLog("/machine", files=self.files)
        self.snapshots = SnapshotStore("/machine", self.files)

    def append(self, *records: KeyValue) -> None:
        write(self.log, records)

    def save(self, records: Iterable[KeyValue]) -> None:
        self.snapshots.save(SNAPSHOT_NAME, self.log.end_offset, encode_snapshot(records))

    def loaded(self) -> list[KeyValue]:
        found: list[KeyValue] = []
        load(self.log, self.snapshots, lambda key, value: found.append((key, value)))
        return found


def write(log: Log, records: Iterable[KeyValue]) -> None:
    batch = encode_batch(Record(Offset(index), 0, key, value) for index, (key, value) in enumerate(records))
    stamp(memoryview(batch), log.end_offset, LeaderEpoch(0))
    log.append([(read_header(batch), batch)])
    log.flush()


def pairs(*names: str) -> list[KeyValue]:
    return [(name.encode(), b"value of " + name.encode()) for name in names]


def test_an_empty_log_is_a_new_machine() -> None:
    assert Desk().loaded() == []


def test_without_a_snapshot_the_whole_log_is_replayed() -> None:
    desk = Desk()
    desk.append(*pairs("a", "b"))
    desk.append((b"gone", None))
    assert desk.loaded() == [*pairs("a", "b"), (b"gone", None)]


def test_a_snapshot_and_what_came_after_it() -> None:
    desk = Desk()
    desk.append(*pairs("a", "b"))
    desk.save(pairs("ab"))
    desk.append(*pairs("c"))
    desk.log.drop_prefix(Offset(2))
    assert desk.loaded() == pairs("ab", "c")


def test_a_damaged_snapshot_falls_back_to_the_one_before() -> None:
    desk = Desk()
    desk.append(*pairs("a"))
    desk.save(pairs("a"))
    desk.append(*pairs("b"))
    desk.save(pairs("ab"))
    desk.log.drop_prefix(Offset(1))
    newest = max(name for name in desk.files.list("/machine") if name.endswith(".snapshot"))
    desk.files.flip_bit(f"/machine/{newest}", 60)
    assert desk.loaded() == pairs("a", "b")


def test_a_log_whose_beginning_nothing_tells_of_is_not_taken_for_all() -> None:
    desk = Desk()
    desk.append(*pairs("a"))
    desk.append(*pairs("b"))
    desk.log.drop_prefix(Offset(1))
    with pytest.raises(StateUnreadable, match="no sound snapshot"):
        desk.loaded()


def test_a_snapshot_of_records_that_were_lost_never_counts() -> None:
    """Not now, and not when other records have taken their offsets."""
    desk = Desk()
    desk.append(*pairs("a"))
    desk.snapshots.save(SNAPSHOT_NAME, Offset(3), encode_snapshot(pairs("invented")))
    assert desk.loaded() == pairs("a")
    desk.append(*pairs("b", "c", "d"))
    assert desk.loaded() == pairs("a", "b", "c", "d")


@given(st.lists(st.binary(max_size=20), max_size=50), st.integers(0, 50))
def test_any_cut_between_snapshot_and_log_loads_the_same(values: list[bytes], cut: int) -> None:
    records: list[KeyValue] = [(b"%d" % number, value) for number, value in enumerate(values)]
    desk = Desk()
    for record in records[:cut]:
        desk.append(record)
    desk.save(records[:cut])
    for record in records[cut:]:
        desk.append(record)
    assert desk.loaded() == records


def test_large_snapshots_are_many_batches() -> None:
    records: list[KeyValue] = [(b"%d" % number, None) for number in range(2_500)]
    desk = Desk()
    desk.append(*pairs("a"))
    desk.save(records)
    assert desk.loaded() == records


def test_memory_has_logs_too() -> None:
    log = MemoryLog("machine")
    write(log, pairs("a"))
    found: list[KeyValue] = []
    load(log, SnapshotStore("/machine", FakeFiles()), lambda key, value: found.append((key, value)))
    assert found == pairs("a")
