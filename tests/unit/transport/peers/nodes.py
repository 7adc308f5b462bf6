"""Nodes with real sockets on loopback, a handler that writes down what it is told, and a peer made by hand."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvloop

from drmq.model import GroupId, MemberId, NodeId, TopicId
from drmq.raft import AppendRequest, Entry, EntryKind, Heartbeat, LogIndex, Term
from drmq.transport.connection import Buffer
from drmq.transport.peers import (
    ConnectionKind,
    GreetingRefusal,
    Hello,
    Identity,
    LeaderNotice,
    PeerMessage,
    PeerNetwork,
    PeerOptions,
    RefusalCode,
)
from drmq.transport.peers.frames import Frame, FrameType, encode_frame, parse_frame
from drmq.transport.peers.hello import decode_hello, encode_hello
from support.ports import lasting_port

HOST = "127.0.0.1"
GROUP = GroupId(TopicId(b"g" * 16), 7)
QUICK = PeerOptions(heartbeat_interval_ms=20, peer_timeout_ms=5_000, redial_ms_min=10, redial_ms_max=40)
"""Heartbeats and attempts at a test's pace; but nobody is taken for dead because this machine is busy."""
IMPATIENT = PeerOptions(heartbeat_interval_ms=20, peer_timeout_ms=300, redial_ms_min=10, redial_ms_max=40)

Served = Callable[[NodeId, int, bytes], Awaitable[Sequence[Buffer]]]


class LoopClock:
    """The running loop's time."""

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000)


class Recorder:
    """A handler that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[str] = []
        """`up 2`, `down 2`, in order."""
        self.hellos: list[Hello] = []
        self.heard_count = 0
        self.messages: list[tuple[NodeId, GroupId, PeerMessage]] = []
        self.notices: list[LeaderNotice] = []
        self.refusal: str | None = None
        """What it tells those who greet, as if they had been removed."""
        self.greeted: list[Hello] = []
        self.serve: Served = self._echo
        self.on_message: Callable[[PeerMessage], None] = lambda message: None

    def on_peer_up(self, hello: Hello) -> None:
        self.events.append(f"up {hello.node_id}")
        self.hellos.append(hello)

    def on_peer_down(self, node_id: NodeId) -> None:
        self.events.append(f"down {node_id}")

    def on_peer_heard(self, node_id: NodeId) -> None:
        self.heard_count += 1

    def on_group_message(self, peer: NodeId, group: GroupId, message: PeerMessage) -> None:
        self.messages.append((peer, group, message))
        self.on_message(message)

    def on_notices(self, peer: NodeId, notices: Sequence[LeaderNotice]) -> None:
        self.notices += notices

    def check_hello(self, hello: Hello) -> GreetingRefusal | None:
        self.greeted.append(hello)
        return None if self.refusal is None else GreetingRefusal(RefusalCode.REPLACED, self.refusal)

    async def on_request(self, peer: NodeId, kind: int, payload: memoryview) -> Sequence[Buffer]:
        return await self.serve(peer, kind, bytes(payload))

    async def _echo(self, peer: NodeId, kind: int, payload: bytes) -> Sequence[Buffer]:
        return [b"%d %d " % (peer, kind), payload]


class TestNode:
    """A network with its handler and a fixed address."""

    __test__ = False

    def __init__(
        self, number: int, options: PeerOptions = QUICK, port: int = 0, cluster_id: str | None = "cluster"
    ) -> None:
        self.node_id = NodeId(number)
        self.port = port or lasting_port()
        self.strangers: list[HandMadePeer] = []
        self.handler = Recorder()
        boot_id = bytes([number]) * 8 + id(self).to_bytes(8, "big")
        self.identity = Identity(cluster_id, self.node_id, 0, 1, boot_id, HOST, self.port)
        self.network = PeerNetwork(lambda: self.identity, self.handler, options, LoopClock())

    async def open(self) -> TestNode:
        await self.network.open(HOST, self.port)
        return self

    def dial(self, *others: TestNode) -> None:
        for other in others:
            self.network.set_peer(other.node_id, HOST, other.port)

    def send(self, other: TestNode, *messages: PeerMessage) -> None:
        for message in messages:
            self.network.send(other.node_id, GROUP, message)

    def is_up(self, other: TestNode) -> bool:
        return self.network.is_up(other.node_id)


def member(number: int) -> MemberId:
    return MemberId(NodeId(number))


def heartbeat(sender: int, target: int, read_round: int = 0) -> Heartbeat:
    return Heartbeat(member(sender), member(target), Term(1), LogIndex(1), read_round)


def append(sender: int, target: int, size: int, index: int = 1) -> AppendRequest:
    payload = bytes([index % 251]) * size
    entry = Entry(LogIndex(index), LogIndex(index), Term(1), EntryKind.PAYLOAD, payload, size)
    return AppendRequest(member(sender), member(target), Term(1), LogIndex(index - 1), Term(1), (entry,), LogIndex(0))


async def until(reached: Callable[[], object], timeout_s: float = 10) -> None:
    """Wait for something that has no event of its own."""
    async with asyncio.timeout(timeout_s):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.003)


async def connected(first: TestNode, second: TestNode) -> None:
    """Open two nodes, let each dial the other, and wait until all four connections either way are there."""
    await first.open()
    await second.open()
    first.dial(second)
    second.dial(first)
    await until(lambda: first.is_up(second) and second.is_up(first))
    await until(lambda: len({hello.kind for hello in second.handler.greeted}) == len(ConnectionKind))
    await first.network.request(second.node_id, 0, [], 5)
    await second.network.request(first.node_id, 0, [], 5)


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run(loop_name: str, scenario: Callable[..., Awaitable[None]], *nodes: TestNode, timeout_s: float = 30) -> None:
    """Run a scenario, close the nodes, and fail if anything reached the event loop that should not have."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        try:
            await asyncio.wait_for(scenario(*nodes), timeout_s)
        finally:
            for node in nodes:
                await node.network.close()
            # Only when nobody dials any more: a server that is closed in the moment in which it accepts a
            # connection leaves that one open (https://github.com/python/cpython/issues/109564).
            for stranger in [stranger for node in nodes for stranger in node.strangers]:
                await stranger.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        runner.run(main())
    # What was left open is found now, and not in the middle of another test.
    gc.collect()
    assert not complaints


