"""What clients can make a node keep: groups, members and offsets, in total and by caller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from drmq.groups import (
    GroupOptions,
    GroupShard,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    MemberAssignment,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetToCommit,
    Protocol,
    Quota,
    ShareHeartbeatRequest,
    ShareHeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    Usage,
)
from drmq.groups.quota import CALLERS_MAX, MEMBER_BYTES
from drmq.model import ErrorCode, Offset


class JoinedAs(NamedTuple):
    error: ErrorCode
    member_id: str
    generation: int


REFUSED, NONE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.NONE


def a_shard(**options: int) -> GroupShard:
    shard = GroupShard(GroupOptions(**options), new_member_id=lambda client_id: f"{client_id}-1")
    shard.become_leader(0)
    return shard


def commit(
    shard: GroupShard, group_id: str, caller: str = "a", metadata: str = "", now_ms: int = 0, offset: int = 1
) -> ErrorCode:
    request = OffsetCommitRequest(
        group_id, (OffsetToCommit("t", 0, Offset(offset), metadata=metadata),), client_host=caller
    )
    step = shard.handle(1, request, now_ms, now_ms)
    for record in step.records:
        shard.replay(record)
    ((_, response),) = step.answers
    assert isinstance(response, OffsetCommitResponse)
    assert bool(step.records) == (response.results[0].error is NONE)
    return response.results[0].error


def join(shard: GroupShard, group_id: str, client_id: str = "c", metadata: bytes = b"") -> ErrorCode:
    request = JoinGroupRequest(
        group_id, "", "consumer", (Protocol("range", metadata),), 10_000, client_id=client_id, member_id_required=True
    )
    step = shard.handle(2, request, 0, 0)
    ((_, response),) = step.answers
    assert isinstance(response, JoinGroupResponse)
    return response.error


def test_groups_are_limited_and_existing_ones_go_on() -> None:
    shard = a_shard(groups_max=8)
    callers = "abcdefgh"
    assert [commit(shard, f"g{index}", callers[index // 2]) for index in range(8)] == [NONE] * 8
    assert commit(shard, "one too many", "x") is REFUSED
    assert join(shard, "one too many") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit(shard, "g0", "x", offset=2) is NONE
    assert join(shard, "g0") is ErrorCode.MEMBER_ID_REQUIRED


def test_groups_that_are_only_joined_count_too() -> None:
    shard = a_shard(groups_max=4)
    for index in range(4):
        request = JoinGroupRequest(
            f"g{index}", "", "consumer", (Protocol("range", b""),), 10_000, client_host=str(index)
        )
        shard.handle(index, request, 0, 0)
    assert join(shard, "one too many") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit(shard, "one too many") is REFUSED


def test_the_bytes_of_offsets_and_members_are_limited() -> None:
    """An offset that takes no more space than before can always be committed."""
    shard = a_shard(state_bytes_max=100_000)
    size = 4_000
    answers = [commit(shard, f"g{index}", f"caller {index}", "x" * size) for index in range(20)]
    taken = answers.count(NONE)
    assert 15 <= taken < 20
    assert answers == [NONE] * taken + [REFUSED] * (20 - taken)
    assert commit(shard, "g0", "any", "y" * size, offset=7) is NONE
    assert commit(shard, "g0", "any", "", offset=8) is NONE
    assert join(shard, "g0", metadata=bytes(60_000)) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_caller_has_a_share_that_grows_again() -> None:
    """The others have theirs meanwhile."""
    shard = a_shard(groups_max=16, simple_offsets_retention_ms=4_000)
    assert [commit(shard, f"a{index}", "a") for index in range(5)] == [NONE] * 4 + [REFUSED]
    assert [commit(shard, f"b{index}", "b") for index in range(5)] == [NONE] * 4 + [REFUSED]
    assert commit(shard, "a9", "a", now_ms=1_000) is NONE
    assert commit(shard, "a10", "a", now_ms=1_000) is REFUSED


def test_what_was_removed_makes_room() -> None:
    shard = a_shard(groups_max=1, simple_offsets_retention_ms=1_000)
    assert commit(shard, "g", "a") is REFUSED, "a quarter of one group is none"
    shard = a_shard(groups_max=4, simple_offsets_retention_ms=1_000)
    assert [commit(shard, f"g{index}", str(index)) for index in range(5)] == [NONE] * 4 + [REFUSED]
    before = shard.usage
    for record in shard.expire_offsets(1_000).records:
        shard.replay(record)
    assert before.groups == 4
    assert shard.usage == Usage(0, 0)
    assert commit(shard, "g5", "5", now_ms=1_000) is NONE


def test_members_are_not_counted_twice_for_ever() -> None:
    """A group whose members come and go does not use up the space."""
    shard = a_shard(state_bytes_max=40_000)
    for index in range(200):
        now_ms = index * 2_000
        request = JoinGroupRequest("g", "", "consumer", (Protocol("range", b""),), 1_000, client_id=str(index))
        step = shard.handle(index, request, now_ms, now_ms)
        for record in (*step.records, *shard.on_deadline(now_ms + 1_500, now_ms + 1_500).records):
            shard.replay(record)
        ((_, response),) = step.answers
        assert isinstance(response, JoinGroupResponse)
        assert response.error is NONE, index


def joined(
    shard: GroupShard,
    member_id: str = "",
    names: tuple[str, ...] = ("range",),
    group_id: str = "g",
    metadata: bytes = b"",
    now_ms: int = 0,
    **changes: Any,
) -> JoinedAs:
    """A join of the only member of a group."""
    protocols = tuple(Protocol(name, metadata) for name in names)
    request = JoinGroupRequest(group_id, member_id, "consumer", protocols, 10_000, client_id="c", client_host=group_id)
    step = shard.handle(3, replace(request, **changes), now_ms, now_ms)
    for record in step.records:
        shard.replay(record)
    ((_, response),) = step.answers
    assert isinstance(response, JoinGroupResponse)
    return JoinedAs(response.error, response.member_id, response.generation)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": (Protocol("range", bytes(20_000)),)},
        {"protocols": (Protocol("range", b""), Protocol("n" * 20_000, b""))},
        {"protocol_type": "t" * 20_000},
    ],
    ids=["metadata", "names", "type"],
)
def test_what_a_present_member_adds_is_limited(changes: dict[str, Any]) -> None:
    """A client may join small, and again with as much as a request has room for, in as many groups as it may have."""
    shard = a_shard(state_bytes_max=10_000)
    member = joined(shard)
    assert member.error is NONE
    shard.recount()
    before = shard.usage
    # Not GROUP_MAX_SIZE_REACHED, which ends a Java consumer.
    assert joined(shard, member.member_id, **changes).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.usage == before
    assert joined(shard, member.member_id).error is NONE
    # With room, it counts.
    shard = a_shard(state_bytes_max=200_000)
    member = joined(shard)
    assert joined(shard, member.member_id, **changes).error is NONE
    shard.recount()
    assert shard.usage.size_bytes > 20_000


def assign(shard: GroupShard, member: JoinedAs, size: int, group_id: str = "g", now_ms: int = 0) -> ErrorCode:
    """The only member of a group, its leader, sends its assignment."""
    shares = (MemberAssignment(member.member_id, bytes(size)), MemberAssignment("nobody", bytes(20_000)))
    request = SyncGroupRequest(group_id, member.generation, member.member_id, assignments=shares)
    step = shard.handle(4, request, now_ms, now_ms)
    for record in step.records:
        shard.replay(record)
    ((_, response),) = step.answers
    assert isinstance(response, SyncGroupResponse)
    return response.error


def fill(shard: GroupShard, size_bytes: int) -> None:
    """Callers of their own have taken so much, and one offset more."""
    while shard.usage.size_bytes < size_bytes:
        caller = f"other {shard.usage.groups}"
        assert commit(shard, caller, caller, "m" * min(4_000, size_bytes - shard.usage.size_bytes)) is NONE


NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_assignments_are_limited() -> None:
    """With a code after which clients try again: others end a Java consumer, one leader of the group after another."""
    shard = a_shard(state_bytes_max=16_000)
    member = joined(shard)
    assert assign(shard, member, 20_000) is NO_ROOM
    # It is not removed because it got no assignment, and joins again without a new rebalance.
    for now_ms in range(0, 40_000, 5_000):
        assert not shard.on_deadline(now_ms, now_ms).records
        assert joined(shard, member.member_id, now_ms=now_ms) == member
        assert assign(shard, member, 20_000, now_ms=now_ms) is NO_ROOM
    assert assign(shard, member, 1_000, now_ms=40_000) is NONE


@pytest.mark.parametrize("size", [500, 400, 0])
def test_a_group_goes_on_when_its_node_is_above_the_limit(size: int) -> None:
    """A lower limit, or the shards that other nodes lead, may put a node above it: no group that adds nothing ends."""
    shard = a_shard()
    first = joined(shard)
    assert assign(shard, first, 500) is NONE
    lower = GroupShard(GroupOptions(state_bytes_max=1_500), new_member_id=str)
    for record in shard.snapshot():
        lower.replay(record)
    lower.become_leader(0)
    assert lower.usage.size_bytes > 1_500
    for _ in range(2):
        again = joined(lower, first.member_id)
        assert again.error is NONE
        assert assign(lower, again, 501) is NO_ROOM
        assert assign(lower, again, size) is NONE
        assert assign(lower, joined(lower, first.member_id), size) is NONE
        size = min(size, 400)


def test_the_room_of_a_group_is_kept_while_it_rebalances() -> None:
    """Else others take it, and the group comes back: again and again, beyond every limit."""
    shard = a_shard(state_bytes_max=80_000)
    fill(shard, 60_000)
    member = joined(shard)
    assert assign(shard, member, 12_000) is NONE
    shard.recount()
    before = shard.usage.size_bytes
    again = joined(shard, member.member_id)
    shard.recount()
    assert shard.usage.size_bytes == before
    other = joined(shard, group_id="other", metadata=bytes(10_000), now_ms=5_000)
    assert other.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert assign(shard, again, 12_000) is NONE
    assert shard.usage.size_bytes == before


def test_a_member_that_is_stored_is_counted_once() -> None:
    """An assignment that has room is not refused because its member was counted twice until the next count."""
    shard = a_shard(state_bytes_max=160_000)
    fill(shard, 120_000)
    # The usage is counted again at most once a second while there is no room: now.
    assert joined(shard, group_id="big", metadata=bytes(50_000), now_ms=20_000).error is not NONE
    member = joined(shard, metadata=bytes(3_800), now_ms=20_100)
    assert assign(shard, member, 30_000, now_ms=20_101) is NONE
    usage = shard.usage
    shard.recount()
    assert shard.usage == usage


def test_members_of_a_group_that_rebalances_are_counted_once() -> None:
    """Its record is of the round before: a count that decides must not add them to it."""
    shard = a_shard(state_bytes_max=160_000)
    member = joined(shard, metadata=bytes(5_000))
    assert assign(shard, member, 3_000) is NONE
    protocols = (Protocol("range", b""),)
    newcomer = JoinGroupRequest("g", "", "consumer", protocols, 10_000, client_id="d", client_host="g")
    assert not shard.handle(4, newcomer, 0, 0).answers, "it waits for the first to join again"
    usage = shard.usage
    shard.recount()
    assert shard.usage.size_bytes <= usage.size_bytes
    assert shard.usage.size_bytes > 8_000 + 2 * MEMBER_BYTES


def test_what_a_caller_gives_back_it_may_add_again() -> None:
    quota = Quota(GroupOptions(state_bytes_max=4_000), lambda: Usage(0, 0), lambda: None)
    for _ in range(10):
        assert quota.admits("a", 0, 1_000, 0)
        assert not quota.admits("a", 0, 1, 0)
        quota.give_back("a", 1_000)
    quota.give_back("a", 5_000)
    assert not quota.admits("a", 0, 1_001, 0), "never more than its share"


FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def heartbeat(
    shard: GroupShard, member_id: str, caller: str, rack: int = 0, epoch: int = 0, group_id: str = "s", topic: str = "t"
) -> ErrorCode:
    """A member of a share group reports, joins (epoch 0) or leaves (epoch -1)."""
    request = ShareHeartbeatRequest(group_id, member_id, epoch, (topic,), client_host=caller, rack_id="r" * rack)
    step = shard.handle(5, request, 0, 0)
    for record in step.records:
        shard.replay(record)
    ((_, response),) = step.answers
    assert isinstance(response, ShareHeartbeatResponse)
    return response.error


def leave(shard: GroupShard, member_id: str, group_id: str = "g") -> None:
    request = LeaveGroupRequest(group_id, (LeavingMember(member_id, None),))
    for record in shard.handle(6, request, 0, 0).records:
        shard.replay(record)


def is_followed(shard: GroupShard) -> GroupShard:
    """The next leader of a shard."""
    successor = GroupShard(shard._options, new_member_id=lambda client_id: f"{client_id}-1")
    for record in shard.snapshot():
        successor.replay(record)
    successor.become_leader(0)
    return successor


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_members_of_a_caller_take_no_more_than_its_share(is_new_leader: bool) -> None:
    """In however many groups. Others can join them, and what does not grow is never refused."""
    shard = a_shard(state_bytes_max=80_000)
    for group_id in "abcdef":
        assert commit(shard, group_id, "founder") is NONE
    a: dict[str, Any] = {"client_host": "a", "client_id": "a"}
    places = {group_id: joined(shard, group_id=group_id, metadata=bytes(2_500), **a) for group_id in "abcdef"}
    errors = [place.error for place in places.values()]
    taken = errors.count(NONE)
    assert 3 <= taken <= 6
    assert errors == [NONE] * taken + [FULL] * (6 - taken)
    for group_id in "abcdef"[:taken]:
        assert assign(shard, places[group_id], 100, group_id) in (NONE, NO_ROOM)
    if is_new_leader:
        shard = is_followed(shard)
    assert shard.held_by("a") <= 20_000
    assert joined(shard, group_id="f", metadata=bytes(12_000), **a).error is FULL
    assert joined(shard, group_id="f", metadata=bytes(2_500), client_host="b").error is NONE
    for group_id in "abcdef"[:taken]:
        member_id = places[group_id].member_id
        assert joined(shard, member_id, group_id=group_id, metadata=bytes(2_500), **a).error is NONE
        assert joined(shard, member_id, group_id=group_id, metadata=bytes(12_000), **a).error is NO_ROOM


@pytest.mark.parametrize("is_told", [True, False], ids=["leaves", "expires"])
def test_members_that_come_and_go_use_up_no_share(is_told: bool) -> None:
    """Not if they leave, and not if they are lost: otherwise, a caller could not join any more after some restarts."""
    shard = a_shard(state_bytes_max=80_000)
    assert commit(shard, "g", "founder") is NONE
    for index in range(100):
        now_ms = 0 if is_told else index * 20_000
        member = joined(shard, metadata=bytes(5_000), now_ms=now_ms)
        assert member.error is NONE, index
        assert assign(shard, member, 2_000, now_ms=now_ms) is NONE
        assert shard.held_by("g") > 9_000
        if is_told:
            leave(shard, member.member_id)
        else:
            for record in shard.on_deadline(now_ms + 15_000, now_ms + 15_000).records:
                shard.replay(record)
        assert shard.held_by("g") == 0


def test_member_ids_that_are_not_used_count_for_their_caller() -> None:
    """Each takes memory until its session ends, up to half an hour. A member takes the room of its id."""
    shard = a_shard(state_bytes_max=80_000)
    assert commit(shard, "g", "founder") is NONE
    numbers = iter(range(100))
    shard._leading.joins._new_member_id = lambda client_id: f"{client_id}-{next(numbers)}"
    a: dict[str, Any] = {"client_host": "a", "member_id_required": True}
    places = [joined(shard, **a) for _ in range(30)]
    given = [place.member_id for place in places if place.error is ErrorCode.MEMBER_ID_REQUIRED]
    assert 15 <= len(given) < 20
    assert [place.error for place in places[len(given) :]] == [FULL] * (30 - len(given))
    assert joined(shard, client_host="b", member_id_required=True).error is ErrorCode.MEMBER_ID_REQUIRED
    request = JoinGroupRequest("g", given[0], "consumer", (Protocol("range", b""),), 10_000, client_host="a")
    assert not shard.handle(3, request, 0, 0).answers, "it waits for the others"
    for member_id in given[1:]:
        leave(shard, member_id)
    assert 1_000 < shard.held_by("a") < 2_000
    shard.on_deadline(60_000, 60_000)
    assert shard.held_by("b") == 0


def test_assignments_count_for_the_caller_that_leads() -> None:
    """In each group a leader could otherwise add as much as a request has room for."""
    shard = a_shard(state_bytes_max=80_000)
    for group_id in "xyz":
        assert commit(shard, group_id, "founder") is NONE
    members = {group_id: joined(shard, group_id=group_id, client_host="a") for group_id in "xyz"}
    assert assign(shard, members["x"], 12_000, "x") is NONE
    assert assign(shard, members["y"], 12_000, "y") is NO_ROOM
    again = joined(shard, members["x"].member_id, group_id="x", client_host="a")
    assert assign(shard, members["y"], 12_000, "y") is NO_ROOM, "the room is kept"
    assert assign(shard, again, 1_000, "x") is NONE
    assert assign(shard, members["y"], 12_000, "y") is NONE
    before = shard.held_by("a")
    shard.handle(7, LeaveGroupRequest("y", (LeavingMember(members["y"].member_id, None),)), 0, 0)
    assert shard.held_by("a") < before - 12_000


def test_what_others_take_over_counts_for_them_if_they_have_room() -> None:
    """Otherwise, two callers could take all: one adds members, and the other takes them over."""
    shard = a_shard(state_bytes_max=80_000)
    for group_id in "xyz":
        assert commit(shard, group_id, "founder") is NONE

    def come(caller: str, group_id: str, member_id: str = "", size: int = 6_000) -> JoinedAs:
        return joined(shard, member_id, group_id=group_id, metadata=bytes(size), client_host=caller)

    first, second, third = come("a", "x"), come("a", "y"), come("b", "z", size=10_000)
    assert [each.error for each in (first, second, third)] == [NONE] * 3
    held = shard.held_by("a"), shard.held_by("b")
    assert assign(shard, first, 0, "x") is NONE
    again = come("b", "x", first.member_id)
    assert again.error is NONE
    assert (shard.held_by("a"), shard.held_by("b")) == held, "b has no room for it"
    assert come("b", "x", first.member_id, 6_500).error is NO_ROOM
    leave(shard, third.member_id, "z")
    assert shard.held_by("b") == 0
    assert assign(shard, again, 0, "x") is NONE
    assert come("b", "x", first.member_id).error is NONE
    assert shard.held_by("a") * 2 == held[0]
    assert shard.held_by("b") == shard.held_by("a")


def test_a_static_member_that_returns_is_counted_once() -> None:
    """With the id that it has now."""
    shard = a_shard(state_bytes_max=80_000)
    ids = iter(("one", "two", "three"))
    shard._leading.joins._new_member_id = lambda client_id: next(ids)
    a: dict[str, Any] = {"client_host": "a", "instance_id": "i", "metadata": bytes(4_000)}
    assert joined(shard, **a).error is NONE
    held = shard.held_by("a")
    assert held > 4_000
    assert joined(shard, **a).member_id == "two"
    assert shard.held_by("a") == held
    leave(shard, "two")
    assert shard.held_by("a") == 0


def test_members_of_share_groups_count_for_their_caller() -> None:
    """As long as they are there, at the next leader too."""
    shard = a_shard(state_bytes_max=80_000)
    assert heartbeat(shard, "0", "founder") is NONE
    for _ in range(3):
        errors = [heartbeat(shard, f"a{index}", "a", rack=4_000) for index in range(5)]
        assert errors == [NONE] * 3 + [FULL] * 2
        shard = is_followed(shard)
        assert heartbeat(shard, "a3", "a", rack=4_000) is FULL
        assert heartbeat(shard, "a0", "a", rack=4_000) is NONE, "it adds nothing"
        assert heartbeat(shard, "a0", "a", rack=4_000, topic="t" * 20_000) is NO_ROOM
        assert heartbeat(shard, "b", "b", rack=4_000) is NONE
        for index in range(3):
            assert heartbeat(shard, f"a{index}", "a", epoch=-1) is NONE
        assert shard.held_by("a") == 0


def test_the_racks_of_share_members_count() -> None:
    shard = a_shard(state_bytes_max=10_000)
    request = ShareHeartbeatRequest("s", "m", 0, ("t",), client_host="a", rack_id="r" * 20_000)
    ((_, response),) = shard.handle(5, request, 0, 0).answers
    assert isinstance(response, ShareHeartbeatResponse)
    assert response.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_limit_is_named_and_few_callers_are_remembered() -> None:
    reasons: list[str] = []
    options = GroupOptions(groups_max=100, state_bytes_max=1_000)
    quota = Quota(options, lambda: Usage(0, 0), lambda: None, reasons.append)
    assert not quota.admits("a", 101, 0, 0)
    assert not quota.admits("a", 0, 1_001, 0)
    assert not quota.admits("a", 26, 0, 0)
    assert not quota.admits("a", 0, 251, 0)
    assert [word for reason in reasons for word in reason.split() if "_max" in word] == [
        "groups_max",
        "group_state_bytes_max",
        "groups_max,",
        "group_state_bytes_max,",
    ]
    for index in range(2 * CALLERS_MAX):
        assert quota.admits(str(index), 1, 1, 0)
    assert len(quota._left) <= CALLERS_MAX


def test_replicas_count_alike() -> None:
    """A follower that loads a snapshot counts what the leader counts by its records."""
    shard = a_shard()
    for index in range(10):
        commit(shard, f"g{index % 3}", metadata="m" * index, offset=index)
    copy = GroupShard(GroupOptions(), new_member_id=str)
    for record in shard.snapshot():
        copy.replay(record)
    assert copy.usage == shard.usage
    assert copy.replicated == shard.replicated
