"""Greetings come back; strangers are told apart, with a sentence that helps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import NodeId
from drmq.transport.peers import ConnectionKind, Hello, Identity
from drmq.transport.peers.frames import ENVELOPE_SIZE
from drmq.transport.peers.hello import (
    HELLO_FRAME_BYTES_MAX,
    UnknownVersion,
    decode_hello,
    encode_hello,
    refusal_of,
)
from drmq.wire import ProtocolError

from .strategies import hellos

OWN = Identity("cluster", NodeId(1), 0, 1, b"o" * 16, "one", 10)
PEER = Identity("cluster", NodeId(2), 0, 1, b"p" * 16, "two", 20)
HELLO = Hello.of(PEER, ConnectionKind.APPEND, NodeId(1))


@given(hellos)
def test_a_greeting_comes_back(hello: Hello) -> None:
    assert decode_hello(memoryview(encode_hello(hello))) == hello


@given(hellos, st.data())
def test_a_changed_greeting_is_a_greeting_or_refused(hello: Hello, data: st.DataObject) -> None:
    head = bytearray(encode_hello(hello))
    head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_hello(memoryview(head))
    except ProtocolError:
        return


@given(hellos, st.data())
def test_a_greeting_cut_or_lengthened_is_refused(hello: Hello, data: st.DataObject) -> None:
    head = encode_hello(hello)
    with pytest.raises(ProtocolError):
        decode_hello(memoryview(head)[: data.draw(st.integers(0, len(head) - 1))])
    with pytest.raises(ProtocolError):
        decode_hello(memoryview(head + b"x"))


def test_the_longest_greeting_fits() -> None:
    longest = replace(HELLO, peer_host="h" * 1_024, cluster_id="c" * 1_024)
    assert len(encode_hello(longest)) + ENVELOPE_SIZE <= HELLO_FRAME_BYTES_MAX


def test_another_version_is_named() -> None:
    """Even one whose greeting goes on in another way."""
    head = encode_hello(replace(HELLO, protocol_version=7))[:6] + b"something else"
    with pytest.raises(UnknownVersion, match="version 7"):
        decode_hello(memoryview(head))


def test_who_is_welcome() -> None:
    assert refusal_of(HELLO, OWN) is None
    assert refusal_of(HELLO, OWN, expected=NodeId(2)) is None
    assert refusal_of(replace(HELLO, cluster_id=None), OWN) is None
    assert refusal_of(HELLO, replace(OWN, cluster_id=None)) is None


@pytest.mark.parametrize(
    ("hello", "expected", "text"),
    [
        (replace(HELLO, target=NodeId(3)), None, "looks for node 3, and this is node 1"),
        (replace(HELLO, node_id=NodeId(1)), None, "is node 1, and so is this one"),
        (HELLO, NodeId(3), "is node 2, and node 3 was dialled"),
        (replace(HELLO, cluster_id="other"), None, "node 2 belongs to cluster other, and node 1 to cluster"),
    ],
)
def test_who_is_not(hello: Hello, expected: NodeId | None, text: str) -> None:
    refusal = refusal_of(hello, OWN, expected)
    assert refusal is not None
    assert text in refusal
