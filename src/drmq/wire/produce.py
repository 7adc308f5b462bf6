"""Produce, the hot path: a request costs a header parse and a slice per partition.

`read_produce` walks the frame once and returns the record batches as views into it: they are neither copied nor
inspected here. The frame must therefore not change as long as a view is in use. `write_produce_response` has a fast
path for the usual response, one partition without an error, and a general path for everything else. Both must agree
byte for byte with the classes in `drmq.wire.messages.produce`, and the tests compare them.

Topics and partitions are read into a flat list, in the order of the request, and written from one: neighbours with the
same topic share one topic entry in the response.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from drmq.wire.codec import (
    MALFORMED,
    Buffer,
    check_count,
    check_total,
    field_too_long,
    read_uvarint,
    skip_tags,
    unexpected_null,
)
from drmq.wire.errors import ProtocolError
from drmq.wire.topics import (
    NodeEndpoint,
    Topic,
    group_by_topic,
    put_count,
    put_node_endpoints_tag,
    put_string,
    put_topic,
    read_text,
)

_FLEXIBLE_FROM = 9
_TOPIC_ID_FROM = 13

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT_BYTE = struct.Struct(">hiB")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_INDEX_SIZE = struct.Struct(">ii")
_INDEX_BYTE = struct.Struct(">iB")
_EMPTY = memoryview(b"")

_new = tuple.__new__


class ProducePartition(NamedTuple):
    """One partition's records in a request. `topic` is a name up to v12 and an id of sixteen bytes from v13."""

    topic: Topic
    partition: int
    records: memoryview | None


