"""Who greets whom, in which version, and who is refused: over real sockets."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from drmq.model import NodeId
from drmq.transport.peers import (
    ConnectionKind,
    FeatureRange,
    Hello,
    PeerUnavailable,
    RefusalCode,
)

from .nodes import (
    HOST,
    LOOPS,
    TestNode,
    append,
    connected,
    run,
    until,
)

pytestmark = pytest.mark.parametrize("loop", sorted(LOOPS))


def lines_about(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def hello_of(node: TestNode, other: TestNode) -> Hello:
    """How `other` introduced itself to `node`."""
    hello = node.network.peers[other.node_id].hello
    assert hello is not None
    return hello


def test_a_node_of_version_1_is_spoken_to_in_version_1(loop: str) -> None:
    """And in the newest one again when its process is another, whichever way that goes."""
    features = (FeatureRange("metadata.version", 1, 2),)

    async def scenario(one: TestNode, two: TestNode) -> None:
        one.identity = replace(one.identity, features=features, release="0.1.0")
        two.identity = replace(two.identity, protocol_version=1)
        assert one.network.protocol_version(two.node_id) == 1
        await connected(one, two)
        assert one.network.protocol_version(two.node_id) == 1
        assert one.network.features_of(two.node_id) == {}
        for version, its_features in ((2, features), (1, ()), (2, features)):
            boot_id = bytes([version]) * 8 + one.network.loop.time().hex().encode()[:8]
            two.identity = replace(two.identity, protocol_version=version, features=its_features, boot_id=boot_id)
            await until(lambda: hello_of(one, two).boot_id == boot_id)  # noqa: B023
            await until(lambda: one.is_up(two) and two.is_up(one))
            assert one.network.protocol_version(two.node_id) == version
            assert one.network.features_of(two.node_id) == ({"metadata.version": (1, 2)} if its_features else {})
        assert hello_of(two, one).release == "0.1.0"

    run(loop, scenario, TestNode(1), TestNode(2))


def test_another_cluster_is_refused(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Both sides know why, and say it once however often they try."""
    caplog.set_level(logging.INFO, "drmq.transport.peers")

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        one.dial(two)
        await until(lambda: len(lines_about(caplog, "cluster ours")) == 2)
        refusal = one.network.peers[two.node_id].refusal
        assert refusal is not None
        assert "the peer refuses" in refusal
        assert "node 1 belongs to cluster ours, and node 2 to another one" in refusal
        assert "theirs" not in refusal
        await asyncio.sleep(0.2)
        assert len(lines_about(caplog, "cluster ours")) == 2
        assert one.handler.events == two.handler.events == []
        with pytest.raises(PeerUnavailable, match="cluster ours"):
            await one.network.request(two.node_id, 1, [], 1)
        two.identity = replace(two.identity, cluster_id="ours")
        two.dial(one)
        await until(lambda: one.is_up(two) and two.is_up(one))
        assert one.network.peers[two.node_id].refusal is None

    run(loop, scenario, TestNode(1, cluster_id="ours"), TestNode(2, cluster_id="theirs"))


def test_a_wrong_address_is_refused(loop: str) -> None:
    """Node 3 is dialled where node 2 lives."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        one.network.set_peer(NodeId(3), HOST, two.port)
        await until(lambda: one.network.peers[NodeId(3)].refusal)
        assert "looks for node 3, and this is node 2" in str(one.network.peers[NodeId(3)].refusal)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_the_handler_may_refuse_on_either_side(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drmq.transport.peers")

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        two.handler.refusal = "node 1 was removed"
        one.dial(two)
        await until(lambda: one.network.peers[two.node_id].refusal == "the peer refuses: node 1 was removed")
        assert one.network.peers[two.node_id].refusal_code is RefusalCode.REPLACED
        two.handler.refusal, one.handler.refusal = None, "node 2 is too old"
        await until(lambda: one.network.peers[two.node_id].refusal == "this node refuses: node 2 is too old")
        assert one.network.peers[two.node_id].refusal_code is None
        # The one that was dialled learns it as well.
        await until(lambda: lines_about(caplog, "the peer refuses: node 2 is too old"))
        one.handler.refusal = None
        two.dial(one)
        await until(lambda: one.is_up(two) and two.is_up(one))

    run(loop, scenario, TestNode(1), TestNode(2))


@pytest.mark.parametrize("who", ["the one that dials", "the one that is dialled"])
def test_a_refused_connection_is_counted_once_on_either_side(loop: str, who: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        refuses = one if who == "the one that dials" else two
        refuses.handler.refusal = "the other is too old"
        one.dial(two)
        await until(lambda: min(one.network.refused_count, two.network.refused_count) >= 3)
        # There is one attempt at a time, and of the last one only one side may know yet.
        assert abs(one.network.refused_count - two.network.refused_count) <= 1

    run(loop, scenario, TestNode(1), TestNode(2))


def test_who_changes_introduces_itself_again(loop: str) -> None:
    """A fresh node that has joined is known to its peers under its new cluster id and incarnation at once."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        assert [hello.cluster_id for hello in two.handler.hellos] == [None]
        one.identity = replace(one.identity, cluster_id="cluster", incarnation=4)
        await until(lambda: two.handler.hellos[-1].incarnation == 4)
        assert two.handler.hellos[-1].cluster_id == "cluster"
        assert "down 1" not in two.handler.events
        assert await one.network.request(two.node_id, 1, [b"x"], 5) == b"1 1 x"

    run(loop, scenario, TestNode(1, cluster_id=None), TestNode(2))


def test_what_is_sent_while_a_node_introduces_itself_again_arrives(loop: str) -> None:
    """A node does that right after it has joined, and everything that it says then is waited for."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        greetings = len(two.handler.greeted)
        one.network._links[two.node_id].greet_again()
        sent = [append(1, 2, 10, index) for index in range(1, 11)]
        one.send(two, *sent)
        await until(lambda: len(two.handler.messages) == len(sent))
        assert [message for _, _, message in two.handler.messages] == sent
        assert len(two.handler.greeted) > greetings
        assert one.network.peers[two.node_id].dropped_messages == 0

    run(loop, scenario, TestNode(1), TestNode(2))


def test_what_waits_for_a_peer_that_is_gone_is_bounded_and_dropped(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode, again: TestNode) -> None:
        await connected(one, two)
        one.network._links[two.node_id].greet_again()
        one.send(two, *(append(1, 2, 10, index) for index in range(1, 101)))
        dropped = one.network.peers[two.node_id].dropped_messages
        assert 0 < dropped < 100
        await two.network.close()
        await until(lambda: not one.is_up(two))
        await again.open()
        again.dial(one)
        await until(lambda: one.is_up(again))
        await until(lambda: any(hello.kind is ConnectionKind.APPEND for hello in again.handler.greeted))
        last = append(1, 2, 10, 101)

        def has_arrived() -> bool:
            one.send(again, last)
            return any(message == last for _, _, message in again.handler.messages)

        await until(has_arrived)
        assert {message.entries[0].index for _, _, message in again.handler.messages} == {101}  # type: ignore[union-attr]

    two = TestNode(2)
    run(loop, scenario, TestNode(1), two, TestNode(2, port=two.port))
