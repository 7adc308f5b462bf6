"""The state derived from a log: a snapshot and the later records give all of it, or the broker does not start."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.broker import StateUnreadable
from drmq.broker.partitions.derived_state import (
    BASE_SNAPSHOT,
    INSTALL_SNAPSHOT,
    PRODUCERS_SNAPSHOT,
    STATE_SNAPSHOT,
    Draft,
    KeyValue,
    MachineState,
    MessageState,
    base_of,
    encode_state,
    load_producers,
    pack_snapshot,
    replay_batches,
    unpack_snapshot,
)
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.replication.entry_log import encode_trim
from drmq.model import LeaderEpoch, NodeId, Offset
from drmq.raft import Configuration, LogIndex, SnapshotMeta, Term
from drmq.records import Record, encode_batch, read_header, stamp
from drmq.storage import Log, SegmentLog, SnapshotStore
from drmq.testing.files import FakeFiles
from support.batches import a_batch, a_header
from support.replica_harness import FrozenClock


class ListMachine:
    """Remembers what was replayed. Implements `states.Machine`."""

    def __init__(self) -> None:
        self.records: list[KeyValue] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.records.append((key, value))

    def draft(self) -> ListMachine:
        return ListMachine()

    def become(self, draft: Draft) -> None:
        assert isinstance(draft, ListMachine)
        self.records = draft.records

    def snapshot(self) -> Iterable[KeyValue]:
        return self.records

    def on_lead(self) -> None: ...

    def on_follow(self) -> None: ...

    def on_applied(self) -> None: ...


class ReplicaHarness:
    """A machine's log with snapshots, as a broker leaves them behind."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.log: Log = SegmentLog("/machine", files=self.files)
        self.snapshots = SnapshotStore("/machine", self.files)

    def append(self, *records: KeyValue) -> None:
        batch = encode_batch(Record(Offset(index), 0, key, value) for index, (key, value) in enumerate(records))
        stamp(memoryview(batch), self.log.end_offset, LeaderEpoch(1))
        self.log.append([(read_header(batch), batch)])
        self.log.flush()

    def save(self, records: Iterable[KeyValue]) -> None:
        offset = self.log.end_offset
        self.snapshots.save(STATE_SNAPSHOT, offset, pack_snapshot(a_meta(offset), encode_state(records)))

    def state(self) -> tuple[MachineState, ListMachine]:
        machine = ListMachine()
        return MachineState(self.log, self.snapshots, machine), machine

    def loaded(self) -> list[KeyValue]:
        """What a machine is after its snapshot is loaded and everything in its log is committed."""
        state, machine = self.state()
        state.load()
        state.replay_to(self.log.end_offset)
        return machine.records


def a_meta(offset: int, index: int | None = None) -> SnapshotMeta:
    where = LogIndex(offset + 1 if index is None else index)
    return SnapshotMeta(where, Term(1), Configuration.of([NodeId(1), NodeId(2)]), encode_trim(Offset(offset)))


def pairs(*names: str) -> list[KeyValue]:
    return [(name.encode(), b"value of " + name.encode()) for name in names]


# ---- state machines --------------------------------------------------------------------------------


def test_an_empty_log_is_a_new_machine() -> None:
    assert ReplicaHarness().loaded() == []


def test_without_a_snapshot_the_whole_log_is_replayed() -> None:
    desk = ReplicaHarness()
    desk.append(*pairs("a", "b"))
    desk.append((b"gone", None))
    assert desk.loaded() == [*pairs("a", "b"), (b"gone", None)]


def test_a_snapshot_and_what_came_after_it() -> None:
    desk = ReplicaHarness()
    desk.append(*pairs("a", "b"))
    desk.save(pairs("ab"))
    desk.append(*pairs("c"))
    desk.log.drop_prefix(Offset(2))
    assert desk.loaded() == pairs("ab", "c")


def test_a_damaged_snapshot_falls_back_to_the_one_before() -> None:
    desk = ReplicaHarness()
    desk.append(*pairs("a"))
    desk.save(pairs("a"))
    desk.append(*pairs("b"))
    desk.save(pairs("ab"))
    desk.log.drop_prefix(Offset(1))
    newest = max(name for name in desk.files.list("/machine") if name.endswith(".snapshot"))
    desk.files.flip_bit(f"/machine/{newest}", 60)
    assert desk.loaded() == pairs("a", "b")


