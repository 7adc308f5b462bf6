"""A node that is short of time: slices, ticks that are not made up for, and who campaigns when."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from drmq.broker import Partition
from drmq.broker.replication import group_host
from drmq.broker.replication.leader_news import LeaderNews
from drmq.broker.replication.replica import Replica
from drmq.broker.replication.sliced_work import SlicedWork
from drmq.model import ErrorCode, GroupId, NodeId, TopicId
from drmq.raft import Heartbeat, HeartbeatResponse, PreVoteRequest
from drmq.transport.peers import ConnectionKind, Hello, Identity, LeaderNotice
from support.batches import a_batch
from unit.broker.replication.test_group_host import ASLEEP_TICKS, OPTIONS, SELF, TICK_S, TOPIC, Place, Room

TIMEOUT_TICKS = OPTIONS.election_timeout_ticks
COUNT = 24


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room(4)
    yield made
    made.close()


def make_groups(room: Room, count: int = COUNT) -> None:
    room.call(lambda: [room.place(node).add(index) for index in range(count) for node in (1, 2, 3)])
    room.ticks(ASLEEP_TICKS)
    assert sum(leaders(room).values()) == count


def leaders(room: Room) -> Counter[int]:
    """How many groups each node leads."""
    present = [place for place in room.places if place.node_id not in room.gone]
    return Counter(place.node_id for place in present for partition in place.host if partition.is_serving)


def lead_all(room: Room, place: Place) -> None:
    """Make one node the leader of all groups."""
    for other in room.places:
        for partition in list(other.host):
            if partition.is_serving and other is not place:
                room.call(lambda led=partition: led.replica.transfer(place.node_id))
    room.ticks(ASLEEP_TICKS)
    assert leaders(room) == {place.node_id: COUNT}


# ---- time ------------------------------------------------------------------------------------------


def count_ticks(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    counted: Counter[int] = Counter()
    tick = Replica.tick

    def ticking(replica: Replica, *arguments: object) -> None:
        counted[replica.member] += 1
        tick(replica, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Replica, "tick", ticking)
    return counted


def test_ticks_that_were_missed_are_not_made_up_for(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.make_group()
    room.ticks(2)
    counted = count_ticks(monkeypatch)
    room.loop.ahead_s += 65 * TICK_S
    room.call(lambda: None)
    assert not counted, "what others have sent is read first"
    room.ticks(1)
    assert counted == {1: 1, 2: 1, 3: 1}


def test_time_passes_on_a_loop_that_is_always_late(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.make_group()
    counted = count_ticks(monkeypatch)
    for _ in range(60):
        room.loop.ahead_s += 3 * TICK_S
        room.call(lambda: None)
    assert min(counted.values()) >= ASLEEP_TICKS // 3
    assert room.leader.partition.is_serving


def test_a_suspended_leader_that_was_replaced_learns_it_from_the_first_answer(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    room.remove(before.node_id)
    room.ticks(2 * TIMEOUT_TICKS)
    after = room.leader
    room.gone.clear()
    before.host._is_stopped = False
    room.call(lambda: before.partition.append(a_batch(), 0))
    assert not before.partition.is_leader
    assert room.leader is after


def progress_between_turns(room: Room, done: list[int], count: int, begin: Callable[[], object]) -> list[int]:
    """How much of a work of `count` parts is done between two turns of others on the loop, until all of it is."""
    seen: list[int] = []

    def look() -> None:
        seen.append(len(done))
        if len(done) < count and len(seen) < 1_000:
            asyncio.get_running_loop().call_soon(look)

    def both() -> None:
        begin()
        look()

    room.call(both)
    assert sorted(done) == list(range(count))
    return [after - before for before, after in pairwise([0, *seen])]


def test_passes_over_all_replicas_let_others_in(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass takes as long as there are replicas. Meanwhile the loop reads the network, and the next tick waits."""
    make_groups(room)
    ticked: list[int] = []
    for partition in room.place(1).host:
        partition.replica.wake()

        def ticking(patience: int, may_campaign: bool, index: int = partition.index) -> None:
            ticked.append(index)
            room.loop.ahead_s += 0.002

        monkeypatch.setattr(partition.replica, "tick", ticking)
    room.loop.ahead_s += TICK_S
    assert max(progress_between_turns(room, ticked, COUNT, lambda: None)) <= 5


