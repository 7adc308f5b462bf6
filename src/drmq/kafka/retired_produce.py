"""Produce v0 to v2: advertised, because old clients look for them, and always refused.

They carry message sets of formats 0 and 1, which DRMQ does not store. A client that sends such a request gets
UNSUPPORTED_VERSION for every partition in it, in the layout of that version.
"""

from __future__ import annotations

from struct import Struct, error

from drmq.model import ErrorCode
from drmq.wire import ProtocolError, RequestHeader

_ACKS_TIMEOUT_COUNT = Struct(">hii")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INDEX_SIZE = Struct(">ii")
_NO_OFFSET = (-1).to_bytes(8, "big", signed=True)
_COUNT_MAX = 100_000
_RESULT_SIZE_MIN = 14


def refuse(frame: memoryview, header: RequestHeader) -> bytearray | None:
    """The refusal of a retired Produce request as a complete frame; None for acks=0, which gets no answer."""
    try:
        return _refuse(frame, header)
    except (error, ValueError) as problem:
        raise ProtocolError(f"Produce v{header.api_version}: {problem}") from problem


def _refuse(frame: memoryview, header: RequestHeader) -> bytearray | None:
    position = header.body_position
    acks, _, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += _ACKS_TIMEOUT_COUNT.size
    out = bytearray(8)
    _INT32.pack_into(out, 4, header.correlation_id)
    out += _INT32.pack(_checked(topic_count))
    for _ in range(topic_count):
        (name_size,) = _INT16.unpack_from(frame, position)
        out += frame[position : position + 2 + _checked(name_size)]
        position += 2 + name_size
        (partition_count,) = _INT32.unpack_from(frame, position)
        out += _INT32.pack(_checked(partition_count))
        _checked(len(out) // _RESULT_SIZE_MIN)
        position += 4
        for _ in range(partition_count):
            index, size = _INDEX_SIZE.unpack_from(frame, position)
            position += _INDEX_SIZE.size + max(0, size)
            out += _INT32.pack(index) + _INT16.pack(ErrorCode.UNSUPPORTED_VERSION) + _NO_OFFSET
            if header.api_version >= 2:
                out += _NO_OFFSET
    if header.api_version >= 1:
        out += _INT32.pack(0)
    _INT32.pack_into(out, 0, len(out) - 4)
    return out if acks else None


def _checked(count: int) -> int:
    if not 0 <= count <= _COUNT_MAX:
        raise ValueError(f"a count is {count}, which is not within 0 to {_COUNT_MAX}")
    return count
