"""A replica on a disk: what it promised is there after any crash, and a crash leaves a prefix of its writes.

The replica is driven by messages as a leader sends them, on a fake disk that loses power at every single step.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from drmq.broker.partitions.derived_state import BASE_SNAPSHOT, INSTALL_SNAPSHOT
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.replication.entry_log import encode_trim
from drmq.model import ApiError, ErrorCode, LeaderEpoch, NodeId, Offset
from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    LogIndex,
    PreVoteRequest,
    PreVoteResponse,
    Role,
    SnapshotChunk,
    SnapshotMeta,
    Term,
    VoteRequest,
    VoteResponse,
)
from drmq.records import stamp
from drmq.storage import LogFenced
from drmq.testing.files import FakeFiles, PowerCut
from support.batches import a_batch, a_header
from support.broker_harness import Harness
from support.harness_leader import Leader, Plain, answers, on_disk, plain, receive
from support.replica_harness import SELF, TOPIC, ReplicaHarness

GROUP = (1, 2, 3)
SEEDS = range(3)


# ---- following -------------------------------------------------------------------------------------


def test_what_a_leader_sends_is_accepted_once_it_is_durable() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    leader = Leader(2, 1).batch(b"a", b"b").batch(b"c")
    receive(desk, leader.appends(1))
    assert answers(desk, AppendAccepted) == []
    desk.work()
    assert answers(desk, AppendAccepted)[-1:] == [AppendAccepted(SELF, NodeId(2), Term(1), LogIndex(4))]
    assert on_disk(desk) == plain(leader.log)
    assert (desk.partition.next_offset, desk.partition.high_watermark) == (3, 0)
    receive(desk, leader.heartbeat(commit=3))
    assert desk.partition.high_watermark == 2
    receive(desk, leader.heartbeat(commit=4))
    assert desk.partition.high_watermark == 3


def test_a_follower_that_begins_again_hears_the_high_watermark_from_its_leader() -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    leader = Leader(2, 1).batch(b"a", b"b").batch(b"c")
    receive(desk, leader.appends(1))
    desk.work()
    receive(desk, leader.heartbeat(commit=4))
    assert (desk.partition.high_watermark, desk.partition.knows_high_watermark) == (3, True)
    again = ReplicaHarness(files.after_power_cut(1), members=GROUP, is_old=True)
    # It stored what is committed, and does not remember that it is.
    assert (again.partition.next_offset, again.partition.high_watermark) == (3, 0)
    receive(again, leader.heartbeat(commit=0))
    assert again.partition.leader == NodeId(2)
    assert (again.partition.high_watermark, again.partition.knows_high_watermark) == (0, False)
    receive(again, leader.heartbeat(commit=4))
    assert (again.partition.high_watermark, again.partition.knows_high_watermark) == (3, True)


def test_a_follower_takes_no_appends_and_says_who_leads() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    receive(desk, Leader(2, 1).heartbeat(0))
    with pytest.raises(ApiError, match="led by node 2") as caught:
        desk.append()
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_replaces_what_was_never_committed() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    old = Leader(2, 1).batch(b"kept").batch(b"lost").trim(1).batch(b"lost too")
    receive(desk, old.appends(1))
    desk.work()
    new = Leader(3, 4, old.log[:2]).batch(b"new", b"er")
    receive(desk, new.appends(3))
    desk.work()
    assert on_disk(desk) == plain(new.log)
    assert desk.partition.next_offset == 3
    assert answers(desk, AppendAccepted)[-1] == AppendAccepted(SELF, NodeId(3), Term(4), LogIndex(5))


def test_a_replacement_while_the_replaced_is_still_on_its_way_to_the_disk() -> None:
    for is_quick in (False, True):
        desk = ReplicaHarness(FakeFiles(), members=GROUP, is_quick=is_quick)
        old = Leader(2, 1).batch(b"kept").batch(b"lost", b"and", b"long")
        receive(desk, old.appends(1))
        new = Leader(3, 2, old.log[:2]).batch(b"new")
        receive(desk, new.appends(3))
        newest = Leader(2, 5, new.log[:3]).batch(b"newest", b"of", b"all")
        receive(desk, newest.appends(4))
        desk.work()
        assert on_disk(desk) == plain(newest.log)
        assert answers(desk, AppendAccepted)[-1] == AppendAccepted(SELF, NodeId(2), Term(5), newest.last_index)


def test_producers_of_replaced_batches_are_forgotten() -> None:
    """Else the retry of a lost batch would be taken for a repeat, and never be written."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    leader = Leader(2, 1)
    batch = a_batch(producer_id=7, epoch=0, sequence=0)
    stamp(batch, Offset(0), LeaderEpoch(1))
    leader.log.append(Entry(LogIndex(2), LogIndex(2), Term(1), EntryKind.PAYLOAD, bytes(batch), len(batch)))
    receive(desk, leader.appends(1))
    desk.work()
    repeat = a_header(7, 0, 0)
    assert desk.partition.producers.find_repeat(repeat) is not None
    receive(desk, Leader(3, 2, leader.log[:1]).appends(2))
    desk.work()
    assert desk.partition.producers.find_repeat(repeat) is None


