"""The encoding of what frames carry: messages of groups, leader notices, requests and their answers.

Numbers are big-endian and of fixed width; ids of members are 64 bits wide. A message is

    code        u8
    group       topic id, 16 bytes; partition, i32
    sender, target, term    i64 each
    the rest    as its class has it

so many fit into the head of one frame. The data of an entry or of a snapshot chunk is not in the head but in the
payload of the frame, in the same order: it is sent and received without being copied.

Every decoder checks every length and consumes exactly its input, or raises `ProtocolError`. The meaning of a message,
such as whether its entries are consecutive, is for Raft to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from drmq.model import ErrorCode, GroupId, NodeId
from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    Payload,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotId,
    SnapshotMeta,
    Term,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    configuration_from_bytes,
    configuration_to_bytes,
)
from drmq.raft import ProtocolError as RaftProtocolError
from drmq.transport.connection import Buffer
from drmq.transport.peers.messages import LeaderNotice, PeerMessage, Sleep, Wake
from drmq.wire import ProtocolError

_ENVELOPE = ">B16siqqq"
_APPEND_CODE = 5
_CHUNK_CODE = 10
_ANSWER_CODE = 11

_APPEND = Struct(f"{_ENVELOPE}qqqI")
_ENTRY = Struct(">qqqBI")
_CHUNK = Struct(f"{_ENVELOPE}qqq?III")
_SNAPSHOT_ANSWER = Struct(f"{_ENVELOPE}qqq")


class _Plain(NamedTuple):
    """The codec of a message that consists only of numbers: its layout, and how to read and build it."""

    code: int
    layout: Struct
    take_fields: Callable[[Any], tuple[Any, ...]]
    build: Callable[..., PeerMessage]


def _plain(code: int, build: type[PeerMessage], **fields: str) -> _Plain:
    """The codec of a class whose fields after sender, target and term are these, in this order."""
    layout = Struct(_ENVELOPE + "".join(fields.values()))
    return _Plain(code, layout, attrgetter("sender", "target", "term", *fields), build)


_PLAIN = (
    _plain(1, PreVoteRequest, campaign_term="q", last_index="q", last_term="q"),
    _plain(2, PreVoteResponse, campaign_term="q", granted="?"),
    _plain(3, VoteRequest, last_index="q", last_term="q", transfer="?"),
    _plain(4, VoteResponse, granted="?"),
    _plain(6, AppendAccepted, match="q"),
    _plain(7, AppendRejected, rejected="q", hint_index="q", hint_term="q"),
    _plain(8, Heartbeat, commit="q", read_round="q"),
    _plain(9, HeartbeatResponse, read_round="q"),
    _plain(12, TimeoutNow),
    _plain(13, Sleep, last_index="q"),
    _plain(14, Wake),
)
_PLAIN_BY_TYPE = {plain.build: plain for plain in _PLAIN}
_PLAIN_BY_CODE = {plain.code: plain for plain in _PLAIN}


# ---- messages of groups -------------------------------------------------------------------------


def encode_message(group: GroupId, message: PeerMessage) -> tuple[bytes, Sequence[Buffer]]:
    """A message's part of a frame's head, and of its payload."""
    plain = _PLAIN_BY_TYPE.get(type(message))
    if plain is not None:
        return plain.layout.pack(plain.code, *group, *plain.take_fields(message)), ()
    match message:
        case AppendRequest():
            return _encode_append(group, message)
        case SnapshotChunk():
            return _encode_chunk(group, message)
        case SnapshotAnswer(sender, target, term, snapshot_id, received):
            ids = snapshot_id.index, snapshot_id.term
            return _SNAPSHOT_ANSWER.pack(_ANSWER_CODE, *group, sender, target, term, *ids, received), ()
        case _:
            raise AssertionError(f"{type(message).__name__} has no byte form")


def _encode_append(group: GroupId, message: AppendRequest) -> tuple[bytes, Sequence[Buffer]]:
    entries = message.entries
    parts = [
        _APPEND.pack(
            _APPEND_CODE,
            *group,
            message.sender,
            message.target,
            message.term,
            message.previous_index,
            message.previous_term,
            message.commit,
            len(entries),
        )
    ]
    payload = []
    for entry in entries:
        data = _bytes_of(entry.payload)
        parts.append(_ENTRY.pack(entry.first, entry.index, entry.term, entry.kind, len(data)))
        if data:
            payload.append(data)
    return b"".join(parts), payload


def _bytes_of(payload: Payload) -> Buffer:
    # In Raft a payload may be a handle. A handle that can be sent has its bytes in `data`.
    data = getattr(payload, "data", payload)
    assert isinstance(data, bytes | bytearray | memoryview), f"a payload of {type(payload).__name__} cannot be sent"
    return data


def _encode_chunk(group: GroupId, message: SnapshotChunk) -> tuple[bytes, Sequence[Buffer]]:
    meta = message.meta
    configuration = configuration_to_bytes(meta.configuration)
    head = _CHUNK.pack(
        _CHUNK_CODE,
        *group,
        message.sender,
        message.target,
        message.term,
        meta.index,
        meta.term,
        message.offset,
        message.done,
        len(configuration),
        len(meta.data),
        len(message.data),
    )
    return head + configuration + meta.data, (message.data,) if message.data else ()


def decode_messages(head: memoryview, payload: memoryview) -> Iterator[tuple[GroupId, PeerMessage]]:
    """Decode the messages of one frame, in order. Raises `ProtocolError`, possibly after some of them.

    Payloads are views of the frame.
    """
    reader = _Reader(head, payload)
    end = len(head)
    while reader.position < end:
        code = head[reader.position]
        plain = _PLAIN_BY_CODE.get(code)
        if plain is not None:
            _, topic_id, partition, *numbers = reader.take(plain.layout)
            _check_not_negative(partition, numbers)
            yield GroupId(topic_id, partition), plain.build(*numbers)
        elif code == _APPEND_CODE:
            yield _decode_append(reader)
        elif code == _CHUNK_CODE:
            yield _decode_chunk(reader)
        elif code == _ANSWER_CODE:
            _, topic_id, partition, *numbers = reader.take(_SNAPSHOT_ANSWER)
            _check_not_negative(partition, numbers)
            sender, target, term, index, snapshot_term, received = numbers
            snapshot_id = SnapshotId(LogIndex(index), Term(snapshot_term))
            yield GroupId(topic_id, partition), SnapshotAnswer(sender, target, term, snapshot_id, received)
        else:
            raise ProtocolError(f"a message has the unknown code {code}")
    reader.check_used_up()


def _check_not_negative(partition: int, numbers: Sequence[int]) -> None:
    if partition < 0 or min(numbers) < 0:
        raise ProtocolError(f"a negative number in a message of partition {partition}: {numbers}")


def _decode_append(reader: _Reader) -> tuple[GroupId, AppendRequest]:
    _, topic_id, partition, *numbers, entry_count = reader.take(_APPEND)
    _check_not_negative(partition, numbers)
    sender, target, term, previous_index, previous_term, commit = numbers
    entries = []
    # A count that is too high fails at the end of the head, before memory is allocated for it.
    for _ in range(entry_count):
        first, index, entry_term, kind, size = reader.take(_ENTRY)
        if first < 0 or index < 0 or entry_term < 0:
            raise ProtocolError(f"a negative number in entry {first} to {index} of term {entry_term}")
        try:
            entry_kind = _ENTRY_KINDS[kind]
        except KeyError:
            raise ProtocolError(f"an entry has the unknown kind {kind}") from None
        entries.append(
            Entry(
                first=first,
                index=index,
                term=entry_term,
                kind=entry_kind,
                payload=reader.take_payload(size),
                size_bytes=size,
            )
        )
    message = AppendRequest(sender, target, term, previous_index, previous_term, tuple(entries), commit)
    return GroupId(topic_id, partition), message


_ENTRY_KINDS = {int(kind): kind for kind in EntryKind}


def _decode_chunk(reader: _Reader) -> tuple[GroupId, SnapshotChunk]:
    _, topic_id, partition, *numbers, configuration_size, meta_size, data_size = reader.take(_CHUNK)
    _check_not_negative(partition, numbers)
    sender, target, term, index, snapshot_term, offset, done = numbers
    configuration = _decode_configuration(reader.take_bytes(configuration_size))
    meta = SnapshotMeta(index, snapshot_term, configuration, bytes(reader.take_bytes(meta_size)))
    message = SnapshotChunk(sender, target, term, meta, offset, reader.take_payload(data_size), done)
    return GroupId(topic_id, partition), message


def _decode_configuration(data: memoryview) -> Configuration:
    try:
        return configuration_from_bytes(data)
    except RaftProtocolError as error:
        raise ProtocolError(str(error)) from None


class _Reader:
    """Reads the head and the payload of one frame from front to back."""

    __slots__ = ("_head", "_payload", "_payload_position", "position")

    def __init__(self, head: memoryview, payload: memoryview) -> None:
        self._head = head
        self._payload = payload
        self.position = 0
        self._payload_position = 0

    def take(self, layout: Struct) -> tuple[Any, ...]:
        try:
            values = layout.unpack_from(self._head, self.position)
        except StructError:
            raise ProtocolError(f"a head of {len(self._head)} bytes ends inside a message") from None
        self.position += layout.size
        return values

    def take_bytes(self, size: int) -> memoryview:
        start = self.position
        if size > len(self._head) - start:
            raise ProtocolError(f"a head of {len(self._head)} bytes ends inside a field of {size}")
        self.position = start + size
        return self._head[start : self.position]

    def take_payload(self, size: int) -> memoryview:
        start = self._payload_position
        if size > len(self._payload) - start:
            raise ProtocolError(f"a payload of {len(self._payload)} bytes ends inside a part of {size}")
        self._payload_position = start + size
        return self._payload[start : self._payload_position]

    def check_used_up(self) -> None:
        if self.position != len(self._head) or self._payload_position != len(self._payload):
            raise ProtocolError("a frame has more bytes than its messages need")


# ---- leader notices -----------------------------------------------------------------------------

_NOTICE = Struct(">16siqqqH")
_IN_SYNC_COUNT_MAX = 0xFFFF
_IN_SYNC = [Struct(f">{count}q") for count in range(16)]
NOTICES_PER_FRAME_MAX = 500
"""Keeps frames of notices small, so that a heartbeat does not wait long behind one."""


def encode_notices(notices: Sequence[LeaderNotice]) -> bytes:
    """Encode the head of a frame with leader notices."""
    parts = []
    for notice in notices:
        count = len(notice.members_in_sync)
        assert count <= _IN_SYNC_COUNT_MAX, notice
        parts.append(_NOTICE.pack(*notice.group, notice.term, notice.leader, notice.version, count))
        parts.append(_numbers(count).pack(*notice.members_in_sync))
    return b"".join(parts)


def _numbers(count: int) -> Struct:
    return _IN_SYNC[count] if count < len(_IN_SYNC) else Struct(f">{count}q")


def decode_notices(head: memoryview, payload: memoryview) -> list[LeaderNotice]:
    """Decode the leader notices in a frame. Raises `ProtocolError`."""
    reader = _Reader(head, payload)
    notices = []
    while reader.position < len(head):
        topic_id, partition, term, leader, version, count = reader.take(_NOTICE)
        in_sync = reader.take(_numbers(count))
        if min(partition, term, leader + 1, version, *in_sync) < 0:
            raise ProtocolError(f"a negative number in the leader notice of partition {partition}")
        notices.append(LeaderNotice(GroupId(topic_id, partition), term, NodeId(leader), version, in_sync))
    reader.check_used_up()
    return notices


# ---- requests and answers -----------------------------------------------------------------------

_REQUEST = Struct(">QH")
_ANSWER = Struct(">Q?h")
_TEXT_SIZE_MAX = 4_096
REQUEST_KIND_MAX = 0xFFFF


class Request(NamedTuple):
    """The head of a request: its number on this connection, and its kind."""

    number: int
    kind: int


class Answer(NamedTuple):
    """The head of the answer to the request with that number: whether it was served, and if not, why."""

    number: int
    is_served: bool
    code: ErrorCode = ErrorCode.NONE
    text: str = ""


def encode_request(request: Request) -> bytes:
    """The head of a request's frame."""
    return _REQUEST.pack(*request)


