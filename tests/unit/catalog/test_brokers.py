"""Brokers in the catalog: how they register, return, go down, and leave."""

from __future__ import annotations

from typing import Any

import pytest

from drmq.catalog import BrokerRegistered, Catalog
from drmq.model import ApiError, ErrorCode, NodeId, member_id, node_of

from .clusters import add_topic, nodes, of, play, refusal, register

ONE = NodeId(1)


def test_a_cluster_has_one_name_for_ever() -> None:
    catalog = Catalog()
    play(catalog, catalog.create_cluster("first"))
    assert catalog.cluster_id == "first"
    assert catalog.create_cluster("first") == []
    code, text = refusal(lambda: catalog.create_cluster("second"))
    assert code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "this is cluster first" in text


def test_a_new_broker_is_up_and_in_its_first_life() -> None:
    catalog = Catalog()
    register(catalog, 1, "rack-a")
    broker = catalog.broker(ONE)
    assert (broker.incarnation, broker.member, broker.rack) == (0, 1, "rack-a")
    assert (broker.host, broker.port, broker.peer_host, broker.peer_port) == ("host-1", 9_092, "host-1", 10_092)
    assert broker.takes_replicas
    assert set(broker.roles) == {"broker", "controller"}


def test_who_comes_back_unchanged_is_no_news() -> None:
    catalog = of(2)
    assert register(catalog, 1) == []


def test_other_addresses_or_another_rack_are_the_same_life() -> None:
    catalog = of(1)
    assert len(register(catalog, 1, port=9_500)) == 1
    assert len(register(catalog, 1, "rack-b", port=9_500)) == 1
    assert (catalog.broker(ONE).port, catalog.broker(ONE).rack, catalog.broker(ONE).incarnation) == (9_500, "rack-b", 0)


def test_another_directory_is_another_life() -> None:
    """Also an earlier directory that shows up again: what it voted then is not what the node voted since."""
    catalog = of(1)
    for incarnation, life in enumerate((1, 2, 0), 1):
        register(catalog, 1, life=life)
        assert catalog.broker(ONE).incarnation == incarnation
        assert catalog.broker(ONE).member == member_id(ONE, incarnation)
        assert node_of(catalog.broker(ONE).member) == ONE


def test_an_older_copy_of_a_directory_is_refused() -> None:
    """A process registers again unchanged; the next process has a higher count; a lower count means an older copy."""
    catalog = of(2)
    register(catalog, 1, starts=4, boot_id="aa")
    assert register(catalog, 1, starts=4, boot_id="aa") == []
    restored = Catalog()
    play(restored, catalog.snapshot())
    for each in (catalog, restored):
        for starts, boot_id in ((4, "bb"), (3, "aa"), (3, "bb"), (0, "")):
            code, text = refusal(lambda at=starts, by=boot_id: register(each, 1, starts=at, boot_id=by))  # type: ignore[misc]  # noqa: B023
            assert code is ErrorCode.STALE_BROKER_EPOCH
            assert text.startswith("node 1 has an older copy of its data directory")
    assert len(register(catalog, 1, starts=6, boot_id="bb")) == 1
    assert catalog.broker(ONE).incarnation == 0
    register(catalog, 1, life=1, starts=1, boot_id="cc")
    assert (catalog.broker(ONE).incarnation, catalog.broker(ONE).starts) == (1, 1)


def test_coming_back_changes_neither_fencing_nor_draining() -> None:
    catalog = of(2)
    play(catalog, catalog.fence(ONE) + catalog.drain(ONE))
    register(catalog, 1, port=9_500)
    register(catalog, 1, life=1)
    assert catalog.broker(ONE).fenced
    assert catalog.broker(ONE).draining


def test_a_removed_node_comes_back_as_a_new_one() -> None:
    """Even with its old directory: its groups have gone on without it."""
    catalog = of(2)
    play(catalog, catalog.drain(ONE))
    play(catalog, catalog.remove_broker(ONE))
    assert ONE not in catalog.brokers
    assert refusal(lambda: catalog.fence(ONE)) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "there is no broker 1; there are 2",
    )
    restored = Catalog()
    play(restored, catalog.snapshot())
    for each in (catalog, restored):
        register(each, 1)
        assert each.broker(ONE).incarnation == 1
        assert not each.broker(ONE).draining
        assert each.former_brokers == {}
        assert register(each, 1) == []


