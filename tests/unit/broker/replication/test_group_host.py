"""The replicas of a node together: ticks, messages, quiesced groups, leader announcements. No sockets, no waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

import pytest

from drmq.broker import MemoryLogs, Partition
from drmq.broker.partitions.partition_table import PartitionTable
from drmq.broker.replication.entry_log import Batch, encode_trim
from drmq.broker.replication.group_host import GroupHost
from drmq.broker.replication.outgoing_snapshot import SnapshotCache
from drmq.catalog import Topic, TopicDefaults, effective
from drmq.model import ApiError, ErrorCode, GroupId, MemberId, NodeId, Offset, TopicId
from drmq.raft import AppendRequest, Entry, EntryKind, LogIndex, RaftOptions, Term
from drmq.storage import Log, StorageError, Writer
from drmq.transport.peers import ConnectionKind, Hello, Identity, LeaderNotice, Network, PeerMessage, Sleep, Wake
from support.batches import a_batch
from support.broker_harness import TurnableLoop
from support.replica_harness import FrozenClock, InlinePool, OneMachine

TICK_S = 1_000.0
"""Long enough that no real time counts."""
TOPIC = Topic(TopicId(b"T" * 16), "orders", ())
OPTIONS = RaftOptions()
LARGE_BYTES = 900_000
COPY_BYTES_PER_S = 100
COPY_TICKS = 10
"""At least so long does it take to copy a large batch; two of them do not fit into one message."""
SELF, LEARNER = MemberId(NodeId(1)), MemberId(NodeId(2))
ASLEEP_TICKS = 40
"""Enough for an election and for sleep."""


def as_received(message: PeerMessage) -> PeerMessage:
    """The message as a peer gets it: batches are bytes again."""
    if not isinstance(message, AppendRequest):
        return message
    entries = [
        replace(entry, payload=bytes(entry.payload.data)) if isinstance(entry.payload, Batch) else entry
        for entry in message.entries
    ]
    return replace(message, entries=tuple(entries))


class Place:
    """One node: a host, its partitions and its writer. Implements `storage.WriterEvents`, and `peers.Network`."""

    def __init__(self, room: Room, node_id: int) -> None:
        self.room = room
        self.node_id = NodeId(node_id)
        self.writer = Writer(self, sync_threads=1)
        self.host = GroupHost(
            self.node_id, self.writer, InlinePool(), Random(node_id), OPTIONS, TICK_S, COPY_BYTES_PER_S
        )
        self.host.network = cast(Network, self)
        self.table = PartitionTable(
            MemoryLogs(),
            self.host,
            self.writer,
            InlinePool(),
            SnapshotCache(InlinePool()),
            FrozenClock(),
            OneMachine(None),
        )
        self.table.member = MemberId(self.node_id)
        self.sent: list[PeerMessage] = []
        self.sent_of_groups: list[tuple[int, PeerMessage]] = []
        self.unheard: set[NodeId] = set()
        """Nodes that this one takes for dead, though messages of groups come and go."""
        self.disk_hangs = False

    def add(self, index: int = 0, members: Sequence[int] = (1, 2, 3), **configs: str) -> Partition:
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        group = [MemberId(NodeId(member)) for member in members]
        partition = self.table.make(TOPIC, index, effective(settings, TopicDefaults()), group)
        self.table.publish(partition)
        return partition

    def open_again(self, preferred: NodeId) -> None:
        """Open the replica of partition 0 as a node that has started does."""
        self.host.rejoin(self.add(), preferred)

    @property
    def partition(self) -> Partition:
        found = self.host.get(GroupId(TOPIC.topic_id, 0))
        assert found is not None
        return found

    @property
    def is_asleep(self) -> bool:
        return self.partition.replica.asleep and GroupId(TOPIC.topic_id, 0) not in self.host._awake

    # ---- Network --------------------------------------------------------------------------------

    @property
    def peers(self) -> Mapping[NodeId, None]:
        return {place.node_id: None for place in self.room.places if place is not self}

    def is_up(self, node_id: NodeId) -> bool:
        return node_id not in self.unheard and self.room.reaches(self.node_id, node_id)

    def send(self, node_id: NodeId, group: GroupId, message: PeerMessage) -> None:
        self.sent.append(message)
        self.sent_of_groups.append((group.partition, message))
        if self.room.reaches(self.node_id, node_id):
            target = self.room.place(node_id)
            arrives = as_received(message)
            asyncio.get_running_loop().call_soon(target.host.on_group_message, self.node_id, group, arrives)

    def flush(self) -> None:
        return

    def notify(self, node_id: NodeId, notices: Sequence[LeaderNotice]) -> None:
        if self.is_up(node_id):
            asyncio.get_running_loop().call_soon(self.room.place(node_id).host.on_notices, notices)

    # ---- WriterEvents ---------------------------------------------------------------------------

    def on_written(self, results: list[tuple[Log, Offset]]) -> None:
        self.host.call_on_loop(self.table.on_written, results)

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
        self.host.call_on_loop(self.table.on_flushed, results)

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
        self.host.call_on_loop(self.table.on_failed, log, error, end_offset)

    def on_crashed(self, error: BaseException) -> None:
        raise error


class Room:
    """Some nodes on one event loop."""

    def __init__(self, nodes: int) -> None:
        self.loop = TurnableLoop()
        self.gone: set[int] = set()
        self.places = [Place(self, number) for number in range(1, nodes + 1)]
        self.call(self._start)

    def _start(self) -> None:
        for place in self.places:
            place.host.start()

    def close(self) -> None:
        for place in self.places:
            place.host.stop()
        self.loop.close()

    def place(self, node_id: int) -> Place:
        return self.places[node_id - 1]

    def reaches(self, sender: int, target: int) -> bool:
        return sender not in self.gone and target not in self.gone

    def call(self, function: Any) -> Any:
        async def calling() -> Any:
            result = function()
            await self._settle()
            return result

        return self.loop.run_until_complete(calling())

    async def _settle(self) -> None:
        await asyncio.sleep(0)
        ready = self.loop._ready  # type: ignore[attr-defined]
        while ready or any(place.writer.has_work and not place.disk_hangs for place in self.places):
            for place in self.places:
                if not place.disk_hangs:
                    place.writer.run_cycle()
            await asyncio.sleep(0)

    def ticks(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop.ahead_s += TICK_S
            self.call(lambda: None)

    def make_group(self, nodes: Sequence[int] = (1, 2, 3), **configs: str) -> None:
        self.call(lambda: [self.place(node).add(0, nodes, **configs) for node in nodes])

    @property
    def leader(self) -> Place:
        [leader] = [
            place
            for place in self.places
            if place.node_id not in self.gone and any(partition.is_serving for partition in place.host)
        ]
        return leader

    def produce(self, place: Place) -> list[ErrorCode]:
        heard: list[ErrorCode] = []

        def send() -> None:
            appended = place.partition.append(a_batch(), 0)
            place.partition.when_durable(appended.next_offset, heard.append)

        self.call(send)
        return heard

    def greet(self, place: Place, node_id: int, boot_id: bytes) -> None:
        """A node notices that another one is up."""
        identity = Identity("cluster", NodeId(node_id), 0, 1, boot_id, "host", 1)
        self.call(lambda: place.host.on_peer_up(Hello.of(identity, ConnectionKind.HEARTBEAT, place.node_id)))

    def remove(self, node_id: int) -> None:
        """A node is gone, and the others notice."""

        def go() -> None:
            self.gone.add(node_id)
            self.place(node_id).host.stop()
            for place in self.places:
                if place.node_id not in self.gone:
                    place.host.on_peer_down(NodeId(node_id))

        self.call(go)


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room(4)
    yield made
    made.close()


def test_a_leader_is_elected_and_everyone_hears_of_it(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    group = leader.partition.group
    for place in room.places:
        notice = place.host.leaders[group]
        assert (notice.leader, notice.term) == (leader.node_id, leader.partition.leader_epoch)
        assert notice.in_sync == (1, 2, 3)


def test_what_is_appended_is_committed_everywhere(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    assert room.produce(room.leader) == [ErrorCode.NONE]
    room.ticks(2)
    assert [room.place(node).partition.high_watermark for node in (1, 2, 3)] == [1, 1, 1]


# ---- sleep -----------------------------------------------------------------------------------------


def test_an_idle_group_sends_nothing(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    assert all(room.place(node).is_asleep for node in (1, 2, 3))
    for place in room.places:
        place.sent.clear()
    term = room.leader.partition.leader_epoch
    room.ticks(5 * OPTIONS.election_timeout_ticks)
    assert [place.sent for place in room.places] == [[]] * 4
    assert room.leader.partition.leader_epoch == term


def test_a_group_on_one_node_falls_asleep_too(room: Room) -> None:
    room.make_group((1,))
    room.ticks(ASLEEP_TICKS)
    assert room.place(1).is_asleep
    assert room.produce(room.place(1)) == [ErrorCode.NONE]


def test_an_append_wakes_everyone_and_sleep_comes_back(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    assert room.produce(room.leader) == [ErrorCode.NONE]
    assert not any(room.place(node).is_asleep for node in (1, 2, 3))
    room.ticks(ASLEEP_TICKS)
    assert all(room.place(node).is_asleep for node in (1, 2, 3))
    assert [room.place(node).partition.high_watermark for node in (1, 2, 3)] == [1, 1, 1]


def test_the_death_of_a_leader_that_sleeps_is_noticed(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    term = before.partition.leader_epoch
    room.remove(before.node_id)
    room.ticks(3 * OPTIONS.election_timeout_ticks)
    assert room.leader is not before
    assert room.leader.partition.leader_epoch > term
    assert room.produce(room.leader) == [ErrorCode.NONE]
    assert room.place(4).host.leaders[before.partition.group].leader == room.leader.node_id


def test_a_leader_that_is_cut_off_loses_its_role_and_its_end_and_counts_both(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    room.produce(before)  # all are awake then
    room.gone.add(before.node_id)
    room.produce(before)
    room.ticks(4 * OPTIONS.election_timeout_ticks)
    room.gone.clear()
    room.ticks(ASLEEP_TICKS)
    counts = {place: (place.table.events.lost, place.table.events.truncations) for place in room.places}
    assert counts == {**dict.fromkeys(room.places, (0, 0)), before: (1, 1)}


def test_a_node_that_comes_back_as_another_process_wakes_its_groups(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)

    room.greet(room.place(1), 2, b"first")
    assert room.place(1).is_asleep
    room.greet(room.place(1), 2, b"first")
    assert room.place(1).is_asleep
    room.greet(room.place(1), 2, b"second")
    assert not room.place(1).is_asleep


def test_a_group_sleeps_on_without_a_node_that_is_down_and_wakes_up_when_it_returns(room: Room) -> None:
    """A node that is down must not keep all its groups awake. One connection of it may be slow to reconnect while
    others work: it is not up, and its replicas answer. When it is up, an intact replica counts as in sync again."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    group = leader.partition.group
    other = NodeId(next(node for node in (1, 2, 3) if node != leader.node_id))
    leader.unheard.add(other)
    room.call(lambda: leader.host.on_peer_down(other))
    assert leader.is_asleep
    assert other not in leader.partition.in_sync
    assert room.produce(leader) == [ErrorCode.NONE]
    assert group in leader.host._awake
    room.ticks(2 * ASLEEP_TICKS)
    assert leader.is_asleep
    assert other not in leader.partition.in_sync
    leader.unheard.clear()
    room.greet(leader, other, b"as before")
    assert group in leader.host._awake
    room.ticks(OPTIONS.heartbeat_ticks + 1)
    assert leader.partition.in_sync == (1, 2, 3)
    assert {place.host.leaders[leader.partition.group].in_sync for place in room.places} == {(1, 2, 3)}
    room.ticks(ASLEEP_TICKS)
    assert leader.is_asleep