def decode_request(head: memoryview) -> Request:
    """A request's head. Raises `ProtocolError`."""
    if len(head) != _REQUEST.size:
        raise ProtocolError(f"the head of a request has {len(head)} bytes instead of {_REQUEST.size}")
    return Request(*_REQUEST.unpack(head))


def encode_answer(answer: Answer) -> bytes:
    """The head of an answer's frame."""
    return _ANSWER.pack(answer.number, answer.is_served, answer.code) + text_to_bytes(answer.text)


def decode_answer(head: memoryview) -> Answer:
    """An answer's head. Raises `ProtocolError`. An unknown error code becomes UNKNOWN_SERVER_ERROR."""
    if len(head) < _ANSWER.size:
        raise ProtocolError(f"the head of an answer has {len(head)} bytes instead of at least {_ANSWER.size}")
    number, is_served, code = _ANSWER.unpack_from(head)
    try:
        error_code = ErrorCode(code)
    except ValueError:
        error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    return Answer(number, is_served, error_code, text_from_bytes(head[_ANSWER.size :]))


def text_to_bytes(text: str) -> bytes:
    """Encode a text for people, truncated to `_TEXT_SIZE_MAX` bytes."""
    return text.encode("utf-8", "replace")[:_TEXT_SIZE_MAX]


def text_from_bytes(data: memoryview) -> str:
    """Decode a peer's text, with unprintable characters replaced so that it is safe to log."""
    text = bytes(data[:_TEXT_SIZE_MAX]).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)
