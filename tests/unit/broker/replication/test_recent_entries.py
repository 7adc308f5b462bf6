"""What a leader keeps in memory: as much as fits, counted honestly, and never across a change of the log's story."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from drmq.broker.replication.entry_log import Batch
from drmq.broker.replication.recent_entries import RecentEntries, RecentMemory
from drmq.model import LeaderEpoch, NodeId, Offset
from drmq.raft import AppendAccepted, AppendRequest, Entry, EntryKind, LogIndex, RaftOptions, Term
from drmq.records import read_header, stamp
from drmq.testing.files import FakeFiles
from support.batches import a_batch
from support.harness_leader import Leader, receive
from support.replica_harness import SELF, ReplicaHarness
from unit.broker.replication.test_replica import GROUP, lead

NO_LIMIT = 1 << 30
MEGABYTE = 1 << 20


def an_entry(index: int, buffer: bytearray | None = None) -> Entry:
    """A batch of one record; in a buffer of its own unless one is given."""
    batch = a_batch([b"value"])
    stamp(batch, Offset(index - 1), LeaderEpoch(1))
    header, size = read_header(batch), len(batch)
    if buffer is not None:
        batch = memoryview(buffer)[:size]
    return Entry(LogIndex(index), LogIndex(index), Term(1), EntryKind.PAYLOAD, Batch(header, batch), size)


def kept(recent: RecentEntries) -> list[int]:
    """The indexes that can be read, by asking for each."""
    found = []
    for index in range(1, 40):
        entries = recent.read(LogIndex(index), LogIndex(99), NO_LIMIT, 1)
        assert [entry.index for entry in entries] in ([], [index])
        found += [int(entry.index) for entry in entries]
    return found


def test_what_is_counted_is_what_is_held_alive() -> None:
    memory = RecentMemory(10 * MEGABYTE)
    one, other = RecentEntries(memory), RecentEntries(memory)
    buffer = bytearray(MEGABYTE)
    one.extend([an_entry(1, buffer), an_entry(2, buffer)])
    other.extend([an_entry(1, buffer)])
    assert MEGABYTE < memory.held_bytes < MEGABYTE + 5_000
    one.release(LogIndex(2))
    assert MEGABYTE < memory.held_bytes < MEGABYTE + 5_000
    other.clear()
    assert memory.held_bytes == 0


def test_who_was_appended_to_longest_ago_forgets_first() -> None:
    memory = RecentMemory(4 * MEGABYTE)
    quiet, busy = RecentEntries(memory), RecentEntries(memory)
    for index in (1, 2):
        quiet.extend([an_entry(index, bytearray(MEGABYTE))])
    for index, left in ((1, [1, 2]), (2, [2]), (3, [])):
        busy.extend([an_entry(index, bytearray(MEGABYTE))])
        assert kept(quiet) == left
    for index in range(4, 9):
        busy.extend([an_entry(index, bytearray(MEGABYTE))])
        assert memory.held_bytes <= memory.bytes_max
    assert kept(busy) == [6, 7, 8]


def test_what_does_not_fit_at_all_is_not_kept() -> None:
    memory = RecentMemory(MEGABYTE)
    recent = RecentEntries(memory)
    recent.extend([an_entry(1), an_entry(2, bytearray(2 * MEGABYTE))])
    assert kept(recent) == []
    assert memory.held_bytes == 0
    recent.extend([an_entry(3)])
    assert kept(recent) == [3]


def test_a_gap_is_a_bug() -> None:
    recent = RecentEntries(RecentMemory())
    recent.extend([an_entry(1)])
    with pytest.raises(AssertionError):
        recent.extend([an_entry(3)])


# ---- a leader --------------------------------------------------------------------------------------


def accept(desk: ReplicaHarness, index: int, *followers: int) -> None:
    for follower in followers:
        receive(
            desk, AppendAccepted(NodeId(follower), SELF, Term(desk.partition.leader_epoch), LogIndex(index))
        )  # fmt: skip


def sent_batches(desk: ReplicaHarness, target: int) -> list[tuple[int, bytes]]:
    """The batches that were sent to a follower since this was last asked, by index."""
    found = [
        (int(entry.index), bytes(entry.payload.data))
        for message in desk.sent
        if isinstance(message, AppendRequest) and message.target == target
        for entry in message.entries
        if isinstance(entry.payload, Batch)
    ]
    desk.sent = [message for message in desk.sent if message.target != target]
    return found


def a_leader(files: FakeFiles | None = None) -> ReplicaHarness:
    """One that may send each follower one message at a time: what comes next is durable before it can leave."""
    desk = ReplicaHarness(files or FakeFiles(), members=GROUP, raft_options=RaftOptions(in_flight_messages_max=1))
    lead(desk)
    accept(desk, 1, 2, 3)
    desk.work()
    desk.sent.clear()
    return desk


def no_reading(monkeypatch: pytest.MonkeyPatch, desk: ReplicaHarness) -> None:
    def read(*arguments: object) -> None:
        raise AssertionError(f"the file is read: {arguments}")

    monkeypatch.setattr(desk.log, "read", read)


def produce(desk: ReplicaHarness, values: Iterable[bytes]) -> None:
    for value in values:
        desk.produce(value)


def test_followers_that_are_slower_than_the_own_disk_cause_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = a_leader()
    no_reading(monkeypatch, desk)
    produce(desk, (b"a", b"b", b"c"))
    assert desk.log.flushed_offset == 3
    assert [index for index, _ in sent_batches(desk, 2)] == [2]
    accept(desk, 2, 2)
    later = sent_batches(desk, 2)
    assert [index for index, _ in later] == [3, 4]
    assert [b"b" in later[0][1], b"c" in later[1][1]] == [True, True]
    accept(desk, 4, 2)
    assert desk.partition.high_watermark == 3
    assert desk.replica.entries.recent, "the third has not got it yet"
    accept(desk, 4, 3)
    assert not desk.replica.entries.recent
    assert desk.recent_memory.held_bytes == 0


def test_a_follower_that_is_gone_holds_nothing_in_memory() -> None:
    desk = a_leader()
    for _ in range(desk.raft_options.election_timeout_ticks + 1):
        desk.replica.tick()
        desk.turn()
        accept(desk, 1, 2)
    desk.produce(b"a")
    accept(desk, 2, 2)
    assert not desk.replica.entries.recent


def test_what_was_replaced_is_never_sent_from_memory() -> None:
    """Deposed with entries that no other node has, then elected again with other entries at the same indexes."""
    desk = a_leader()
    produce(desk, (b"lost", b"lost too"))
    assert desk.replica.entries.recent
    log = [Entry(LogIndex(1), LogIndex(1), Term(desk.partition.leader_epoch), EntryKind.CONFIGURATION, b"", 0)]
    other = Leader(2, 9, log).batch(b"kept", b"instead")
    receive(desk, other.appends(2))
    assert not desk.replica.entries.recent
    desk.work()
    lead(desk)
    accept(desk, 1, 3)
    desk.work()
    found = sent_batches(desk, 3)
    assert found
    assert b"instead" in found[0][1]
    assert not any(b"lost" in data for _, data in found)


def test_a_replica_that_the_disk_has_refused_begins_again_without_memories() -> None:
    files = FakeFiles()
    desk = a_leader(files)
    desk.append(b"unwritten")
    desk.turn()
    assert desk.replica.entries.recent
    files.capacity_bytes = 1
    desk.work()
    assert not desk.replica.entries.recent
    assert desk.recent_memory.held_bytes == 0


def test_a_leader_alone_keeps_nothing() -> None:
    desk = ReplicaHarness(FakeFiles())
    desk.append(b"a")
    desk.turn()
    assert not desk.replica.entries.recent