def test_a_member_that_comes_back_as_another_process_shows_again_what_it_has(room: Room) -> None:
    """Its disk may have lied. The leader counts nothing of it before it has answered, and then all of it."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    other = next(node for node in (1, 2, 3) if node != leader.node_id)
    node = leader.partition.replica.node
    assert node is not None

    def greet(boot_id: bytes) -> int:
        identity = Identity("cluster", NodeId(other), 0, 1, boot_id, "host", 1)
        leader.host.on_peer_up(Hello.of(identity, ConnectionKind.HEARTBEAT, leader.node_id))
        return node.progress()[MemberId(NodeId(other))].match

    assert room.call(lambda: greet(b"first")) == node.last_index
    assert room.call(lambda: greet(b"second")) == 0
    assert node.progress()[MemberId(NodeId(other))].match == node.last_index
    room.ticks(ASLEEP_TICKS)
    assert leader.is_asleep


def test_who_is_told_to_sleep_too_early_says_so(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    follower = room.place(next(node for node in (1, 2, 3) if node != leader.node_id))
    room.produce(leader)
    node = follower.partition.replica.node
    assert node is not None
    follower.sent.clear()
    sender, target = MemberId(leader.node_id), MemberId(follower.node_id)
    group = follower.partition.group
    too_far = Sleep(sender, target, node.term, LogIndex(node.last_index + 1))
    room.call(lambda: follower.host.on_group_message(leader.node_id, group, too_far))
    assert follower.sent == [Wake(target, sender, node.term)]
    assert not follower.is_asleep
    for other in (
        Sleep(sender, target, Term(node.term - 1), node.last_index),
        Sleep(MemberId(NodeId(4)), target, node.term, node.last_index),
    ):
        room.call(lambda other=other: follower.host.on_group_message(leader.node_id, group, other))
        assert not follower.partition.replica.asleep
    meant_for_another = Sleep(sender, MemberId(NodeId(1 << 32 | follower.node_id)), node.term, node.last_index)
    follower.sent.clear()
    room.call(lambda: follower.host.on_group_message(leader.node_id, group, meant_for_another))
    assert follower.sent == []


# ---- messages --------------------------------------------------------------------------------------


def test_messages_for_a_group_that_is_not_known_yet_are_kept(room: Room) -> None:
    """The leader was quicker to make its files. Its first words would be said again, but later."""
    room.call(lambda: [room.place(node).add() for node in (1, 2)])
    room.ticks(ASLEEP_TICKS)
    late = room.place(3)
    assert late.host.get(GroupId(TOPIC.topic_id, 0)) is None
    assert late.host._unclaimed
    room.call(late.add)
    assert not late.host._unclaimed
    assert late.partition.leader == room.leader.node_id


def test_what_no_replica_sends_is_counted_and_does_no_harm(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    nonsense = Entry(LogIndex(5), LogIndex(5), Term(1), EntryKind.PAYLOAD, b"nonsense", 8 + 1)
    bad = Entry(nonsense.first, LogIndex(9), nonsense.term, nonsense.kind, nonsense.payload, 8)
    message = AppendRequest(NodeId(4), NodeId(1), Term(99), LogIndex(4), Term(1), (bad,), LogIndex(0))
    host = room.place(1).host
    room.call(lambda: host.on_group_message(NodeId(4), GroupId(TOPIC.topic_id, 0), message))
    assert host.protocol_errors == 1
    assert "node 4 sent an invalid message" in caplog.text
    assert room.produce(room.leader) == [ErrorCode.NONE]


@pytest.mark.parametrize("payload", [b"\2", b"\2" + bytes(200)], ids=["short", "longer than a batch's header"])
def test_an_entry_of_a_later_release_ends_its_replica_in_order(
    room: Room, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is blamed: the connection goes on, for other groups have messages there, and the copy is not damaged."""
    room.make_group()
    later = Entry(LogIndex(5), LogIndex(5), Term(1), EntryKind.PAYLOAD, payload, len(payload))
    message = AppendRequest(NodeId(4), NodeId(1), Term(99), LogIndex(4), Term(1), (later,), LogIndex(0))
    host = room.place(1).host
    room.call(lambda: host.on_group_message(NodeId(4), GroupId(TOPIC.topic_id, 0), message))
    assert host.protocol_errors == 0
    partition = host.get(GroupId(TOPIC.topic_id, 0))
    assert partition is not None
    assert partition.replica.node is None
    assert "has type 2, which this release does not know; start the release that wrote it" in str(partition.failure)
    assert caplog.text.count("its replica stops") == 1


