"""Two nodes and what may come between them, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from drmq.model import GroupId, NodeId, TopicId, member_id
from drmq.raft import AppendAccepted, LogIndex, SnapshotChunk, SnapshotMeta, Term
from drmq.raft import Configuration as Members
from drmq.transport.peers import (
    ConnectionKind,
    LeaderNotice,
    PeerMessage,
    PeerOptions,
    PeerUnavailable,
    Sleep,
    Wake,
)
from drmq.transport.peers.codec import encode_message
from drmq.transport.peers.frames import FrameType
from drmq.wire import ProtocolError
from support.ports import lasting_port

from .nodes import (
    GROUP,
    HOST,
    IMPATIENT,
    LOOPS,
    QUICK,
    HandMadePeer,
    TestNode,
    append,
    connected,
    ended,
    heartbeat,
    member,
    run,
    until,
    write_frame,
)

pytestmark = pytest.mark.parametrize("loop", sorted(LOOPS))


def test_two_nodes_find_each_other(loop: str) -> None:
    """Both are told, with how the other introduced itself, and hear heartbeats though nothing else is sent."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        assert one.handler.events == ["up 2"]
        assert two.handler.events == ["up 1"]
        hello = one.handler.hellos[-1]
        assert (hello.node_id, hello.boot_id, hello.peer_port) == (2, two.identity.boot_id, two.port)
        heard_count, heard_ms = one.handler.heard_count, one.network.last_heard_ms(two.node_id)
        await until(lambda: one.handler.heard_count >= heard_count + 5)
        later_ms = one.network.last_heard_ms(two.node_id)
        assert heard_ms is not None
        assert later_ms is not None
        assert later_ms > heard_ms

    run(loop, scenario, TestNode(1), TestNode(2))


def test_a_peer_that_nobody_dials_is_not_up(loop: str) -> None:
    """It hears us; but nothing can be said to us, so neither side may count on the other."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        await two.open()
        one.dial(two)
        assert await one.network.request(two.node_id, 3, [b"join"], 5) == b"1 3 join"
        assert two.handler.greeted[0].peer_port == one.port
        assert one.network.peers[two.node_id].is_connected
        assert one.handler.events == two.handler.events == []
        two.dial(one)
        await until(lambda: one.is_up(two) and two.is_up(one))

    run(loop, scenario, TestNode(1), TestNode(2))


def test_messages_of_every_kind_arrive(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        meta = SnapshotMeta(LogIndex(5), Term(1), Members.of([1, 2]), b"meta")
        sent: list[PeerMessage] = [
            heartbeat(1, 2),
            Sleep(member(1), member(2), Term(1), LogIndex(9)),
            Wake(member_id(NodeId(1), 3), member(2), Term(1)),
            append(1, 2, 100_000),
            SnapshotChunk(member(1), member(2), Term(1), meta, 0, b"chunk" * 1_000, True),
        ]
        one.send(two, *sent)
        await until(lambda: len(two.handler.messages) == len(sent))
        for message in sent:
            assert (NodeId(1), GROUP, message) in two.handler.messages

    run(loop, scenario, TestNode(1), TestNode(2))


def test_one_connection_keeps_its_order(loop: str) -> None:
    """Appends of all sizes, up to far more than a socket takes at once, arrive whole and in order."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        sizes = [10, 100_000, 1_048_576, 1, 70_000, 3_000_000] * 2
        sent = [append(1, 2, size, index) for index, size in enumerate(sizes, 1)]
        one.send(two, *sent)
        await until(lambda: len(two.handler.messages) == len(sent))
        assert [message for _, _, message in two.handler.messages] == sent
        assert one.network.peers[two.node_id].dropped_messages == 0

    run(loop, scenario, TestNode(1), TestNode(2))


