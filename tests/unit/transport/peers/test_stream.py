"""One connection without a network: what leaves when, and what a frame that goes wrong costs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from drmq.model import GroupId, TopicId
from drmq.transport.connection import Buffer
from drmq.transport.peers import ConnectionKind, PeerOptions
from drmq.transport.peers.codec import decode_messages
from drmq.transport.peers.frames import Frame, FrameType, encode_frame
from drmq.transport.peers.stream import Stream, Streams

from .nodes import append, heartbeat
from .test_outbox import frames_of

GROUP = GroupId(TopicId(b"t" * 16), 3)
OPTIONS = PeerOptions(stall_timeout_ms=1_000, buffered_bytes_max=1_000)


class FakeTransport:
    """Keeps what is written, in the pieces in which it was; `unsent` is what it claims not to have sent."""

    def __init__(self) -> None:
        self.writes: list[list[Buffer]] = []
        self.unsent = 0
        self.is_aborted = False

    def get_extra_info(self, name: str) -> object:
        return ("10.0.0.1", 5_000) if name == "peername" else None

    def write(self, data: Buffer) -> None:
        self.writes.append([data])

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        self.writes.append(list(buffers))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None: ...


class Owner:
    """Keeps what its connection tells."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.lost: list[str] = []
        self.then: Callable[[], None] = lambda: None

    def on_connected(self, stream: Stream) -> None: ...

    def on_frame(self, stream: Stream, frame: Frame) -> None:
        self.frames.append(frame)
        self.then()

    def on_lost(self, stream: Stream, reason: str) -> None:
        self.lost.append(reason)


class Fixture:
    """A connected stream that has greeted."""

    def __init__(self, kind: ConnectionKind = ConnectionKind.APPEND, options: PeerOptions = OPTIONS) -> None:
        self.owner = Owner()
        self.transport = FakeTransport()
        self.streams = Streams(options)
        self.stream = Stream(self.owner, self.streams)
        self.stream.connection_made(cast(asyncio.Transport, self.transport))
        self.stream.accept(kind)

    def receive(self, data: bytes) -> None:
        buffer = self.stream.get_buffer(-1)
        buffer[: len(data)] = data
        del buffer
        self.stream.buffer_updated(len(data))


def run(scenario: Callable[[], object]) -> None:
    async def main() -> None:
        result = scenario()
        if asyncio.iscoroutine(result):
            await result

    asyncio.run(main())


def test_what_is_sent_in_one_turn_leaves_in_one_write() -> None:
    async def scenario() -> None:
        fixture = Fixture(ConnectionKind.HEARTBEAT)
        for number in range(5):
            fixture.stream.send_message(GROUP, heartbeat(1, 2, number))
        fixture.stream.send_frame(FrameType.NODE_HEARTBEAT)
        assert not fixture.transport.writes
        await asyncio.sleep(0)
        [written] = fixture.transport.writes
        messages, beat = frames_of(written)
        assert [message for _, message in decode_messages(messages.head, messages.payload)] == [
            heartbeat(1, 2, number) for number in range(5)
        ]
        assert beat.type == FrameType.NODE_HEARTBEAT
        await asyncio.sleep(0)
        assert len(fixture.transport.writes) == 1

    run(scenario)


def test_large_payloads_are_written_as_they_are() -> None:
    async def scenario() -> None:
        fixture = Fixture()
        message = append(1, 2, 100_000)
        fixture.stream.send_message(GROUP, message)
        await asyncio.sleep(0)
        [written] = fixture.transport.writes
        assert any(buffer is message.entries[0].payload for buffer in written)

    run(scenario)


def test_room_counts_what_was_written_and_what_will_be() -> None:
    def scenario() -> None:
        fixture = Fixture()
        room = [fixture.stream.has_room]
        fixture.transport.unsent = 600
        room.append(fixture.stream.has_room)
        fixture.stream.send_message(GROUP, append(1, 2, 400))
        room.append(fixture.stream.has_room)
        assert room == [True, True, False]
        assert fixture.stream.buffered_bytes >= 1_000

    run(scenario)


def test_a_closed_connection_has_no_room() -> None:
    def scenario() -> None:
        fixture = Fixture()
        fixture.stream.abort("enough")
        assert not fixture.stream.has_room
        assert fixture.transport.is_aborted
        fixture.stream.connection_lost(None)
        assert fixture.owner.lost == ["enough"]

    run(scenario)


@pytest.mark.parametrize("kind", ConnectionKind)
def test_frames_are_kept_where_they_may_be(kind: ConnectionKind) -> None:
    """On connections that carry bytes to keep, the next bytes received do not change an earlier frame."""

    def scenario() -> None:
        fixture = Fixture(kind)
        fixture.receive(b"".join(encode_frame(FrameType.REQUEST, b"", [b"first"])))
        fixture.receive(b"".join(encode_frame(FrameType.REQUEST, b"", [b"other"])))
        payloads = [bytes(frame.payload) for frame in fixture.owner.frames]
        if kind is not ConnectionKind.HEARTBEAT:
            assert payloads == [b"first", b"other"]
        assert payloads[1] == b"other"

    run(scenario)


