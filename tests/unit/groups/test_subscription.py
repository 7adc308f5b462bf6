"""Valid subscriptions are read, and invalid ones do no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.groups.subscription import same_interest, subscribed_topics


def encode(topics: list[str], tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = (topic.encode() for topic in topics)
    array = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    return b"\x00\x03" + len(topics).to_bytes(4, "big") + array + tail


@given(st.lists(st.text(max_size=8), max_size=5), st.binary(max_size=8))
def test_topics_are_read_whatever_follows_them(topics: list[str], tail: bytes) -> None:
    assert subscribed_topics(encode(topics, tail)) == frozenset(topics)


@given(st.binary(max_size=64))
def test_reading_is_total(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@given(st.integers(0, 30))
def test_a_cut_subscription_is_unknown(size: int) -> None:
    whole = encode(["orders", "payments"], tail=b"")
    assert subscribed_topics(whole[: min(size, len(whole) - 1)]) is None


@pytest.mark.parametrize(
    "metadata",
    [
        b"\xff\xff\x00\x00\x00\x00",  # a negative version
        b"\x00\x01\xff\xff\xff\xff",  # a null list
        b"\x00\x01\x7f\xff\xff\xff",  # more topics than bytes
        b"\x00\x01\x00\x00\x00\x01\xff\xff",  # a null name
        b"\x00\x01\x00\x00\x00\x01\x00\x01\xff",  # a name that is no text
    ],
)
def test_nonsense_is_unknown(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_interest_is_the_topics_of_a_consumer_and_the_bytes_of_anything_else() -> None:
    before, after = encode(["t", "u"], b"owned"), encode(["u", "t"], b"")
    assert same_interest("consumer", before, after)
    assert not same_interest("consumer", before, encode(["t"]))
    assert not same_interest("connect", before, after)
    assert same_interest("connect", before, before)
    assert not same_interest("consumer", b"x", b"y")
