"""A node's place among others: whom it greets, and whom it takes for a cluster to join."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from drmq.broker import ClusterOptions, PeerAddress
from drmq.broker.cluster.membership import Membership, Request
from drmq.broker.cluster.metadata import Metadata
from drmq.broker.cluster.registrations import Registrations
from drmq.model import ApiError, DrmqError, ErrorCode, NodeId
from drmq.transport.peers import (
    ConnectionKind,
    FeatureRange,
    Hello,
    Identity,
    NoNetwork,
    PeerStatus,
    RefusalCode,
    twin,
)
from support.broker_harness import NODE, Harness
from support.other_nodes import append

OTHER = NodeId(2)
LEVELS = {"metadata.version": (1, 4), "share.version": (0, 1)}
FRESH = Identity(
    None, OTHER, 0, 1, b"b" * 16, "host", 1, features=tuple(FeatureRange(name, *each) for name, each in LEVELS.items())
)


def hello(identity: Identity) -> Hello:
    return Hello.of(identity, ConnectionKind.HEARTBEAT, NODE)


def refusal_of(harness: Harness, identity: Identity) -> str | None:
    refusal = harness.call(lambda: harness.broker.membership.check_hello(hello(identity)))
    return None if refusal is None else refusal.text


def a_registration(directory_id: str, cluster_id: str | None = None) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "directory_id": directory_id,
        "host": "host",
        "port": 1,
        "peer_host": "host",
        "peer_port": 2,
        "rack": None,
        "roles": ["broker"],
        "starts": 1,
        "boot_id": FRESH.boot_id.hex(),
        "features": {name: list(levels) for name, levels in LEVELS.items()},
    }


def register(harness: Harness, node_id: int, directory_id: str) -> int:
    """Have the controller register a node; its incarnation."""
    fields = a_registration(directory_id)
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
    assert "replaced by one with a different data directory" in refusal
    present = replace(old, incarnation=1)
    assert refusal_of(harness, present) is None
    assert refusal_of(harness, replace(present, starts=2, boot_id=b"c" * 16)) is None
    for copy in (replace(present, boot_id=b"c" * 16), replace(present, starts=0)):
        refusal = refusal_of(harness, copy)
        assert refusal is not None
        assert "older copy of its data directory" in refusal


def test_registrations_and_members_of_the_metadata_group_are_logged(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """Each with its cause, once."""
    caplog.set_level(logging.INFO, "drmq.broker")
    for directory_id in ("aa" * 16, "aa" * 16, "bb" * 16):
        register(harness, OTHER, directory_id)
        harness.call(harness.broker.controller._follow_members)
        harness.settle()
    started = a_registration("bb" * 16) | {"starts": 2}
    for fields in (started, started | {"rack": "b"}):
        harness.run(harness.broker.controller.register(OTHER, fields))
    log = harness.broker.metadata.log.partition
    append(harness, harness.broker.catalog.remove_broker(OTHER))
    harness.call(harness.broker.controller._follow_members)
    harness.settle()
    name, term = "__cluster_metadata-0", log.leader_epoch
    assert [text for text in caplog.messages if "registered" in text or "members" in text] == [
        "node 2 at host:1 is registered: it has joined the cluster",
        f"{name}: members are now 1, learner 2 (were 1), in term {term}: node 2 has joined the cluster",
        "node 2 at host:1 is registered: it has another data directory",
        f"{name}: members are now 1, learner 2 (were 1, learner 2), in term {term}: node 2 has another data directory",
        "node 2 at host:1 is registered: it has started again",
        "node 2 at host:1 is registered: its addresses, rack or roles have changed",
        f"{name}: members are now 1 (were 1, learner 2), in term {term}: node 2 was removed from the cluster",
    ]


def test_a_registration_is_logged_though_nobody_waits_for_its_answer(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that learns of its cluster before the answer renews its connections, and registers once more."""
    caplog.set_level(logging.INFO, "drmq.broker")

    async def register_and_leave() -> None:
        registering = asyncio.ensure_future(harness.broker.controller.register(OTHER, a_registration("aa" * 16)))
        await asyncio.sleep(0)
        assert not registering.done()
        registering.cancel()

    harness.run(register_and_leave())
    harness.settle()
    register(harness, OTHER, "aa" * 16)
    assert caplog.messages.count("node 2 at host:1 is registered: it has joined the cluster") == 1


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
    harness.call(lambda: member.on_peer_up(hello(replace(FRESH, cluster_id="theirs"))))
    assert harness.run(member.find_cluster()) is True