def test_producers_of_a_follower_are_not_taken_for_idle() -> None:
    """A replica that has forgotten its producers and becomes leader would take their retries for new batches."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    leader = Leader(2, 1)
    batch = a_batch(producer_id=7, epoch=0, sequence=0)
    stamp(batch, Offset(0), LeaderEpoch(1))
    leader.log.append(Entry(LogIndex(2), LogIndex(2), Term(1), EntryKind.PAYLOAD, bytes(batch), len(batch)))
    receive(desk, leader.appends(1))
    desk.work()
    assert desk.partition.producers.forget_idle(desk.clock.now_ms) == 0
    assert desk.partition.producers.find_repeat(a_header(7, 0, 0)) is not None


def test_a_leader_deposed_before_its_batches_are_queued_takes_them_in_once() -> None:
    """Else they would push each other out of the few that are remembered."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    lead(desk)
    assert desk.replica.node is not None
    for sequence in range(5):
        desk.partition.append(a_batch(producer_id=7, epoch=0, sequence=sequence), 5_000)
        if sequence == 2:
            desk.turn()
    desk.replica.receive(Heartbeat(NodeId(2), SELF, Term(desk.replica.node.term + 1), LogIndex(0), 0))
    desk.work()
    assert not desk.partition.is_leader
    for sequence in range(5):
        repeat = desk.partition.producers.find_repeat(a_header(7, 0, sequence))
        assert repeat is not None
        assert repeat.base_offset == sequence


# ---- crashes ---------------------------------------------------------------------------------------


class Story:
    """The messages of a follower, step by step, and what it has promised."""

    def __init__(self, files: FakeFiles, is_quick: bool) -> None:
        self.files = files
        self.desk = ReplicaHarness(files, members=GROUP, is_quick=is_quick)
        self.logs: list[list[Plain]] = [[]]
        self.terms = [0]
        self.floor = 0
        """The index up to which the log must be there, as it is in the last of `logs`."""
        self.term = 0
        """The latest term that this replica has sent to another node."""

    def tell(self, leader: Leader, start: int) -> None:
        before = self.logs[-1]
        kept = [entry for entry in plain(leader.log) if entry in before]
        if len(kept) < len(before):
            self.floor = min(self.floor, kept[-1][1] if kept else 0)
        self.logs.append(plain(leader.log))
        self.terms.append(leader.term)
        receive(self.desk, leader.appends(start))
        self.listen()

    def ask_for_vote(self, candidate: int, term: int) -> None:
        receive(self.desk, VoteRequest(NodeId(candidate), SELF, Term(term), LogIndex(99), Term(term - 1), True))
        self.listen()

    def work(self) -> None:
        try:
            self.desk.work()
        finally:
            self.listen()

    def listen(self) -> None:
        for message in self.desk.sent:
            if isinstance(message, AppendAccepted):
                self.floor = max(self.floor, self._still_promised(message))
            if isinstance(message, VoteResponse | AppendAccepted | AppendRejected):
                self.term = max(self.term, message.term)
        self.desk.sent.clear()

    def _still_promised(self, accepted: AppendAccepted) -> int:
        """What a later leader has not replaced meanwhile of what is accepted."""
        position = max(number for number, term in enumerate(self.terms) if term == accepted.term)
        kept = [entry for entry in self.logs[position] if entry[1] <= accepted.match]
        for later in self.logs[position:]:
            kept = [entry for entry in kept if entry in later]
        return kept[-1][1] if kept else 0

    def check(self, files: FakeFiles) -> ReplicaHarness:
        """A replica on what is left: with everything it promised, and a prefix of what it received."""
        desk = ReplicaHarness(files, members=GROUP, is_old=True)
        found = on_disk(desk)
        assert any(log[: len(found)] == found for log in self.logs), found
        if found[-1:] != self.logs[-1][-1:]:
            assert (found[-1][1] if found else 0) >= self.floor
        promised = [entry for entry in self.logs[-1] if entry[1] <= self.floor]
        assert found[: len(promised)] == promised
        assert desk.replica.ledger.ballot.term >= self.term
        return desk


