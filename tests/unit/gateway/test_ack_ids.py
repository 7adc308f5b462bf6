"""Ack ids hold a delivery, survive a round trip, and no text that was changed or belongs to another group is one."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.gateway.ack_ids import AckId, BadAckId, decode, encode

acks = st.builds(
    AckId,
    st.uuids().map(str),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
)


@given(st.text(max_size=20), acks)
def test_round_trip(group: str, ack: AckId) -> None:
    text = encode(group, ack)
    assert decode(group, text) == ack
    assert text.replace("-", "").replace("_", "").isalnum(), "no character needs an escape in a URL"
    assert len(text) == 76


ACK = AckId(str(uuid.UUID(int=7)), bytes(16), 3, 9, 4)


@given(st.integers(0, 75), st.sampled_from("AZaz09-_"))
def test_a_changed_character_is_noticed(position: int, letter: str) -> None:
    text = encode("crew", ACK)
    changed = text[:position] + letter + text[position + 1 :]
    if changed == text:
        assert decode("crew", changed) == ACK
    else:
        with pytest.raises(BadAckId):
            decode("crew", changed)


@given(st.text(max_size=100))
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadAckId):
        decode("crew", text)


def test_it_belongs_to_its_group() -> None:
    with pytest.raises(BadAckId, match="not of group"):
        decode("other", encode("crew", ACK))
