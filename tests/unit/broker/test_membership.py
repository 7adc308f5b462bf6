"""A node's place among others: whom it greets, and whom it takes for a cluster to join."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from drmq.broker import ClusterOptions, PeerAddress
from drmq.broker.membership import Membership
from drmq.model import NodeId
from drmq.transport.peers import ConnectionKind, Hello, Identity
from support.broker_harness import NODE, Harness

OTHER = NodeId(2)
FRESH = Identity(None, OTHER, 0, 1, b"b" * 16, "host", 1)


@pytest.fixture
def harness() -> Iterator[Harness]:
    with Harness() as harness:
        yield harness


def hello(identity: Identity) -> Hello:
    return Hello.of(identity, ConnectionKind.HEARTBEAT, NODE)


def refusal_of(harness: Harness, identity: Identity) -> str | None:
    return harness.call(lambda: harness.broker.membership.check_hello(hello(identity)))


def register(harness: Harness, node_id: int, directory_id: str) -> int:
    """Have the controller register a node; its incarnation."""
    fields = {
        "cluster_id": None,
        "directory_id": directory_id,
        "host": "host",
        "port": 1,
        "peer_host": "host",
        "peer_port": 2,
        "rack": None,
        "roles": ["broker"],
        "starts": 1,
        "boot_id": FRESH.boot_id.hex(),
    }
    return harness.run(harness.broker.controller.register(NodeId(node_id), fields)).incarnation


def test_fresh_nodes_and_those_of_the_same_cluster_are_let_in(harness: Harness) -> None:
    assert refusal_of(harness, FRESH) is None
    assert refusal_of(harness, replace(FRESH, cluster_id=harness.broker.cluster_id)) is None


def test_a_node_of_another_cluster_is_told_what_to_do(harness: Harness) -> None:
    refusal = refusal_of(harness, replace(FRESH, cluster_id="another"))
    assert refusal is not None
    assert "belongs to cluster another" in refusal
    assert "empty data directory" in refusal


def test_two_nodes_do_not_share_an_id(harness: Harness) -> None:
    refusal = refusal_of(harness, replace(FRESH, node_id=NODE))
    assert refusal == "node id 1 is used twice"


def test_a_node_with_a_new_disk_is_another_member_and_the_old_disk_is_refused(harness: Harness) -> None:
    assert register(harness, OTHER, "aa" * 16) == 0
    assert register(harness, OTHER, "aa" * 16) == 0
    assert register(harness, OTHER, "bb" * 16) == 1
    harness.settle()
    old = replace(FRESH, cluster_id=harness.broker.cluster_id, incarnation=0)
    refusal = refusal_of(harness, old)
    assert refusal is not None
    assert "another disk" in refusal
    present = replace(old, incarnation=1)
    assert refusal_of(harness, present) is None
    assert refusal_of(harness, replace(present, starts=2, boot_id=b"c" * 16)) is None
    for copy in (replace(present, boot_id=b"c" * 16), replace(present, starts=0)):
        refusal = refusal_of(harness, copy)
        assert refusal is not None
        assert "older copy of its data directory" in refusal


def a_fresh_member(harness: Harness, peers: int) -> Membership:
    others = {NodeId(number): PeerAddress("host", number, 1_000 + number) for number in range(2, 2 + peers)}
    options = ClusterOptions(peers=others, peer_port=0)
    broker = harness.broker
    return Membership(NODE, broker.store, options, broker.metadata, broker.host, b"boot" * 4)


def test_a_cluster_is_formed_only_when_all_are_there_and_fresh(harness: Harness) -> None:
    member = a_fresh_member(harness, peers=2)

    async def look() -> list[bool]:
        looking = asyncio.ensure_future(member.find_cluster())
        seen = []
        for node_id in (2, 3):
            await asyncio.sleep(0.01)
            seen.append(looking.done())
            member.on_peer_up(hello(replace(FRESH, node_id=NodeId(node_id))))
        return [*seen, await looking]

    assert harness.run(look()) == [False, False, False]


def test_one_node_that_belongs_to_a_cluster_is_enough_to_join_it(harness: Harness) -> None:
    member = a_fresh_member(harness, peers=2)
    member.on_peer_up(hello(replace(FRESH, cluster_id="theirs")))
    assert harness.run(member.find_cluster()) is True


def test_a_peer_that_is_gone_does_not_count(harness: Harness) -> None:
    member = a_fresh_member(harness, peers=1)
    member.on_peer_up(hello(FRESH))
    member.on_peer_down(OTHER)

    async def look() -> bool:
        looking = asyncio.ensure_future(member.find_cluster())
        await asyncio.sleep(0.01)
        is_done = looking.done()
        looking.cancel()
        return is_done

    assert harness.run(look()) is False
