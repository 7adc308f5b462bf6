"""Frames: the headers around a message, and the size before them.

On the wire a frame is a four-byte size and that many bytes: a header, then a body. The readers
here take a frame without its size, the writers return one with it, ready to be sent.

The header depends on the API and the version. A flexible request has header v2, which is v1 plus a block of tagged
fields; its client id is still a string with a two-byte length, because a broker must be able to read it before it knows
the version. A flexible response has header v1, which is v0 plus tagged fields. The exception is ApiVersions: its
response always has header v0, because the client does not know yet what the broker speaks.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from drmq.wire.api_key import ApiKey
from drmq.wire.apis import KNOWN_APIS, NEVER
from drmq.wire.codec import MALFORMED, Buffer, Frame, decode, encode, skip_tags
from drmq.wire.errors import ProtocolError

_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_START = struct.Struct(">ihhih")
_RESPONSE_START = struct.Struct(">ii")
_INT32 = struct.Struct(">i")

_flexible_from = {int(key): api.flexible_from for key, api in KNOWN_APIS.items()}


class RequestHeader(NamedTuple):
    """The header of a request: API, version, correlation id and client id, and where the body starts in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request frame.

    For an API that is not in the table, only the part that all versions share is read, and `body_position` is the
    position after that part. This is enough to answer with an error or to close the connection with a reason.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame)
        if size >= 0:
            position = 10 + size
            if position > len(frame):
                raise ProtocolError(f"a client id of {size} bytes where {len(frame) - 10} are left")
            client_id = str(frame[10:position], "utf-8")
        elif size == -1:
            position = 10
            client_id = None
        else:
            raise ProtocolError(f"a client id of {size} bytes")
        if api_version >= _flexible_from.get(api_key, NEVER):
            position = skip_tags(frame, position, len(frame)) if frame[position] else position + 1
    except MALFORMED as error:
        raise ProtocolError(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def read_request(frame: Buffer, header: RequestHeader) -> Any:
    """The body of a request whose API and version are served, as an instance of `Api.request`."""
    # Some clients send extra bytes after the message: librdkafka 2.16 encodes "all topics" in Metadata v13 with four
    # bytes instead of one. Such a request must still be served, so bytes after the message are ignored.
    return decode(KNOWN_APIS[header.api_key].request, header.api_version, frame, header.body_position, allow_tail=True)


def start_response(api_key: int, version: int, correlation_id: int) -> bytearray:
    """A frame that holds room for its size, and its header; `finish_frame` fills in the size."""
    out = bytearray(_RESPONSE_START.pack(0, correlation_id))
    if version >= _flexible_from[api_key] and api_key != ApiKey.API_VERSIONS:
        out.append(0)
    return out


def finish_frame(out: bytearray) -> bytearray:
    """Write the size of what follows into the first four bytes."""
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


def write_response(api_key: int, version: int, correlation_id: int, message: object) -> bytearray:
    """A whole response frame, size included."""
    out = start_response(api_key, version, correlation_id)
    encode(message, version, out)
    return finish_frame(out)


def write_response_buffers(api_key: int, version: int, correlation_id: int, message: object) -> Sequence[Buffer]:
    """A whole response frame, size included, whose large payloads (`Pieces`) are not copied."""
    out = Frame(_RESPONSE_START.pack(0, correlation_id))
    if version >= _flexible_from[api_key] and api_key != ApiKey.API_VERSIONS:
        out.append(0)
    encode(message, version, out)
    if out.pieces is None:
        return (finish_frame(out),)
    _INT32.pack_into(out, 0, len(out) - 4 + sum([len(pieces) for _, pieces in out.pieces]))
    view, begin = memoryview(out), 0
    buffers: list[Buffer] = []
    for position, pieces in out.pieces:
        buffers.append(view[begin:position])
        buffers += pieces.buffers
        begin = position
    buffers.append(view[begin:])
    return buffers


def write_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: object) -> bytearray:
    """A whole request frame, size included."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    out = bytearray(_REQUEST_START.pack(0, api_key, version, correlation_id, size))
    out += name
    if version >= _flexible_from[api_key]:
        out.append(0)
    encode(message, version, out)
    return finish_frame(out)


def read_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """The correlation id and the body of a response to a request of this API and version."""
    try:
        (correlation_id,) = _INT32.unpack_from(frame)
        position = 4
        if version >= _flexible_from[api_key] and api_key != ApiKey.API_VERSIONS:
            position = skip_tags(frame, position, len(frame))
    except MALFORMED as error:
        raise ProtocolError(f"response header: {error}") from error
    return correlation_id, decode(KNOWN_APIS[api_key].response, version, frame, position)
