"""Frames come back however the bytes are cut; damage is noticed; memory follows bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from drmq.transport.buffers import BUFFER_SIZE, BufferPool
from drmq.transport.connection import Buffer
from drmq.transport.peers.frames import Frame, FrameReceiver, FrameType, encode_frame, parse_frame
from drmq.wire import ProtocolError

FRAME_BYTES_MAX = 4 << 20
SHARED_SIZE = 65_536


def whole(frame_type: FrameType, head: bytes, payload: list[Buffer]) -> bytes:
    return b"".join(encode_frame(frame_type, head, payload))


class Receiving:
    """A receiver that is fed as an event loop would: never more than the buffer that it offered."""

    def __init__(self, may_keep: bool = True, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.receiver = FrameReceiver(memoryview(bytearray(SHARED_SIZE)), BufferPool(), frame_bytes_max)
        self.receiver.may_keep = may_keep
        self.frames: list[tuple[int, bytes, bytes]] = []
        self.kept: list[Frame] = []

    def feed(self, data: Buffer) -> None:
        at = 0
        while at < len(data):
            buffer = self.receiver.get_buffer()
            count = min(len(buffer), len(data) - at)
            buffer[:count] = data[at : at + count]
            del buffer
            at += count
            for view in self.receiver.take_frames(count):
                frame = parse_frame(view)
                self.frames.append((frame.type, bytes(frame.head), bytes(frame.payload)))
                self.kept.append(frame)


frame_parts = st.tuples(
    st.sampled_from(FrameType),
    st.binary(max_size=50),
    st.integers(0, 3).flatmap(lambda count: st.lists(st.binary(max_size=100), min_size=count, max_size=count)),
)
LARGE: tuple[FrameType, bytes, list[bytes]] = (FrameType.MESSAGES, b"head", [b"a" * 100_000, b"b" * 30])
TOO_LARGE_FOR_POOL: tuple[FrameType, bytes, list[bytes]] = (FrameType.REQUEST, b"", [b"c" * (BUFFER_SIZE + 5)])


@given(st.lists(frame_parts, max_size=6), st.lists(st.integers(1, 400), min_size=1), st.booleans())
@example([LARGE, LARGE, TOO_LARGE_FOR_POOL, LARGE], [70_000], True)
@example([LARGE, TOO_LARGE_FOR_POOL, LARGE], [3, 1, 5, 9_000], False)
def test_frames_come_back_however_they_are_cut(
    parts: list[tuple[FrameType, bytes, list[bytes]]], cuts: list[int], may_keep: bool
) -> None:
    stream = b"".join(whole(frame_type, head, list(payload)) for frame_type, head, payload in parts)
    receiving = Receiving(may_keep)
    at = turn = 0
    while at < len(stream):
        count = cuts[turn % len(cuts)]
        receiving.feed(stream[at : at + count])
        at, turn = at + count, turn + 1
    assert receiving.frames == [(int(kind), head, b"".join(payload)) for kind, head, payload in parts]
    assert not receiving.receiver.is_inside_frame


def test_frames_may_be_kept() -> None:
    """What was handed over stays as it is while further frames come: none is a view of what is received into next."""
    receiving = Receiving()
    sizes = [10, 50_000, 100_000, 300_000, 20] * 8
    for number, size in enumerate(sizes):
        receiving.feed(whole(FrameType.MESSAGES, b"", [bytes([number]) * size]))
    for number, size in enumerate(sizes):
        assert bytes(receiving.kept[number].payload) == bytes([number]) * size


@given(frame_parts, st.data())
def test_a_changed_bit_is_noticed(parts: tuple[FrameType, bytes, list[bytes]], data: st.DataObject) -> None:
    """Anywhere: in the size, the checksum, the head or the payload. At worst the frame does not get complete."""
    stream = bytearray(whole(parts[0], parts[1], list(parts[2])))
    bit = data.draw(st.integers(0, 8 * len(stream) - 1))
    stream[bit // 8] ^= 1 << bit % 8
    receiving = Receiving()
    try:
        receiving.feed(stream)
    except ProtocolError:
        pass
    else:
        assert receiving.receiver.is_inside_frame
    assert not receiving.frames


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    receiving = Receiving()
    with suppress(ProtocolError):
        receiving.feed(data)
    assert not receiving.frames


@pytest.mark.parametrize("size", [0, 8, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_an_impossible_size_is_refused_at_once(size: int) -> None:
    """Before another byte comes: the rest of it may never."""
    with pytest.raises(ProtocolError, match="allowed"):
        Receiving().feed(size.to_bytes(4, "big"))


def test_a_size_that_arrives_in_pieces_is_checked() -> None:
    receiving = Receiving()
    receiving.feed(b"\xff\xff")
    with pytest.raises(ProtocolError, match="allowed"):
        receiving.feed(b"\xff\xff")


def test_a_head_longer_than_its_frame_is_refused() -> None:
    """With a checksum that is right: written by a bug, not by the way."""
    frame = bytearray(whole(FrameType.HELLO, b"abc", []))
    frame[8:12] = (5_000).to_bytes(4, "big")
    frame[4:8] = crc32c(frame[8:], len(frame) - 4).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="head of 5000"):
        parse_frame(memoryview(frame)[4:])


def test_memory_follows_bytes_not_promises() -> None:
    """A frame that announces four megabytes and brings a few bytes takes a few kilobytes."""
    receiving = Receiving()
    receiving.feed(FRAME_BYTES_MAX.to_bytes(4, "big") + b"x" * 100)
    assert len(receiving.receiver.get_buffer()) < 10_000
    receiving.feed(b"x" * 50_000)
    assert len(receiving.receiver.get_buffer()) <= 100_000


def test_the_largest_frame_comes_through() -> None:
    head_and_rest = FRAME_BYTES_MAX - 9
    receiving = Receiving()
    receiving.feed(whole(FrameType.MESSAGES, b"", [b"z" * head_and_rest]))
    assert len(receiving.frames) == 1
    with pytest.raises(ProtocolError, match="allowed"):
        Receiving().feed(whole(FrameType.MESSAGES, b"", [b"z" * (head_and_rest + 1)]))