def follow(story: Story, *, work_between: bool) -> None:
    """A few leaders in sequence, each of which has less than the follower."""

    def go() -> None:
        if work_between:
            story.work()

    first = Leader(2, 1).batch(b"a", b"b")
    story.tell(first, 1)
    go()
    first.batch(b"c").trim(1).batch(b"d" * 40, b"e")
    story.tell(first, 4)
    go()
    second = Leader(3, 3, first.log[:3]).batch(b"C")
    story.tell(second, 5)
    go()
    story.ask_for_vote(2, 5)
    go()
    third = Leader(2, 6, second.log[:2]).trim(1).trim(2).batch(b"last", b"word")
    story.tell(third, 4)
    go()
    story.ask_for_vote(3, 9)
    story.work()


def crashes(tell: Callable[[Story], None], *, is_quick: bool) -> Iterator[Story]:
    """The story with the power cut at its first step, its second, and so on."""
    crash_at = 0
    while True:
        files = FakeFiles()
        story = Story(files, is_quick)
        crash_at += 1
        files.crash_at = files.step + crash_at
        try:
            tell(story)
        except PowerCut:
            yield story
        else:
            assert crash_at > 20
            return


@pytest.mark.parametrize("is_quick", [False, True])
@pytest.mark.parametrize("work_between", [False, True])
def test_a_power_cut_at_any_step_leaves_what_was_promised(work_between: bool, is_quick: bool) -> None:
    for story in crashes(lambda story: follow(story, work_between=work_between), is_quick=is_quick):
        story.listen()
        for seed in SEEDS:
            disk = story.files.after_power_cut(seed)
            desk = story.check(disk)
            # And it goes on from there: a leader that knows nothing of all this is followed.
            leader = Leader(3, 20).batch(b"all", b"new")
            receive(desk, leader.appends(1))
            desk.work()
            assert on_disk(desk) == plain(leader.log)


@pytest.mark.parametrize("is_quick", [False, True])
def test_a_kill_at_any_step_leaves_what_was_promised(is_quick: bool) -> None:
    for story in crashes(lambda story: follow(story, work_between=True), is_quick=is_quick):
        story.listen()
        story.check(story.files.after_kill())


def test_a_vote_does_not_vouch_for_batches_that_are_not_synced_yet() -> None:
    """All in one cycle of the writer: a vote, a batch, a vote. The second vote is stored before the batch is synced."""
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP, is_quick=True)
    leader = Leader(2, 1).batch(b"a")
    receive(desk, leader.appends(1))
    desk.replica.receive(VoteRequest(NodeId(3), SELF, Term(5), LogIndex(99), Term(4), True))
    desk.turn()
    files.fail("sync", errno.EIO, path_part=".log")
    desk.work()
    assert answers(desk, AppendAccepted) == []


def test_alone_everything_that_was_answered_is_there_after_a_power_cut() -> None:
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        files = FakeFiles(crash_at=crash_at)
        heard: list[tuple[str, ErrorCode]] = []
        try:
            desk = ReplicaHarness(files)
            desk.heard = heard
            for number in range(4):
                desk.hear_durable(str(number), desk.append(b"%d" % number))
                desk.hear_durable("again", desk.append(b"twin"))
                desk.work()
                if number == 1:
                    desk.partition.trim(Offset(1), lambda error: None)
                    desk.work()
            finished = True
        except PowerCut:
            pass
        for seed in SEEDS:
            again = ReplicaHarness(files.after_power_cut(seed), is_old=True)
            assert again.partition.is_serving
            assert again.partition.high_watermark >= len(heard)
            stored = again.log.read(Offset(0), 1 << 20, again.partition.high_watermark)
            assert stored is not None or again.partition.high_watermark == 0
            assert again.produce(b"next") == again.partition.high_watermark
    assert len(heard) == 8


# ---- failures --------------------------------------------------------------------------------------


