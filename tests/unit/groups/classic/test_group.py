"""One group: its indexes, its choices, and its stored form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drmq.groups.classic import Group, Member
from drmq.groups.records import Protocol
from drmq.groups.state import NEXT_STATES, GroupState


def member(member_id: str, *protocols: str, instance_id: str | None = None, joined: bool = True) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="host",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=tuple(Protocol(name, name.encode()) for name in protocols or ("range",)),
        join_ticket=1 if joined else None,
    )


def group_of(*members: Member) -> Group:
    group = Group("g", protocol_type="consumer")
    for each in members:
        group.add(each)
    return group


def test_a_group_accepts_who_shares_a_protocol_with_all_others() -> None:
    group = group_of(member("a", "x", "y"), member("b", "y", "z"))
    assert group.accepts("consumer", (Protocol("y", b""),), None)
    assert not group.accepts("consumer", (Protocol("x", b""), Protocol("z", b"")), None)
    assert not group.accepts("connect", (Protocol("y", b""),), None)
    assert not group.accepts("consumer", (), None)


@pytest.mark.parametrize(
    "joining",
    [
        member("a"),
        member("\0" * 5_000, instance_id="\N{GRINNING FACE}" * 100),
        member("b", *map(str, range(1_000))),
        replace(member("c"), protocols=(Protocol("range", bytes(100_000)),), session_timeout_ms=1_800_000),
    ],
    ids=["usual", "odd names", "many protocols", "much to tell"],
)
def test_a_member_is_as_large_as_its_stored_form(joining: Member) -> None:
    other = member("z")
    alone, together = (len(group_of(*each).to_metadata().to_bytes()) for each in ([other], [other, joining]))
    assert together - alone <= joining.stored_bytes <= together - alone + 60


def test_a_lone_member_may_change_everything() -> None:
    """Its own old protocols must not stand in its way."""
    alone = member("a", "x")
    group = group_of(alone)
    assert group.accepts("connect", (Protocol("z", b""),), alone)
    assert not group.accepts("", (Protocol("z", b""),), alone)


def test_the_protocol_is_the_favourite_among_the_shared() -> None:
    assert group_of(member("a", "x", "y"), member("b", "y", "x"), member("c", "z", "y", "x")).choose_protocol() == "y"


def test_a_tie_goes_to_the_first_member() -> None:
    assert group_of(member("a", "x", "y"), member("b", "y", "x")).choose_protocol() == "x"
    assert group_of(member("b", "y", "x"), member("a", "x", "y")).choose_protocol() == "y"


def test_the_leader_stays_if_it_has_joined() -> None:
    group = group_of(member("a"), member("b"))
    assert group.elect_leader() == "a"
    group.leader = "b"
    assert group.elect_leader() == "b"
    group.members["b"].join_ticket = None
    assert group.elect_leader() == "a"


def test_a_static_member_keeps_its_place_under_a_new_id() -> None:
    group = group_of(member("a", instance_id="i"), member("b"))
    group.leader = "a"
    group.awaiting_sync = {"a", "b"}
    group.replace_id(group.members["a"], "a2")
    assert list(group.members) == ["a2", "b"]
    assert (group.leader, group.static, group.awaiting_sync) == ("a2", {"i": "a2"}, {"b"})


def test_a_removed_member_leaves_no_trace() -> None:
    group = group_of(member("a", instance_id="i"))
    group.leader, group.awaiting_sync = "a", {"a"}
    group.remove(group.members["a"])
    assert group == Group("g", protocol_type="consumer")


def test_the_stored_form_rebuilds_the_group() -> None:
    group = group_of(member("a", instance_id="i"), member("b", "range", "sticky"))
    group.state, group.generation, group.leader = GroupState.COMPLETING_REBALANCE, 4, "b"
    rebuilt = Group.from_metadata(group.to_metadata())
    assert rebuilt.to_metadata() == group.to_metadata()
    assert rebuilt.static == {"i": "a"}
    assert rebuilt.awaiting_sync == {"a", "b"}


def test_a_state_that_may_not_follow_is_a_bug() -> None:
    assert NEXT_STATES.keys() == set(GroupState)
    with pytest.raises(AssertionError):
        Group("g").transition(GroupState.STABLE, 0)
