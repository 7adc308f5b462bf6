"""The catalog's facts as bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.catalog import (
    AssignmentRestored,
    BrokerConfigsSet,
    BrokerDrainCancelled,
    BrokerDraining,
    BrokerFenced,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    Fact,
    FeatureLevelSet,
    GroupConfigsSet,
    PartitionsAdded,
    ProducerIdsReserved,
    ReassignmentCancelled,
    ReassignmentFinished,
    ReassignmentStarted,
    ReplicaLost,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
    UnknownFact,
    decode_fact,
    encode_fact,
)
from drmq.catalog.records import _KINDS
from drmq.model import MemberId, NodeId, TopicId

IDS = st.binary(min_size=16, max_size=16).map(TopicId)
COUNTS = st.integers(0, 2**31 - 1)
TEXTS = st.text(max_size=10)
NODES = COUNTS.map(NodeId)
REPLICAS = st.lists(NODES, max_size=3)
MEMBERS = st.lists(st.integers(0, 2**60).map(NodeId).map(MemberId), max_size=3)
CONFIGS = st.dictionaries(TEXTS, TEXTS, max_size=3)
FACTS: dict[str, st.SearchStrategy[Fact]] = {
    "cluster-created": st.builds(ClusterCreated, TEXTS),
    "broker-registered": st.builds(
        BrokerRegistered, NODES, COUNTS, TEXTS, TEXTS, COUNTS, TEXTS, COUNTS, st.none() | TEXTS, st.lists(TEXTS)
    ),
    "broker-fenced": st.builds(BrokerFenced, NODES),
    "broker-unfenced": st.builds(BrokerUnfenced, NODES),
    "broker-draining": st.builds(BrokerDraining, NODES),
    "broker-drain-cancelled": st.builds(BrokerDrainCancelled, NODES),
    "broker-removed": st.builds(BrokerRemoved, NODES),
    "topic-created": st.builds(
        TopicCreated, IDS, TEXTS, st.lists(REPLICAS), CONFIGS, st.none() | st.lists(MEMBERS, max_size=3)
    ),
    "topic-deleted": st.builds(TopicDeleted, IDS, TEXTS),
    "partitions-added": st.builds(PartitionsAdded, IDS, COUNTS, st.lists(REPLICAS, max_size=3)),
    "topic-configs-set": st.builds(TopicConfigsSet, IDS, CONFIGS),
    "reassignment-started": st.builds(ReassignmentStarted, IDS, COUNTS, REPLICAS),
    "reassignment-finished": st.builds(ReassignmentFinished, IDS, COUNTS, REPLICAS),
    "reassignment-cancelled": st.builds(ReassignmentCancelled, IDS, COUNTS),
    "replica-lost": st.builds(ReplicaLost, IDS, COUNTS, NODES, COUNTS),
    "assignment-restored": st.builds(
        AssignmentRestored,
        IDS,
        COUNTS,
        COUNTS,
        st.lists(st.lists(COUNTS)),
        st.none() | REPLICAS,
        REPLICAS,
        st.booleans(),
    ),
    "broker-configs-set": st.builds(BrokerConfigsSet, st.none() | NODES, CONFIGS),
    "producer-ids-reserved": st.builds(ProducerIdsReserved, COUNTS),
    "group-configs-set": st.builds(GroupConfigsSet, st.text(), st.dictionaries(st.text(), st.text())),
    "feature-level-set": st.sampled_from([FeatureLevelSet("metadata.version", 2), FeatureLevelSet("group.version", 1)]),
}


def test_every_kind_is_tried() -> None:
    assert FACTS.keys() == _KINDS.keys()


@given(st.one_of(*FACTS.values()))
def test_a_fact_survives_its_bytes(fact: Fact) -> None:
    key, value = encode_fact(fact)
    assert decode_fact(value) == fact
    assert key.decode().startswith(json.loads(value)["kind"] + ":")


def test_the_key_says_what_a_fact_is_about() -> None:
    topic = TopicId(bytes.fromhex("ab" * 16))
    assert encode_fact(BrokerFenced(NodeId(3)))[0] == b"broker-fenced:node-3"
    assert encode_fact(BrokerConfigsSet(NodeId(3), {}))[0] == b"broker-configs-set:node-3"
    assert encode_fact(BrokerConfigsSet(None, {}))[0] == b"broker-configs-set:brokers"
    assert encode_fact(ClusterCreated("c"))[0] == b"cluster-created:cluster"
    assert encode_fact(FeatureLevelSet("group.version", 1))[0] == b"feature-level-set:group.version"
    assert encode_fact(ProducerIdsReserved(5))[0] == b"producer-ids-reserved:producer-ids"
    assert encode_fact(TopicDeleted(topic, "t"))[0] == b"topic-deleted:" + b"ab" * 16
    assert encode_fact(ReassignmentCancelled(topic, 7))[0] == b"reassignment-cancelled:" + b"ab" * 16 + b"-7"


@pytest.mark.parametrize(
    "value",
    [
        b'{"kind":"broker-painted","version":2}',
        b'{"kind":"topic-deleted","version":3}',
        b'{"kind":"broker-fenced","version":2,"node_id":1,"colour":"red"}',
        b'{"kind":"broker-fenced","version":2}',
        b'{"kind":"topic-deleted","version":2,"topic_id":"zz","name":"t"}',
        b"{}",
    ],
)
def test_what_a_newer_version_wrote_is_not_passed_over(value: bytes) -> None:
    with pytest.raises(UnknownFact, match="start the version that wrote it"):
        decode_fact(value)


def test_what_was_written_before_there_were_clusters_is_refused_with_the_way_out() -> None:
    old = b'{"kind":"topic-created","version":1,"topic_id":"00","name":"t","partition_count":1,"configs":{}}'
    with pytest.raises(UnknownFact, match=r"version 1.*empty data directory"):
        decode_fact(old)
