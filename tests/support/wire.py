"""Kafka frames made by hand, for what no client would send.

Deliberately independent of `drmq.wire` and of every client: a mistake in the broker's codec must not hide behind the
same mistake here. Only the few messages that the raw tests need are spelled out.
"""

import socket
import struct
from collections.abc import Sequence
from types import TracebackType

from crc32c import crc32c

from support.polling import PATIENCE_S

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 22


def int8(value: int) -> bytes:
    return struct.pack(">b", value)


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


def varuint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(value: int) -> bytes:
    return varuint((value << 1) ^ (value >> 63))


def string(value: str | None) -> bytes:
    return int16(-1) if value is None else int16(len(value.encode())) + value.encode()


def compact_string(value: str | None) -> bytes:
    return varuint(0) if value is None else varuint(len(value.encode()) + 1) + value.encode()


def array(items: Sequence[bytes]) -> bytes:
    return int32(len(items)) + b"".join(items)


def frame(payload: bytes) -> bytes:
    return int32(len(payload)) + payload


def request(key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
    """A framed request; a flexible one has a header with (no) tagged fields."""
    header = int16(key) + int16(version) + int32(correlation_id) + string("raw")
    return frame(header + (b"\0" if flexible else b"") + body)


def api_versions(version: int, correlation_id: int) -> bytes:
    """An ApiVersions request of any version, also of one that does not exist."""
    if version < 3:
        return request(API_VERSIONS, version, correlation_id, b"")
    body = compact_string("raw-test") + compact_string("1")
    if version >= 5:
        body += compact_string(None) + int32(-1)
    return request(API_VERSIONS, version, correlation_id, body + b"\0", flexible=True)


def batch(
    values: Sequence[bytes],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    magic: int = 2,
    count: int | None = None,
    crc_error: int = 0,
    base_offset: int = 0,
) -> bytes:
    """A record batch; the keyword arguments are what a broken or hostile producer would change."""
    records = b""
    for delta, value in enumerate(values):
        record = int8(0) + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    time_ms = 1_700_000_000_000
    checked = int16(attributes) + int32(len(values) - 1) + int64(time_ms) + int64(time_ms) + int64(producer_id)
    checked += int16(producer_epoch) + int32(base_sequence) + int32(len(values) if count is None else count) + records
    crc = (crc32c(checked) + crc_error) & 0xFFFFFFFF
    rest = int32(-1) + int8(magic) + struct.pack(">I", crc) + checked
    return int64(base_offset) + int32(len(rest)) + rest


def produce(
    topic: str, records: bytes, correlation_id: int, *, acks: int = -1, version: int = 3, partition: int = 0
) -> bytes:
    """A Produce request of a non-flexible version (3 to 8) for one partition."""
    one = int32(partition) + int32(len(records)) + records
    body = string(None) if version >= 3 else b""
    body += int16(acks) + int32(10_000) + array([string(topic) + array([one])])
    return request(PRODUCE, version, correlation_id, body)


def fetch(
    topic: str, offset: int, correlation_id: int, *, wait_ms_max: int, partition: int = 0, bytes_max: int = 1_000_000
) -> bytes:
    """A Fetch request of version 4 for one partition."""
    one = int32(partition) + int64(offset) + int32(bytes_max)
    body = int32(-1) + int32(wait_ms_max) + int32(1) + int32(max(bytes_max, 10_000_000)) + int8(0)
    return request(FETCH, 4, correlation_id, body + array([string(topic) + array([one])]))


def metadata(topics: Sequence[str] | None, version: int, correlation_id: int, *, create: bool = False) -> bytes:
    """A Metadata request of any version from 0 to 13."""
    if version >= 9:
        prefix = bytes(16) if version >= 10 else b""
        items = None if topics is None else [prefix + compact_string(topic) + b"\0" for topic in topics]
        body = varuint(0) if items is None else varuint(len(items) + 1) + b"".join(items)
    else:
        body = int32(-1) if topics is None else array([string(topic) for topic in topics])
    if version >= 4:
        body += int8(create)
    if 8 <= version <= 10:
        body += int8(0)
    if version >= 8:
        body += int8(0)
    if version >= 9:
        body += b"\0"
    return request(METADATA, version, correlation_id, body, flexible=version >= 9)


def list_offsets(topic: str, partitions: int, time_ms: int, correlation_id: int) -> bytes:
    """A ListOffsets request of version 1 for the first partitions of a topic."""
    asked = [int32(partition) + int64(time_ms) for partition in range(partitions)]
    return request(LIST_OFFSETS, 1, correlation_id, int32(-1) + array([string(topic) + array(asked)]))


class Reader:
    """Reads the fields of an answer one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        assert self._at + size <= len(self._data), f"{size} bytes wanted at {self._at} of {len(self._data)}"
        self._at += size
        return self._data[self._at - size : self._at]

    def int8(self) -> int:
        return int.from_bytes(self.take(1), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def varuint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str:
        return self.take(self.int16()).decode()

    def at_end(self) -> bool:
        return self._at == len(self._data)


class RawConnection:
    """A socket to the broker that speaks in frames, or in whatever bytes the test makes."""

    def __init__(self, bootstrap: str, timeout_s: float = PATIENCE_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Reader:
        """The next answer, from its correlation id on; raises `ConnectionError` if the broker closed."""
        return Reader(self._take(int.from_bytes(self._take(4), "big")))

    def ask(self, data: bytes, correlation_id: int) -> Reader:
        """Send a request and return its answer, after the correlation id."""
        self.send(data)
        answer = self.receive()
        found = answer.int32()
        assert found == correlation_id, f"answer {found} to request {correlation_id}"
        return answer

    def is_closed_by_broker(self) -> bool:
        """Wait until the broker says something or hangs up: True for the latter."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_silent(self, timeout_s: float = 0.3) -> bool:
        """Whether nothing arrives for a while."""
        before = self._socket.gettimeout()
        self._socket.settimeout(timeout_s)
        try:
            self._socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(before)
        return False

    def stop_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