def test_batches_behind_a_lost_entry_of_the_ledger_are_not_appended() -> None:
    """They are of a term that the log would not know, and every later index would be wrong."""
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    leader = Leader(2, 1).batch(b"a")
    receive(desk, leader.appends(1))
    desk.work()
    files.fail("write", errno.EIO, path_part="ledger")
    newer = Leader(3, 2, leader.log).batch(b"b")
    receive(desk, newer.appends(3))
    desk.work()
    assert desk.log.end_offset == 1
    assert desk.partition.failure is not None
    again = ReplicaHarness(files.after_kill(), members=GROUP, is_old=True)
    assert on_disk(again) == plain(leader.log)


def test_a_full_disk_under_the_ledger_voids_what_is_queued_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files)
    monkeypatch.setattr(type(desk.replica.ledger), "append", no_room)
    desk.partition.trim(Offset(0), lambda error: desk.heard.append(("trim", error)))
    desk.turn()
    desk.hear_durable("behind", desk.append(b"x"))
    desk.turn()
    desk.writer.run_cycle()
    desk.turn()
    assert desk.heard == [("behind", ErrorCode.KAFKA_STORAGE_ERROR), ("trim", ErrorCode.KAFKA_STORAGE_ERROR)]
    assert desk.log.end_offset == 0
    monkeypatch.undo()
    desk.work()
    desk.wait()
    assert desk.produce(b"y") == 1


def no_room(*_: object) -> None:
    raise LogFenced("ledger", "no room")


def test_a_follower_whose_append_failed_begins_again_and_asks_for_the_rest() -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    leader = Leader(2, 1).batch(b"a")
    receive(desk, leader.appends(1))
    desk.work()
    files.fail("write", errno.ENOSPC, path_part=".log")
    leader.batch(b"b")
    receive(desk, leader.appends(3))
    desk.work()
    assert answers(desk, AppendAccepted)[-1] == AppendAccepted(SELF, NodeId(2), Term(1), LogIndex(2))
    assert (desk.partition.failure, desk.partition.next_offset) == (None, 1)
    receive(desk, leader.appends(3))
    desk.work()
    assert answers(desk, AppendAccepted)[-1] == AppendAccepted(SELF, NodeId(2), Term(1), LogIndex(3))
    assert on_disk(desk) == plain(leader.log)


def test_a_disk_that_stays_full_is_not_worn_out_with_elections() -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files)
    files.fail("write", errno.ENOSPC, path_part=".log", fail_count=1_000)
    waits = []
    for _ in range(8):
        desk.append()
        desk.work()
        waits += [delay for delay, _ in desk.later]
        desk.wait()
    assert len(waits) == 7
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] <= 2
    files.forget_faults()
    assert desk.produce() == 1
    files.fail("write", errno.ENOSPC, path_part=".log")
    desk.produce()
    assert desk.later == []
    assert desk.partition.is_serving


def test_a_closed_replica_does_not_begin_again() -> None:
    files = FakeFiles()
    desk = ReplicaHarness(files)
    files.fail("write", errno.ENOSPC, path_part=".log")
    desk.append()
    desk.turn()
    desk.writer.run_cycle()
    desk.turn()
    desk.partition.close()
    desk.work()
    assert desk.replica.node is None


# ---- snapshots -------------------------------------------------------------------------------------


def a_snapshot() -> tuple[SnapshotMeta, bytes]:
    table = ProducerTable()
    table.apply(a_header(7, 0, 3, base_offset=40), seen_ms=0)
    configuration = Configuration.of([NodeId(number) for number in (1, 2, 4)])
    return SnapshotMeta(LogIndex(60), Term(4), configuration, encode_trim(Offset(41))), table.to_bytes()


def chunks() -> list[SnapshotChunk]:
    meta, data = a_snapshot()
    half = len(data) // 2
    sender, term = NodeId(2), Term(5)
    return [
        SnapshotChunk(sender, SELF, term, meta, 0, b"", False),
        SnapshotChunk(sender, SELF, term, meta, 0, data[:half], False),
        SnapshotChunk(sender, SELF, term, meta, half, data[half:], True),
    ]