@pytest.mark.parametrize("event", ["down", "up", "restarted"])
def test_what_a_node_means_for_all_partitions_is_found_out_in_slices(
    room: Room, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    make_groups(room)
    host = room.place(1).host
    if event == "restarted":
        room.greet(room.place(1), 2, b"before")
    handled: list[int] = []

    def handling(partition: Partition, *arguments: object) -> None:
        handled.append(partition.index)
        room.loop.ahead_s += 0.002

    monkeypatch.setattr(host, "_on_member_down" if event == "down" else "_on_member_up", handling)
    identity = Identity("cluster", NodeId(2), 0, 1, b"now", "host", 1)
    hello = Hello.of(identity, ConnectionKind.HEARTBEAT, NodeId(1))
    begin = partial(host.on_peer_down, NodeId(2)) if event == "down" else partial(host.on_peer_up, hello)
    assert max(progress_between_turns(room, handled, COUNT, begin)) <= 5


def test_many_replicas_with_something_to_do_are_pumped_in_slices(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 100
    place = room.place(1)
    room.call(lambda: [place.add(index, (1,)) for index in range(count)])
    pumped: list[int] = []
    for partition in place.host:

        def pump(replica: Replica = partition.replica) -> None:
            replica.is_dirty = False
            pumped.append(replica.group.partition)
            room.loop.ahead_s += 0.001

        monkeypatch.setattr(partition.replica, "pump", pump)

    def mark_all() -> None:
        for partition in place.host:
            place.host.mark_dirty(partition.replica)

    assert max(progress_between_turns(room, pumped, count, mark_all)) <= count // 2


def test_a_bug_in_a_piece_of_work_does_not_stop_the_next() -> None:
    done: list[str] = []

    def broken() -> Iterator[None]:
        yield
        raise AssertionError("wrong code")

    def sound() -> Iterator[None]:
        yield
        done.append("sound")

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: done.append(str(context["exception"])))
        work = SlicedWork()
        asyncio.get_running_loop().call_soon(work.add, broken())
        asyncio.get_running_loop().call_soon(work.add, sound())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not work.is_busy

    asyncio.run(scenario())
    assert done == ["wrong code", "sound"]


def test_a_replica_that_wakes_up_while_it_waits_for_its_pump_is_ticked(room: Room) -> None:
    """It is marked for the answer to the last heartbeat before its sleep, which does not wake it. A batch does."""
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    replica = leader.partition.replica
    other = next(node for node in (1, 2, 3) if node != leader.node_id)

    def hear_and_append() -> None:
        assert replica.node is not None
        replica.receive(HeartbeatResponse(NodeId(other), replica.member, replica.node.term, 0))
        assert replica.asleep
        leader.partition.append(a_batch(), 0)

    room.call(hear_and_append)
    assert replica.group in leader.host._awake


# ---- who campaigns when ----------------------------------------------------------------------------


def test_a_follower_waits_for_its_leader_while_the_leaders_node_is_up(room: Room) -> None:
    """One group is silent on a node that works: it may only be slow. In the end another leader is elected."""
    room.make_group()
    room.ticks(TIMEOUT_TICKS * 2)
    before = room.leader
    room.produce(before)
    room.call(lambda: before.host.remove(before.partition))
    room.gone.add(before.node_id)  # Nothing of it arrives,
    for place in room.places:
        place.is_up = lambda node_id: True  # type: ignore[method-assign]  # except the heartbeats of its node.
    for place in room.places:
        place.sent.clear()
    room.ticks(4 * TIMEOUT_TICKS)
    assert not any(isinstance(message, PreVoteRequest) for place in room.places for message in place.sent)
    room.ticks(8 * TIMEOUT_TICKS)
    assert room.leader is not before


def test_a_leader_waits_for_answers_while_nodes_are_up(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    leader = room.leader
    room.produce(leader)
    for place in room.places:
        place.is_up = lambda node_id: True  # type: ignore[method-assign]
    others = {1, 2, 3} - {int(leader.node_id)}
    room.gone.update(others)
    room.ticks(3 * TIMEOUT_TICKS)
    assert leader.partition.is_leader
    room.ticks(3 * TIMEOUT_TICKS)
    assert not leader.partition.is_leader


def test_a_leader_that_ends_is_replaced_soon_though_its_node_is_up(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    room.call(lambda: before.partition.replica.on_bug(AssertionError("wrong code")))
    room.ticks(TIMEOUT_TICKS)
    assert room.leader is not before
    assert room.produce(room.leader) == [ErrorCode.NONE]


def test_a_restarted_leader_is_replaced_soon(room: Room) -> None:
    room.make_group()
    room.ticks(ASLEEP_TICKS)
    before = room.leader
    others = [room.place(node) for node in (1, 2, 3) if node != before.node_id]
    for place in others:
        room.greet(place, before.node_id, b"first")
    room.call(lambda: before.host.remove(before.partition))
    for place in others:
        room.greet(place, before.node_id, b"second")
    room.ticks(TIMEOUT_TICKS)
    assert any(place.partition.is_serving for place in others)


def test_after_a_loss_the_members_take_turns(room: Room) -> None:
    """No vote is split, and each of those that are left leads its share."""
    make_groups(room)
    lead_all(room, room.place(1))
    terms = {partition.index: partition.leader_epoch for partition in room.place(1).host}
    room.remove(1)
    room.ticks(TIMEOUT_TICKS)
    assert leaders(room) == {2: COUNT // 2, 3: COUNT // 2}
    after = {partition.index: partition.leader_epoch for partition in room.place(2).host}
    assert after == {index: term + 1 for index, term in terms.items()}


def test_campaigns_are_budgeted(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    make_groups(room)
    lead_all(room, room.place(1))
    monkeypatch.setattr(group_host, "_CAMPAIGNS_MAX", 3)
    monkeypatch.setattr(group_host, "_CAMPAIGNS_CHECKED_EVERY", 1)
    for place in room.places:
        place.disk_hangs = True  # No vote is cast, so campaigns last.
    room.remove(1)
    for _ in range(TIMEOUT_TICKS // 2):
        room.ticks(1)
        for place in room.places[1:3]:
            nodes = [partition.replica.node for partition in place.host]
            assert sum(node is not None and node.is_campaigning for node in nodes) <= 3
    for place in room.places:
        place.disk_hangs = False
    room.ticks(6 * TIMEOUT_TICKS)
    assert sum(leaders(room).values()) == COUNT


def test_a_node_that_is_down_wakes_only_groups_that_need_it(room: Room) -> None:
    make_groups(room)
    led = {node: {p.index for p in room.place(node).host if p.is_serving} for node in (1, 2, 3)}
    room.remove(1)
    for node in (2, 3):
        awake = {group.partition for group in room.place(node).host._awake}
        assert awake == led[1]
    assert all(
        partition.in_sync == (2, 3) for node in (2, 3) for partition in room.place(node).host if partition.is_serving
    )


def test_when_a_voter_returns_a_group_that_campaigned_in_vain_does_not_wait(room: Room) -> None:
    room.make_group((1, 2))
    room.gone.add(2)
    room.ticks(30 * TIMEOUT_TICKS)
    node = room.place(1).partition.replica.node
    assert node is not None
    state = node._state
    while state.timeout_ticks - state.elapsed_ticks < 4 * TIMEOUT_TICKS:
        room.ticks(1)
    room.gone.clear()
    room.place(2).host._awake.clear()
    room.greet(room.place(1), 2, b"back")
    assert state.timeout_ticks - state.elapsed_ticks < TIMEOUT_TICKS
    room.ticks(TIMEOUT_TICKS)
    assert room.place(1).partition.is_serving


def test_campaigns_without_a_quorum_of_nodes_take_no_turn_from_others(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_host, "_CAMPAIGNS_MAX", 1)
    room.gone.update({2, 3})
    room.call(lambda: [room.place(1).add(index) for index in range(COUNT)])
    room.call(lambda: [room.place(node).add(COUNT, (1, 4)) for node in (1, 4)])
    room.place(4).host._awake.clear()
    room.ticks(2 * TIMEOUT_TICKS)
    assert leaders(room) == {1: 1}


# ---- news ------------------------------------------------------------------------------------------


class CountedLeaders(dict[GroupId, LeaderNotice]):
    """Counts the entries that are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[GroupId]:
        for group in super().__iter__():
            self.looked_at += 1
            yield group

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [super(CountedLeaders, self).__getitem__(group) for group in self]

    def items(self) -> Any:
        return [(group, super(CountedLeaders, self).__getitem__(group)) for group in self]

    def get(self, group: GroupId, default: Any = None) -> Any:
        self.looked_at += 1
        return super().get(group, default)

    def pop(self, group: GroupId, *default: Any) -> Any:
        self.looked_at += 1
        return super().pop(group, *default)


def notice_of(topic: TopicId, index: int, leader: int, term: int = 1) -> LeaderNotice:
    return LeaderNotice(GroupId(topic, index), term, NodeId(leader), 1, (SELF,))


def test_older_news_never_replace_newer_ones_and_each_is_forgotten_once() -> None:
    news = LeaderNews()
    other = TopicId(b"U" * 16)
    news.note(notice_of(TOPIC.topic_id, index, 1) for index in range(3))
    news.note([notice_of(other, 0, 2), notice_of(TOPIC.topic_id, 1, 2, term=2), notice_of(TOPIC.topic_id, 0, 2)])
    assert news.leaders[GroupId(TOPIC.topic_id, 0)].leader == 1, "an older one never replaces a newer one"
    news.forget_node(NodeId(1))
    assert sorted(news.leaders) == [GroupId(TOPIC.topic_id, 1), GroupId(other, 0)]
    news.forget_topics([TOPIC.topic_id])
    news.forget_node(NodeId(1))
    assert list(news.leaders) == [GroupId(other, 0)]
    news.forget_node(NodeId(2))
    assert not news.leaders


def test_news_cost_as_much_as_they_change() -> None:
    """With the leaders of thousands of partitions known, an event about a few of them must not look at the others."""
    news = LeaderNews()
    news.leaders = leaders = CountedLeaders()
    rare = TopicId(b"U" * 16)
    news.note(notice_of(TOPIC.topic_id, index, 1) for index in range(1_000))
    news.note(notice_of(rare, index, 2) for index in range(4))

    def cost(event: Callable[[], None]) -> int:
        leaders.looked_at = 0
        event()
        assert news.leaders is leaders
        return leaders.looked_at

    assert cost(lambda: news.note([notice_of(rare, 0, 3, term=2), notice_of(TOPIC.topic_id, 7, 3, term=2)])) == 2
    assert cost(lambda: news.forget_node(NodeId(9))) == 0
    assert cost(lambda: news.forget_node(NodeId(3))) == 2
    assert cost(lambda: news.forget_topics([rare])) == 3
    assert len(leaders) == 999


def test_news_of_one_turn_are_told_together(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    make_groups(room)
    told: list[int] = []
    place = room.place(1)
    monkeypatch.setattr(place, "notify", lambda node_id, notices: told.append(len(notices)))

    def announce_all() -> None:
        for partition in place.host:
            if partition.is_serving:
                place.host.announce(partition)

    room.call(announce_all)
    assert told == [leaders(room)[1]] * 3


def test_heartbeats_of_many_groups_go_on_in_a_pass(room: Room) -> None:
    """Else a follower whose node is slow would not hear its leader at all."""
    make_groups(room)
    place = room.place(1)
    for partition in place.host:
        partition.replica.wake()
    place.sent.clear()
    room.ticks(OPTIONS.heartbeat_ticks)
    beats = [message for message in place.sent if isinstance(message, Heartbeat)]
    assert len(beats) == 2 * leaders(room)[1]
