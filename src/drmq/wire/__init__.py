"""The Kafka protocol as bytes: frames, headers, and the messages of every version that DRMQ speaks.

The problem: a broker and a client exchange some thirty kinds of messages in up to eighteen versions each. Everywhere
else in DRMQ there is one class per message, whichever version arrived. Only this package converts between versions and
values.

How it is built, from the bottom up:

- `fields` defines the terms in which a message is described, `messages` has the messages;
- `compiler` generates a reader and a writer for a message and a version, `codec` runs them;
- `apis` lists the APIs that are served and those that are known, `frames` adds headers and sizes to message bodies;
- `produce` and `fetch` are written by hand, because a broker spends most of its time in them.

Invariants: bytes from a peer become a value or raise `ProtocolError`, and no other exception; memory grows with the
bytes that arrived and not with the counts that they claim; nothing here waits, reads a clock or touches a socket.

The classes of a message come from its own module: `from drmq.wire.messages.metadata import MetadataResponse`. Each such
module is imported when it is first needed. The content of a record batch belongs to `drmq.records`; here it is bytes.
"""

from drmq.wire.api_key import ApiKey
from drmq.wire.apis import APIS, KNOWN_APIS, Api
from drmq.wire.codec import Buffer, Pieces, decode, encode
from drmq.wire.errors import ProtocolError
from drmq.wire.fetch import FetchData, FetchPartition, FetchResult, read_fetch, write_fetch_response
from drmq.wire.frames import (
    RequestHeader,
    finish_frame,
    read_request,
    read_request_header,
    read_response,
    start_response,
    write_request,
    write_response,
    write_response_buffers,
)
from drmq.wire.produce import ProduceData, ProducePartition, ProduceResult, read_produce, write_produce_response
from drmq.wire.topics import NodeEndpoint, Topic, hinted_leaders

__all__ = [
    "APIS",
    "KNOWN_APIS",
    "Api",
    "ApiKey",
    "Buffer",
    "FetchData",
    "FetchPartition",
    "FetchResult",
    "NodeEndpoint",
    "Pieces",
    "ProduceData",
    "ProducePartition",
    "ProduceResult",
    "ProtocolError",
    "RequestHeader",
    "Topic",
    "decode",
    "encode",
    "finish_frame",
    "hinted_leaders",
    "read_fetch",
    "read_produce",
    "read_request",
    "read_request_header",
    "read_response",
    "start_response",
    "write_fetch_response",
    "write_produce_response",
    "write_request",
    "write_response",
    "write_response_buffers",
]