def test_a_peer_that_is_gone_does_not_count(harness: Harness) -> None:
    member = a_fresh_member(harness, peers=1)
    harness.call(lambda: member.on_peer_up(hello(FRESH)))
    harness.call(lambda: member.on_peer_down(OTHER))

    async def look() -> bool:
        looking = asyncio.ensure_future(member.find_cluster())
        await asyncio.sleep(0.01)
        is_done = looking.done()
        looking.cancel()
        return is_done

    assert harness.run(look()) is False


# ---- an id that is in use -----------------------------------------------------------------------


class Hearing(NoNetwork):
    """Peers that have a heartbeat connection to this node."""

    def __init__(self) -> None:
        self.heard: dict[NodeId, Hello] = {}

    def hello_from(self, node_id: NodeId) -> Hello | None:
        return self.heard.get(node_id)


def test_an_id_is_taken_while_the_process_that_has_it_is_heard(harness: Harness) -> None:
    """Who takes the place of one that has ended is let in as soon as that is noticed."""
    network = harness.broker.membership.network = Hearing()
    other = replace(FRESH, boot_id=b"c" * 16)
    network.heard[OTHER] = hello(FRESH)
    assert refusal_of(harness, FRESH) is None
    refusal = refusal_of(harness, other)
    assert refusal is not None
    assert "node 2 runs already" in refusal
    assert "host:1" in refusal
    with pytest.raises(ApiError, match="node 2 runs already"):
        harness.run(
            harness.broker.registrations.register(OTHER, a_registration("aa" * 16) | {"boot_id": other.boot_id.hex()})
        )
    assert OTHER not in harness.broker.catalog.brokers
    del network.heard[OTHER]
    assert refusal_of(harness, other) is None


class Refusing(NoNetwork):
    """Peers that refuse this node."""

    def __init__(self, *refusals: Refusal | None) -> None:
        self.peers = {
            NodeId(number): PeerStatus("host", number, False, 0, 0, text, None, None, None, code)
            for number, (code, text) in enumerate((refusal or (None, None) for refusal in refusals), 2)
        }


Refusal = tuple[RefusalCode | None, str]
OTHER_CLUSTER: Refusal = (RefusalCode.OTHER_CLUSTER, "the peer refuses: node 1 belongs to cluster A, and node 2 to B")
TWIN: Refusal = (RefusalCode.TWIN, "the peer refuses: " + twin(hello(FRESH)).text)
FEATURES: Refusal = (RefusalCode.FEATURES, "the peer refuses: node 1 cannot take part")
OWN_REFUSAL: Refusal = (None, "this node refuses: " + twin(hello(FRESH)).text)


async def never() -> dict[str, Any]:
    raise ApiError(ErrorCode.NOT_CONTROLLER, "it is another one")


@pytest.mark.parametrize(
    ("refusals", "is_final"),
    [
        ([TWIN, None], True),
        ([FEATURES, None], True),
        ([OTHER_CLUSTER, OTHER_CLUSTER], True),
        ([OTHER_CLUSTER, None], False),
        ([OWN_REFUSAL, OWN_REFUSAL], False),
        ([(RefusalCode.VERSION, "the peer refuses: it speaks version 7")] * 2, False),
    ],
)
def test_a_refusal_that_stands_ends_the_node(harness: Harness, refusals: list[Refusal | None], is_final: bool) -> None:
    """Not at once: the end of the process whose place a node takes may not be noticed yet."""
    member = a_fresh_member(harness, peers=2)
    member.network = Refusing(*refusals)
    joining = harness.loop.create_task(member.register(("host", 1), never))
    harness.run(asyncio.sleep(0.3))
    assert not joining.done()
    harness.advance(6_000)
    harness.run(asyncio.sleep(0.3))
    assert joining.done() is is_final
    if is_final:
        with pytest.raises(DrmqError, match=r"runs already|belongs to cluster|cannot take part"):
            joining.result()
    joining.cancel()


def test_a_refusal_that_passes_ends_nobody(harness: Harness) -> None:
    member = a_fresh_member(harness, peers=1)
    looking = harness.loop.create_task(member.find_cluster())
    for refusal in (TWIN, None, TWIN):
        member.network = Refusing(refusal)
        member.notice_change()
        harness.run(asyncio.sleep(0.02))
        harness.advance(3_000)
        harness.run(asyncio.sleep(0.02))
    assert not looking.done()
    harness.advance(6_000)
    with pytest.raises(DrmqError, match="node 2 runs already"):
        harness.run(looking)


# ---- registrations that are passed on -----------------------------------------------------------