def test_notices_arrive_in_order(loop: str) -> None:
    """More than fit into a frame."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        notices = [
            LeaderNotice(GroupId(TopicId(bytes(16)), number), 3, NodeId(1), number, (NodeId(1), NodeId(2)))
            for number in range(1_234)
        ]
        one.network.notify(two.node_id, notices)
        await until(lambda: len(two.handler.notices) == len(notices))
        assert two.handler.notices == notices

    run(loop, scenario, TestNode(1), TestNode(2))


def test_sending_to_nobody_is_no_error(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await one.open()
        one.send(two, heartbeat(1, 2))
        one.dial(two)
        one.send(two, heartbeat(1, 2), append(1, 2, 10))
        one.network.notify(two.node_id, [LeaderNotice(GROUP, 1, NodeId(1), 1, ())])
        assert one.network.peers[two.node_id].dropped_messages == 3

    run(loop, scenario, TestNode(1), TestNode(2))


# ---- coming and going ---------------------------------------------------------------------------


def test_a_peer_that_restarts_comes_back_as_another(loop: str) -> None:
    """It is down at once, for nobody listens there; and up again with a new boot id."""

    async def scenario(one: TestNode, two: TestNode, again: TestNode) -> None:
        await connected(one, two)
        await two.network.close()
        await until(lambda: one.handler.events == ["up 2", "down 2"])
        assert not one.is_up(two)
        assert one.network.down_count == 1
        failure = str(one.network.peers[two.node_id].failure)
        assert "cannot be reached: Connection refused" in failure
        await again.open()
        again.dial(one)
        await until(lambda: one.is_up(again) and again.is_up(one))
        assert one.handler.events[-1] == "up 2"
        assert [hello.boot_id for hello in one.handler.hellos][-1] == again.identity.boot_id
        one.send(again, append(1, 2, 10))
        again.send(one, heartbeat(2, 1))
        await until(lambda: one.handler.messages and again.handler.messages)

    # So long that it cannot be the silence that is noticed.
    patient = replace(QUICK, peer_timeout_ms=60_000)
    port = lasting_port()
    run(loop, scenario, TestNode(1, patient), TestNode(2, patient, port), TestNode(2, patient, port))


def test_a_new_process_is_noticed_though_the_old_connections_live(loop: str) -> None:
    """As after the loss of power, which closes nothing: the other start's connections are given up."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        await peer.open()
        await peer.greet(ConnectionKind.HEARTBEAT)
        await until(lambda: one.handler.events == ["up 2"])
        peer.identity = replace(peer.identity, boot_id=b"n" * 16)
        await peer.greet(ConnectionKind.HEARTBEAT)
        await until(lambda: len(one.handler.hellos) > 1)
        assert one.handler.hellos[-1].boot_id == b"n" * 16
        assert peer.closed

    run(loop, scenario, TestNode(1))


def test_a_newer_connection_replaces_the_older(loop: str) -> None:
    """Else one that is half dead would be held, and could speak after its successor."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        await peer.greet(ConnectionKind.APPEND)
        older = peer.readers[ConnectionKind.APPEND]
        await peer.greet(ConnectionKind.REQUEST)
        assert len(one.network.streams.open) == 2
        await peer.greet(ConnectionKind.APPEND)
        assert await ended(older)
        assert len(one.network.streams.open) == 2

    run(loop, scenario, TestNode(1))


def test_a_silent_peer_is_down(loop: str) -> None:
    """Its connections are open and take what is sent, but no heartbeat comes: all of them are broken."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        await peer.open()
        await peer.greet(ConnectionKind.APPEND)
        writer = await peer.greet(ConnectionKind.HEARTBEAT)
        for _ in range(10):
            write_frame(writer, FrameType.NODE_HEARTBEAT)
            await asyncio.sleep(0.05)
        assert one.handler.events == ["up 2"]
        assert one.handler.heard_count == 10
        await until(lambda: one.handler.events == ["up 2", "down 2"])
        await until(lambda: set(peer.closed) == set(ConnectionKind))
        assert await ended(peer.readers[ConnectionKind.APPEND])

    run(loop, scenario, TestNode(1, IMPATIENT))


def test_a_peer_that_takes_long_to_answer_a_greeting_gets_more_time(loop: str) -> None:
    """It may be short of processor time. To dial it in vain for ever would only keep it busier."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        peer.answers_after_s = 0.5
        await peer.open()
        await peer.accepts(ConnectionKind.HEARTBEAT)
        assert peer.kinds.count(ConnectionKind.HEARTBEAT) > 1

    run(loop, scenario, TestNode(1, replace(QUICK, dial_timeout_ms=100)))


def test_a_peer_that_is_busy_may_be_silent_for_longer(loop: str) -> None:
    """Its heartbeats come so late that it was taken for dead once. The second pause of that length is none."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        await peer.open()
        await peer.greet(ConnectionKind.HEARTBEAT)
        await until(lambda: one.handler.events == ["up 2", "down 2"])
        link = one.network._links[peer.node_id]
        await peer.greet(ConnectionKind.HEARTBEAT)
        assert link.silence_limit_s >= 2 * IMPATIENT.peer_timeout_ms / 1_000
        await until(lambda: one.handler.events == ["up 2", "down 2"] * 2)

    run(loop, scenario, TestNode(1, IMPATIENT))


