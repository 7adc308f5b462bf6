"""A snapshot in parts, whose receiver restarts during the transfer: it continues where it was, and never mixes two."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from drmq.broker.component_options import raft_options_of
from drmq.broker.options import BrokerOptions, InvalidOption
from drmq.broker.partitions.derived_state import KeyValue, encode_state
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.replication.entry_log import encode_trim
from drmq.model import LeaderEpoch, NodeId, Offset
from drmq.raft import (
    AppendAccepted,
    AppendRequest,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    RaftOptions,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotMeta,
    Term,
)
from drmq.records import stamp
from drmq.testing.files import FakeFiles, PowerCut
from drmq.transport.peers import PeerOptions
from support.batches import a_batch, a_header
from support.held_pool import HeldPool
from support.replica_harness import SELF, TOPIC, ReplicaHarness
from unit.broker.partitions.test_derived_state import ListMachine

GROUP = (1, 2, 3)
INCOMING = f"/data/topics/{TOPIC.name}.{TOPIC.topic_id.hex()}/0/incoming"
PRODUCERS = 12
PART_BYTES = 100


def a_meta(index: int = 60) -> SnapshotMeta:
    configuration = Configuration.of([NodeId(number) for number in GROUP])
    return SnapshotMeta(LogIndex(index), Term(4), configuration, encode_trim(Offset(41)))


def a_table(first: int = 0) -> bytes:
    table = ProducerTable()
    for producer in range(first, first + PRODUCERS):
        table.apply(a_header(producer, 0, 3, base_offset=producer), seen_ms=0)
    return table.to_bytes()


@dataclass
class Sender:
    """A leader that sends one snapshot, part by part, from wherever the receiver says that it is."""

    node_id: int = 2
    term: int = 5
    meta: SnapshotMeta = field(default_factory=a_meta)
    data: bytes = field(default_factory=a_table)
    parts_sent: int = 0

    def offer(self, desk: ReplicaHarness) -> int:
        """How much the receiver says that it has."""
        return self._send(desk, 0, b"", done=False)

    def send_part(self, desk: ReplicaHarness, position: int) -> int:
        """The next part; how much the receiver has then."""
        part = self.data[position : position + PART_BYTES]
        self.parts_sent += 1
        return self._send(desk, position, part, done=position + len(part) == len(self.data))

    def send_rest(self, desk: ReplicaHarness) -> None:
        position = self.offer(desk)
        while position < len(self.data):
            position = self.send_part(desk, position)

    def _send(self, desk: ReplicaHarness, position: int, part: bytes, *, done: bool) -> int:
        sender = NodeId(self.node_id)
        desk.sent.clear()
        desk.replica.receive(SnapshotChunk(sender, SELF, Term(self.term), self.meta, position, part, done))
        desk.work()
        answers = [message for message in desk.sent if isinstance(message, SnapshotAnswer)]
        assert {(answer.target, answer.snapshot_id) for answer in answers} == {(sender, self.meta.snapshot_id)}
        return answers[-1].received


def restarted(files: FakeFiles) -> ReplicaHarness:
    return ReplicaHarness(files, members=GROUP, is_old=True)


def check_installed(desk: ReplicaHarness, producer: int = 0) -> None:
    assert (desk.log.start_offset, desk.replica.entries.snapshot.index) == (41, 60)
    for number in range(producer, producer + PRODUCERS):
        assert desk.partition.producers.find_repeat(a_header(number, 0, 3)) is not None
    assert len(desk.partition.producers) == PRODUCERS
    assert isinstance(desk.files, FakeFiles)
    assert not desk.files.exists(INCOMING)
    assert [message.match for message in desk.sent if isinstance(message, AppendAccepted)] == [60]


def half_way(sender: Sender, files: FakeFiles | None = None) -> tuple[ReplicaHarness, int]:
    """A receiver with half of a snapshot, and how many bytes that is."""
    desk = ReplicaHarness(files or FakeFiles(), members=GROUP)
    position = sender.offer(desk)
    assert position == 0
    while position < len(sender.data) // 2:
        position = sender.send_part(desk, position)
    return desk, position


def test_the_size_of_parts_is_a_setting() -> None:
    assert raft_options_of(BrokerOptions()).snapshot_chunk_bytes_max == RaftOptions().snapshot_chunk_bytes_max
    assert raft_options_of(BrokerOptions(snapshot_part_bytes=4_096)).snapshot_chunk_bytes_max == 4_096
    # A part and what goes with it must fit into a frame between nodes.
    with pytest.raises(InvalidOption, match="snapshot_part_bytes"):
        BrokerOptions(snapshot_part_bytes=PeerOptions().snapshot_frame_bytes_max)


@pytest.mark.parametrize("is_kill", [False, True])
def test_a_restarted_receiver_goes_on_where_it_was(is_kill: bool) -> None:
    sender = Sender()
    desk, position = half_way(sender)
    assert isinstance(desk.files, FakeFiles)
    again = restarted(desk.files.after_kill() if is_kill else desk.files.after_power_cut(1))
    assert sender.offer(again) == position
    sender.send_rest(again)
    check_installed(again)
    assert sender.parts_sent == -(-len(sender.data) // PART_BYTES)
    check_restored(again)


def check_restored(desk: ReplicaHarness) -> None:
    assert isinstance(desk.files, FakeFiles)
    last = restarted(desk.files.after_power_cut(2))
    assert last.log.start_offset == 41
    assert len(last.partition.producers) == PRODUCERS


def test_a_power_cut_at_any_step_of_a_transfer_leads_to_the_whole_snapshot() -> None:
    crash_at, is_finished, resumed = 0, False, set()
    while not is_finished:
        crash_at += 1
        files = FakeFiles()
        desk = ReplicaHarness(files, members=GROUP)
        sender = Sender()
        sender.offer(desk)
        files.crash_at = files.step + crash_at
        answered = 0
        try:
            while answered < len(sender.data):
                answered = sender.send_part(desk, answered)
            is_finished = True
        except PowerCut:
            pass
        for seed in range(5):
            disk = files.after_power_cut(seed)
            again = restarted(disk)
            if again.log.start_offset == 41:
                assert len(again.partition.producers) == PRODUCERS
                continue
            received = Sender().offer(again)
            # The last part is not kept by itself: what it completes is installed at once.
            assert received >= min(answered, (len(sender.data) - 1) // PART_BYTES * PART_BYTES)
            resumed.add(received)
            Sender().send_rest(again)
            check_installed(again)
    assert resumed == set(range(0, len(a_table()), PART_BYTES))


@pytest.mark.parametrize(
    "other",
    [
        Sender(node_id=3, term=6, data=a_table(100)),
        Sender(term=6, meta=replace(a_meta(), term=Term(3)), data=a_table(100)),
        Sender(meta=replace(a_meta(), configuration=Configuration.of([NodeId(1), NodeId(2)])), data=a_table(100)),
    ],
    ids=["another sender", "another term", "other members"],
)
def test_what_was_kept_of_one_snapshot_is_not_taken_for_another(other: Sender) -> None:
    desk, _ = half_way(Sender())
    assert isinstance(desk.files, FakeFiles)
    again = restarted(desk.files.after_kill())
    assert other.offer(again) == 0
    other.send_rest(again)
    check_installed(again, 100)


def test_a_newer_snapshot_begins_anew_and_is_kept_itself() -> None:
    desk, _ = half_way(Sender())
    newer = Sender(meta=a_meta(70), data=a_table(100))
    assert newer.offer(desk) == 0
    assert newer.send_part(desk, 0) == PART_BYTES
    assert isinstance(desk.files, FakeFiles)
    again = restarted(desk.files.after_power_cut(1))
    assert newer.offer(again) == PART_BYTES
    newer.send_rest(again)
    assert again.replica.entries.snapshot.index == 70
    assert again.partition.producers.find_repeat(a_header(100, 0, 3)) is not None


def test_damage_to_what_was_kept_costs_only_what_lies_behind_it() -> None:
    desk, position = half_way(Sender())
    assert isinstance(desk.files, FakeFiles)
    disk = desk.files.after_kill()
    disk.flip_bit(INCOMING, disk.size(disk.open(INCOMING)) - 1)
    again = restarted(disk)
    sender = Sender()
    assert sender.offer(again) == position - PART_BYTES
    sender.send_rest(again)
    check_installed(again)


def test_a_snapshot_in_one_part_needs_no_file() -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    files.fail("open", errno.EIO, path_part="/incoming")
    sender = Sender(data=a_table())
    desk.replica.receive(SnapshotChunk(NodeId(2), SELF, Term(5), sender.meta, 0, sender.data, True))
    desk.work()
    check_installed(desk)


def test_a_disk_that_refuses_the_file_stops_no_transfer(caplog: pytest.LogCaptureFixture) -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    files.fail("write", errno.ENOSPC, path_part="/incoming", skip_count=2)
    Sender().send_rest(desk)
    check_installed(desk)
    assert desk.partition.failure is None
    assert "kept in memory only" in caplog.text


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_a_snapshot_that_could_not_be_stored_does_not_come_back_over_later_entries(is_taken_back: bool) -> None:
    """It has its name when the sync of the directory fails. A new leader has all entries, which are acknowledged; a
    start that found the snapshot would put it in their place. If it cannot be taken back, nothing is acknowledged.
    """
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    sender = Sender()
    position = sender.offer(desk)
    while position + PART_BYTES < len(sender.data):
        position = sender.send_part(desk, position)
    for _ in range(1 if is_taken_back else 2):
        files.fail("sync_directory", errno.EIO, path_part=INCOMING.rpartition("/")[0])
    desk.replica.receive(SnapshotChunk(NodeId(2), SELF, Term(5), sender.meta, position, sender.data[position:], True))
    desk.work()

    own = [Entry(LogIndex(index), LogIndex(index), Term(4), EntryKind.NOTHING, b"", 0) for index in range(1, 20)]
    later = AppendRequest(NodeId(3), SELF, Term(6), LogIndex(0), Term(0), (*own, *entries_of(20, 62)), LogIndex(81))
    for _ in range(2):
        desk.replica.receive(later)
        desk.work()
        desk.wait()
    acked = [message.match for message in desk.sent if isinstance(message, AppendAccepted)]
    assert bool(acked) == is_taken_back
    for disk in (files.after_kill(), *map(files.after_power_cut, range(10))):
        assert restarted(disk).replica.entries.last_index in ({81} if is_taken_back else {0, 60})


def entries_of(first: int, count: int) -> list[Entry]:
    """Batches of one record each, from offset 0 on."""
    made = []
    for number in range(count):
        data = a_batch((b"x",))
        stamp(data, Offset(number), LeaderEpoch(4))
        made.append(
            Entry(
                LogIndex(first + number), LogIndex(first + number), Term(4), EntryKind.PAYLOAD, bytes(data), len(data)
            )
        )
    return made


def test_a_damaged_snapshot_is_forgotten_and_sent_from_the_beginning() -> None:
    sender = Sender(data=a_table()[:-1])
    desk, position = half_way(sender)
    while position > 0:
        # The last part is answered, and then comes the word that all of it has to be sent again.
        position = sender.send_part(desk, position)
    assert isinstance(desk.files, FakeFiles)
    assert not desk.files.exists(INCOMING)
    again = restarted(desk.files.after_kill())
    good = Sender()
    assert good.offer(again) == 0
    good.send_rest(again)
    check_installed(again)


def test_what_entries_have_overtaken_is_removed() -> None:
    desk, _ = half_way(Sender(meta=a_meta(3)))
    assert isinstance(desk.files, FakeFiles)
    assert desk.files.exists(INCOMING)
    entries = tuple(
        Entry(LogIndex(index), LogIndex(index), Term(4), EntryKind.NOTHING, b"", 0) for index in range(1, 5)
    )
    append = AppendRequest(NodeId(2), SELF, Term(5), LogIndex(0), Term(0), entries, LogIndex(2))
    desk.replica.receive(append)
    desk.work()
    assert desk.files.exists(INCOMING)
    desk.replica.receive(
        replace(append, previous_index=LogIndex(4), previous_term=Term(4), entries=(), commit=LogIndex(4))
    )
    desk.work()
    assert not desk.files.exists(INCOMING)


def test_what_an_installed_snapshot_has_overtaken_is_not_loaded() -> None:
    """The power goes after the installation, and before the file is removed."""
    desk, _ = half_way(Sender())
    files = desk.files
    assert isinstance(files, FakeFiles)
    content = files.read(files.open(INCOMING), 1 << 20, 0)
    Sender().send_rest(desk)
    check_installed(desk)
    disk = files.after_kill()
    disk.write(disk.open(INCOMING, create=True), (content,), 0)
    restarted(disk)
    assert not disk.exists(INCOMING)


def test_a_replica_that_begins_again_after_a_full_disk_goes_on_too() -> None:
    sender = Sender()
    desk, position = half_way(sender)
    assert isinstance(desk.files, FakeFiles)
    before = desk.replica.node
    batch = a_batch((b"x",))
    stamp(batch, Offset(0), LeaderEpoch(4))
    entry = Entry(LogIndex(1), LogIndex(1), Term(4), EntryKind.PAYLOAD, bytes(batch), len(batch))
    desk.files.fail("write", errno.ENOSPC, path_part=".log")
    desk.replica.receive(AppendRequest(NodeId(2), SELF, Term(5), LogIndex(0), Term(0), (entry,), LogIndex(0)))
    desk.work()
    assert desk.replica.node is not before
    assert sender.offer(desk) == position
    sender.send_rest(desk)
    check_installed(desk)
    check_restored(desk)


# ---- while a whole snapshot is decoded ----------------------------------------------------------


def received(sender: Sender, desk: ReplicaHarness) -> HeldPool:
    """All of a snapshot has come, and a thread is about to decode it."""
    desk.snapshot_cache.pool = held = HeldPool()
    sender.send_rest(desk)
    assert len(held) == 1
    return held


def test_the_event_loop_goes_on_while_a_snapshot_is_decoded() -> None:
    """Its peers receive messages from this node, and the leader does not send everything again."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    sender = Sender()
    held = received(sender, desk)
    desk.sent.clear()
    for _ in range(3):
        desk.replica.receive(Heartbeat(NodeId(2), SELF, Term(5), LogIndex(0), 0))
        desk.work()
    assert [type(message) for message in desk.sent] == [HeartbeatResponse] * 3
    assert sender.offer(desk) == len(sender.data)
    assert (desk.log.start_offset, desk.replica.entries.snapshot.index) == (0, 0)
    held.run()
    desk.work()
    check_installed(desk)
    check_restored(desk)


