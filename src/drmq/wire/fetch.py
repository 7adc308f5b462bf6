"""Fetch, the hot path: requests come out flat, and responses go out without copying a record.

`read_fetch` reads all versions into one `FetchData`. `write_fetch_response` returns a list of buffers for
`transport.writelines`: bytes that are made here and, between them, the record slices unchanged, so that a page read
from a file goes to the socket without a copy.

Both must agree byte for byte with the classes in `drmq.wire.messages.fetch`, and the tests compare them. Fields that
only Kafka's own replicas use are skipped: cluster id, directory id, snapshot id.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from drmq.wire.codec import (
    MALFORMED,
    Buffer,
    check_count,
    field_too_long,
    read_uvarint,
    skip_tags,
    write_uvarint,
)
from drmq.wire.errors import ProtocolError
from drmq.wire.topics import (
    NodeEndpoint,
    Topic,
    group_by_topic,
    put_count,
    put_node_endpoints_tag,
    put_topic,
    read_text,
)

_FLEXIBLE_FROM = 12
_TOPIC_ID_FROM = 13
_REPLICA_STATE_FROM = 15
_REPLICA_STATE_TAG = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_START_4 = struct.Struct(">iiiib")
_START_7 = struct.Struct(">iiiibii")
_START_12 = struct.Struct(">iiibiiB")
_PARTITION_4 = struct.Struct(">iqi")
_PARTITION_5 = struct.Struct(">iqqi")
_PARTITION_9 = struct.Struct(">iiqqi")
_PARTITION_12 = struct.Struct(">iiqiqi")
_REPLICA_STATE = struct.Struct(">iq")

_new = tuple.__new__


class FetchPartition(NamedTuple):
    """One partition in a request. `topic` is a name up to v12 and an id of sixteen bytes from v13."""

    topic: Topic
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchData(NamedTuple):
    """A Fetch request of any version. Fields that the version does not have hold the protocol's default."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[tuple[Topic, int]]
    rack_id: str


def read_fetch(frame: Buffer, position: int, version: int) -> FetchData:
    """The request that fills `frame` from `position` to its end."""
    try:
        if version >= _FLEXIBLE_FROM:
            return _read_flexible(frame, position, version)
        return _read_classic(frame, position, version)
    except MALFORMED as error:
        raise ProtocolError(f"Fetch v{version}: {error}") from error


def _read_classic(frame: Buffer, position: int, version: int) -> FetchData:
    end = len(frame)
    session_id, session_epoch = 0, -1
    if version >= 7:
        start = _START_7.unpack_from(frame, position)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = start
        position += 25
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _START_4.unpack_from(frame, position)
        position += 17
    (topics,) = _INT32.unpack_from(frame, position)
    position += 4
    check_count(topics, 6, position, end)
    partitions: list[FetchPartition] = []
    for _ in range(topics):
        topic, position = _classic_string(frame, position, end)
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
        if count != 1:
            check_count(count, 16, position, end)
        for _ in range(count):
            leader_epoch = log_start = -1
            if version >= 9:
                index, leader_epoch, offset, log_start, size = _PARTITION_9.unpack_from(frame, position)
                position += 28
            elif version >= 5:
                index, offset, log_start, size = _PARTITION_5.unpack_from(frame, position)
                position += 24
            else:
                index, offset, size = _PARTITION_4.unpack_from(frame, position)
                position += 16
            partitions.append(_new(FetchPartition, (topic, index, leader_epoch, offset, -1, log_start, size)))
    forgotten: list[tuple[Topic, int]] = []
    if version >= 7:
        (topics,) = _INT32.unpack_from(frame, position)
        position += 4
        check_count(topics, 6, position, end)
        for _ in range(topics):
            topic, position = _classic_string(frame, position, end)
            (count,) = _INT32.unpack_from(frame, position)
            position = _forget(topic, count, frame, position + 4, forgotten)
    rack_id = ""
    if version >= 11:
        rack_id, position = _classic_string(frame, position, end)
    if position != end:
        raise ProtocolError(f"Fetch: {end - position} bytes too many")
    head = (replica_id, -1, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch)
    return _new(FetchData, (*head, partitions, forgotten, rack_id))