# ---- news of leaders -------------------------------------------------------------------------------


def a_notice(term: int, version: int, leader: int = 2) -> LeaderNotice:
    return LeaderNotice(GroupId(TOPIC.topic_id, 0), term, NodeId(leader), version, (NodeId(leader),))


def test_older_news_never_replaces_newer(room: Room) -> None:
    host = room.place(1).host
    for notice, is_news in (
        (a_notice(2, 5), True),
        (a_notice(1, 9, leader=3), False),
        (a_notice(2, 4, leader=3), False),
        (a_notice(2, 6), True),
        (a_notice(3, 1, leader=3), True),
    ):
        host.on_notices([notice])
        assert (host.leaders[notice.group] == notice) is is_news


def test_whoever_waits_for_news_hears_of_it_or_waits_in_vain(room: Room) -> None:
    host = room.place(1).host

    async def wait(timeout_s: float) -> float:
        began = room.loop.time()
        await host.next_leader_news(timeout_s)
        return room.loop.time() - began

    async def both() -> float:
        waiting = asyncio.ensure_future(wait(TICK_S))
        await asyncio.sleep(0)
        host.on_notices([a_notice(1, 1)])
        return await waiting

    assert room.loop.run_until_complete(both()) < TICK_S
    assert room.loop.run_until_complete(wait(0.01)) >= 0.01