class WatchedMachine(ListMachine):
    """Says on which threads its drafts were made."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def draft(self) -> ListMachine:
        machine = self

        class Watched(ListMachine):
            def replay(self, key: bytes, value: bytes | None) -> None:
                machine.threads.add(threading.get_ident())
                super().replay(key, value)

        machine.threads.add(threading.get_ident())
        return Watched()


def test_a_state_is_made_on_a_thread_and_taken_in_one_step() -> None:
    machine = WatchedMachine()
    desk = ReplicaHarness(FakeFiles(), members=GROUP, machine=machine)
    machine.threads.clear()
    records: list[KeyValue] = [(b"key %d" % number, b"value") for number in range(3_000)]
    with ThreadPoolExecutor(1) as pool:
        desk.snapshot_cache.pool = pool
        desk.replica.receive(SnapshotChunk(NodeId(2), SELF, Term(5), a_meta(), 0, encode_state(records), True))
        desk.turn()
        assert machine.records == []
    desk.work()
    assert machine.records == records
    assert len(machine.threads) == 1
    assert threading.get_ident() not in machine.threads


def test_a_snapshot_that_was_decoded_too_late_does_not_take_the_place_of_a_newer_one() -> None:
    for is_damaged in (False, True):
        desk = ReplicaHarness(FakeFiles(), members=GROUP)
        late = Sender(data=a_table()[: -1 if is_damaged else None])
        held = received(late, desk)
        newer = Sender(meta=a_meta(70), data=a_table(100))
        position = newer.send_part(desk, newer.offer(desk))
        held.run()
        desk.work()
        assert desk.replica.entries.snapshot.index == 0
        while position < len(newer.data):
            position = newer.send_part(desk, position)
        held.run()
        desk.work()
        assert desk.replica.entries.snapshot.index == 70
        assert desk.partition.producers.find_repeat(a_header(100, 0, 3)) is not None
        assert len(desk.partition.producers) == PRODUCERS


def test_a_replica_that_begins_again_while_a_snapshot_is_decoded_gets_it_again() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    held = received(Sender(data=a_table(100)), desk)
    before = desk.replica.node
    assert isinstance(desk.files, FakeFiles)
    desk.files.fail("write", errno.ENOSPC, path_part=".log")
    append = AppendRequest(NodeId(2), SELF, Term(5), LogIndex(0), Term(0), tuple(entries_of(1, 1)), LogIndex(0))
    desk.replica.receive(append)
    desk.work()
    assert desk.replica.node is not before
    held.run()
    desk.work()
    assert desk.replica.entries.snapshot.index == 0
    again = received(Sender(), desk)
    again.run()
    desk.work()
    check_installed(desk)


def test_a_late_result_is_not_taken_for_that_of_the_next_transfer() -> None:
    """The same snapshot of the same leader, but its bytes were damaged on the way, the first time or the second."""
    for is_first_damaged in (False, True):
        desk = ReplicaHarness(FakeFiles(), members=GROUP)
        damaged, good = Sender(data=a_table()[:-1]), Sender()
        first = received(damaged if is_first_damaged else good, desk)
        assert isinstance(desk.files, FakeFiles)
        desk.files.fail("write", errno.ENOSPC, path_part=".log")
        append = AppendRequest(NodeId(2), SELF, Term(5), LogIndex(0), Term(0), tuple(entries_of(1, 1)), LogIndex(0))
        desk.replica.receive(append)
        desk.work()
        second = received(good if is_first_damaged else damaged, desk)
        first.run()
        desk.work()
        assert desk.replica.entries.snapshot.index == 0
        second.run()
        desk.work()
        assert desk.replica.entries.snapshot.index == (60 if is_first_damaged else 0)


def test_a_replica_that_is_closed_while_a_snapshot_is_decoded_stays_as_it_is() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    held = received(Sender(), desk)
    desk.partition.close()
    held.run()
    desk.work()
    assert (desk.log.start_offset, desk.replica.node) == (0, None)


def test_what_entries_have_overtaken_while_it_is_decoded_is_not_installed() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    held = received(Sender(meta=a_meta(3)), desk)
    own = [Entry(LogIndex(index), LogIndex(index), Term(4), EntryKind.NOTHING, b"", 0) for index in range(1, 5)]
    append = AppendRequest(NodeId(2), SELF, Term(5), LogIndex(0), Term(0), tuple(own), LogIndex(4))
    desk.replica.receive(append)
    desk.work()
    held.run()
    desk.work()
    assert (desk.log.start_offset, desk.replica.entries.last_index) == (0, 4)
    assert desk.replica.node is not None
    assert desk.replica.node.commit_index == 4


def test_sound_bytes_that_cannot_be_replayed_are_a_bug_and_not_damage() -> None:
    """To ask for them again would be to get them again, for ever."""

    class Picky(ListMachine):
        def draft(self) -> ListMachine:
            return Picky()

        def replay(self, key: bytes, value: bytes | None) -> None:
            raise ValueError("a record of another version")

    desk = ReplicaHarness(FakeFiles(), members=GROUP, machine=Picky())
    desk.replica.receive(SnapshotChunk(NodeId(2), SELF, Term(5), a_meta(), 0, encode_state([(b"key", b"")]), True))
    with pytest.raises(ValueError, match="another version"):
        desk.work()
