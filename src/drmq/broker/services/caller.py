"""The client that a request is carried out for: who it is, what it calls itself, and how it came in.

Every request has a `Caller`, whichever door it came through. When a node passes a request on to another, the caller
goes with it (`wrap`), so the node that carries the request out checks the client and not the node in between.

A node of the first peer protocol version sends the request alone. `unwrap` takes both forms. The first two bytes tell
them apart: 0xFFFF is no Kafka api key (they are not negative), and 0xFF begins no text in UTF-8.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from drmq.model import ApiError, DrmqError, ErrorCode, NodeId

Buffer = bytes | bytearray | memoryview

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, as Kafka calls it."""
UNKNOWN_LISTENER: Final = ""
"""The listener of a caller that a node of an older version did not describe."""
_PEERS: Final = "PEERS"
_NODE_PRINCIPAL: Final = "Node:"

_MARK: Final = 0xFFFF
_FORM: Final = 1
_START = Struct(">HBHHHH")
_MARK_SIZE = 2


class Caller(NamedTuple):
    """Who asks. Immutable, and the same object for all requests of a connection that has not changed its client id."""

    principal: str
    """Kind and name, such as `User:alice`. Principals of clients always begin with `User:`."""
    client_id: str
    address: str
    """The host that the client connects from; empty where it is not known."""
    listener: str
    """The name of the listener that it came through."""

    @property
    def is_node(self) -> bool:
        """Whether a node of the cluster acts for itself, and for no client."""
        return self.principal.startswith(_NODE_PRINCIPAL)


def node_caller(node_id: NodeId) -> Caller:
    """The caller of what a node does for itself, such as creating an internal topic."""
    return Caller(f"{_NODE_PRINCIPAL}{node_id}", "", "", _PEERS)


def unknown_caller(client_id: str = "") -> Caller:
    """The caller of a request that a node of the first peer protocol version has passed on."""
    return Caller(ANONYMOUS, client_id, "", UNKNOWN_LISTENER)


def wrap(caller: Caller, request: Buffer) -> tuple[Buffer, ...]:
    """A request for another node, with its caller before it."""
    texts = [text.encode() for text in caller]
    return (_START.pack(_MARK, _FORM, *map(len, texts)) + b"".join(texts), request)


def unwrap(payload: memoryview) -> tuple[Caller | None, memoryview]:
    """The caller that another node has sent, None from a node of the first version, and the request itself.

    Raises `ApiError` for a form that is not known here: the caller must not get lost on the way.
    """
    if len(payload) < _MARK_SIZE or int.from_bytes(payload[:_MARK_SIZE], "big") != _MARK:
        return None, payload
    try:
        _, form, *sizes = _START.unpack_from(payload)
        if form != _FORM:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"a caller in form {form}, where {_FORM} is known")
        texts, position = [], _START.size
        for size in sizes:
            if position + size > len(payload):
                raise MalformedCaller(f"a text of {size} bytes where {len(payload) - position} are left")
            texts.append(str(payload[position : position + size], "utf-8"))
            position += size
    except (error, UnicodeDecodeError) as problem:
        raise MalformedCaller(str(problem)) from problem
    return Caller(*texts), payload[position:]


class MalformedCaller(DrmqError):
    """What another node sent as a caller is none."""