def test_an_old_registration_does_not_bring_back_an_old_life() -> None:
    catalog = Catalog()
    [first] = register(catalog, 1)
    register(catalog, 1, life=1)
    catalog.replay(first)
    assert catalog.broker(ONE).incarnation == 1
    play(catalog, catalog.remove_broker(ONE))
    [second] = [fact for fact in catalog.snapshot() if isinstance(fact, BrokerRegistered)]
    catalog.replay(second)
    assert catalog.brokers == {}


def test_a_copied_data_directory_is_refused() -> None:
    catalog = of(2)
    copied = catalog.broker(ONE).directory_id
    code, text = refusal(
        lambda: catalog.register_broker(NodeId(3), copied, host="h", port=1, peer_host="h", peer_port=2)
    )
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "data directory of node 1" in text
    assert "empty data directory" in text


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"node_id": -1}, "a node id is 0 to"),
        ({"node_id": 2**31}, "a node id is 0 to"),
        ({"directory_id": ""}, "no directory id"),
        ({"directory_id": "xy"}, "no directory id"),
        ({"host": ""}, "no host"),
        ({"peer_host": "h" * 256}, "no host"),
        ({"port": 0}, "no port"),
        ({"peer_port": 65_536}, "no port"),
        ({"rack": ""}, "no rack"),
        ({"roles": []}, "allowed are broker and controller"),
        ({"roles": ["king"]}, "allowed are broker and controller"),
        ({"roles": ["broker", "broker"]}, "each once"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused(wrong: dict[str, Any], text: str) -> None:
    said: dict[str, Any] = {
        "node_id": 3,
        "directory_id": "ab12",
        "host": "h",
        "port": 1,
        "peer_host": "h",
        "peer_port": 2,
        "rack": "r",
        "roles": ["broker"],
    }
    assert Catalog().register_broker(**said)
    with pytest.raises(ApiError, match=text) as caught:
        Catalog().register_broker(**(said | wrong))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_fencing_is_news_only_when_it_changes_something() -> None:
    catalog = of(2)
    assert catalog.unfence(ONE) == []
    play(catalog, catalog.fence(ONE))
    assert catalog.broker(ONE).fenced
    assert catalog.fence(ONE) == []
    play(catalog, catalog.unfence(ONE))
    assert not catalog.broker(ONE).fenced


def test_draining_can_be_called_off() -> None:
    catalog = of(2)
    assert catalog.cancel_drain(ONE) == []
    play(catalog, catalog.drain(ONE))
    assert catalog.broker(ONE).draining
    assert catalog.drain(ONE) == []
    play(catalog, catalog.cancel_drain(ONE))
    assert catalog.broker(ONE).takes_replicas


def test_a_broker_whose_replicas_have_nowhere_to_go_is_not_drained() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1, 2, 3]] * 5)
    code, text = refusal(lambda: catalog.drain(ONE))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "orders-0, orders-1, orders-2 and 2 more would have fewer replicas" in text
    assert "2 other brokers are up" in text
    assert "add a broker" in text
    register(catalog, 4)
    play(catalog, catalog.drain(ONE))
    # Node 4 can stand in for one of them, and not for two.
    assert refusal(lambda: catalog.drain(NodeId(2)))[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    play(catalog, catalog.cancel_drain(ONE) + catalog.fence(NodeId(4)))
    assert refusal(lambda: catalog.drain(ONE))[0] is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_broker_is_removed_when_nothing_is_left_on_it() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1, 2]])
    topic = catalog.topic("orders")
    assert refusal(lambda: catalog.remove_broker(ONE)) == (
        ErrorCode.INVALID_REQUEST,
        "node 1 cannot be removed: orders-0 is on it; drain it first",
    )
    play(catalog, catalog.drain(ONE))
    code, text = refusal(lambda: catalog.remove_broker(ONE))
    assert code is ErrorCode.INVALID_REQUEST
    assert text.endswith("orders-0 is on it; rebalance, so that it is moved away, and wait")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(2, 3)))
    code, text = refusal(lambda: catalog.remove_broker(ONE))
    assert code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "on the way to others" in text
    # Who is to get a replica cannot be removed either.
    assert refusal(lambda: catalog.remove_broker(NodeId(3)))[0] is ErrorCode.INVALID_REQUEST
    play(catalog, catalog.finish_reassignment(topic, 0))
    play(catalog, catalog.remove_broker(ONE))
    assert list(catalog.brokers) == [2, 3]


def test_brokers_that_are_not_there_are_named() -> None:
    for operation in (Catalog().fence, Catalog().unfence, Catalog().drain, Catalog().remove_broker):
        assert refusal(lambda run=operation: run(ONE)) == (  # type: ignore[misc]
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "there is no broker 1; there is none yet",
        )