def test_a_log_whose_beginning_nothing_tells_of_is_not_taken_for_all() -> None:
    desk = ReplicaHarness()
    desk.append(*pairs("a"))
    desk.append(*pairs("b"))
    desk.log.drop_prefix(Offset(1))
    with pytest.raises(StateUnreadable, match="no intact snapshot"):
        desk.loaded()


def test_nothing_is_replayed_before_it_is_committed() -> None:
    """What a follower has in its log may still be replaced."""
    desk = ReplicaHarness()
    desk.append(*pairs("a"))
    desk.append(*pairs("b"))
    state, machine = desk.state()
    state.load()
    assert machine.records == []
    state.replay_to(Offset(1))
    assert machine.records == pairs("a")


@given(st.lists(st.binary(max_size=20), max_size=50), st.integers(0, 50))
def test_any_cut_between_snapshot_and_log_loads_the_same(values: list[bytes], cut: int) -> None:
    records: list[KeyValue] = [(b"%d" % number, value) for number, value in enumerate(values)]
    desk = ReplicaHarness()
    for record in records[:cut]:
        desk.append(record)
    desk.save(records[:cut])
    for record in records[cut:]:
        desk.append(record)
    assert desk.loaded() == records


def test_large_snapshots_are_many_batches() -> None:
    records: list[KeyValue] = [(b"%d" % number, None) for number in range(2_500)]
    desk = ReplicaHarness()
    desk.append(*pairs("a"))
    desk.save(records)
    assert desk.loaded() == records


def test_a_snapshot_goes_out_only_under_its_own_name() -> None:
    desk = ReplicaHarness()
    desk.append(*pairs("a"))
    desk.save(pairs("a"))
    state, _ = desk.state()
    sent = state.snapshot_bytes(a_meta(1))
    assert sent is not None
    found: list[KeyValue] = []
    replay_batches(sent, lambda key, value: found.append((key, value)), Offset(0))
    assert found == pairs("a")
    assert state.snapshot_bytes(a_meta(1, index=7)) is None


def test_a_damaged_snapshot_from_a_peer_is_noticed() -> None:
    state, _ = ReplicaHarness().state()
    sound = encode_state(pairs("a"))
    assert state.decode_snapshot(a_meta(1), sound) is not None
    assert state.decode_snapshot(a_meta(1), b"") is not None
    assert state.decode_snapshot(a_meta(1), sound[:-3]) is None
    assert state.decode_snapshot(a_meta(1), b"nonsense" * 20) is None
    for position in (9, 30, len(sound) - 1):
        damaged = bytearray(sound)
        damaged[position] ^= 1
        assert state.decode_snapshot(a_meta(1), bytes(damaged)) is None, position


def test_an_installed_snapshot_replaces_all_older_ones() -> None:
    desk = ReplicaHarness()
    desk.append(*pairs("a"))
    desk.save(pairs("a"))
    state, machine = desk.state()
    body = encode_state(pairs("new"))
    state.save_snapshot(a_meta(9), body)
    assert desk.snapshots.offsets(INSTALL_SNAPSHOT) == [9]
    desk.log.reset(Offset(9))
    state.finish_snapshot(a_meta(9), body)
    assert (desk.snapshots.offsets(INSTALL_SNAPSHOT), desk.snapshots.offsets(STATE_SNAPSHOT)) == ([], [9])
    assert state.load() == a_meta(9)
    assert machine.records == pairs("new")
    assert (state.applied_offset, state.applied_index) == (9, 10)


# ---- producers -------------------------------------------------------------------------------------


def a_table(producer_id: int, sequence: int = 0) -> ProducerTable:
    table = ProducerTable()
    table.apply(a_header(producer_id, 0, sequence), seen_ms=0)
    return table


def known(table: ProducerTable, producer_id: int, sequence: int = 0) -> bool:
    return table.find_repeat(a_header(producer_id, 0, sequence)) is not None


