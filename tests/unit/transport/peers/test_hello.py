"""Greetings come back; strangers are told apart, with a sentence that helps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import NodeId
from drmq.transport.peers import ConnectionKind, FeatureRange, GreetingRefusal, Hello, Identity, RefusalCode, twin
from drmq.transport.peers.frames import ENVELOPE_SIZE, PREFIX_SIZE, Frame, FrameType, encode_frame, parse_frame
from drmq.transport.peers.hello import (
    HELLO_FRAME_BYTES_MAX,
    UnknownVersion,
    decode_hello,
    decode_refusal,
    encode_hello,
    encode_offer,
    encode_refusal,
    refusal_of,
)
from drmq.wire import ProtocolError

from .strategies import hellos

FEATURES = (FeatureRange("metadata.version", 1, 2), FeatureRange("group.version", 1, 1))
OWN = Identity("cluster", NodeId(1), 0, 1, b"o" * 16, "one", 10)
PEER = Identity("cluster", NodeId(2), 0, 1, b"p" * 16, "two", 20, "0.1.0", FEATURES)
HELLO = Hello.of(PEER, ConnectionKind.APPEND, NodeId(1))


@given(hellos)
def test_a_greeting_comes_back(hello: Hello) -> None:
    assert decode_hello(memoryview(encode_hello(hello)), encode_offer(hello)) == hello
    # What a later version adds behind it is passed over.
    assert decode_hello(memoryview(encode_hello(hello)), encode_offer(hello) + b"more") == hello


@given(hellos, st.data())
def test_a_changed_offer_is_an_offer_or_refused(hello: Hello, data: st.DataObject) -> None:
    head, offer = encode_hello(hello), bytearray(encode_offer(hello))
    offer[data.draw(st.integers(0, len(offer) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_hello(memoryview(head), offer)
    except ProtocolError:
        return


@given(hellos, st.data())
def test_an_offer_cut_short_is_refused(hello: Hello, data: st.DataObject) -> None:
    offer = encode_offer(hello)
    with pytest.raises(ProtocolError):
        decode_hello(memoryview(encode_hello(hello)), offer[: data.draw(st.integers(1, len(offer) - 1))])


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
    features = (FeatureRange("f" * 64, 1, 2),) * 64
    longest = replace(HELLO, peer_host="h" * 1_024, cluster_id="c" * 1_024, release="r" * 64, features=features)
    assert len(encode_hello(longest)) + len(encode_offer(longest)) + ENVELOPE_SIZE <= HELLO_FRAME_BYTES_MAX


def test_another_layout_is_named() -> None:
    """Even one whose greeting goes on in another way."""
    head = b"DRMQ" + (7).to_bytes(2, "big") + b"something else"
    with pytest.raises(UnknownVersion, match="layout 7"):
        decode_hello(memoryview(head))


# ---- versions -----------------------------------------------------------------------------------

HELLO_OF_VERSION_1 = bytes.fromhex(
    "000000500e8d02a2000000480144524d5100010100000000000000020000000000000001000000000000000000000000000000017070707070"
    "707070707070707070707000140003000774776f636c7573746572"
)
REFUSAL_OF_VERSION_1 = bytes.fromhex(
    "0000006279d9fdf60000005a026e6f646520322072756e7320616c72656164792c20616e64206f74686572206e6f6465732072656163682069"
    "742061742074776f3a32303b2065616368206e6f6465206e6565647320616e206964206f6620697473206f776e"
)
"""Whole frames as the release before version 2 has sent them."""


def frame_of(data: bytes) -> Frame:
    return parse_frame(memoryview(data)[PREFIX_SIZE:])


def test_a_greeting_of_version_1_is_understood() -> None:
    frame = frame_of(HELLO_OF_VERSION_1)
    assert decode_hello(frame.head, frame.payload) == replace(HELLO, protocol_version=1, release="", features=())


def test_the_head_of_every_greeting_is_that_of_version_1() -> None:
    """It looks at nothing else."""
    assert encode_hello(HELLO) == bytes(frame_of(HELLO_OF_VERSION_1).head)
    assert encode_offer(replace(HELLO, protocol_version=1)) == b""


@pytest.mark.parametrize(("oldest", "newest", "spoken"), [(1, 1, 1), (1, 2, 2), (2, 2, 2), (2, 9, 2)])
def test_the_newest_common_version_is_spoken(oldest: int, newest: int, spoken: int) -> None:
    offer = encode_offer(replace(HELLO, protocol_version=newest), oldest)
    assert decode_hello(memoryview(encode_hello(HELLO)), offer).protocol_version == spoken


def test_a_node_too_new_for_this_one_is_told_so() -> None:
    offer = encode_offer(replace(HELLO, protocol_version=9), version_min=3)
    with pytest.raises(UnknownVersion, match="it speaks versions 3 to 9 of the peer protocol, and this node 1 to 2"):
        decode_hello(memoryview(encode_hello(HELLO)), offer)


@pytest.mark.parametrize("code", RefusalCode)
def test_a_refusal_comes_back_and_version_1_reads_its_sentence(code: RefusalCode) -> None:
    refusal = GreetingRefusal(code, "no room")
    head, payload = encode_refusal(refusal)
    frame = frame_of(b"".join(encode_frame(FrameType.REFUSAL, head, payload)))
    assert decode_refusal(frame) == refusal
    assert bytes(frame.head) == b"no room"


def test_a_code_of_a_later_version_is_unknown() -> None:
    frame = frame_of(b"".join(encode_frame(FrameType.REFUSAL, b"no room", ((999).to_bytes(2, "big"),))))
    assert decode_refusal(frame) == GreetingRefusal(RefusalCode.UNKNOWN, "no room")


def test_refusals_of_version_1_are_known_by_their_words() -> None:
    assert decode_refusal(frame_of(REFUSAL_OF_VERSION_1)) == twin(HELLO)
    words = {
        "node 2 belongs to cluster A, and node 1 to B; a node changes its cluster only with an empty data directory": (
            RefusalCode.OTHER_CLUSTER
        ),
        "node 2 has an older copy of its data directory: it has forgotten what it promised": RefusalCode.OLDER_COPY,
        "it speaks version 2 of the peer protocol": RefusalCode.UNKNOWN,
    }
    for text, code in words.items():
        frame = frame_of(b"".join(encode_frame(FrameType.REFUSAL, text.encode())))
        assert decode_refusal(frame) == GreetingRefusal(code, text)


# ---- who is meant -------------------------------------------------------------------------------


def test_who_is_welcome() -> None:
    assert refusal_of(HELLO, OWN) is None
    assert refusal_of(HELLO, OWN, expected=NodeId(2)) is None
    assert refusal_of(replace(HELLO, cluster_id=None), OWN) is None
    assert refusal_of(HELLO, replace(OWN, cluster_id=None)) is None


@pytest.mark.parametrize(
    ("hello", "expected", "code", "text"),
    [
        (
            replace(HELLO, target=NodeId(3)),
            None,
            RefusalCode.WRONG_NODE,
            "looks for node 3, and this is node 1",
        ),
        (replace(HELLO, node_id=NodeId(1)), None, RefusalCode.SAME_ID, "is node 1, and so is this one"),
        (HELLO, NodeId(3), RefusalCode.WRONG_NODE, "is node 2, and node 3 was dialled"),
        (
            replace(HELLO, cluster_id="other"),
            None,
            RefusalCode.OTHER_CLUSTER,
            "node 2 belongs to cluster other, and node 1 to another one",
        ),
    ],
)
def test_who_is_not(hello: Hello, expected: NodeId | None, code: RefusalCode, text: str) -> None:
    refusal = refusal_of(hello, OWN, expected)
    assert refusal is not None
    assert refusal.code is code
    assert text in refusal.text