def check_installed(desk: ReplicaHarness) -> None:
    meta, _ = a_snapshot()
    partition, entries = desk.partition, desk.replica.entries
    assert (partition.log.start_offset, partition.next_offset) == (41, 41)
    assert (entries.first_index, entries.last_index, entries.term_at(LogIndex(60))) == (61, 60, 4)
    assert entries.snapshot == meta
    assert partition.producers.find_repeat(a_header(7, 0, 3)) is not None
    assert desk.replica.node is not None
    assert desk.replica.node.configuration == meta.configuration
    snapshots = desk.store.snapshots(TOPIC.name, TOPIC.topic_id, 0)
    assert (snapshots.offsets(INSTALL_SNAPSHOT), snapshots.offsets(BASE_SNAPSHOT)) == ([], [41])


def test_a_snapshot_takes_the_place_of_the_log() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    receive(desk, Leader(3, 1).batch(b"old", b"and").batch(b"gone").appends(1))
    desk.work()
    for chunk in chunks():
        receive(desk, chunk)
        desk.work()
    check_installed(desk)
    assert desk.partition.high_watermark == 41
    assert answers(desk, AppendAccepted)[-1] == AppendAccepted(SELF, NodeId(2), Term(5), LogIndex(60))
    again = ReplicaHarness(desk.files.after_power_cut(1), members=GROUP, is_old=True)  # type: ignore[union-attr]
    check_installed(again)


def test_what_follows_a_snapshot_is_not_committed_with_it() -> None:
    """The writer may append the next leader's batch before the event loop knows that the snapshot is installed."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    for chunk in chunks()[:-1]:
        receive(desk, chunk)
        desk.work()
    receive(desk, chunks()[-1])
    node = desk.replica.node
    assert node is not None
    while node.last_index != 60:
        desk.writer.run_cycle()
        desk.turn()
    assert desk.replica.is_busy, "the snapshot is on its way to its place"
    batch = a_batch([b"never", b"committed"])
    stamp(batch, Offset(41), LeaderEpoch(6))
    first = Entry(LogIndex(61), LogIndex(61), Term(6), EntryKind.NOTHING, b"", 0)
    second = Entry(LogIndex(62), LogIndex(63), Term(6), EntryKind.PAYLOAD, bytes(batch), len(batch))
    receive(desk, AppendRequest(NodeId(3), SELF, Term(6), LogIndex(60), Term(4), (first, second), LogIndex(60)))
    while desk.writer.has_work:
        desk.writer.run_cycle()
    desk.turn()
    assert (desk.partition.high_watermark, desk.partition.next_offset, node.commit_index) == (41, 43, 60)
    # Another leader has something else in its place.
    other = Entry(LogIndex(61), LogIndex(61), Term(7), EntryKind.NOTHING, b"", 0)
    receive(desk, AppendRequest(NodeId(2), SELF, Term(7), LogIndex(60), Term(4), (other,), LogIndex(60)))
    desk.work()
    assert (desk.partition.high_watermark, desk.partition.next_offset, desk.log.end_offset) == (41, 41, 41)


def test_a_damaged_snapshot_is_not_installed() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    offer, first, last = chunks()
    for chunk in (offer, first, SnapshotChunk(*_fields(last)[:5], bytes(last.data)[:-1], True)):
        receive(desk, chunk)
        desk.work()
    assert desk.replica.entries.first_index == 1
    assert answers(desk, AppendAccepted) == []


def _fields(chunk: SnapshotChunk) -> tuple[NodeId, NodeId, Term, SnapshotMeta, int]:
    return chunk.sender, chunk.target, chunk.term, chunk.meta, chunk.offset


def test_a_crash_while_a_snapshot_is_installed_leaves_the_old_log_or_the_new() -> None:
    old = Leader(3, 1).batch(b"old", b"and").trim(1).batch(b"gone")
    outcomes = set()
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        files = FakeFiles()
        desk = ReplicaHarness(files, members=GROUP)
        receive(desk, old.appends(1))
        desk.work()
        desk.sent.clear()
        files.crash_at = files.step + crash_at
        try:
            for chunk in chunks():
                receive(desk, chunk)
                desk.work()
            finished = True
        except PowerCut:
            pass
        was_accepted = bool(answers(desk, AppendAccepted))
        for disk in (*map(files.after_power_cut, SEEDS), files.after_kill()):
            again = ReplicaHarness(disk, members=GROUP, is_old=True)
            if again.log.start_offset == 0:
                assert on_disk(again) == plain(old.log)
                assert not was_accepted
                outcomes.add("old")
            else:
                check_installed(again)
                outcomes.add("new")
    assert outcomes == {"old", "new"}
    assert crash_at > 10


def test_a_crash_while_an_installation_is_finished_after_a_crash() -> None:
    """Opening does it again from the beginning, however often it is stopped."""
    files = FakeFiles()
    desk = ReplicaHarness(files, members=GROUP)
    receive(desk, Leader(3, 1).batch(b"old").appends(1), Leader(2, 5).heartbeat(0))
    desk.work()
    meta, data = a_snapshot()
    desk.partition.state.save_snapshot(meta, data)
    stopped = 0
    for crash_at in range(1, 200):
        disk = files.after_power_cut(crash_at)
        disk.crash_at = crash_at
        try:
            ReplicaHarness(disk, members=GROUP, is_old=True)
        except PowerCut:
            stopped += 1
        check_installed(ReplicaHarness(disk.after_power_cut(crash_at), members=GROUP, is_old=True))
        if stopped < crash_at:
            break
    assert stopped > 10


# ---- leading ---------------------------------------------------------------------------------------


def test_a_leader_serves_only_once_it_has_committed_something_of_its_own_term() -> None:
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    receive(desk, Leader(2, 1).batch(b"a").appends(1, commit=2))
    desk.work()
    lead(desk)
    partition = desk.partition
    assert partition.next_offset == 1
    before = partition.may_read
    with pytest.raises(ApiError):
        partition.check_serving()
    receive(desk, AppendAccepted(NodeId(2), SELF, Term(partition.leader_epoch), LogIndex(3)))
    desk.work()
    assert (before, partition.may_read) == (False, True)
    assert desk.announced == [partition]


def test_the_newest_time_is_that_of_committed_records() -> None:
    """A newer batch is on the leader's disk alone: no answer may say that it exists, nor that it does not."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    lead(desk)
    partition, node = desk.partition, desk.replica.node
    assert node is not None
    partition.append(a_batch([b"a", b"b"], timestamp_ms=1_000), 5_000)
    desk.work()
    receive(desk, AppendAccepted(NodeId(2), SELF, Term(partition.leader_epoch), node.last_index))
    partition.append(a_batch([b"c"], timestamp_ms=2_000), 5_000)
    desk.work()
    assert (partition.high_watermark, partition.log.end_offset) == (2, 3)
    with Harness() as harness:
        assert harness.run(harness.broker.services.lookups.max_time(partition)) == (0, 1_000)