class HandMadePeer:
    """A peer that speaks the protocol as a test wants it: connections that it reads, and others that it does not."""

    def __init__(
        self, other: TestNode, number: int, reads: frozenset[ConnectionKind] = frozenset(ConnectionKind)
    ) -> None:
        other.strangers.append(self)
        self._other = other
        self.node_id = NodeId(number)
        self.reads = reads
        self.identity = Identity("cluster", self.node_id, 0, 1, b"h" * 16, HOST, 0)
        self.frames: list[tuple[ConnectionKind, Frame]] = []
        self.kinds: list[ConnectionKind] = []
        self.closed: list[ConnectionKind] = []
        self.readers: dict[ConnectionKind, asyncio.StreamReader] = {}
        self.answers_after_s = 0.0
        """How long it takes until it answers a greeting."""
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen, and let the other node dial."""
        self._server = await asyncio.start_server(self._accept, HOST, 0, limit=4_096)
        self.port = self._server.sockets[0].getsockname()[1]
        self._other.network.set_peer(self.node_id, HOST, self.port)

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def accepts(self, *kinds: ConnectionKind) -> None:
        """Until the other node may send on its connections of these kinds: it has had the answer to its greeting."""
        lanes = self._other.network._links[self.node_id]._lanes
        await until(lambda: all(lanes[kind].is_ready for kind in kinds))

    async def greet(self, kind: ConnectionKind) -> asyncio.StreamWriter:
        """Dial the other node, and be accepted by it."""
        reader, writer = await asyncio.open_connection(HOST, self._other.port)
        self._writers.append(writer)
        self.readers[kind] = reader
        write_frame(writer, FrameType.HELLO, encode_hello(Hello.of(self.identity, kind, self._other.node_id)))
        answer = await read_frame(reader)
        assert answer.type == FrameType.HELLO
        return writer

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        kind = None
        try:
            hello = decode_hello((await read_frame(reader)).head)
            kind = hello.kind
            self.kinds.append(kind)
            await asyncio.sleep(self.answers_after_s)
            write_frame(writer, FrameType.HELLO, encode_hello(Hello.of(self.identity, kind, hello.node_id)))
            while kind in self.reads:
                self.frames.append((kind, await read_frame(reader)))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()
            if kind is not None:
                self.closed.append(kind)
        except asyncio.CancelledError:
            return

    def count(self, kind: ConnectionKind, frame_type: FrameType) -> int:
        return sum(1 for each, frame in self.frames if each is kind and frame.type == frame_type)


def write_frame(writer: asyncio.StreamWriter, frame_type: FrameType, head: bytes = b"") -> None:
    writer.write(b"".join(encode_frame(frame_type, head)))


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return parse_frame(memoryview(await reader.readexactly(size)))


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side closes the connection, whatever it says before."""
    try:
        async with asyncio.timeout(10):
            while await reader.read(1_000):
                pass
    except ConnectionError:
        pass
    return True
