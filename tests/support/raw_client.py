"""A small Kafka client that does exactly what it is told: one request, one answer, no retry, no cache.

For tests that must know the outcome of every single attempt. A real client hides what a crash test is about: it retries
on its own, and opens connections when it likes. Built on `support.wire`, so independent of the broker's codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from support.polling import PATIENCE_S
from support.wire import (
    INIT_PRODUCER_ID,
    RawConnection,
    Reader,
    array,
    batch,
    fetch,
    int8,
    int16,
    int32,
    int64,
    list_offsets,
    metadata,
    produce,
    request,
    string,
)

OFFSET_COMMIT, OFFSET_FETCH, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 8, 9, 19, 20, 21
INCREMENTAL_ALTER_CONFIGS = 44
EARLIEST, LATEST = -2, -1
KAFKA_STORAGE_ERROR = 56
_TIMEOUT_MS = 10_000
_BATCH_HEAD_SIZE = 61


class RequestFailed(Exception):
    """The broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error code {code}")
        self.code = code


class Fetched(NamedTuple):
    """One partition's part of an answer to Fetch."""

    high_watermark: int
    records: list[tuple[int, bytes]]
    """Offset and value."""


class RawClient:
    """One connection; every method sends one request and raises `RequestFailed` or `OSError`."""

    def __init__(self, bootstrap: str, timeout_s: float = PATIENCE_S) -> None:
        self.connection = RawConnection(bootstrap, timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def _ask(self, key: int, version: int, body: bytes) -> Reader:
        number = self.next_id()
        return self.connection.ask(request(key, version, number, body), number)

    # ---- records --------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        partition: int = 0,
        acks: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> int:
        """Send one batch; the offset of its first record."""
        records = batch(values, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)
        number = self.next_id()
        answer = self.connection.ask(produce(topic, records, number, acks=acks, partition=partition), number)
        return read_produced(answer)

    def fetch(self, topic: str, offset: int, *, partition: int = 0, wait_ms_max: int = 0) -> Fetched:
        """What there is from `offset` on, as much as one answer holds."""
        number = self.next_id()
        answer = self.connection.ask(fetch(topic, offset, number, wait_ms_max=wait_ms_max, partition=partition), number)
        answer.int32()
        assert answer.int32() == 1
        answer.string()
        assert answer.int32() == 1
        answer.int32()
        code, high_watermark, _ = answer.int16(), answer.int64(), answer.int64()
        for _ in range(max(0, answer.int32())):
            answer.take(16)
        if code:
            raise RequestFailed(f"fetch of {topic}-{partition} at {offset}", code)
        records = [one for one in read_records(answer.take(max(0, answer.int32()))) if one[0] >= offset]
        return Fetched(high_watermark, records)

    def fetch_all(self, topic: str, *, partition: int = 0) -> dict[int, bytes]:
        """Every visible record of a partition, by offset."""
        position = self.offset(topic, EARLIEST, partition=partition)
        found: dict[int, bytes] = {}
        while True:
            fetched = self.fetch(topic, position, partition=partition)
            for offset, value in fetched.records:
                assert offset not in found, offset
                found[offset] = value
            if position >= fetched.high_watermark:
                return found
            assert fetched.records, f"nothing at {position}, though {topic}-{partition} ends at {fetched}"
            position = fetched.records[-1][0] + 1

    def offset(self, topic: str, time_ms: int, *, partition: int = 0) -> int:
        """ListOffsets for one partition."""
        number = self.next_id()
        answer = self.connection.ask(list_offsets(topic, partition + 1, time_ms, number), number)
        assert answer.int32() == 1
        answer.string()
        for _ in range(answer.int32()):
            index, code, _, offset = answer.int32(), answer.int16(), answer.int64(), answer.int64()
            if index == partition:
                if code:
                    raise RequestFailed(f"offset of {topic}-{partition}", code)
                return offset
        raise AssertionError("the answer lacks the partition")

    def delete_records(self, topic: str, before: int, *, partition: int = 0) -> int:
        """The new first offset."""
        one = array([string(topic) + array([int32(partition) + int64(before)])])
        answer = self._ask(DELETE_RECORDS, 0, one + int32(_TIMEOUT_MS))
        answer.int32()
        assert answer.int32() == 1
        answer.string()
        assert answer.int32() == 1
        answer.int32()
        low, code = answer.int64(), answer.int16()
        if code:
            raise RequestFailed(f"delete records of {topic}-{partition}", code)
        return low

    def init_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch."""
        answer = self._ask(INIT_PRODUCER_ID, 0, string(None) + int32(_TIMEOUT_MS))
        answer.int32()
        code, producer_id, epoch = answer.int16(), answer.int64(), answer.int16()
        if code:
            raise RequestFailed("init producer id", code)
        return producer_id, epoch

    # ---- topics ---------------------------------------------------------------------------------

    def terms(self, topics: Sequence[str]) -> list[tuple[tuple[str, int], int]]:
        """Of each partition of these topics the leader epoch, as this node knows it: Metadata v7."""
        number = self.next_id()
        return list(read_terms(self.connection.ask(metadata(topics, 7, number), number)))

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        settings = [string(name) + string(value) for name, value in (configs or {}).items()]
        one = string(topic) + int32(partitions) + int16(1) + array([]) + array(settings)
        answer = self._ask(CREATE_TOPICS, 2, array([one]) + int32(_TIMEOUT_MS) + int8(0))
        answer.int32()
        assert answer.int32() == 1
        answer.string()
        code = answer.int16()
        if code:
            raise RequestFailed(f"create {topic}", code)

    def delete_topic(self, topic: str) -> None:
        answer = self._ask(DELETE_TOPICS, 1, array([string(topic)]) + int32(_TIMEOUT_MS))
        answer.int32()
        assert answer.int32() == 1
        answer.string()
        code = answer.int16()
        if code:
            raise RequestFailed(f"delete {topic}", code)

    def alter_config(self, topic: str, name: str, value: str) -> None:
        """IncrementalAlterConfigs v0, one value set on one topic."""
        one = int8(2) + string(topic) + array([string(name) + int8(0) + string(value)])
        answer = self._ask(INCREMENTAL_ALTER_CONFIGS, 0, array([one]) + int8(0))
        answer.int32()
        assert answer.int32() == 1
        code = answer.int16()
        if code:
            raise RequestFailed(f"alter {name} of {topic}", code)

    # ---- groups ---------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
        """Commit as a consumer that assigns itself: no member, no generation."""
        one = array([string(topic) + array([int32(partition) + int64(offset) + string("")])])
        answer = self._ask(OFFSET_COMMIT, 2, string(group) + int32(-1) + string("") + int64(-1) + one)
        assert answer.int32() == 1
        answer.string()
        assert answer.int32() == 1
        answer.int32()
        code = answer.int16()
        if code:
            raise RequestFailed(f"commit of {group} for {topic}-{partition}", code)

    def committed(self, group: str, topic: str, *, partition: int = 0) -> int:
        """The committed offset, -1 if there is none."""
        answer = self._ask(OFFSET_FETCH, 1, string(group) + array([string(topic) + array([int32(partition)])]))
        assert answer.int32() == 1
        answer.string()
        assert answer.int32() == 1
        answer.int32()
        offset = answer.int64()
        answer.string()
        code = answer.int16()
        if code:
            raise RequestFailed(f"committed of {group} for {topic}-{partition}", code)
        return offset


def read_produced(answer: Reader) -> int:
    """The offset in an answer to Produce v3 for one partition; raises `RequestFailed`."""
    assert answer.int32() == 1
    topic = answer.string()
    assert answer.int32() == 1
    partition, code, offset = answer.int32(), answer.int16(), answer.int64()
    if code:
        raise RequestFailed(f"produce to {topic}-{partition}", code)
    return offset


def read_terms(answer: Reader) -> Iterator[tuple[tuple[str, int], int]]:
    """Topic, partition and leader epoch in an answer to Metadata v7."""
    answer.int32()
    for _ in range(answer.int32()):
        answer.int32()
        answer.string()
        answer.int32()
        answer.take(max(0, answer.int16()))
    answer.take(max(0, answer.int16()))
    answer.int32()
    for _ in range(answer.int32()):
        answer.int16()
        topic = answer.string()
        answer.int8()
        for _ in range(answer.int32()):
            answer.int16()
            index, _, term = answer.int32(), answer.int32(), answer.int32()
            for _ in range(3):
                answer.take(4 * answer.int32())
            yield (topic, index), term


def read_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and value of every record in uncompressed batches, a cut one at the end left out."""
    at = 0
    while at + _BATCH_HEAD_SIZE <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            return
        count = int.from_bytes(data[at + 57 : at + 61], "big")
        reader = Reader(data[at + _BATCH_HEAD_SIZE : at + 12 + length])
        for _ in range(count):
            _varint(reader)
            reader.int8()
            _varint(reader)
            delta = _varint(reader)
            reader.take(max(0, _varint(reader)))
            value = reader.take(max(0, _varint(reader)))
            for _ in range(_varint(reader)):
                reader.take(_varint(reader))
                reader.take(max(0, _varint(reader)))
            yield base + delta, value
        assert reader.at_end(), "a batch is longer than its records"
        at += 12 + length


def _varint(reader: Reader) -> int:
    value = reader.varuint()
    return (value >> 1) ^ -(value & 1)