def test_nothing_is_handed_over_after_the_end() -> None:
    """Frames that came together: the one that ends the connection is the last."""

    def scenario() -> None:
        fixture = Fixture()
        fixture.owner.then = lambda: fixture.stream.abort("enough")
        fixture.receive(b"".join(encode_frame(FrameType.REQUEST, b"")) * 3)
        assert len(fixture.owner.frames) == 1
        fixture.receive(b"".join(encode_frame(FrameType.REQUEST, b"")))
        assert len(fixture.owner.frames) == 1

    run(scenario)


def test_whole_frames_before_a_damaged_one_are_handed_over() -> None:
    def scenario() -> None:
        fixture = Fixture()
        good = b"".join(encode_frame(FrameType.REQUEST, b"", [b"good"]))
        fixture.receive(good + good[:-1] + b"?")
        assert [bytes(frame.payload) for frame in fixture.owner.frames] == [b"good"]
        assert fixture.transport.is_aborted
        assert fixture.streams.invalid_count == 1

    run(scenario)


def test_progress_keeps_a_connection() -> None:
    """Neither silence nor a slow reader is a reason to close; taking nothing at all for long is."""

    def scenario() -> None:
        fixture = Fixture()
        fixture.stream.end_if_stalled(1e9)
        assert not fixture.transport.is_aborted
        fixture.transport.unsent = 500
        for second in range(5):
            fixture.transport.unsent -= 10
            fixture.stream.end_if_stalled(1e9 + second)
        assert not fixture.transport.is_aborted
        fixture.stream.end_if_stalled(1e9 + 4.9)
        assert not fixture.transport.is_aborted
        fixture.stream.end_if_stalled(1e9 + 5.1)
        assert fixture.transport.is_aborted

    run(scenario)


def test_a_frame_that_does_not_go_on_ends_the_connection() -> None:
    def scenario() -> None:
        fixture = Fixture()
        frame = b"".join(encode_frame(FrameType.REQUEST, b"", [b"payload"]))
        fixture.receive(frame[:10])
        fixture.stream.end_if_stalled(1e9)
        fixture.receive(frame[10:12])
        fixture.stream.end_if_stalled(1e9 + 1.5)
        assert not fixture.transport.is_aborted
        fixture.stream.end_if_stalled(1e9 + 3)
        assert fixture.transport.is_aborted

    run(scenario)


@pytest.mark.parametrize("payload_size", [0, 700, 20_000])
def test_what_the_socket_does_not_take_at_once_follows_in_order(payload_size: int) -> None:
    """A real socket with little room: what is written directly and what the transport keeps must not overtake."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        for end in (ours, theirs):
            end.setblocking(False)
        loop = asyncio.get_running_loop()
        stream = Stream(Owner(), Streams(PeerOptions()))
        await loop.create_connection(lambda: stream, sock=ours)
        stream.accept(ConnectionKind.APPEND)
        assert stream.writes_directly == hasattr(os, "writev")
        sent, was_full, received = 0, 0, bytearray()
        for turn in range(30):
            if stream.buffered_bytes:
                # Room in the socket, of which the transport has not heard yet.
                received += theirs.recv(1 << 16)
            for _ in range(5 + turn * 7 % 40):
                payload = sent.to_bytes(4, "big") * (payload_size // 4)
                assert stream.send_frame(FrameType.ANSWER, sent.to_bytes(4, "big"), [payload] if payload else [])
                sent += 1
            stream.flush()
            await asyncio.sleep(0)
            was_full += stream.buffered_bytes > 0
            while turn % 3 == 0 and stream.buffered_bytes:
                received += await loop.sock_recv(theirs, 1 << 16)
        assert was_full or payload_size < 1_000
        while stream.buffered_bytes:
            received += await loop.sock_recv(theirs, 1 << 16)
        stream.close("enough")
        while data := await loop.sock_recv(theirs, 1 << 16):
            received += data
        theirs.close()
        frames = frames_of([bytes(received)])
        assert [int.from_bytes(frame.head, "big") for frame in frames] == list(range(sent))
        assert all(frame.payload == bytes(frame.head) * (payload_size // 4) for frame in frames)

    run(scenario)


def test_what_was_sent_can_leave_before_the_end_of_the_turn() -> None:
    async def scenario() -> None:
        fixture = Fixture(ConnectionKind.HEARTBEAT)
        fixture.stream.send_frame(FrameType.NODE_HEARTBEAT)
        [stream] = fixture.streams.unflushed
        stream.flush()
        assert len(fixture.transport.writes) == 1
        assert not fixture.streams.unflushed
        await asyncio.sleep(0)
        assert len(fixture.transport.writes) == 1

    run(scenario)
