"""Code that the hand-written codecs of Produce and Fetch share: topics by name or id, counts, text, endpoints."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from drmq.wire.codec import Buffer, field_too_long, unexpected_null, write_uvarint

Topic = str | bytes
"""A topic as the hot path identifies it: by name, or by its id of sixteen bytes, depending on the version."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class NodeEndpoint(NamedTuple):
    """Where a broker listens; sent beside `current_leader` so that a client needs no metadata round."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class _Hint(Protocol):
    @property
    def current_leader(self) -> tuple[int, int] | None: ...


def hinted_leaders(results: Iterable[_Hint]) -> list[int]:
    """The brokers that the results of a response point to as leaders, each once, in order of appearance.

    A hint is of use only with its address (KIP-951), so these are the brokers whose endpoints belong
    into `node_endpoints`. A leader that is not known, -1, has none.
    """
    leaders = (result.current_leader for result in results)
    return list(dict.fromkeys(leader[0] for leader in leaders if leader is not None and leader[0] >= 0))


def read_text(frame: Buffer, position: int, size: int, end: int) -> str:
    """A string of `size` bytes, which must be there and not negative."""
    stop = position + size
    if size < 0:
        raise unexpected_null("a string")
    if stop > end:
        raise field_too_long(size, position, end)
    return str(frame[position:stop], "utf-8")


class _OfTopic(Protocol):
    @property
    def topic(self) -> Topic: ...


R = TypeVar("R", bound=_OfTopic)


def group_by_topic(results: Sequence[R]) -> list[list[R]]:
    """Runs of neighbours that belong to the same topic."""
    if len(results) == 1:
        return [[results[0]]]
    groups: list[list[R]] = []
    last = None
    for result in results:
        if result.topic == last:
            groups[-1].append(result)
        else:
            groups.append([result])
            last = result.topic
    return groups


def put_count(count: int, flexible: bool, out: bytearray) -> None:
    """Append the count that stands before an array."""
    if not flexible:
        out += _INT32.pack(count)
    elif count < 127:
        out.append(count + 1)
    else:
        write_uvarint(count + 1, out)


def put_string(text: str | None, flexible: bool, out: bytearray) -> None:
    """Append a string that may be null."""
    if text is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return
    data = text.encode()
    if flexible:
        write_uvarint(len(data) + 1, out)
    else:
        out += _INT16.pack(len(data))
    out += data


def put_topic(topic: Topic, by_id: bool, flexible: bool, out: bytearray) -> None:
    """Append a topic's id or name, whichever this version has."""
    if by_id:
        assert isinstance(topic, bytes), topic
        assert len(topic) == 16, topic
        out += topic
    else:
        assert isinstance(topic, str), topic
        put_string(topic, flexible, out)


def put_node_endpoints_tag(endpoints: Sequence[NodeEndpoint], out: bytearray) -> None:
    """Append the tag block that closes a response: the endpoints as tag 0, or nothing."""
    if not endpoints:
        out.append(0)
        return
    data = bytearray()
    write_uvarint(len(endpoints) + 1, data)
    for node_id, host, port, rack in endpoints:
        data += _INT32.pack(node_id)
        put_string(host, True, data)
        data += _INT32.pack(port)
        put_string(rack, True, data)
        data.append(0)
    out += b"\x01\x00"
    write_uvarint(len(data), out)
    out += data
