"""Random clients do random things to a shard, and what must always hold does.

The clients are rude: they guess generations, use each other's ids, disconnect and restart, and the
leader of the shard is replaced at any moment. After every event the named invariants are checked; at
the end time passes until nothing is left to wait for.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from drmq.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    GroupDeleted,
    GroupMetadata,
    GroupOptions,
    GroupRequest,
    GroupShard,
    GroupState,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    ListGroupsRequest,
    MemberAssignment,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetToCommit,
    Protocol,
    Step,
    SyncGroupRequest,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.quota import GROUP_BYTES, MEMBER_BYTES
from drmq.model import Offset, TopicPartition

PROTOCOLS = [
    (Protocol("range", b"1"), Protocol("sticky", b"1")),
    (Protocol("sticky", b"2"), Protocol("range", b"2")),
    (Protocol("range", b"\x00\x01\x00\x00\x00\x01\x00\x01t"),),
]
ODD_PROTOCOLS = [(Protocol("other", b""),), ()]
EVENTS = {
    "join": 20,
    "rejoin": 25,
    "sync": 25,
    "heartbeat": 8,
    "leave": 4,
    "commit": 8,
    "administer": 4,
    "disconnect": 3,
    "advance": 8,
    "clean": 1,
    "replace_leader": 2,
}
"""What happens, and how often. Joining and syncing must outweigh what undoes them, or no group gets far."""
OPTIONS = [
    GroupOptions(offsets_retention_ms=10_000),
    GroupOptions(offsets_retention_ms=10_000, initial_rebalance_delay_ms=2_000, group_size_max=4),
]


class World:
    """A shard with its driver, what its clients have learned, and the invariants."""

    def __init__(self, options: GroupOptions) -> None:
        self.options = options
        self.now_ms = 0
        self.id_count = 0
        self.ticket = 0
        self.open_tickets: set[int] = set()
        self.seen: list[tuple[str, str, str | None]] = [("g", "nobody", None)]
        self.asked_by: dict[int, JoinGroupRequest] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.incarnations: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        self.assignments: dict[tuple[str, int, int], tuple[bytes, ...]] = {}
        self.shard = self.rebuild()

    def rebuild(self) -> GroupShard:
        shard = GroupShard(self.options, self.new_member_id)
        for key, value in self.log:
            shard.replay(record_from_bytes(key, value))
        shard.become_leader(self.now_ms)
        return shard

    def new_member_id(self, client_id: str) -> str:
        self.id_count += 1
        return f"{client_id}-{self.id_count}"

    def ask(self, request: GroupRequest) -> None:
        self.ticket += 1
        self.open_tickets.add(self.ticket)
        if isinstance(request, JoinGroupRequest):
            self.asked_by[self.ticket] = request
        self.take(self.shard.handle(self.ticket, request, self.now_ms, self.now_ms))

    def take(self, step: Step) -> None:
        for record in step.records:
            self.log.append(record_to_bytes(record))
            self.shard.replay(record)
            if isinstance(record, GroupDeleted):
                self.incarnations[record.group_id] = self.incarnations.get(record.group_id, 0) + 1
                self.generations.pop(record.group_id, None)
            if isinstance(record, GroupMetadata):
                self.check_generation(record)
        for ticket, response in step.answers:
            assert ticket in self.open_tickets, f"ticket {ticket} is answered twice, or was never asked"
            self.open_tickets.remove(ticket)
            if isinstance(response, JoinGroupResponse) and response.member_id:
                request = self.asked_by[ticket]
                self.seen.append((request.group_id, response.member_id, request.instance_id))
        self.check_state()

    def check_generation(self, record: GroupMetadata) -> None:
        assert record.generation >= self.generations.get(record.group_id, 0), "the generation fell"
        self.generations[record.group_id] = record.generation
        if record.state is GroupState.STABLE:
            # A static member may get a new id, but not another share.
            shares = tuple(member.assignment for member in record.members)
            key = (record.group_id, self.incarnations.get(record.group_id, 0), record.generation)
            assert self.assignments.setdefault(key, shares) == shares, "two divisions in one generation"

    def check_state(self) -> None:
        rounds = self.shard._leading.rounds
        parked = set()
        places: dict[object, int] = {}
        for group in rounds.groups.values():
            stored = self.shard.replicated.groups.get(group.group_id)
            if group.state is not GroupState.PREPARING_REBALANCE and group.generation > 0:
                assert group.to_metadata() == stored, "soft and replicated state differ"
            assert group.generation == (stored.generation if stored else 0)
            assert group.static == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
            assert not group.pending & group.members.keys()
            assert group.awaiting_sync <= group.members.keys()
            assert (not group.members) == (group.state is GroupState.EMPTY)
            for member in group.members.values():
                assert member.join_ticket is None or group.state is GroupState.PREPARING_REBALANCE
                assert member.sync_ticket is None or group.state is GroupState.COMPLETING_REBALANCE
                parked |= {member.join_ticket, member.sync_ticket} - {None}
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                assert group.leader in group.members
            held = MEMBER_BYTES + len(group.protocol_type)
            places |= {(group.group_id, m.member_id): held + m.stored_bytes for m in group.members.values()}
            places |= {(group.group_id, member_id): GROUP_BYTES for member_id in group.pending}
            shares = group.released_bytes + sum(len(m.assignment) for m in group.members.values())
            places |= {group.group_id: shares} if shares else {}
        counted = {key: size_bytes for key, (_, size_bytes) in rounds.held._places.items() if size_bytes}
        assert counted == places, "what a caller has is not what counts for it"
        assert parked == rounds.parked.keys() == self.open_tickets, "a ticket was lost"

    def check_replay(self) -> None:
        rebuilt = self.rebuild().replicated
        assert rebuilt == self.shard.replicated
        from_snapshot = GroupShard(self.options, self.new_member_id)
        for record in self.shard.snapshot():
            from_snapshot.replay(record)
        assert from_snapshot.replicated == self.shard.replicated

    def advance(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.shard.on_deadline(self.now_ms, self.now_ms))
            after_ms = self.shard.next_deadline()
            assert after_ms is None or after_ms > self.now_ms, "a deadline does not make progress"
        self.now_ms = end_ms


class Clients:
    """What the outside world does next, by the roll of a die."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.rng = rng

    def act(self) -> None:
        (event,) = self.rng.choices(list(EVENTS), weights=list(EVENTS.values()))
        getattr(self, event)()

    def someone(self) -> tuple[str, int, str, str | None]:
        """Group, generation, member id and instance id: mostly a member's own, now and then invented."""
        rng, groups = self.rng, self.world.shard._leading.rounds.groups
        members = [(group, member) for group in groups.values() for member in group.members.values()]
        if members and rng.random() < 0.85:
            group, member = rng.choice(members)
            generation = group.generation if rng.random() < 0.9 else rng.randint(-1, group.generation + 1)
            return group.group_id, generation, member.member_id, member.instance_id
        group_id, member_id, instance_id = rng.choice(self.world.seen)
        known = groups.get(group_id)
        return group_id, known.generation if known else 1, member_id, instance_id

    def join_as(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        rng = self.rng
        self.world.ask(
            JoinGroupRequest(
                group_id=group_id,
                member_id=member_id,
                protocol_type="consumer" if rng.random() < 0.97 else "connect",
                protocols=rng.choice(PROTOCOLS if rng.random() < 0.95 else ODD_PROTOCOLS),
                session_timeout_ms=5_000 if rng.random() < 0.98 else 1,
                rebalance_timeout_ms=rng.choice([-1, 0, 3_000, 20_000]),
                instance_id=instance_id,
                client_id="c",
                member_id_required=rng.random() < 0.5,
                supports_skip_assignment=rng.random() < 0.5,
            )
        )

    def join(self) -> None:
        rng = self.rng
        instance_id = rng.choice([None, None, None, "i1", "i2", ""])
        self.join_as(rng.choice(["g", "g", "g", "h", "" if rng.random() < 0.1 else "g"]), "", instance_id)

    def rejoin(self) -> None:
        groups = self.world.shard._leading.rounds.groups
        pending = [(group.group_id, member_id) for group in groups.values() for member_id in group.pending]
        if pending and self.rng.random() < 0.5:
            group_id, member_id = self.rng.choice(sorted(pending))
            self.join_as(group_id, member_id, None)
            return
        group_id, _, member_id, instance_id = self.someone()
        self.join_as(group_id, member_id, instance_id)

    def sync(self) -> None:
        group_id, generation, member_id, instance_id = self.someone()
        shares = tuple(MemberAssignment(each, self.rng.randbytes(1)) for _, each, _ in self.world.seen[-20:])
        self.world.ask(SyncGroupRequest(group_id, generation, member_id, instance_id, assignments=shares))

    def heartbeat(self) -> None:
        self.world.ask(HeartbeatRequest(*self.someone()))

    def leave(self) -> None:
        group_id, _, member_id, instance_id = self.someone()
        leavers = [LeavingMember(member_id, instance_id), LeavingMember("", self.rng.choice([None, "i1"]))]
        leavers.append(LeavingMember(self.someone()[2]))
        self.world.ask(LeaveGroupRequest(group_id, tuple(leavers[: self.rng.randint(1, 3)])))

    def commit(self) -> None:
        offset = OffsetToCommit("t", self.rng.randint(0, 2), Offset(self.rng.randint(0, 99)), metadata=None)
        group_id, generation, member_id, instance_id = self.someone()
        if self.rng.random() < 0.7:
            self.world.ask(OffsetCommitRequest(group_id, (offset,), generation, member_id, instance_id))
        else:
            keep_ms = self.rng.choice([None, 3_000])
            self.world.ask(OffsetCommitRequest(self.rng.choice(["g", "s", ""]), (offset,), retention_ms=keep_ms))

    def administer(self) -> None:
        group_id = self.rng.choice(["g", "h", "s", ""])
        partition = TopicPartition("t", 0)
        requests: list[GroupRequest] = [
            ListGroupsRequest(),
            DescribeGroupsRequest((group_id,)),
            DeleteGroupsRequest((group_id, group_id)),
            OffsetDeleteRequest(group_id, (partition, partition)),
            OffsetFetchRequest(group_id, None),
        ]
        self.world.ask(self.rng.choice(requests))

    def disconnect(self) -> None:
        ticket = self.rng.choice([*sorted(self.world.open_tickets), self.rng.randint(0, 99_999)])
        self.world.open_tickets.discard(ticket)
        world = self.world
        world.take(world.shard.on_disconnect([ticket], world.now_ms, world.now_ms))

    def advance(self) -> None:
        self.world.advance(self.rng.choice([1, 1, 900, 900, 2_999, 6_000, 25_000]))

    def clean(self) -> None:
        shard = self.world.shard
        expire = self.rng.random() < 0.7
        self.world.take(shard.expire_offsets(self.world.now_ms) if expire else shard.forget_topics({"t"}))

    def replace_leader(self) -> None:
        world = self.world
        for ticket, _ in world.shard.resign().answers:
            world.open_tickets.remove(ticket)
        world.shard = world.rebuild()
        world.check_state()


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), options=st.sampled_from(OPTIONS), event_count=st.integers(1, 200))
def test_what_must_always_hold_does(seed: int, options: GroupOptions, event_count: int) -> None:
    """Generations never fall and have one division of work each; tickets are answered once; replay agrees."""
    world = World(options)
    clients = Clients(world, Random(seed))
    for _ in range(event_count):
        clients.act()
    world.check_replay()
    # Everybody falls silent: sessions and rounds end, and with them every wait.
    world.advance(10_000_000)
    assert world.shard.next_deadline() is None
    assert not world.open_tickets
    assert all(not group.members for group in world.shard._leading.rounds.groups.values())
    world.check_replay()