def test_a_loop_that_stood_still_does_not_blame_its_peers(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        before = [*one.handler.events], [*two.handler.events]
        time.sleep(0.8)  # noqa: ASYNC251  # the fault under test
        heard_count = one.handler.heard_count
        await until(lambda: one.handler.heard_count > heard_count + 3)
        assert (one.handler.events, two.handler.events) == before

    run(loop, scenario, TestNode(1, IMPATIENT), TestNode(2, IMPATIENT))


def test_a_forgotten_peer_is_down(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        one.network.forget_peer(two.node_id)
        assert one.handler.events == ["up 2", "down 2"]
        assert not one.is_up(two)
        assert two.node_id not in one.network.peers
        two.handler.messages.clear()
        one.send(two, heartbeat(1, 2))
        with pytest.raises(PeerUnavailable, match="not known"):
            await one.network.request(two.node_id, 1, [], 1)
        one.dial(two)
        await until(lambda: one.is_up(two) and two.handler.events.count("up 1") > 1)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_a_handler_may_part_with_a_peer_at_any_moment(loop: str) -> None:
    """Also while it is told that the peer is up, or of a message."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        one.handler.on_peer_up = lambda hello: one.network.forget_peer(hello.node_id)  # type: ignore[method-assign]
        await one.open()
        await two.open()
        one.dial(two)
        two.dial(one)
        await until(lambda: one.handler.events == ["down 2"])
        assert not one.network.peers
        await until(lambda: two.network.peers[one.node_id].failure is None)
        two.handler.on_message = lambda message: two.network.forget_peer(one.node_id)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_who_comes_in_the_moment_of_closing_is_closed_too(loop: str) -> None:
    """The connection is accepted in the turn of the loop before the one in which the network closes."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        with socket.create_connection((HOST, one.port), timeout=10) as late:
            await asyncio.sleep(0)
            await asyncio.create_task(one.network.close())
            with suppress(ConnectionResetError):
                assert late.recv(1) == b""

    run(loop, scenario, TestNode(1))


def test_a_peer_that_moves_is_followed(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode, moved: TestNode) -> None:
        await connected(one, two)
        await two.network.close()
        await moved.open()
        one.dial(moved)
        moved.dial(one)
        await until(lambda: one.handler.hellos[-1].peer_port == moved.port)
        one.send(moved, heartbeat(1, 2))
        await until(lambda: moved.handler.messages)

    run(loop, scenario, TestNode(1), TestNode(2), TestNode(2))


def test_set_peer_again_changes_nothing(loop: str) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        greeted_count = len(two.handler.greeted)
        for _ in range(10):
            one.dial(two)
            await asyncio.sleep(0.01)
        assert len(two.handler.greeted) == greeted_count

    run(loop, scenario, TestNode(1), TestNode(2))


# ---- bulk ---------------------------------------------------------------------------------------


STUCK = replace(QUICK, buffered_bytes_max=4 << 20)


def test_heartbeats_arrive_while_appends_are_stuck(loop: str) -> None:
    """And the memory that the stuck ones take is bounded: what does not fit is dropped and counted."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2, reads=frozenset({ConnectionKind.HEARTBEAT}))
        await peer.open()
        await peer.accepts(ConnectionKind.APPEND)
        for index in range(1, 101):
            one.network.send(peer.node_id, GROUP, append(1, 2, 1 << 20, index))
            await asyncio.sleep(0.001)
        status = one.network.peers[peer.node_id]
        assert STUCK.buffered_bytes_max <= status.buffered_bytes <= STUCK.buffered_bytes_max + (2 << 20)
        assert status.dropped_messages >= 50
        before = peer.count(ConnectionKind.HEARTBEAT, FrameType.NODE_HEARTBEAT)
        one.network.send(peer.node_id, GROUP, heartbeat(1, 2))
        await until(lambda: peer.count(ConnectionKind.HEARTBEAT, FrameType.MESSAGES) == 1)
        await until(lambda: peer.count(ConnectionKind.HEARTBEAT, FrameType.NODE_HEARTBEAT) >= before + 5)

    run(loop, scenario, TestNode(1, STUCK))


def chunk(size: int, offset: int = 0) -> SnapshotChunk:
    """A part of a snapshot, from node 1 to node 2."""
    meta = SnapshotMeta(LogIndex(9), Term(3), Members.of([member(1), member(2)]))
    return SnapshotChunk(member(1), member(2), Term(3), meta, offset, bytes(size), False)


def test_a_snapshot_has_a_connection_of_its_own(loop: str) -> None:
    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2, reads=frozenset(ConnectionKind))
        await peer.open()
        await peer.accepts(ConnectionKind.SNAPSHOT)
        one.network.send(peer.node_id, GROUP, chunk(1_000))
        await until(lambda: peer.count(ConnectionKind.SNAPSHOT, FrameType.MESSAGES) == 1)
        one.network.send(peer.node_id, GROUP, append(1, 2, 1_000))
        await until(lambda: peer.count(ConnectionKind.APPEND, FrameType.MESSAGES) == 1)
        one.network.send(peer.node_id, GROUP, heartbeat(1, 2))
        await until(lambda: peer.count(ConnectionKind.HEARTBEAT, FrameType.MESSAGES) == 1)
        assert peer.count(ConnectionKind.SNAPSHOT, FrameType.MESSAGES) == 1

    run(loop, scenario, TestNode(1))


def test_heartbeats_and_appends_arrive_while_a_snapshot_is_stuck(loop: str) -> None:
    """And the memory that its parts take is bounded: what does not fit is dropped and counted."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2, reads=frozenset({ConnectionKind.HEARTBEAT, ConnectionKind.APPEND}))
        await peer.open()
        await peer.accepts(ConnectionKind.APPEND, ConnectionKind.SNAPSHOT)
        for part in range(100):
            one.network.send(peer.node_id, GROUP, chunk(1 << 20, part << 20))
            await asyncio.sleep(0.001)
        status = one.network.peers[peer.node_id]
        assert STUCK.buffered_bytes_max <= status.buffered_bytes <= STUCK.buffered_bytes_max + (2 << 20)
        assert status.dropped_messages >= 50
        before = peer.count(ConnectionKind.HEARTBEAT, FrameType.NODE_HEARTBEAT)
        one.network.send(peer.node_id, GROUP, heartbeat(1, 2))
        one.network.send(peer.node_id, GROUP, append(1, 2, 1_000))
        await until(lambda: peer.count(ConnectionKind.HEARTBEAT, FrameType.MESSAGES) == 1)
        await until(lambda: peer.count(ConnectionKind.APPEND, FrameType.MESSAGES) == 1)
        await until(lambda: peer.count(ConnectionKind.HEARTBEAT, FrameType.NODE_HEARTBEAT) >= before + 5)

    run(loop, scenario, TestNode(1, STUCK))


def test_a_connection_that_takes_nothing_is_made_anew(loop: str) -> None:
    """The peer is well, but the way of one connection is broken; heartbeats would hide it for ever."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2, reads=frozenset({ConnectionKind.HEARTBEAT}))
        await peer.open()
        await peer.accepts(ConnectionKind.APPEND)
        for index in range(1, 21):
            one.network.send(peer.node_id, GROUP, append(1, 2, 1 << 20, index))
        await until(lambda: peer.kinds.count(ConnectionKind.APPEND) == 2)
        assert peer.kinds.count(ConnectionKind.HEARTBEAT) == 1

    run(loop, scenario, TestNode(1, replace(STUCK, stall_timeout_ms=300)))


def test_a_message_too_large_for_a_frame_is_dropped(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """The other side would close the connection over it, again and again."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        one.send(two, append(1, 2, 2_000_000), append(1, 2, 10))
        await until(lambda: two.handler.messages)
        assert two.handler.messages == [(1, GROUP, append(1, 2, 10))]
        assert one.network.peers[two.node_id].dropped_messages == 1
        assert "is larger than the largest frame" in caplog.text

    options = replace(QUICK, append_frame_bytes_max=1 << 20)
    run(loop, scenario, TestNode(1, options), TestNode(2, options))


# ---- nonsense -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x09" + bytes(9),
        b"\x00\x00\x30\x00",
        b"\xff" * 100,
    ],
    ids=["http", "wrong checksum", "too large before a greeting", "impossible size"],
)
def test_a_stranger_is_closed_and_the_others_stay(loop: str, data: bytes) -> None:
    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        reader, writer = await asyncio.open_connection(HOST, one.port)
        writer.write(data)
        assert await ended(reader)
        writer.close()
        heard_count = one.handler.heard_count
        await until(lambda: one.handler.heard_count > heard_count)
        assert one.handler.events == ["up 2"]

    run(loop, scenario, TestNode(1), TestNode(2))


