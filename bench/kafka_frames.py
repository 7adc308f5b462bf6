"""The few Kafka frames the bare programs need, written out by hand.

The raw sender must not spend time on encoding while the clock runs, and the limit must not
spend any on decoding at all, so both work with frames laid out here: Produce version 7, the
last but one without the flexible encoding, and record batches of format 2. Every request
carries one topic and one partition, which gives all responses one size and fixed positions.
"""

import struct

from crc32c import crc32c

from bench.workloads import TOPIC

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
CLIENT_ID = "bench"

_HEADER = struct.Struct(">hhi")
_NAME_SIZE = 2 + len(TOPIC)
_RESPONSE = struct.Struct(f">i i i {_NAME_SIZE}s i i h q q q i")
_ERROR_AT = 4 + 4 + 4 + _NAME_SIZE + 4 + 4

RESPONSE_SIZE = _RESPONSE.size
"""Bytes of every Produce response to `produce_request`, its length prefix included."""


def frame(body: bytes) -> bytes:
    """`body` behind its length."""
    return struct.pack(">i", len(body)) + body


def string(text: str) -> bytes:
    """`text` behind its length in two bytes."""
    return struct.pack(">h", len(text)) + text.encode()


def varint(value: int) -> bytes:
    """A signed number in zigzag base-128, as records use it."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record_batch(values: list[bytes], timestamp_ms: int) -> bytes:
    """A batch of format 2 with `values` as records without key, uncompressed."""
    records = bytearray()
    for index, value in enumerate(values):
        body = b"\0\0" + varint(index) + varint(-1) + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
    last = len(values) - 1
    checked = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
    checked += bytes(records)
    tail = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


def produce_request(topic: str, partition: int, batch: bytes, timeout_ms: int = 30_000) -> bytes:
    """A framed Produce request, acks=all, for one batch."""
    assert len(topic) == len(TOPIC), topic
    header = _HEADER.pack(PRODUCE, 7, 0) + string(CLIENT_ID)
    body = struct.pack(">hhii", -1, -1, timeout_ms, 1) + string(topic) + struct.pack(">iii", 1, partition, len(batch))
    return frame(header + body + batch)


def produce_response(correlation_id: int, partition: int) -> bytes:
    """The framed answer that accepts the batch of a version 7 request to `TOPIC`."""
    return _RESPONSE.pack(RESPONSE_SIZE - 4, correlation_id, 1, string(TOPIC), 1, partition, 0, 0, -1, 0, 0)


def first_error(responses: memoryview) -> int:
    """The first nonzero error code among whole Produce responses, or 0.

    Looks at the two bytes of every response at once: a Python loop over 50,000 of them a
    second would make the sender the bottleneck.
    """
    high = bytes(responses[_ERROR_AT::RESPONSE_SIZE])
    low = bytes(responses[_ERROR_AT + 1 :: RESPONSE_SIZE])
    if not any(high) and not any(low):
        return 0
    return next(code for code in (first << 8 | second for first, second in zip(high, low, strict=True)) if code)


def api_versions_response(correlation_id: int) -> bytes:
    """What the limit says it speaks: just enough for librdkafka to send Produce version 7."""
    ranges = ((PRODUCE, 0, 7), (FETCH, 0, 4), (METADATA, 0, 1), (API_VERSIONS, 0, 0))
    body = struct.pack(">ihi", correlation_id, 0, len(ranges))
    return frame(body + b"".join(struct.pack(">hhh", *entry) for entry in ranges))


def unsupported_version_response(correlation_id: int) -> bytes:
    """The version 0 answer to a newer ApiVersions request: ask again, with version 0."""
    return frame(struct.pack(">ihihhh", correlation_id, 35, 1, API_VERSIONS, 0, 0))


def metadata_response(correlation_id: int, port: int, partition_count: int) -> bytes:
    """Metadata version 1: one broker, one topic, every partition led by that broker."""
    host = b"127.0.0.1"
    body = struct.pack(">iiih", correlation_id, 1, 1, len(host)) + host
    body += struct.pack(">ihii", port, -1, 1, 1)
    body += struct.pack(">h", 0) + string(TOPIC) + struct.pack(">bi", 0, partition_count)
    body += b"".join(struct.pack(">hiiiiii", 0, p, 1, 1, 1, 1, 1) for p in range(partition_count))
    return frame(body)
