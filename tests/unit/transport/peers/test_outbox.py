"""Messages of one turn share frames, in order, each frame small enough."""

from __future__ import annotations

from hypothesis import given

from drmq.model import GroupId, MemberId, NodeId, TopicId
from drmq.raft import AppendRequest, Entry, EntryKind, Heartbeat, LogIndex, Term
from drmq.transport.connection import Buffer
from drmq.transport.peers import PeerMessage
from drmq.transport.peers.codec import decode_messages
from drmq.transport.peers.frames import Frame, FrameType, parse_frame
from drmq.transport.peers.outbox import FRAME_BYTES_TARGET, Outbox

from .strategies import group_messages

GROUP = GroupId(TopicId(b"t" * 16), 3)
HEARTBEAT = Heartbeat(MemberId(NodeId(1)), MemberId(NodeId(2)), Term(1), LogIndex(1), 0)


def append_of(size: int) -> AppendRequest:
    entry = Entry(LogIndex(1), LogIndex(1), Term(1), EntryKind.PAYLOAD, bytes(size), size)
    return AppendRequest(NodeId(1), NodeId(2), Term(1), LogIndex(0), Term(0), (entry,), LogIndex(0))


def frames_of(buffers: list[Buffer]) -> list[Frame]:
    data = memoryview(b"".join(buffers))
    frames = []
    while data:
        stop = 4 + int.from_bytes(data[:4], "big")
        frames.append(parse_frame(data[4:stop]))
        data = data[stop:]
    return frames


@given(group_messages)
def test_messages_come_out_as_they_went_in(items: list[tuple[GroupId, PeerMessage]]) -> None:
    outbox = Outbox(1 << 20)
    for group, message in items:
        assert outbox.add_message(group, message)
    size_bytes = outbox.size_bytes
    buffers = outbox.take()
    [frame] = frames_of(buffers)
    assert list(decode_messages(frame.head, frame.payload)) == items
    assert size_bytes <= sum(map(len, buffers)) <= size_bytes + 100
    assert outbox.size_bytes == 0
    assert outbox.take() == []


def test_many_small_ones_share_a_few_frames() -> None:
    outbox = Outbox(1 << 20)
    for _ in range(10_000):
        outbox.add_message(GROUP, HEARTBEAT)
    frames = frames_of(outbox.take())
    assert sum(len(list(decode_messages(frame.head, frame.payload))) for frame in frames) == 10_000
    assert all(len(frame.head) <= FRAME_BYTES_TARGET for frame in frames)
    assert len(frames) <= 12


def test_a_large_one_shares_with_nobody() -> None:
    """A receiver that keeps a small payload must not keep a large one with it."""
    outbox = Outbox(1 << 20)
    for size in (100, 100, 500_000, 100, 100):
        assert outbox.add_message(GROUP, append_of(size))
    assert [len(frame.payload) for frame in frames_of(outbox.take())] == [200, 500_000, 200]


def test_a_frame_leaves_behind_the_messages_before_it() -> None:
    outbox = Outbox(1 << 20)
    outbox.add_message(GROUP, HEARTBEAT)
    outbox.add_frame(FrameType.NODE_HEARTBEAT, b"")
    outbox.add_message(GROUP, HEARTBEAT)
    expected = [FrameType.MESSAGES, FrameType.NODE_HEARTBEAT, FrameType.MESSAGES]
    assert [frame.type for frame in frames_of(outbox.take())] == expected


def test_no_frame_is_larger_than_its_receiver_takes() -> None:
    outbox = Outbox(1_000)
    assert not outbox.add_message(GROUP, append_of(1_000))
    assert not outbox.add_frame(FrameType.REQUEST, b"", [bytes(992)])
    assert outbox.size_bytes == 0
    assert outbox.add_frame(FrameType.REQUEST, b"", [bytes(991)])
    for _ in range(100):
        assert outbox.add_message(GROUP, HEARTBEAT)
    data = b"".join(outbox.take())
    while data:
        size = int.from_bytes(data[:4], "big")
        assert size <= 1_000
        data = data[4 + size :]
