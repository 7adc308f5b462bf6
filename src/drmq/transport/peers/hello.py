"""The greeting: the first frame in each direction, with which two nodes check each other and agree on a version.

The node that dials sends its greeting first. The other node sends its own, or a refusal. Each frame has two parts:

- The *head* has the layout of protocol version 1, in all later versions too: mark, layout, sender, target. The head of
  a refusal is a sentence.
- The *payload* was added by version 2: the versions of the protocol that the sender speaks, its release, and the
  feature levels that it supports. The payload of a refusal is a code.

Nodes of version 1 ignore the payload of these frames, and send none. Each side therefore knows the other's versions
after one greeting, and both use the newest version that both speak. Later versions append to the payload; bytes behind
the known part are ignored.

The node that dials tells its cluster id, because it has the address from its configuration or the catalog. The answer
has the id only if the greeting had it: any process can dial. A fresh node learns the id when it is registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from struct import error as StructError

from drmq.model import NodeId
from drmq.model.address import Address
from drmq.transport.connection import Buffer
from drmq.transport.peers.codec import text_from_bytes, text_to_bytes
from drmq.transport.peers.frames import Frame
from drmq.transport.peers.messages import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    ConnectionKind,
    FeatureRange,
    GreetingRefusal,
    Hello,
    Identity,
    RefusalCode,
)
from drmq.wire import ProtocolError

HELLO_FRAME_BYTES_MAX = 8_192
"""The largest frame before a connection is accepted: a greeting, or a refusal with its sentence."""

_MARK = b"DRMQ"
_LAYOUT = 1
"""The layout of the head. It stays 1, because nodes of version 1 understand no other."""
_START = Struct(">4sH")
_REST = Struct(">Bqqqq16sHHH")
_NO_CLUSTER = 0xFFFF
_TEXT_SIZE_MAX = 1_024
_VERSIONS = Struct(">HH")
"""The oldest and the newest version of the protocol that is spoken."""
_SIZE = Struct(">H")
_LEVELS = Struct(">hh")
_NAME_SIZE_MAX = 64
_FEATURES_MAX = 64
_CODE = Struct(">H")

_OTHER_CLUSTER = "a node changes its cluster only with an empty data directory"
_TWIN = "each node needs an id of its own"
_OLDER_COPY = "has an older copy of its data directory"
_CODES_OF_VERSION_1 = {
    _OTHER_CLUSTER: RefusalCode.OTHER_CLUSTER,
    _TWIN: RefusalCode.TWIN,
    _OLDER_COPY: RefusalCode.OLDER_COPY,
}
"""Nodes of version 1 send no codes, and search for these words in refusals. The words must therefore not change."""


HIDDEN_CLUSTER = ""
"""In the answer to a greeting: the node belongs to a cluster, and the other node has yet to show that it does too."""


class UnknownVersion(ProtocolError):
    """A greeting from a node with which this one has no version of the protocol in common."""


# ---- greetings ----------------------------------------------------------------------------------


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
    return _START.pack(_MARK, _LAYOUT) + rest + host + cluster_id


def answer_to(hello: Hello, identity: Identity) -> Hello:
    """The answer to a greeting. It has the cluster id only if the greeting has it too."""
    answer = Hello.of(identity, hello.kind, target=hello.node_id)
    if identity.cluster_id is None or hello.cluster_id == identity.cluster_id:
        return answer
    return replace(answer, cluster_id=HIDDEN_CLUSTER)


def encode_offer(hello: Hello, version_min: int = PROTOCOL_VERSION_MIN) -> bytes:
    """The payload of a greeting's frame: what the sender supports. Empty for a node that speaks only version 1."""
    if hello.protocol_version == 1:
        return b""
    assert len(hello.features) <= _FEATURES_MAX, hello
    parts = [_VERSIONS.pack(version_min, hello.protocol_version), _sized(hello.release)]
    parts.append(_SIZE.pack(len(hello.features)))
    for feature in hello.features:
        parts += [_sized(feature.name), _LEVELS.pack(feature.level_min, feature.level_max)]
    return b"".join(parts)


def _sized(text: str) -> bytes:
    data = text.encode()
    assert len(data) <= _NAME_SIZE_MAX, text
    return _SIZE.pack(len(data)) + data


def decode_hello(head: memoryview, offer: Buffer = b"") -> Hello:
    """Decode a greeting. Raises `UnknownVersion` for an unknown version, `ProtocolError` for an invalid greeting."""
    try:
        mark, layout = _START.unpack_from(head)
        if mark != _MARK:
            raise ProtocolError("a greeting does not begin with its mark; the other end may not be a DRMQ node")
        if layout != _LAYOUT:
            raise UnknownVersion(
                f"it greets in layout {layout} of the peer protocol, and this node in layout {_LAYOUT}; "
                "run releases that follow each other"
            )
        kind, node_id, target, incarnation, starts, boot_id, port, host_size, cluster_size = _REST.unpack_from(
            head, _START.size
        )
    except StructError:
        raise ProtocolError(f"a greeting of {len(head)} bytes is truncated") from None
    host_start = _START.size + _REST.size
    cluster_start = host_start + host_size
    end = cluster_start + (0 if cluster_size == _NO_CLUSTER else cluster_size)
    if end != len(head):
        raise ProtocolError(f"a greeting has {len(head)} bytes, but should have {end}")
    if min(node_id, target, incarnation, starts) < 0:
        raise ProtocolError(
            f"a greeting has a negative number: from node {node_id}, incarnation {incarnation}, to node {target}"
        )
    version, release, features = _decode_offer(memoryview(offer))
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
            release,
            features,
        )
    except ValueError as error:
        raise ProtocolError(f"a greeting is invalid: {error}") from None