def test_leaders_of_deleted_topics_are_forgotten(room: Room) -> None:
    host = room.place(1).host
    host.on_notices([a_notice(1, 1)])
    host.forget_topics([TopicId(b"?" * 16)])
    assert host.leaders
    host.forget_topics([TOPIC.topic_id])
    assert not host.leaders


def test_a_newcomer_is_told_who_leads(room: Room) -> None:
    room.make_group((1,))
    room.ticks(1)
    room.place(4).host.leaders.clear()
    identity = Identity("cluster", NodeId(4), 0, 1, b"boot", "host", 1)
    room.call(lambda: room.place(1).host.on_peer_up(Hello.of(identity, ConnectionKind.HEARTBEAT, NodeId(1))))
    assert room.place(4).host.leaders[GroupId(TOPIC.topic_id, 0)].leader == 1


# ---- as many replicas as are asked for -------------------------------------------------------------


def test_acks_wait_for_as_many_replicas_as_the_topic_asks_for(room: Room) -> None:
    room.make_group(min_insync_replicas="3")
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    away = next(node for node in (1, 2, 3) if node != leader.node_id)
    room.gone.add(away)
    heard = room.produce(leader)
    assert leader.partition.high_watermark == 1
    assert heard == []
    room.ticks(3 * OPTIONS.election_timeout_ticks)
    assert heard == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_acks_come_once_the_last_replica_has_caught_up(room: Room) -> None:
    room.make_group(min_insync_replicas="3")
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    away = next(node for node in (1, 2, 3) if node != leader.node_id)
    room.gone.add(away)
    heard = room.produce(leader)
    room.gone.discard(away)
    room.ticks(6)
    assert heard == [ErrorCode.NONE]