def test_one_who_does_not_greet_is_closed(loop: str) -> None:
    async def scenario(one: TestNode) -> None:
        await one.open()
        reader, writer = await asyncio.open_connection(HOST, one.port)
        assert await ended(reader)
        writer.close()

    run(loop, scenario, TestNode(1, replace(QUICK, dial_timeout_ms=100)))


def test_too_many_connections_are_closed(loop: str) -> None:
    async def scenario(one: TestNode) -> None:
        await one.open()
        opened = [await asyncio.open_connection(HOST, one.port) for _ in range(5)]
        closed = [asyncio.create_task(ended(reader)) for reader, _ in opened]
        await until(lambda: sum(task.done() for task in closed) == 2)
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*closed)

    run(loop, scenario, TestNode(1, replace(QUICK, connections_max=3, dial_timeout_ms=60_000)))


def test_a_message_in_anothers_name_is_refused(loop: str) -> None:
    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        writer = await peer.greet(ConnectionKind.HEARTBEAT)
        head, _ = encode_message(GROUP, heartbeat(sender=3, target=1))
        write_frame(writer, FrameType.MESSAGES, head)
        await until(lambda: not one.network.streams.open)
        assert not one.handler.messages
        writer.close()

    run(loop, scenario, TestNode(1))


def test_frames_have_their_connections(loop: str) -> None:
    """Requests on a connection for appends, or entries on one for requests, are nonsense."""

    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2)
        wrong = {
            ConnectionKind.HEARTBEAT: FrameType.REQUEST,
            ConnectionKind.APPEND: FrameType.NODE_HEARTBEAT,
            ConnectionKind.SNAPSHOT: FrameType.NOTICES,
            ConnectionKind.REQUEST: FrameType.MESSAGES,
        }
        for kind, frame_type in wrong.items():
            writer = await peer.greet(kind)
            write_frame(writer, frame_type)
            await until(lambda: not one.network.streams.open)
            writer.close()

    run(loop, scenario, TestNode(1))


