"""The Kafka protocol as bytes: frames, headers, and the messages of every version that DRMQ speaks.

What this package is for: a broker and a client exchange some thirty kinds of messages in up to
eighteen versions each. Everywhere else in DRMQ there is one class per message, whichever version
arrived; turning versions into values and back happens here and nowhere else.

How it is built, from the bottom up:

- `fields` has the words in which a message is written down, `messages` has the messages;
- `compiler` makes a reader and a writer from a message and a version, `codec` runs them;
- `apis` has the tables of what is served and what is spoken, `frames` puts headers and sizes around the bodies;
- `produce` and `fetch` are written by hand, because they are what a broker does all day.

What always holds: bytes from a peer become a value or raise `ProtocolError`, and nothing else;
memory grows with the bytes that arrived and not with what they claim; nothing here waits, keeps
time or touches a socket.

A message's classes come from its own module: `from drmq.wire.messages.metadata import
MetadataResponse`. Nothing here imports one before it is needed. What is in a record batch is the
business of `drmq.records`; here it is bytes.
"""

from drmq.wire.api_key import ApiKey
from drmq.wire.apis import APIS, KNOWN_APIS, Api
from drmq.wire.codec import Buffer, decode, encode
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
]