def pass_on(harness: Harness, sender: int, node_id: int, cluster_id: str | None = None) -> dict[str, Any]:
    """Have the controller serve a registration of `node_id` that node `sender` has passed on."""
    payload = json.dumps(a_registration(f"{node_id:02x}" * 16, cluster_id) | {"node_id": node_id}).encode()
    (answer,) = harness.run(harness.broker.registrations.serve_forwarded(NodeId(sender), memoryview(payload)))
    answered: dict[str, Any] = json.loads(bytes(answer))
    return answered


def test_only_a_member_speaks_for_a_node_that_joins(harness: Harness) -> None:
    broker = harness.broker
    member = replace(FRESH, cluster_id=broker.cluster_id)
    for sender in (None, FRESH, member):
        if sender is not None:
            harness.call(partial(broker.membership.on_peer_up, hello(sender)))
        with pytest.raises(ApiError, match="node 2 is not registered itself") as refused:
            pass_on(harness, 2, 3)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    register(harness, OTHER, "02" * 16)
    assert pass_on(harness, 2, 3)["cluster_id"] == broker.cluster_id
    assert broker.catalog.brokers.keys() == {1, 2, 3}
    register(harness, OTHER, "22" * 16)
    with pytest.raises(ApiError, match="node 2 is not registered itself"):
        pass_on(harness, 2, 4)