def _decode_offer(offer: memoryview) -> tuple[int, str, tuple[FeatureRange, ...]]:
    """The version that both speak, and the release and features of the sender."""
    if not len(offer):
        return _common_version(1, 1), "", ()
    try:
        oldest, newest = _VERSIONS.unpack_from(offer)
        version = _common_version(oldest, newest)
        release, position = _text_at(offer, _VERSIONS.size)
        (count,) = _SIZE.unpack_from(offer, position)
        position += _SIZE.size
        if count > _FEATURES_MAX:
            raise ProtocolError(f"a greeting has {count} features, more than {_FEATURES_MAX}")
        features = []
        for _ in range(count):
            name, position = _text_at(offer, position)
            features.append(FeatureRange(name, *_LEVELS.unpack_from(offer, position)))
            position += _LEVELS.size
    except (StructError, ValueError):
        raise ProtocolError(f"the payload of a greeting is truncated or invalid: {len(offer)} bytes") from None
    return version, release, tuple(features)


def _text_at(data: memoryview, position: int) -> tuple[str, int]:
    (size,) = _SIZE.unpack_from(data, position)
    start = position + _SIZE.size
    if size > _NAME_SIZE_MAX or start + size > len(data):
        raise ValueError(size)
    text = str(data[start : start + size], "utf-8")
    if not text.isprintable():
        raise ValueError(text)
    return text, start + size


def _common_version(oldest: int, newest: int) -> int:
    version = min(newest, PROTOCOL_VERSION)
    if version < max(oldest, PROTOCOL_VERSION_MIN):
        raise UnknownVersion(
            f"it speaks versions {oldest} to {newest} of the peer protocol, and this node {PROTOCOL_VERSION_MIN} to "
            f"{PROTOCOL_VERSION}; run releases that follow each other"
        )
    return version


# ---- refusals -----------------------------------------------------------------------------------


def encode_refusal(refusal: GreetingRefusal) -> tuple[bytes, Sequence[Buffer]]:
    """Head and payload of a refusal's frame."""
    return text_to_bytes(refusal.text), (_CODE.pack(refusal.code),)


def decode_refusal(frame: Frame) -> GreetingRefusal:
    """The refusal in a frame. One without a code comes from a node of version 1, and is classified by its words."""
    text = text_from_bytes(frame.head)
    if len(frame.payload) < _CODE.size:
        code = next((code for words, code in _CODES_OF_VERSION_1.items() if words in text), RefusalCode.UNKNOWN)
        return GreetingRefusal(code, text)
    (number,) = _CODE.unpack_from(frame.payload)
    return GreetingRefusal(RefusalCode(number) if number in list(RefusalCode) else RefusalCode.UNKNOWN, text)


def refusal_of(hello: Hello, own: Identity, expected: NodeId | None = None) -> GreetingRefusal | None:
    """Why a greeting cannot be for this node, or None. `expected` is the node that was dialled, if any."""
    if hello.target != own.node_id:
        text = f"it looks for node {hello.target}, and this is node {own.node_id}; check the peers' addresses"
        return GreetingRefusal(RefusalCode.WRONG_NODE, text)
    if hello.node_id == own.node_id:
        text = f"it is node {hello.node_id}, and so is this one; give every node its own id"
        return GreetingRefusal(RefusalCode.SAME_ID, text)
    if expected is not None and hello.node_id != expected:
        text = f"it is node {hello.node_id}, and node {expected} was dialled; check the peers' addresses"
        return GreetingRefusal(RefusalCode.WRONG_NODE, text)
    if is_other_cluster(hello, own.cluster_id):
        return another_cluster(hello, own)
    return None


def is_other_cluster(hello: Hello, own: str | None) -> bool:
    """Whether a greeting comes from a node of another cluster. A fresh node has none, and some do not tell."""
    return own is not None and hello.cluster_id not in (None, HIDDEN_CLUSTER, own)


def another_cluster(hello: Hello, own: Identity) -> GreetingRefusal:
    """The refusal for a node with the data of another cluster."""
    return GreetingRefusal(
        RefusalCode.OTHER_CLUSTER,
        f"node {hello.node_id} belongs to cluster {hello.cluster_id}, and node {own.node_id} to another one; "
        f"{_OTHER_CLUSTER}",
    )


def twin(running: Hello) -> GreetingRefusal:
    """The refusal for a node whose id is used by another process that is connected."""
    address = Address(running.peer_host, running.peer_port)
    text = f"node {running.node_id} runs already, and other nodes reach it at {address}; {_TWIN}"
    return GreetingRefusal(RefusalCode.TWIN, text)