def _read_flexible(frame: Buffer, position: int, version: int) -> FetchData:
    end = len(frame)
    by_id = version >= _TOPIC_ID_FROM
    replica_id = replica_epoch = -1
    if version < _REPLICA_STATE_FROM:
        (replica_id,) = _INT32.unpack_from(frame, position)
        position += 4
    start = _START_12.unpack_from(frame, position)
    topics: int = start[6]
    position += 22
    # Most varints have one byte. `read_uvarint` reads again from the start only if that byte says that more follow.
    if topics > 127:
        topics, position = read_uvarint(frame, position - 1)
    check_count(topics - 1, 18 if by_id else 3, position, end)
    partitions: list[FetchPartition] = []
    for _ in range(topics - 1):
        topic, position = _flexible_topic(frame, position, end, by_id)
        count = frame[position]
        position += 1
        if count > 127:
            count, position = read_uvarint(frame, position - 1)
        if count != 2:
            check_count(count - 1, 33, position, end)
        for _ in range(count - 1):
            # The fields of `FetchPartition` are in the order of v12 and later.
            partitions.append(_new(FetchPartition, (topic, *_PARTITION_12.unpack_from(frame, position))))
            position += 32
            position = skip_tags(frame, position, end) if frame[position] else position + 1
        position = skip_tags(frame, position, end) if frame[position] else position + 1
    forgotten: list[tuple[Topic, int]] = []
    topics = frame[position]
    position += 1
    if topics != 1:
        topics, position = read_uvarint(frame, position - 1)
        check_count(topics - 1, 18 if by_id else 3, position, end)
    for _ in range(topics - 1):
        topic, position = _flexible_topic(frame, position, end, by_id)
        count, position = read_uvarint(frame, position)
        position = _forget(topic, count - 1, frame, position, forgotten)
        position = skip_tags(frame, position, end) if frame[position] else position + 1
    rack_id, position = _flexible_string(frame, position, end)
    if not frame[position]:
        position += 1
    elif version < _REPLICA_STATE_FROM:
        position = skip_tags(frame, position, end)
    else:
        replica_id, replica_epoch, position = _read_replica_state(frame, position, end)
    if position != end:
        raise ProtocolError(f"Fetch: {end - position} bytes too many")
    head = (replica_id, replica_epoch, *start[:6])
    return _new(FetchData, (*head, partitions, forgotten, rack_id))