def test_final_refusals_keep_their_code_on_the_way(harness: Harness) -> None:
    broker = harness.broker
    register(harness, OTHER, "02" * 16)
    harness.call(lambda: broker.membership.on_peer_up(hello(replace(FRESH, cluster_id=broker.cluster_id))))
    pass_on(harness, 2, 3)
    harness.call(lambda: broker.metadata.append(broker.catalog.remove_broker(NodeId(3))))
    for cluster_id, code in (
        (broker.cluster_id, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("another", ErrorCode.INCONSISTENT_CLUSTER_ID),
    ):
        with pytest.raises(ApiError) as refused:
            pass_on(harness, 2, 3, cluster_id)
        assert refused.value.code is code
    with pytest.raises(ApiError, match="node 1 runs already"):
        pass_on(harness, 2, 1)


class Asked(NoNetwork):
    """Keeps what was to be sent."""

    def __init__(self) -> None:
        self.kinds: list[int] = []

    async def request(self, node_id: NodeId, kind: int, payload: object, timeout_s: float) -> bytes:
        self.kinds.append(kind)
        return b"{}"


def test_what_was_passed_on_is_not_passed_on_again(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes that take each other for the controller would do so for ever."""
    broker = harness.broker
    metadata = Metadata(harness.clock)
    monkeypatch.setattr(Metadata, "controller", property(lambda self: OTHER))
    network = Asked()
    member = Membership(NODE, broker.store, ClusterOptions(), metadata, broker.host, b"boot" * 4)
    member.network = network
    registrations = Registrations(metadata, member, broker.controller)
    payload = memoryview(json.dumps(a_registration("aa" * 16) | {"node_id": 3}).encode())
    with pytest.raises(ApiError) as refused:
        harness.run(registrations.serve_forwarded(OTHER, payload))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert network.kinds == []
    harness.run(registrations.serve(NodeId(3), payload))
    assert network.kinds == [Request.REGISTER_FOR]


# ---- nodes that are not known yet ---------------------------------------------------------------


class Linked(Asked):
    """Keeps what is dialled, and answers a registration as a node of the cluster would."""

    def __init__(self, answer: dict[str, Any], *connected: NodeId) -> None:
        super().__init__()
        self.dialled: dict[NodeId, tuple[str, int]] = {}
        self.answer = answer
        greeted = hello(replace(FRESH, cluster_id=""))
        self.peers = {
            node_id: PeerStatus("host", 1, False, 0, 0, None, None, greeted, None, is_connected=True)
            for node_id in connected
        }

    def set_peer(self, node_id: NodeId, host: str, port: int) -> None:
        self.dialled[node_id] = (host, port)

    def is_peer(self, node_id: NodeId) -> bool:
        return node_id in self.dialled or node_id in self.peers

    async def request(self, node_id: NodeId, kind: int, payload: object, timeout_s: float) -> bytes:
        await super().request(node_id, kind, payload, timeout_s)
        return json.dumps(self.answer).encode()


def test_a_node_that_greets_is_not_dialled(harness: Harness) -> None:
    """It chooses the address in its greeting."""
    network = harness.broker.membership.network = Linked({})
    assert refusal_of(harness, FRESH) is None
    assert refusal_of(harness, replace(FRESH, cluster_id=harness.broker.cluster_id)) is None
    harness.run(asyncio.sleep(0.01))
    assert network.dialled == {}


def test_a_restarted_node_dials_a_voter_that_it_does_not_know_yet(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address is in the catalog, which is not known before there is a controller, which may need that vote."""
    monkeypatch.setattr(harness.broker.metadata, "voting_nodes", lambda: {NODE, OTHER})
    network = harness.broker.membership.network = Linked({})
    for stranger in (FRESH, replace(FRESH, node_id=NodeId(3), cluster_id=harness.broker.cluster_id)):
        assert refusal_of(harness, stranger) is None
    harness.run(asyncio.sleep(0.01))
    assert network.dialled == {}
    assert refusal_of(harness, replace(FRESH, cluster_id=harness.broker.cluster_id)) is None
    harness.run(asyncio.sleep(0.01))
    assert network.dialled == {OTHER: ("host", 1)}


def test_a_restarted_node_dials_the_nodes_that_its_stored_catalog_names(harness: Harness) -> None:
    """Found by seed 34: a node that joined later was in the stored catalog, but nobody dialled it before there was a
    controller, which needed its vote."""
    register(harness, 3, "d" * 32)
    register(harness, 4, "e" * 32)
    broker = harness.broker
    broker.cluster = broker.membership.options = replace(
        broker.membership.options, peers={NodeId(3): PeerAddress("configured", 7, 8)}
    )
    network = Linked({})
    harness.call(lambda: broker.use_network(network, 5))
    assert network.dialled == {NodeId(3): ("configured", 8), NodeId(4): ("host", 2)}


def test_an_unknown_node_can_only_register(harness: Harness) -> None:
    membership = harness.broker.membership
    network = membership.network = Linked({})
    for kind in set(membership.handlers) - {Request.REGISTER}:
        with pytest.raises(ApiError, match="node 2 is neither configured on node 1 nor in its catalog"):
            harness.run(membership.on_request(OTHER, kind, memoryview(b"{}")))
    payload = memoryview(json.dumps(a_registration("aa" * 16)).encode())
    (answer,) = harness.run(membership.on_request(OTHER, Request.REGISTER, payload))
    assert json.loads(bytes(answer))["cluster_id"] == harness.broker.cluster_id
    assert network.dialled == {OTHER: ("host", 2)}


def test_a_joining_node_asks_nodes_that_answer_and_then_dials_the_voters(harness: Harness) -> None:
    """The node that it asks does not connect to it, so it is not up."""
    member = a_fresh_member(harness, peers=1)
    network = member.network = Linked({"cluster_id": "c", "voters": {"1": ["one", 1], "5": ["five", 5]}}, OTHER)
    assert harness.run(member.find_cluster())
    assert harness.run(member.register(("host", 1), never))["cluster_id"] == "c"
    assert network.kinds == [Request.REGISTER]
    assert network.dialled == {NodeId(5): ("five", 5)}


def test_a_node_that_joins_an_older_cluster_dials_the_node_that_sends_the_catalog(harness: Harness) -> None:
    """Nodes of that release do not name the voters. Nobody else is dialled."""
    broker = harness.broker
    peers = {OTHER: PeerAddress("host", 2, 1_002)}
    without_catalog = Metadata(harness.clock)
    member = Membership(NODE, broker.store, ClusterOptions(peers=peers), without_catalog, broker.host, b"boot" * 4)
    network = member.network = Linked({"cluster_id": broker.cluster_id}, OTHER)
    harness.run(member.register(("host", 1), never))
    for node_id, cluster_id in ((4, None), (5, broker.cluster_id)):
        greeting = hello(replace(FRESH, node_id=NodeId(node_id), cluster_id=cluster_id))
        assert harness.call(partial(member.check_hello, greeting)) is None
    harness.run(asyncio.sleep(0.01))
    assert network.dialled == {NodeId(5): ("host", 1)}


# ---- a node without a port for others -----------------------------------------------------------


async def answer_at_once() -> dict[str, Any]:
    return {}


def test_a_node_that_needs_others_is_not_started_without_a_port_for_them(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose vote is the only one can do without the others."""
    member = a_fresh_member(harness, peers=0)
    assert harness.broker.metadata.voting_nodes() == {NODE}
    register(harness, OTHER, "aa" * 16)
    assert harness.run(member.register(("host", 1), answer_at_once)) == {}
    monkeypatch.setattr(Metadata, "voting_nodes", lambda self: {NODE, OTHER})
    with pytest.raises(DrmqError, match=r"other voters \(node 2\).*start it with --peers or --peer-port"):
        harness.run(member.register(("host", 1), answer_at_once))
