"""Nodes that are neither configured nor in the catalog: what they learn, what they cost, and how they become peers."""

from __future__ import annotations

import asyncio

import pytest

from drmq.model import NodeId
from drmq.transport.peers import ConnectionKind, Hello, Identity
from drmq.transport.peers.frames import FrameType
from drmq.transport.peers.hello import HELLO_FRAME_BYTES_MAX, HIDDEN_CLUSTER, decode_hello, encode_hello
from drmq.transport.peers.strangers import ANSWERS_MAX, ANSWERS_PER_S, Strangers

from .nodes import HOST, LOOPS, HandMadePeer, TestNode, append, connected, ended, read_frame, run, until, write_frame


async def greet(node: TestNode, number: int, port: int, cluster_id: str | None = None) -> Hello | None:
    """Greet as some node that asks to be dialled at `port`; the answer, if there is one."""
    identity = Identity(cluster_id, NodeId(number), 0, 1, number.to_bytes(16, "big"), HOST, port)
    reader, writer = await asyncio.open_connection(HOST, node.port)
    try:
        hello = Hello.of(identity, ConnectionKind.HEARTBEAT, node.node_id)
        write_frame(writer, FrameType.HELLO, encode_hello(hello))
        frame = await read_frame(reader)
        return decode_hello(frame.head) if frame.type == FrameType.HELLO else None
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_greetings_of_unknown_nodes_leave_nothing(loop: str) -> None:
    """No link, no connection to the address that they name, no cluster id, and after some of them no answer."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        dialled: list[asyncio.StreamWriter] = []
        trap = await asyncio.start_server(lambda reader, writer: dialled.append(writer), HOST, 0)
        async with trap:
            port = trap.sockets[0].getsockname()[1]
            answers = [await greet(one, number, port) for number in range(100, 100 + 3 * ANSWERS_MAX)]
        assert not dialled
        answered = [answer for answer in answers if answer is not None]
        assert 0 < len(answered) < 2 * ANSWERS_MAX
        assert {answer.cluster_id for answer in answered} == {HIDDEN_CLUSTER}
        assert one.network.peers.keys() == {two.node_id}
        await until(lambda: len(one.network._accepted) == len(ConnectionKind))
        assert one.network._inbound.keys() == {(two.node_id, kind) for kind in ConnectionKind}
        assert one.is_up(two)
        assert "down 2" not in one.handler.events

    run(loop, scenario, TestNode(1), TestNode(2))


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_a_peer_is_answered_however_many_unknown_nodes_greet(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        for number in range(100, 110 + ANSWERS_MAX):
            await greet(one, number, 1)
        one.dial(two)
        two.dial(one)
        await until(lambda: one.is_up(two) and two.is_up(one))

    run(loop, scenario, TestNode(1), TestNode(2))


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_the_cluster_id_is_told_to_those_who_know_it(loop: str) -> None:
    async def scenario(one: TestNode, fresh: TestNode) -> None:
        await one.open()
        await fresh.open()
        for node, told, learned in (
            (one, None, HIDDEN_CLUSTER),
            (one, "cluster", "cluster"),
            (fresh, None, None),
            (fresh, "other", None),
        ):
            answer = await greet(node, 7, 1, told)
            assert answer is not None
            assert answer.cluster_id == learned

    run(loop, scenario, TestNode(1), TestNode(2, cluster_id=None))


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_an_unknown_node_is_heard_only_once_it_is_a_peer(loop: str) -> None:
    """Its requests are served: one of them is its registration. Its frames are small until then."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        one.dial(two)
        lane = one.network._links[two.node_id]._lanes[ConnectionKind.APPEND]
        assert await one.network.request(two.node_id, 1, [b"register"], 5) == b"1 1 register"
        await until(lambda: lane.is_ready)
        one.send(two, append(1, 2, 10))
        assert await one.network.request(two.node_id, 1, [b"again"], 5) == b"1 1 again"
        assert two.handler.messages == []
        assert two.network.hello_from(one.node_id) is None
        two.dial(one)
        await until(lambda: one.is_up(two) and two.is_up(one))
        one.send(two, append(1, 2, 2 * HELLO_FRAME_BYTES_MAX))
        await until(lambda: two.handler.messages)
        assert len(two.handler.messages) == 1

    run(loop, scenario, TestNode(1), TestNode(2))


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_a_large_frame_of_an_unknown_node_ends_its_connection(loop: str) -> None:
    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        writer = await peer.greet(ConnectionKind.APPEND)
        write_frame(writer, FrameType.MESSAGES, bytes(2 * HELLO_FRAME_BYTES_MAX))
        assert await ended(peer.readers[ConnectionKind.APPEND])
        assert one.network.invalid_count == 1

    run(loop, scenario, TestNode(1))


def test_each_address_is_answered_by_itself() -> None:
    """Some at once, then slowly; and the number of addresses that are remembered is limited."""
    strangers = Strangers()
    assert [strangers.may_answer("a", 0.0) for _ in range(ANSWERS_MAX + 2)] == [True] * ANSWERS_MAX + [False] * 2
    assert strangers.may_answer("b", 0.0)
    assert strangers.may_answer("a", 1 / ANSWERS_PER_S)
    assert not strangers.may_answer("a", 1 / ANSWERS_PER_S)
    for number in range(10_000):
        strangers.may_answer(str(number), 1.0)
    assert len(strangers) <= 1_024