@pytest.mark.parametrize("error", [ProtocolError("impossible"), ZeroDivisionError("a bug")], ids=["protocol", "bug"])
def test_a_message_that_cannot_be_handled_costs_its_connection(
    loop: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is closed and made anew; the peer stays up, and the other connections stay."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        events = [*two.handler.events]

        def fail(message: object) -> None:
            two.handler.on_message = lambda message: None
            raise error

        two.handler.on_message = fail
        appends_count = sum(hello.kind is ConnectionKind.APPEND for hello in two.handler.greeted)
        one.send(two, append(1, 2, 10))
        await until(lambda: sum(hello.kind is ConnectionKind.APPEND for hello in two.handler.greeted) > appends_count)

        def sends_until_it_arrives() -> bool:
            one.send(two, append(1, 2, 20))
            return len(two.handler.messages) > 1

        await until(sends_until_it_arrives)
        assert two.handler.events == events
        # A bug is one of ours, and its traceback is wanted; what a peer does wrong is said in a line.
        [line] = [record for record in caplog.records if "closed the connection" in record.getMessage()]
        assert bool(line.exc_info) is isinstance(error, ZeroDivisionError)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_close_lets_the_last_words_leave(loop: str) -> None:
    """A leader that hands over says so and goes; neither the word is lost with it, nor what the socket did not take."""

    async def scenario(one: TestNode, two: TestNode) -> None:
        await connected(one, two)
        one.send(two, AppendAccepted(member(1), member(2), Term(1), LogIndex(5)), append(1, 2, 12_000_000))
        await one.network.close()
        await until(lambda: len(two.handler.messages) == 2)

    run(loop, scenario, TestNode(1), TestNode(2))


def test_close_does_not_wait_for_one_who_does_not_read(loop: str) -> None:
    async def scenario(one: TestNode) -> None:
        await one.open()
        peer = HandMadePeer(one, 2, reads=frozenset())
        await peer.open()
        await peer.accepts(ConnectionKind.APPEND)
        for index in range(1, 21):
            one.network.send(peer.node_id, GROUP, append(1, 2, 1 << 20, index))
        async with asyncio.timeout(5):
            await one.network.close()
        assert not one.network.streams.open

    run(loop, scenario, TestNode(1))


def test_options_that_cannot_be(loop: str) -> None:
    with pytest.raises(Exception, match="peer_timeout_ms"):
        PeerOptions(heartbeat_interval_ms=100, peer_timeout_ms=150)
    with pytest.raises(Exception, match="redial_ms_max"):
        PeerOptions(redial_ms_min=100, redial_ms_max=50)
