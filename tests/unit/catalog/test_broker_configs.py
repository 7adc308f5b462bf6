"""Settings of brokers that change at run time: who has which, and the rate at which a replica is copied."""

from __future__ import annotations

import pytest

from drmq.catalog import BrokerConfigsSet, Catalog, FeatureLevelSet, broker_config, copy_rate
from drmq.model import ApiError, ErrorCode, NodeId

from .clusters import an_id, of, play

LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
ONE, TWO = NodeId(1), NodeId(2)


def finalized(catalog: Catalog) -> Catalog:
    play(catalog, [FeatureLevelSet("metadata.version", 3)])
    return catalog


def test_a_broker_goes_before_all_brokers() -> None:
    catalog = finalized(of(2))
    play(catalog, catalog.change_broker_configs(ONE, {LEADER: "10"}))
    play(catalog, catalog.change_broker_configs(None, {LEADER: "20", FOLLOWER: "30"}))
    configs = catalog.broker_configs
    assert [broker_config(configs, node, LEADER) for node in (ONE, TWO)] == ["10", "20"]
    assert [broker_config(configs, node, FOLLOWER) for node in (ONE, TWO)] == ["30", "30"]
    assert broker_config({}, ONE, LEADER) is None


def test_settings_change_one_by_one_or_all_together_and_survive_a_snapshot() -> None:
    catalog = finalized(of(2))
    play(catalog, catalog.change_broker_configs(ONE, {LEADER: "10", FOLLOWER: "20"}))
    play(catalog, catalog.change_broker_configs(ONE, {LEADER: None, FOLLOWER: "21"}))
    assert catalog.broker_configs == {ONE: {FOLLOWER: "21"}}
    play(catalog, catalog.change_broker_configs(ONE, {LEADER: "5"}, replace_all=True))
    play(catalog, catalog.change_broker_configs(None, {FOLLOWER: "6"}))
    again = Catalog()
    for each in (catalog, again):
        if each is again:
            play(again, list(catalog.snapshot()))
        assert each.broker_configs == each.copy().broker_configs == {ONE: {LEADER: "5"}, None: {FOLLOWER: "6"}}
    play(catalog, catalog.change_broker_configs(ONE, {}, replace_all=True))
    assert catalog.broker_configs == {None: {FOLLOWER: "6"}}


def test_a_removed_broker_leaves_no_settings() -> None:
    catalog = finalized(of(2))
    play(catalog, catalog.change_broker_configs(TWO, {LEADER: "10"}))
    play(catalog, catalog.remove_broker(TWO))
    assert catalog.broker_configs == {}


@pytest.mark.parametrize("level", [1, 2, 3])
def test_deleting_what_is_not_set_is_no_fact_at_any_level(level: int) -> None:
    catalog = of(1)
    play(catalog, [FeatureLevelSet("metadata.version", level)])
    assert catalog.change_broker_configs(ONE, {LEADER: None, "no.such": None}) == []
    assert catalog.change_broker_configs(None, {FOLLOWER: None}) == []


@pytest.mark.parametrize("level", [1, 2])
def test_nothing_is_written_that_an_older_node_cannot_read(level: int) -> None:
    catalog = of(1)
    play(catalog, [FeatureLevelSet("metadata.version", level)])
    with pytest.raises(ApiError, match="drmq cluster upgrade --finalize") as caught:
        catalog.change_broker_configs(ONE, {LEADER: "1"})
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("node", "name", "value", "code"),
    [
        (ONE, "num.partitions", "3", ErrorCode.INVALID_REQUEST),
        (ONE, LEADER, "0", ErrorCode.INVALID_CONFIG),
        (ONE, LEADER, "fast", ErrorCode.INVALID_CONFIG),
        (NodeId(9), LEADER, "1", ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_what_cannot_be_is_refused(node: NodeId, name: str, value: str, code: ErrorCode) -> None:
    catalog = finalized(of(1))
    with pytest.raises(ApiError) as caught:
        catalog.change_broker_configs(node, {name: value})
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("topic_settings", "configs", "rate"),
    [
        ({}, {ONE: {LEADER: "10"}, TWO: {FOLLOWER: "5"}}, 100),
        ({"leader": "0:1"}, {ONE: {LEADER: "10"}, TWO: {FOLLOWER: "5"}}, 10),
        ({"leader": "*"}, {ONE: {LEADER: "1000"}}, 1000),
        ({"leader": "1:1,0:2"}, {ONE: {LEADER: "10"}}, 100),
        ({"leader": "0:1"}, {}, 100),
        ({"follower": "0:2"}, {ONE: {LEADER: "10"}, TWO: {FOLLOWER: "5"}}, 5),
        ({"follower": "*"}, {None: {FOLLOWER: "1000"}}, 100),
        ({"leader": "0:1", "follower": "0:2"}, {ONE: {LEADER: "10"}, TWO: {FOLLOWER: "50"}}, 10),
        ({"leader": "0:1", "follower": "0:2"}, {ONE: {LEADER: "70"}, TWO: {FOLLOWER: "50"}}, 50),
    ],
)
def test_the_rate_of_a_copy_from_node_1_to_node_2(
    topic_settings: dict[str, str], configs: dict[NodeId | None, dict[str, str]], rate: int
) -> None:
    """Only replicas that the topic lists are throttled. The leader's rate replaces the node's own, also a lower one."""
    catalog = of(2)
    play(catalog, catalog.create_topic("orders", an_id(1), 2, {}, internal=False))
    changes = {f"{side}.replication.throttled.replicas": text for side, text in topic_settings.items()}
    play(catalog, catalog.change_configs("orders", changes))
    assert copy_rate(configs, catalog.topic("orders"), 0, ONE, TWO, 100) == rate


def test_facts_name_what_they_are_about() -> None:
    catalog = finalized(of(1))
    assert catalog.change_broker_configs(ONE, {LEADER: "1"}) == [BrokerConfigsSet(ONE, {LEADER: "1"})]
