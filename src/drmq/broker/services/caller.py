"""The caller: the client for which a request is carried out, with its principal, client id, address and listener.

Every request has a `Caller`, whichever door it came through. When a node forwards a request to another node, it sends
the caller with it (`wrap`), so the node that carries out the request checks the client and not the forwarding node.

A node of the first peer protocol version sends the request alone. `unwrap` accepts both forms and distinguishes them by
their first two bytes: 0xFFFF is not a Kafka api key, since those are not negative, and no UTF-8 text begins with 0xFF.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from drmq.model import ApiError, DrmqError, ErrorCode, NodeId

Buffer = bytes | bytearray | memoryview

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, with Kafka's name for it."""
UNKNOWN_LISTENER: Final = ""
"""The listener of a caller that a node of an older version did not describe."""
_PEERS: Final = "PEERS"
_NODE_PRINCIPAL: Final = "Node:"

_MARK: Final = 0xFFFF
_FORM: Final = 1
_START = Struct(">HBHHHH")
_MARK_SIZE = 2


class Caller(NamedTuple):
    """The origin of a request. Immutable; the requests of a connection share one until its client id changes."""

    principal: str
    """Kind and name, such as `User:alice`. Principals of clients always begin with `User:`."""
    client_id: str
    address: str
    """The host that the client connects from; empty if it is not known."""
    listener: str
    """The name of the listener that received the request."""

    @property
    def is_node(self) -> bool:
        """Whether the caller is a node of the cluster that acts for itself and not for a client."""
        return self.principal.startswith(_NODE_PRINCIPAL)


def node_caller(node_id: NodeId) -> Caller:
    """The caller of requests that a node makes for itself, such as creating an internal topic."""
    return Caller(f"{_NODE_PRINCIPAL}{node_id}", "", "", _PEERS)


def unknown_caller(client_id: str = "") -> Caller:
    """The caller of a request that a node of the first peer protocol version has forwarded."""
    return Caller(ANONYMOUS, client_id, "", UNKNOWN_LISTENER)


def wrap(caller: Caller, request: Buffer) -> tuple[Buffer, ...]:
    """Encode a request for another node, preceded by its caller."""
    texts = [text.encode() for text in caller]
    return (_START.pack(_MARK, _FORM, *map(len, texts)) + b"".join(texts), request)


def unwrap(payload: memoryview) -> tuple[Caller | None, memoryview]:
    """Split a payload into the caller, which is None from a node of the first version, and the request.

    Raises `ApiError` for an unknown form: the request must not be carried out without its caller.
    """
    if len(payload) < _MARK_SIZE or int.from_bytes(payload[:_MARK_SIZE], "big") != _MARK:
        return None, payload
    try:
        _, form, *sizes = _START.unpack_from(payload)
        if form != _FORM:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the caller of a forwarded request has form {form}, but this node knows only form {_FORM}; "
                "upgrade this node",
            )
        texts, position = [], _START.size
        for size in sizes:
            if position + size > len(payload):
                raise MalformedCaller(f"a text has {size} bytes, but only {len(payload) - position} are left")
            texts.append(str(payload[position : position + size], "utf-8"))
            position += size
    except (error, UnicodeDecodeError) as problem:
        raise MalformedCaller(str(problem)) from problem
    return Caller(*texts), payload[position:]


class MalformedCaller(DrmqError):
    """Another node has sent bytes that are not a valid caller."""