def _read_replica_state(frame: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Read the tag block of v15 and later, which identifies the fetching replica if it is not a consumer."""
    replica_id = replica_epoch = -1
    tags, position = read_uvarint(frame, position)
    last = -1
    for _ in range(tags):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        after = position + size
        if after > end:
            raise field_too_long(size, position, end)
        if tag <= last:
            raise ProtocolError(f"tag {tag} after tag {last}")
        last = tag
        if tag == _REPLICA_STATE_TAG:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, position)
            if skip_tags(frame, position + 12, after) != after:
                raise ProtocolError("a replica state that is not of the size it claims")
        position = after
    return replica_id, replica_epoch, position


def _classic_string(frame: Buffer, position: int, end: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(frame, position)
    return read_text(frame, position + 2, size, end), position + 2 + size


def _flexible_string(frame: Buffer, position: int, end: int) -> tuple[str, int]:
    size = frame[position]
    position += 1
    if size > 127:
        size, position = read_uvarint(frame, position - 1)
    return read_text(frame, position, size - 1, end), position + size - 1


def _flexible_topic(frame: Buffer, position: int, end: int, by_id: bool) -> tuple[Topic, int]:
    if not by_id:
        return _flexible_string(frame, position, end)
    stop = position + 16
    if stop > end:
        raise field_too_long(16, position, end)
    return bytes(frame[position:stop]), stop


def _forget(topic: Topic, count: int, frame: Buffer, position: int, forgotten: list[tuple[Topic, int]]) -> int:
    """Add `count` partitions of a topic to `forgotten`, and return the position behind them."""
    check_count(count, 4, position, len(frame))
    forgotten += [(topic, index) for index in struct.unpack_from(f">{count}i", frame, position)]
    return position + 4 * count


# ---- the response --------------------------------------------------------------------------------


class FetchResult(NamedTuple):
    """The result for one partition.

    `records` are slices that follow each other on the wire; null is `None`, nothing is `()`.
    `aborted_transactions` are pairs of producer id and first offset. `diverging_epoch` is
    `(epoch, end_offset)`, `current_leader` is `(leader_id, leader_epoch)`; both go out from v12,
    `preferred_read_replica` from v11, and older versions leave them out.
    """

    topic: Topic
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] | None = ()
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    current_leader: tuple[int, int] | None = None
    diverging_epoch: tuple[int, int] | None = None


_HEAD_4 = struct.Struct(">iii")
_HEAD_7 = struct.Struct(">iiihi")
_HEAD_12 = struct.Struct(">iixihi")
_RESULT_4 = struct.Struct(">ihqq")
_RESULT_5 = struct.Struct(">ihqqq")
_RESULT_12 = struct.Struct(">ihqqqxi")
_ABORTED = struct.Struct(">qq")
_ABORTED_12 = struct.Struct(">qqx")
_DIVERGING_TAG = struct.Struct(">BBiqx")
_LEADER_TAG = struct.Struct(">BBiix")


def write_fetch_response(
    version: int,
    correlation_id: int,
    results: Sequence[FetchResult],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """A whole response frame, size included, in buffers to be sent one after the other.

    The record slices are in the list as they were handed in; they must be views of bytes and
    must not change until they are sent. `node_endpoints` go out from v16.
    """
    flexible = version >= _FLEXIBLE_FROM
    if flexible:
        head = _HEAD_12.pack(0, correlation_id, throttle_time_ms, error_code, session_id)
    elif version >= 7:
        head = _HEAD_7.pack(0, correlation_id, throttle_time_ms, error_code, session_id)
    else:
        head = _HEAD_4.pack(0, correlation_id, throttle_time_ms)
    first = out = bytearray(head)
    buffers: list[Buffer] = [first]
    topics = group_by_topic(results)
    put_count(len(topics), flexible, out)
    total = -4  # the size does not count itself
    for group in topics:
        put_topic(group[0].topic, version >= _TOPIC_ID_FROM, flexible, out)
        put_count(len(group), flexible, out)
        for result in group:
            size = _put_result(version, flexible, result, out)
            if size > 0:
                assert result.records is not None
                buffers += result.records
                total += len(out) + size
                out = bytearray()
                buffers.append(out)
            if flexible:
                _put_result_tags(result, out)
        if flexible:
            out.append(0)
    if flexible:
        put_node_endpoints_tag(node_endpoints if version >= 16 else (), out)
    if not out:
        # A non-flexible response may end with its records, and then no bytes follow them.
        buffers.pop()
    _INT32.pack_into(first, 0, total + len(out))
    return buffers


def _put_result(version: int, flexible: bool, result: FetchResult, out: bytearray) -> int:
    """Append a partition up to the size of its records, and return that size."""
    _, index, error, high_watermark, last_stable, log_start, records, aborted, preferred, _, _ = result
    if flexible and aborted is None:
        # The usual case in one write: a zero byte for the absent list of aborted transactions.
        out += _RESULT_12.pack(index, error, high_watermark, last_stable, log_start, preferred)
    else:
        if version >= 5:
            out += _RESULT_5.pack(index, error, high_watermark, last_stable, log_start)
        else:
            out += _RESULT_4.pack(index, error, high_watermark, last_stable)
        if aborted is None:
            out += b"\xff\xff\xff\xff"
        else:
            put_count(len(aborted), flexible, out)
            layout = _ABORTED_12 if flexible else _ABORTED
            for producer_id, first_offset in aborted:
                out += layout.pack(producer_id, first_offset)
        if version >= 11:
            out += _INT32.pack(preferred)
    if records is None:
        out += b"\x00" if flexible else b"\xff\xff\xff\xff"
        return 0
    size = len(records[0]) if len(records) == 1 else sum(map(len, records))
    put_count(size, flexible, out)
    return size


def _put_result_tags(result: FetchResult, out: bytearray) -> None:
    leader, diverging = result.current_leader, result.diverging_epoch
    if leader is None and diverging is None:
        out.append(0)
        return
    write_uvarint((leader is not None) + (diverging is not None), out)
    if diverging is not None:
        out += _DIVERGING_TAG.pack(0, 13, *diverging)
    if leader is not None:
        out += _LEADER_TAG.pack(1, 9, *leader)