class ProduceData(NamedTuple):
    """A Produce request of any version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[ProducePartition]


def read_produce(frame: Buffer, position: int, version: int) -> ProduceData:
    """The request that fills `frame` from `position` to its end; its records are views into the frame."""
    try:
        if version >= _FLEXIBLE_FROM:
            return _read_flexible(frame, position, version >= _TOPIC_ID_FROM)
        return _read_classic(frame, position)
    except MALFORMED as error:
        raise ProtocolError(f"Produce v{version}: {error}") from error


def _read_classic(frame: Buffer, position: int) -> ProduceData:
    end = len(frame)
    view = memoryview(frame)
    (size,) = _INT16.unpack_from(frame, position)
    position += 2
    transactional_id = None
    if size != -1:
        transactional_id = read_text(frame, position, size, end)
        position += size
    acks, timeout_ms, topics = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    # A count of one needs no check: its element is read at once.
    if topics != 1:
        check_count(topics, 6, position, end)
    found: list[ProducePartition] = []
    for _ in range(topics):
        (size,) = _INT16.unpack_from(frame, position)
        position += 2
        topic = read_text(frame, position, size, end)
        position += size
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
        if count != 1:
            check_count(count, 8, position, end)
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += 8
            if size > 0:
                stop = position + size
                if stop > end:
                    raise field_too_long(size, position, end)
                records: memoryview | None = view[position:stop]
                position = stop
            elif size == 0:
                records = _EMPTY
            elif size == -1:
                records = None
            else:
                raise unexpected_null("records")
            found.append(_new(ProducePartition, (topic, index, records)))
        check_total(len(found))
    if position != end:
        raise ProtocolError(f"Produce: {end - position} bytes too many")
    return _new(ProduceData, (transactional_id, acks, timeout_ms, found))


def _read_flexible(frame: Buffer, position: int, by_id: bool) -> ProduceData:
    # Lengths and counts are varints, most of them one byte long. That byte is read together with the fixed fields
    # before it, and `read_uvarint` reads again from the start only if that byte says that more follow.
    end = len(frame)
    view = memoryview(frame)
    size = frame[position]
    position += 1
    transactional_id = None
    if size:
        if size > 127:
            size, position = read_uvarint(frame, position - 1)
        transactional_id = read_text(frame, position, size - 1, end)
        position += size - 1
    acks, timeout_ms, topics = _ACKS_TIMEOUT_BYTE.unpack_from(frame, position)
    position += 7
    if topics > 127:
        topics, position = read_uvarint(frame, position - 1)
    if topics != 2:
        check_count(topics - 1, 18 if by_id else 3, position, end)
    found: list[ProducePartition] = []
    topic: Topic
    for _ in range(topics - 1):
        if by_id:
            topic = bytes(frame[position : position + 16])
            position += 16
        else:
            size = frame[position]
            position += 1
            if size > 127:
                size, position = read_uvarint(frame, position - 1)
            topic = read_text(frame, position, size - 1, end)
            position += size - 1
        count = frame[position]
        position += 1
        if count > 127:
            count, position = read_uvarint(frame, position - 1)
        if count != 2:
            check_count(count - 1, 6, position, end)
        for _ in range(count - 1):
            index, size = _INDEX_BYTE.unpack_from(frame, position)
            position += 5
            if size > 127:
                size, position = read_uvarint(frame, position - 1)
            if size > 1:
                stop = position + size - 1
                if stop > end:
                    raise field_too_long(size - 1, position, end)
                records: memoryview | None = view[position:stop]
                position = stop
            else:
                records = _EMPTY if size else None
            position = skip_tags(frame, position, end) if frame[position] else position + 1
            found.append(_new(ProducePartition, (topic, index, records)))
        check_total(len(found))
        position = skip_tags(frame, position, end) if frame[position] else position + 1
    position = skip_tags(frame, position, end) if frame[position] else position + 1
    if position != end:
        raise ProtocolError(f"Produce: {end - position} bytes too many")
    return _new(ProduceData, (transactional_id, acks, timeout_ms, found))


# ---- the response --------------------------------------------------------------------------------


class ProduceResult(NamedTuple):
    """The result for one partition's records.

    `current_leader` is `(leader_id, leader_epoch)` and goes out from v10, `error_message` and
    `record_errors` (pairs of batch index and message) from v8; older versions leave them out.
    """

    topic: Topic
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    current_leader: tuple[int, int] | None = None


_START = struct.Struct(">ii")
_PARTITION_3 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")
_RECORD_ERROR = struct.Struct(">i")
_LEADER_TAG = struct.Struct(">BBBiiB")

# The usual response in two parts: the bytes before the topic's name or id, and all bytes after it. `x` pads with zero
# bytes, which here are empty tag blocks and a null error message.
_ONE_HEAD_CLASSIC = struct.Struct(">iiih")
_ONE_HEAD_NAME = struct.Struct(">iixBB")
_ONE_HEAD_ID = struct.Struct(">iixB")
_ONE_TAIL_3 = struct.Struct(">iihqqi")
_ONE_TAIL_5 = struct.Struct(">iihqqqi")
_ONE_TAIL_8 = struct.Struct(">iihqqqihi")
_ONE_TAIL_9 = struct.Struct(">BihqqqBxxxix")


def write_produce_response(
    version: int,
    correlation_id: int,
    results: Sequence[ProduceResult],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes | bytearray:
    """A whole response frame, size included. `node_endpoints` go out from v10."""
    if len(results) == 1 and not node_endpoints:
        topic, index, error, base, append_time, log_start, message, record_errors, leader = results[0]
        if message is None and not record_errors and leader is None:
            if version >= _TOPIC_ID_FROM:
                tail = _ONE_TAIL_9.pack(2, index, error, base, append_time, log_start, 1, throttle_time_ms)
                assert isinstance(topic, bytes), topic
                assert len(topic) == 16, topic
                return _ONE_HEAD_ID.pack(22 + len(tail), correlation_id, 2) + topic + tail
            assert isinstance(topic, str), topic
            name = topic.encode()
            size = len(name)
            if version >= _FLEXIBLE_FROM:
                # Topic names have at most 249 bytes. A name longer than 126 bytes needs a two-byte length: general
                # path.
                if size < 127:
                    tail = _ONE_TAIL_9.pack(2, index, error, base, append_time, log_start, 1, throttle_time_ms)
                    return _ONE_HEAD_NAME.pack(7 + size + len(tail), correlation_id, 2, size + 1) + name + tail
            else:
                if version >= 8:
                    tail = _ONE_TAIL_8.pack(1, index, error, base, append_time, log_start, 0, -1, throttle_time_ms)
                elif version >= 5:
                    tail = _ONE_TAIL_5.pack(1, index, error, base, append_time, log_start, throttle_time_ms)
                else:
                    tail = _ONE_TAIL_3.pack(1, index, error, base, append_time, throttle_time_ms)
                return _ONE_HEAD_CLASSIC.pack(10 + size + len(tail), correlation_id, 1, size) + name + tail
    return _write_many(version, correlation_id, results, throttle_time_ms, node_endpoints)


def _write_many(
    version: int,
    correlation_id: int,
    results: Sequence[ProduceResult],
    throttle_time_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> bytearray:
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray(_START.pack(0, correlation_id))
    if flexible:
        out.append(0)
    topics = group_by_topic(results)
    put_count(len(topics), flexible, out)
    for group in topics:
        put_topic(group[0].topic, version >= _TOPIC_ID_FROM, flexible, out)
        put_count(len(group), flexible, out)
        for result in group:
            _put_result(version, flexible, result, out)
        if flexible:
            out.append(0)
    out += _INT32.pack(throttle_time_ms)
    if flexible:
        put_node_endpoints_tag(node_endpoints if version >= 10 else (), out)
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


def _put_result(version: int, flexible: bool, result: ProduceResult, out: bytearray) -> None:
    _, index, error, base, append_time, log_start, message, record_errors, leader = result
    if version >= 5:
        out += _PARTITION_5.pack(index, error, base, append_time, log_start)
    else:
        out += _PARTITION_3.pack(index, error, base, append_time)
    if version >= 8:
        put_count(len(record_errors), flexible, out)
        for batch_index, record_message in record_errors:
            out += _RECORD_ERROR.pack(batch_index)
            put_string(record_message, flexible, out)
            if flexible:
                out.append(0)
        put_string(message, flexible, out)
    if flexible:
        if version >= 10 and leader is not None:
            # One tag, number 0, of nine bytes: two integers and an empty tag block.
            out += _LEADER_TAG.pack(1, 0, 9, *leader, 0)
        else:
            out.append(0)
