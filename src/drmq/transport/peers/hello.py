"""The greeting: how two nodes find out, before anything else, that they mean each other.

Whoever dials says hello first; the other says hello too, or why not. The first bytes, the mark and the version,
are the same in all versions, and so is a refusal: so a node can always tell another that it does not speak its
version.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

from drmq.model import NodeId
from drmq.model.address import Address
from drmq.transport.peers.messages import PROTOCOL_VERSION, ConnectionKind, Hello, Identity
from drmq.wire import ProtocolError

HELLO_FRAME_BYTES_MAX = 8_192
"""The largest frame before a connection is accepted: a greeting, or a refusal with its sentence."""

_MARK = b"DRMQ"
_START = Struct(">4sH")
_REST = Struct(">Bqqqq16sHHH")
_NO_CLUSTER = 0xFFFF
_TEXT_SIZE_MAX = 1_024
_OTHER_CLUSTER = "a node changes its cluster only with an empty data directory"
_TWIN = "each node needs an id of its own"


class UnknownVersion(ProtocolError):
    """A greeting in a version that this node does not speak."""


def encode_hello(hello: Hello) -> bytes:
    """The head of a greeting's frame."""
    host = hello.peer_host.encode()
    cluster_id = b"" if hello.cluster_id is None else hello.cluster_id.encode()
    assert len(host) <= _TEXT_SIZE_MAX, hello
    assert len(cluster_id) <= _TEXT_SIZE_MAX, hello
    cluster_size = _NO_CLUSTER if hello.cluster_id is None else len(cluster_id)
    rest = _REST.pack(
        hello.kind,
        hello.node_id,
        hello.target,
        hello.incarnation,
        hello.starts,
        hello.boot_id,
        hello.peer_port,
        len(host),
        cluster_size,
    )
    return _START.pack(_MARK, hello.protocol_version) + rest + host + cluster_id


def decode_hello(head: memoryview) -> Hello:
    """A greeting. Raises `UnknownVersion` for one in another version, `ProtocolError` for what is none."""
    try:
        mark, version = _START.unpack_from(head)
        if mark != _MARK:
            raise ProtocolError("a greeting without the mark of one")
        if version != PROTOCOL_VERSION:
            raise UnknownVersion(
                f"it speaks version {version} of the peer protocol and this node version {PROTOCOL_VERSION}; "
                "run the same release on both"
            )
        kind, node_id, target, incarnation, starts, boot_id, port, host_size, cluster_size = _REST.unpack_from(
            head, _START.size
        )
    except StructError:
        raise ProtocolError(f"a greeting of {len(head)} bytes is cut short") from None
    host_start = _START.size + _REST.size
    cluster_start = host_start + host_size
    end = cluster_start + (0 if cluster_size == _NO_CLUSTER else cluster_size)
    if end != len(head):
        raise ProtocolError(f"a greeting of {len(head)} bytes that should have {end}")
    if min(node_id, target, incarnation, starts) < 0:
        raise ProtocolError(f"a greeting from node {node_id} in life {incarnation} to node {target}")
    try:
        host = str(head[host_start:cluster_start], "utf-8")
        cluster_id = None if cluster_size == _NO_CLUSTER else str(head[cluster_start:end], "utf-8")
        return Hello(
            version,
            cluster_id,
            NodeId(node_id),
            incarnation,
            starts,
            boot_id,
            host,
            port,
            ConnectionKind(kind),
            NodeId(target),
        )
    except ValueError as error:
        raise ProtocolError(f"a greeting that makes no sense: {error}") from None


def refusal_of(hello: Hello, own: Identity, expected: NodeId | None = None) -> str | None:
    """Why a greeting cannot be meant for this node, or None. `expected` is who was dialled."""
    if hello.target != own.node_id:
        return f"it looks for node {hello.target}, and this is node {own.node_id}; check the peers' addresses"
    if hello.node_id == own.node_id:
        return f"it is node {hello.node_id}, and so is this one; give every node its own id"
    if expected is not None and hello.node_id != expected:
        return f"it is node {hello.node_id}, and node {expected} was dialled; check the peers' addresses"
    if None not in (hello.cluster_id, own.cluster_id) and hello.cluster_id != own.cluster_id:
        return another_cluster_text(hello, own)
    return None


def another_cluster_text(hello: Hello, own: Identity) -> str:
    """What one is told who greets with the data of another cluster."""
    return (
        f"node {hello.node_id} belongs to cluster {hello.cluster_id}, and node {own.node_id} to {own.cluster_id}; "
        f"{_OTHER_CLUSTER}"
    )


def tells_of_another_cluster(refusal: str) -> bool:
    return _OTHER_CLUSTER in refusal


def twin_text(running: Hello) -> str:
    """What a node is told whose id is that of a process that is heard."""
    address = Address(running.peer_host, running.peer_port)
    return f"node {running.node_id} runs already, and other nodes reach it at {address}; {_TWIN}"


def tells_of_twin(refusal: str) -> bool:
    return _TWIN in refusal