def test_a_new_leader_counts_anew_on_how_many_replicas_a_batch_is() -> None:
    """As a follower it knew what was committed, which with min.insync.replicas above a majority is not enough."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP, min_insync_replicas="3")
    receive(desk, Leader(2, 1).batch(b"a").appends(1, commit=2))
    desk.work()
    assert desk.partition.high_watermark == 1
    lead_with_quorum(desk)
    # The retry of a batch that is in the log already waits for this.
    desk.hear_durable("a", Offset(1))
    assert desk.heard == []
    receive(desk, AppendAccepted(NodeId(3), SELF, Term(desk.partition.leader_epoch), LogIndex(3)))
    desk.work()
    desk.partition.update_acked()
    assert desk.heard == [("a", ErrorCode.NONE)]


def test_a_new_leader_knows_that_what_is_committed_is_acknowledged() -> None:
    """If a majority is enough, the retry of a committed batch does not wait."""
    desk = ReplicaHarness(FakeFiles(), members=GROUP)
    receive(desk, Leader(2, 1).batch(b"a").appends(1, commit=2))
    desk.work()
    lead(desk)
    desk.hear_durable("a", Offset(1))
    assert desk.heard == [("a", ErrorCode.NONE)]


def lead_with_quorum(desk: ReplicaHarness) -> None:
    """Lead, with a follower that has all of the log."""
    lead(desk)
    node = desk.replica.node
    assert node is not None
    receive(desk, AppendAccepted(NodeId(2), SELF, node.term, node.last_index))
    desk.work()


def lead(desk: ReplicaHarness) -> None:
    """Win an election with the votes of the others."""
    node = desk.replica.node
    assert node is not None
    node.on_leader_lost()
    desk.replica.campaign()
    desk.work()
    for _ in range(4):
        questions = list(desk.sent)
        desk.sent.clear()
        for question in questions:
            if isinstance(question, PreVoteRequest):
                receive(desk, PreVoteResponse(question.target, SELF, question.term, question.campaign_term, True))
            elif isinstance(question, VoteRequest):
                receive(desk, VoteResponse(question.target, SELF, question.term, True))
            desk.work()
    assert node.role is Role.LEADER