class Messages:
    """A log of messages, and its snapshots."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.log = SegmentLog("/orders", files=self.files)
        self.snapshots = SnapshotStore("/orders", self.files)
        self.state = MessageState(self.log, self.snapshots, FrozenClock().wall_ms)

    def append(self, producer_id: int, sequence: int = 0) -> None:
        batch = a_batch(producer_id=producer_id, epoch=0, sequence=sequence)
        stamp(batch, self.log.end_offset, LeaderEpoch(1))
        self.log.append([(read_header(batch), batch)])
        self.log.flush()

    def loaded(self, end: int | None = None) -> ProducerTable:
        return load_producers(self.log, self.snapshots, self.log.end_offset if end is None else Offset(end), 0)


def test_producers_are_found_in_the_base_the_snapshot_and_the_log() -> None:
    desk = Messages()
    for producer_id in (1, 2, 3):
        desk.append(producer_id)
    desk.snapshots.save(BASE_SNAPSHOT, Offset(1), pack_snapshot(a_meta(1), a_table(1).to_bytes()))
    desk.log.drop_prefix(Offset(1))
    assert [known(desk.loaded(), producer_id) for producer_id in (1, 2, 3)] == [True, True, True]
    desk.snapshots.save(PRODUCERS_SNAPSHOT, Offset(2), a_table(99).to_bytes())
    table = desk.loaded()
    assert (known(table, 99), known(table, 3), known(table, 2)) == (True, True, False)


def test_a_base_newer_than_the_last_snapshot_counts() -> None:
    desk = Messages()
    for producer_id in (1, 2):
        desk.append(producer_id)
    desk.snapshots.save(PRODUCERS_SNAPSHOT, Offset(1), a_table(1).to_bytes())
    desk.snapshots.save(BASE_SNAPSHOT, Offset(2), pack_snapshot(a_meta(2), a_table(77).to_bytes()))
    assert known(desk.loaded(), 77)


def test_what_a_log_amounted_to_before_it_was_cut() -> None:
    desk = Messages()
    for producer_id in (1, 2):
        desk.append(producer_id)
    table = desk.loaded(end=1)
    assert (known(table, 1), known(table, 2)) == (True, False)


def test_a_new_partition_needs_no_base_to_send() -> None:
    state = Messages().state
    assert state.snapshot_bytes(a_meta(0)) == b""
    assert state.snapshot_bytes(a_meta(4)) is None


def test_a_base_is_sent_only_as_what_it_is() -> None:
    desk = Messages()
    desk.snapshots.save(BASE_SNAPSHOT, Offset(1), pack_snapshot(a_meta(1), a_table(1).to_bytes()))
    assert desk.state.snapshot_bytes(a_meta(1)) == a_table(1).to_bytes()
    assert desk.state.snapshot_bytes(a_meta(1, index=5)) is None


def test_a_damaged_base_from_a_peer_is_noticed() -> None:
    state = Messages().state
    sound = a_table(1).to_bytes()
    assert state.decode_snapshot(a_meta(1), sound) is not None
    assert state.decode_snapshot(a_meta(1), sound[:-1]) is None


def test_an_installed_base_replaces_what_was_known() -> None:
    desk = Messages()
    desk.append(1)
    desk.snapshots.save(PRODUCERS_SNAPSHOT, Offset(1), a_table(1).to_bytes())
    body = a_table(5).to_bytes()
    desk.state.save_snapshot(a_meta(9), body)
    desk.log.reset(Offset(9))
    desk.state.finish_snapshot(a_meta(9), body)
    table = desk.loaded()
    assert (known(table, 1), known(table, 5)) == (False, True)
    assert desk.snapshots.offsets(INSTALL_SNAPSHOT) == desk.snapshots.offsets(PRODUCERS_SNAPSHOT) == []


# ---- both ------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.binary(max_size=40))
def test_a_snapshot_and_its_place_are_packed_together(index: int, term: int, offset: int, body: bytes) -> None:
    configuration = Configuration.of([NodeId(1), NodeId(1 << 32 | 2)], [NodeId(3)])
    meta = SnapshotMeta(LogIndex(index), Term(term), configuration, encode_trim(Offset(offset)))
    assert unpack_snapshot(pack_snapshot(meta, body)) == (meta, body)
    base = base_of(meta)
    assert (base.index, base.term, base.offset) == (index, term, offset)