# ---- bugs ------------------------------------------------------------------------------------------


def fail(*what: object) -> None:
    raise AssertionError("wrong code")


@pytest.fixture
def complaints(room: Room) -> list[str]:
    """The bugs that were reported to the event loop."""
    heard: list[str] = []
    room.loop.set_exception_handler(lambda loop, context: heard.append(repr(context["exception"])))
    return heard


@pytest.mark.parametrize(
    "when",
    ["_carry_out", "on_flushed", "_apply"],
    ids=["when it is marked", "when the disk reports", "when that commits something"],
)
def test_a_bug_costs_its_replica_and_no_other(
    room: Room, complaints: list[str], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """An unexpected exception ends the replica that it occurred in, and is reported like any other."""
    broken, sound = [room.call(partial(room.place(1).add, index, (1,))) for index in (0, 1)]
    heard: dict[int, list[ErrorCode]] = {0: [], 1: []}

    def produce(*partitions: Partition) -> None:
        for partition in partitions:
            appended = partition.append(a_batch(), 0)
            partition.when_durable(appended.next_offset, heard[partition.index].append)

    monkeypatch.setattr(broken.replica, when, fail)
    # In one turn of the loop, the broken one first.
    room.call(partial(produce, broken, sound))
    room.call(partial(produce, sound))
    assert heard == {0: [ErrorCode.KAFKA_STORAGE_ERROR], 1: [ErrorCode.NONE, ErrorCode.NONE]}
    assert complaints == ["AssertionError('wrong code')"]
    assert_ended(broken)


def assert_ended(partition: Partition) -> None:
    assert partition.replica.node is None
    with pytest.raises(ApiError, match="restart the node"):
        partition.append(a_batch(), 0)


def test_a_bug_in_a_tick_takes_no_tick_from_others(
    room: Room, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = [room.call(partial(room.place(1).add, index, (1,))) for index in (0, 1)]
    ticked: list[None] = []
    monkeypatch.setattr(broken.replica, "tick", fail)
    monkeypatch.setattr(sound.replica, "tick", lambda patience, may_campaign: ticked.append(None))
    room.ticks()
    assert (complaints, len(ticked)) == (["AssertionError('wrong code')"], 1)
    assert_ended(broken)


def test_a_bug_in_a_message_keeps_no_message_from_others(
    room: Room, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages of a frame are handled in sequence: an exception would cost the later groups their messages."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    follower = next(place for place in room.places if place is not room.leader)
    monkeypatch.setattr(follower.partition.replica, "receive", fail)
    assert room.produce(room.leader) == [ErrorCode.NONE]
    assert set(complaints) == {"AssertionError('wrong code')"}
    assert_ended(follower.partition)


def test_a_bug_in_the_report_of_a_job_ends_its_replica(
    room: Room, complaints: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica whose own entry was never reported would otherwise hang, and look healthy."""
    partition = room.call(partial(room.place(1).add, 0, (1,)))
    monkeypatch.setattr(partition.replica, "_on_job_done", fail)
    room.call(partial(partition.replica.propose_own, encode_trim(Offset(0))))
    assert complaints == ["AssertionError('wrong code')"]
    assert_ended(partition)


# ---- copies ----------------------------------------------------------------------------------------


def add_learner(room: Room, partitions: int = 1, batches: int = 5) -> list[Partition]:
    """Partitions on node 1 alone that hold some large batches each, and begin to be copied to node 2."""

    def make(index: int) -> Partition:
        room.call(lambda: room.place(2).add(index, ()))
        partition: Partition = room.call(lambda: room.place(1).add(index, (1,)))
        for _ in range(batches):
            room.call(lambda: partition.append(a_batch([b"x" * LARGE_BYTES]), 0))
        return partition

    made = [make(index) for index in range(partitions)]
    for partition in made:
        room.call(partial(partition.replica.change_members, [SELF], [LEARNER], "a test"))
    return made


def copied_to_learner(room: Room) -> list[tuple[int, LogIndex]]:
    """The large entries that were sent to node 2: which partition, which index."""
    return [
        (index, entry.index)
        for index, message in room.place(1).sent_of_groups
        if isinstance(message, AppendRequest)
        for entry in message.entries
        if entry.size_bytes > LARGE_BYTES
    ]


def test_copies_for_new_members_go_no_faster_than_they_may(room: Room) -> None:
    """Each message is paid for with the time that its bytes may take, ten ticks here, whatever heartbeats say.

    Nothing is sent twice, and what waits is not on its way: the leader counts one message as unanswered at most.
    """
    [partition] = add_learner(room)
    node = partition.replica.node
    assert node is not None
    for _ in range(5 * COPY_TICKS + 10):
        before = len(copied_to_learner(room))
        room.ticks()
        assert len(copied_to_learner(room)) <= before + 1
        assert node.progress()[LEARNER].in_flight_messages <= 1
    copied = [index for _, index in copied_to_learner(room)]
    assert copied == sorted(set(copied))
    assert len(copied) == 5
    assert room.place(2).partition.high_watermark == 5


def test_a_copy_is_no_faster_after_a_pause(room: Room) -> None:
    """Time without copies is not saved up."""
    [partition] = add_learner(room, batches=1)
    room.ticks(10 * COPY_TICKS)
    assert room.place(2).partition.high_watermark == 1
    for _ in range(3):
        room.call(lambda: partition.append(a_batch([b"y" * LARGE_BYTES]), 0))
    room.ticks(COPY_TICKS - 1)
    assert len(copied_to_learner(room)) == 2
    room.ticks(2 * COPY_TICKS)
    assert len(copied_to_learner(room)) == 4


def test_copies_take_turns(room: Room) -> None:
    """However many partitions are copied at once: one message at a time, of each in its turn, and each is done."""
    made = add_learner(room, partitions=4, batches=4)
    for _ in range(6):
        room.ticks(COPY_TICKS)
        # What waits is a place in the row for each, and no message.
        assert len(room.place(1).host.catch_up) == 4
        nodes = [partition.replica.node for partition in made]
        assert sum(node.progress()[LEARNER].in_flight_bytes for node in nodes if node is not None) == 0
        counts = Counter(index for index, _ in copied_to_learner(room))
        # The first of them was alone for a moment.
        assert max(counts.values()) - min(counts[partition.index] for partition in made) <= 2
    room.ticks(10 * COPY_TICKS + 5)
    copied = copied_to_learner(room)
    assert len(set(copied)) == len(copied) == 16
    assert len(room.place(1).host.catch_up) == 0
    for partition in made:
        assert room.place(2).host.get(partition.group).high_watermark == 4  # type: ignore[union-attr]


def test_a_copy_that_fails_leaves_the_others_their_turns(room: Room) -> None:
    """A leader that goes while its learner waits has no turn, and the next one has."""
    first, second = add_learner(room, partitions=2, batches=3)
    room.ticks(2)
    room.call(first.close)
    room.ticks(4 * COPY_TICKS)
    assert [entry for entry in copied_to_learner(room) if entry[0] == second.index][1:]
    assert room.place(2).host.get(second.group).high_watermark == 3  # type: ignore[union-attr]
