"""What is encoded comes back equal; what is not an encoding is a `ProtocolError` and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import ErrorCode, GroupId, NodeId, TopicId
from drmq.raft import AppendRequest, Entry, EntryKind, LogIndex, SnapshotChunk, Term
from drmq.transport.connection import Buffer
from drmq.transport.peers import LeaderNotice, PeerMessage
from drmq.transport.peers.codec import (
    Answer,
    Request,
    decode_answer,
    decode_messages,
    decode_notices,
    decode_request,
    encode_answer,
    encode_message,
    encode_notices,
    encode_request,
    text_from_bytes,
)
from drmq.wire import ProtocolError

from .strategies import CLASSES, group_messages, notices, of_class

GROUP = GroupId(TopicId(b"t" * 16), 3)


def joined(items: list[tuple[GroupId, PeerMessage]]) -> tuple[bytearray, bytearray]:
    head, payload = bytearray(), bytearray()
    for group, message in items:
        message_head, buffers = encode_message(group, message)
        head += message_head
        for buffer in buffers:
            payload += buffer
    return head, payload


def decoded(head: Buffer, payload: Buffer) -> list[tuple[GroupId, PeerMessage]]:
    return list(decode_messages(memoryview(head), memoryview(payload)))


def test_the_strategies_know_every_message() -> None:
    """A message that is added later, and forgotten here, would go untested."""
    assert set(CLASSES) == set(get_args(PeerMessage))


@pytest.mark.parametrize("cls", CLASSES)
@given(st.data())
def test_every_message_comes_back(cls: type[PeerMessage], data: st.DataObject) -> None:
    message = data.draw(of_class(cls))
    assert decoded(*joined([(GROUP, message)])) == [(GROUP, message)]


@given(group_messages)
def test_many_share_a_frame(items: list[tuple[GroupId, PeerMessage]]) -> None:
    assert decoded(*joined(items)) == items


@given(group_messages, st.data())
def test_a_part_is_never_taken_for_the_whole(items: list[tuple[GroupId, PeerMessage]], data: st.DataObject) -> None:
    """Cut anywhere but between messages, or lengthened, the head or the payload does not decode."""
    head, payload = joined(items)
    cut = data.draw(st.integers(0, len(head) - 1))
    with suppress(ProtocolError):
        # A cut between two messages leaves whole ones before it, if all of the payload is theirs.
        left = decoded(head[:cut], payload)
        assert left == items[: len(left)]
    if payload:
        with pytest.raises(ProtocolError):
            decoded(head, payload[: data.draw(st.integers(0, len(payload) - 1))])
    with pytest.raises(ProtocolError):
        decoded(head, payload + b"x")


@given(group_messages, st.data())
def test_changed_bytes_are_a_message_or_refused(items: list[tuple[GroupId, PeerMessage]], data: st.DataObject) -> None:
    """The checksum is the frame's. Without it, whatever the bytes, nothing but `ProtocolError` comes out."""
    head, payload = joined(items)
    for _ in range(data.draw(st.integers(1, 4))):
        head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded(head, payload)
    except ProtocolError:
        return


@given(st.binary(max_size=300), st.binary(max_size=50))
def test_random_bytes_are_refused_or_messages(head: bytes, payload: bytes) -> None:
    try:
        decoded(head, payload)
    except ProtocolError:
        return


@pytest.mark.parametrize(("position", "what"), [(17, "partition"), (21, "sender"), (37, "term"), (45, "commit")])
def test_negative_numbers_are_refused(position: int, what: str) -> None:
    """A log with an index of -1 would be an assertion in Raft, and the end of the node."""
    message = AppendRequest(NodeId(1), NodeId(2), Term(3), LogIndex(4), Term(3), (), LogIndex(4))
    head, payload = joined([(GROUP, message)])
    head[position] |= 0x80
    with pytest.raises(ProtocolError, match="negative"):
        decoded(head, payload)


def test_payloads_are_not_copied() -> None:
    """An entry's bytes leave as the buffer they are, and arrive as a view of the frame."""
    batch = bytearray(b"batch")
    entry = Entry(LogIndex(5), LogIndex(9), Term(3), EntryKind.PAYLOAD, batch, len(batch))
    message = AppendRequest(NodeId(1), NodeId(2), Term(3), LogIndex(4), Term(3), (entry,), LogIndex(4))
    head, buffers = encode_message(GROUP, message)
    assert len(buffers) == 1
    assert buffers[0] is batch
    received = bytearray(b"batch")
    [(_, back)] = decode_messages(memoryview(head), memoryview(received))
    assert isinstance(back, AppendRequest)
    payload = back.entries[0].payload
    assert isinstance(payload, memoryview)
    assert payload.obj is received


@given(of_class(SnapshotChunk))
def test_a_damaged_configuration_is_refused(chunk: PeerMessage) -> None:
    head, payload = joined([(GROUP, chunk)])
    configuration_at = 1 + 16 + 4 + 3 * 8 + 3 * 8 + 1 + 3 * 4
    head[configuration_at] ^= 0xFF
    with pytest.raises(ProtocolError, match="configuration"):
        decoded(head, payload)


@given(st.lists(notices, max_size=20))
def test_notices_come_back(items: list[LeaderNotice]) -> None:
    head = encode_notices(items)
    assert decode_notices(memoryview(head), memoryview(b"")) == items


@given(st.lists(notices, min_size=1, max_size=3), st.data())
def test_changed_notices_are_notices_or_refused(items: list[LeaderNotice], data: st.DataObject) -> None:
    head = bytearray(encode_notices(items))
    head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_notices(memoryview(head)[: data.draw(st.integers(0, len(head)))], memoryview(b""))
    except ProtocolError:
        return


@given(st.integers(0, 2**64 - 1), st.integers(0, 65_535))
def test_requests_come_back(number: int, kind: int) -> None:
    assert decode_request(memoryview(encode_request(Request(number, kind)))) == (number, kind)


@given(st.integers(0, 2**64 - 1), st.booleans(), st.sampled_from(ErrorCode))
def test_answers_come_back(number: int, is_served: bool, code: ErrorCode) -> None:
    answer = Answer(number, is_served, code, "why – and what next")
    assert decode_answer(memoryview(encode_answer(answer))) == answer


@given(st.binary(max_size=30))
def test_random_requests_and_answers(data: bytes) -> None:
    for decode in (decode_request, decode_answer):
        try:
            decode(memoryview(data))
        except ProtocolError:
            continue


def test_an_unknown_code_is_an_unknown_error() -> None:
    """A newer peer may have codes that this node has not."""
    head = bytearray(encode_answer(Answer(1, False, ErrorCode.INVALID_REQUEST, "no")))
    head[9:11] = (9_999).to_bytes(2, "big")
    assert decode_answer(memoryview(head)).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_peers_text_cannot_forge_lines_of_the_log() -> None:
    assert text_from_bytes(memoryview(b"no\nERROR fake \xff\x1b[2J")) == "no?ERROR fake �?[2J"
