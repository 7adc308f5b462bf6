"""The catalog's facts as bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.catalog import Fact, UnknownFact, decode_fact, encode_fact
from drmq.catalog.records import (
    PartitionsAdded,
    ProducerIdsReserved,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
    TopicPurged,
)
from drmq.model import TopicId

IDS = st.binary(min_size=16, max_size=16).map(TopicId)
COUNTS = st.integers(0, 2**31 - 1)
CONFIGS = st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3)
FACTS: st.SearchStrategy[Fact] = st.one_of(
    st.builds(TopicCreated, IDS, st.text(max_size=20), COUNTS, CONFIGS),
    st.builds(TopicDeleted, IDS),
    st.builds(TopicPurged, IDS),
    st.builds(PartitionsAdded, IDS, COUNTS),
    st.builds(TopicConfigsSet, IDS, CONFIGS),
    st.builds(ProducerIdsReserved, COUNTS),
)


@given(FACTS)
def test_a_fact_survives_its_bytes(fact: Fact) -> None:
    key, value = encode_fact(fact)
    assert decode_fact(value) == fact
    assert key.decode().startswith(json.loads(value)["kind"] + ":")


@pytest.mark.parametrize(
    "value", [b'{"kind":"broker-added","version":1}', b'{"kind":"topic-deleted","version":2}', b"{}"]
)
def test_what_a_newer_version_wrote_is_not_passed_over(value: bytes) -> None:
    with pytest.raises(UnknownFact, match="start the version that wrote it"):
        decode_fact(value)
