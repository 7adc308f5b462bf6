"""The catalog's topics, and that its facts, or a snapshot of them, are all there is to it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drmq.catalog import Catalog, Fact, PartitionsAdded, TopicCreated, TopicDeleted, decode_fact, encode_fact
from drmq.catalog import catalog as catalog_module
from drmq.model import ApiError, ErrorCode, NodeId, member_id
from drmq.model.options import PARTITIONS_MAX

from .clusters import add_topic, an_id, cluster, group, nodes, of, play, refusal, register, state


def with_topics(*names: str) -> Catalog:
    catalog = of(3)
    for number, name in enumerate(names, 1):
        play(catalog, catalog.create_topic(name, an_id(number), 2, {}, internal=name.startswith("__")))
    return catalog


def code(operation: Callable[[], object]) -> ErrorCode:
    found, message = refusal(operation)
    assert message
    return found


# ---- topics -----------------------------------------------------------------------------------------


def test_an_operation_changes_nothing_before_its_facts_are_replayed() -> None:
    catalog = of(1)
    facts = catalog.create_topic("orders", an_id(1), 3, {"retention.ms": "5"}, internal=False)
    assert catalog.topics == {}
    assert catalog.partitions_on(NodeId(1)) == []
    play(catalog, facts)
    topic = catalog.topic("orders")
    assert (topic.topic_id, topic.partition_count, topic.configs) == (an_id(1), 3, {"retention.ms": "5"})
    assert catalog.topic_by_id(an_id(1)) is topic


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("orders", 1, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a_b", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a/b", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("new", 0, ErrorCode.INVALID_PARTITIONS),
        ("new", PARTITIONS_MAX + 1, ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_topics_that_cannot_be_created(name: str, count: int, expected: ErrorCode) -> None:
    catalog = with_topics("orders", "a.b")
    assert code(lambda: catalog.create_topic(name, an_id(9), count, {}, internal=False)) is expected


def test_internal_topics_are_the_brokers() -> None:
    catalog = with_topics("__consumer_offsets")
    topic = catalog.topic("__consumer_offsets")
    assert topic.is_internal
    assert code(lambda: catalog.delete_topic(topic)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(lambda: catalog.add_partitions(topic.name, 9)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_what_is_not_there_is_unknown() -> None:
    catalog = with_topics("orders")
    orders = catalog.topic("orders")
    assert code(lambda: catalog.topic("nowhere")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(lambda: catalog.topic_by_id(an_id(9))) is ErrorCode.UNKNOWN_TOPIC_ID
    assert code(lambda: catalog.add_partitions("nowhere", 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(lambda: catalog.set_configs("nowhere", {})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(lambda: catalog.change_configs("nowhere", {})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (-1, 2):
        assert catalog.assignment(group(catalog, "orders", partition)) is None
        for operation in (catalog.finish_reassignment, catalog.cancel_reassignment):
            assert (
                code(lambda run=operation, at=partition: run(orders, at))  # type: ignore[misc]
                is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        assert (
            code(lambda at=partition: catalog.start_reassignment(orders, at, nodes(1)))  # type: ignore[misc]
            is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )


def test_partitions_only_grow() -> None:
    catalog = with_topics("orders")
    play(catalog, catalog.add_partitions("orders", 5))
    assert catalog.topic("orders").partition_count == 5
    for count in (5, 1, PARTITIONS_MAX + 1):
        assert code(lambda count=count: catalog.add_partitions("orders", count)) is ErrorCode.INVALID_PARTITIONS  # type: ignore[misc]


def test_settings_are_replaced_or_changed_one_by_one() -> None:
    catalog = with_topics("orders")
    play(catalog, catalog.set_configs("orders", {"retention.ms": "5", "segment.ms": "6"}))
    play(catalog, catalog.change_configs("orders", {"retention.ms": None, "max.message.bytes": "7"}))
    assert catalog.topic("orders").configs == {"segment.ms": "6", "max.message.bytes": "7"}
    play(catalog, catalog.set_configs("orders", {}))
    assert catalog.topic("orders").configs == {}
    assert catalog.change_configs("orders", {"no.such": None, "retention.ms": None}) == []
    for changes in ({"no.such": "1"}, {"retention.ms": "soon"}):
        assert code(lambda changes=changes: catalog.change_configs("orders", changes)) is ErrorCode.INVALID_CONFIG  # type: ignore[misc]
    assert code(lambda: catalog.set_configs("orders", {"retention.ms": None})) is ErrorCode.INVALID_CONFIG


def test_a_deleted_topic_is_remembered_for_those_who_were_away() -> None:
    catalog = with_topics("orders")
    topic = catalog.topic("orders")
    play(catalog, catalog.start_reassignment(topic, 0, nodes(1)))
    play(catalog, catalog.delete_topic(topic))
    assert not catalog.topics
    assert not catalog.topics_by_id
    assert not catalog.reassignments
    assert catalog.partitions_on(NodeId(1)) == []
    assert catalog.deleted == {topic.topic_id: "orders"}
    play(catalog, catalog.create_topic("orders", an_id(7), 1, {}, internal=False))
    assert catalog.topic("orders").topic_id == an_id(7)
    assert catalog.deleted == {topic.topic_id: "orders"}


def test_of_deleted_topics_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_module, "DELETED_TOPICS_MAX", 3)
    catalog = of(1)
    for number in range(5):
        catalog.replay(TopicDeleted(an_id(number), f"t{number}"))
    assert list(catalog.deleted.values()) == ["t2", "t3", "t4"]


def test_producer_ids_are_given_out_once() -> None:
    catalog = Catalog()
    play(catalog, catalog.reserve_producer_ids(1_000))
    assert catalog.next_producer_id == 1_000
    old = catalog.reserve_producer_ids(5)
    play(catalog, catalog.reserve_producer_ids(1_000))
    play(catalog, old)
    assert catalog.next_producer_id == 2_000


def test_settings_are_not_too_long_together() -> None:
    """Each may fit, and what a topic has already counts, unless it is replaced."""
    catalog = with_topics("orders")
    leaders, followers = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
    half, most = ",".join(["0:1"] * 600), ",".join(["0:1"] * 1_000)
    play(catalog, catalog.change_configs("orders", {leaders: half}))
    assert code(lambda: catalog.change_configs("orders", {followers: most})) is ErrorCode.INVALID_CONFIG
    assert code(lambda: catalog.set_configs("orders", {leaders: most, followers: most})) is ErrorCode.INVALID_CONFIG
    configs = {leaders: most, followers: most}
    assert code(lambda: catalog.create_topic("new", an_id(9), 2, configs, internal=False)) is ErrorCode.INVALID_CONFIG
    play(catalog, catalog.change_configs("orders", {followers: most, leaders: None}))
    assert catalog.topic("orders").configs == {followers: most}


# ---- how many replicas, and where -------------------------------------------------------------------


@pytest.mark.parametrize(("brokers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_a_topic_that_asks_for_nothing_gets_three_replicas_or_as_many_as_there_are_brokers(
    brokers: int, expected: int
) -> None:
    catalog = of(brokers)
    play(catalog, catalog.create_topic("orders", an_id(1), 4, {}, internal=False))
    assert [len(each.replicas) for each in catalog.topic("orders").partitions] == [expected] * 4


def test_brokers_that_are_down_or_leaving_do_not_count_as_there() -> None:
    catalog = of(4)
    play(catalog, catalog.fence(NodeId(1)) + catalog.drain(NodeId(2)))
    play(catalog, catalog.create_topic("orders", an_id(1), 6, {}, internal=False))
    assert {frozenset(each.replicas) for each in catalog.topic("orders").partitions} == {frozenset(nodes(3, 4))}


def test_too_few_brokers_are_named_with_the_way_out() -> None:
    catalog = of(2)

    def ask(replication_factor: int) -> tuple[ErrorCode, str]:
        return refusal(
            lambda: catalog.create_topic(
                "orders", an_id(1), 1, {}, internal=False, replication_factor=replication_factor
            )
        )

    assert ask(3) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "replication factor 3 asks for 3 brokers, and 2 brokers are there; add brokers, or ask for 1 to 2",
    )
    play(catalog, catalog.fence(NodeId(2)))
    assert ask(2)[1].endswith("and 1 broker is there, without node 2 (down); start node 2, or ask for 1")
    play(catalog, catalog.drain(NodeId(1)))
    assert ask(-1)[1].endswith("0 brokers are there, without node 2 (down) and node 1 (draining); start node 2")
    for wrong in (0, -2):
        assert ask(wrong) == (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {wrong}: allowed is 1 or more, or -1 for the default",
        )


def test_replicas_can_be_given() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[3, 1], [2, 3]])
    assert [each.replicas for each in catalog.topic("orders").partitions] == [(3, 1), (2, 3)]
    play(catalog, catalog.add_partitions("orders", 3, [nodes(1, 2)]))
    assert catalog.topic("orders").partitions[2].replicas == (1, 2)


@pytest.mark.parametrize(
    ("replicas", "text"),
    [
        ([[1], []], "orders-1: it is given no replicas"),
        ([[1, 2], [3, 3]], "orders-1: .*names a node twice"),
        ([[1], [9]], "orders-1: there is no broker 9; there are 1, 2, 3, 4, 5"),
        ([[4], [1]], "orders-0: node 4 is down; start it"),
        ([[1], [5]], "orders-1: node 5 is being drained"),
        ([[1, 2], [1]], "orders-1 is given 1 replicas; each partition of the topic has 2"),
        ([[1]], "given for 1 partitions, and 2 are to be made"),
        ([], "given for 0 partitions, and 2 are to be made"),
    ],
)
def test_replicas_that_cannot_be(replicas: list[list[int]], text: str) -> None:
    catalog = of(5)
    play(catalog, catalog.fence(NodeId(4)) + catalog.drain(NodeId(5)))
    given = [nodes(*each) for each in replicas]
    with pytest.raises(ApiError, match=text) as caught:
        catalog.create_topic("orders", an_id(1), 2, {}, internal=False, replicas=given)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_new_partitions_have_as_many_replicas_as_the_old_ones() -> None:
    catalog = of(4)
    add_topic(catalog, "orders", [[1, 2]])
    play(catalog, catalog.add_partitions("orders", 3))
    assert [len(each.replicas) for each in catalog.topic("orders").partitions] == [2, 2, 2]
    with pytest.raises(ApiError, match="orders-3 is given 1 replicas") as caught:
        catalog.add_partitions("orders", 4, [nodes(1)])
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    play(catalog, catalog.fence(NodeId(2)) + catalog.fence(NodeId(3)) + catalog.fence(NodeId(4)))
    assert code(lambda: catalog.add_partitions("orders", 4)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_first_members_of_a_group_are_who_the_replicas_were_when_it_was_made() -> None:
    """It has no later incarnations of a node: they never voted, and a restart must not change the voters."""
    catalog = of(2)
    register(catalog, 2, life=1)
    add_topic(catalog, "orders", [[1, 2]])
    assert catalog.topic("orders").partitions[0].initial_members == (1, member_id(NodeId(2), 1))
    register(catalog, 1, life=1)
    play(catalog, catalog.add_partitions("orders", 2, [nodes(1, 2)]))
    second = (member_id(NodeId(1), 1), member_id(NodeId(2), 1))
    assert [each.initial_members for each in catalog.topic("orders").partitions] == [(1, second[1]), second]
    play(catalog, catalog.add_partitions("orders", 3, [nodes(2, 1)]))
    again = Catalog()
    play(again, catalog.snapshot())
    assert again.topic("orders") == catalog.topic("orders")
    assert again.members(again.topic("orders").partitions[1], nodes(1, 2, 7)) == (*second, 7)


# ---- replay -----------------------------------------------------------------------------------------


def test_of_two_topics_with_one_name_the_first_stays() -> None:
    catalog = of(1)
    play(catalog, [TopicCreated(an_id(1), "orders", [nodes(1)]), TopicCreated(an_id(2), "orders", [nodes(1)])])
    assert list(catalog.topics_by_id) == [an_id(1)]
    play(catalog, [TopicCreated(an_id(1), "other", [nodes(1)])])
    assert list(catalog.topics) == ["orders"]
    assert catalog.partitions_on(NodeId(1)) == [group(catalog, "orders", 0)]


def test_partitions_that_two_facts_add_are_there_once() -> None:
    catalog = of(3)
    add_topic(catalog, "orders", [[1]])
    play(catalog, [PartitionsAdded(an_id(1), 3, [nodes(2), nodes(3)]), PartitionsAdded(an_id(1), 2, [nodes(1)])])
    assert [each.replicas for each in catalog.topic("orders").partitions] == [(1,), (2,), (3,)]
    play(catalog, [PartitionsAdded(an_id(1), 4, [nodes(1), nodes(1), nodes(1)])])
    assert [each.replicas for each in catalog.topic("orders").partitions] == [(1,), (2,), (3,), (1,)]
    play(catalog, [PartitionsAdded(an_id(1), 6, [nodes(1)])])
    assert catalog.topic("orders").partition_count == 4


def test_a_topic_can_be_described_before_it_is_there() -> None:
    catalog = cluster("a", "b")
    [fact] = catalog.create_topic("orders", an_id(1), 2, {"segment.ms": "9"}, internal=False)
    assert isinstance(fact, TopicCreated)
    described = catalog.described(fact)
    play(catalog, [fact])
    assert catalog.topic("orders") == described


NAMES = st.sampled_from(["a", "b", "c"])
NODES = st.integers(1, 5)
NODE_LISTS = st.lists(NODES, min_size=1, max_size=3, unique=True)
OPERATIONS = st.one_of(
    st.tuples(st.just("cluster"), st.sampled_from(["one", "two"])),
    st.tuples(st.just("register"), NODES, st.integers(0, 2), st.sampled_from([None, "x", "y"])),
    st.tuples(st.sampled_from(["fence", "unfence", "drain", "stay", "remove"]), NODES),
    st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("assign"), NAMES, st.lists(NODE_LISTS, min_size=1, max_size=2)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 6)),
    st.tuples(st.just("move"), NAMES, st.integers(0, 3), NODE_LISTS),
    st.tuples(st.sampled_from(["arrive", "return"]), NAMES, st.integers(0, 3)),
    st.tuples(st.just("set"), NAMES, st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.just("5"))),
    st.tuples(
        st.just("change"),
        NAMES,
        st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["7", None])),
    ),
    st.tuples(st.just("reserve"), st.integers(1, 10)),
)
# Most histories begin with a cluster; else nearly all of their topics would be refused.
HISTORIES = st.builds(
    lambda brokers, later: [*(("register", node, 0, None) for node in range(1, brokers + 1)), *later],
    st.integers(0, 5),
    st.lists(OPERATIONS, max_size=40),
)


def carry_out(catalog: Catalog, number: int, operation: tuple[object, ...]) -> list[Fact]:
    """The facts of an operation."""
    match operation:
        case ("cluster", str(cluster_id)):
            return catalog.create_cluster(cluster_id)
        case ("register", int(node), int(life), rack):
            assert rack is None or isinstance(rack, str)
            return catalog.register_broker(
                NodeId(node), f"{node:02}{life:02}", host="h", port=1, peer_host="p", peer_port=2, rack=rack
            )
        case ("fence", int(node)):
            return catalog.fence(NodeId(node))
        case ("unfence", int(node)):
            return catalog.unfence(NodeId(node))
        case ("drain", int(node)):
            return catalog.drain(NodeId(node))
        case ("stay", int(node)):
            return catalog.cancel_drain(NodeId(node))
        case ("remove", int(node)):
            return catalog.remove_broker(NodeId(node))
        case ("create", str(name), int(count)):
            return catalog.create_topic(name, an_id(number), count, {"segment.ms": "9"}, internal=False)
        case ("assign", str(name), list(given)):
            return catalog.create_topic(name, an_id(number), len(given), {}, internal=False, replicas=given)
        case ("delete", str(name)):
            return catalog.delete_topic(catalog.topic(name))
        case ("grow", str(name), int(count)):
            return catalog.add_partitions(name, count)
        case ("move", str(name), int(partition), list(given)):
            return catalog.start_reassignment(catalog.topic(name), partition, given)
        case ("arrive", str(name), int(partition)):
            return catalog.finish_reassignment(catalog.topic(name), partition)
        case ("return", str(name), int(partition)):
            return catalog.cancel_reassignment(catalog.topic(name), partition)
        case ("set", str(name), dict(configs)):
            return catalog.set_configs(name, configs)
        case ("change", str(name), dict(changes)):
            return catalog.change_configs(name, changes)
        case ("reserve", int(count)):
            return catalog.reserve_producer_ids(count)
    raise AssertionError(operation)


def check_consistency(catalog: Catalog) -> None:
    """What the catalog says twice it says the same way."""
    assert {topic.name: topic for topic in catalog.topics_by_id.values()} == catalog.topics
    assert not catalog.brokers.keys() & catalog.former_brokers.keys()
    assignments = catalog.assignments()
    assert {each: at.target for each, at in assignments.items() if at.target is not None} == catalog.reassignments
    for node in map(NodeId, range(7)):
        hosted = {each for each, at in assignments.items() if node in at.replicas + at.planned + at.given_up}
        assert set(catalog.partitions_on(node)) == hosted
        if node in catalog.brokers:
            firsts = sum(at.planned[0] == node for at in assignments.values())
            assert catalog.loads()[node] == (len(hosted), firsts)
        elif hosted:
            pytest.fail(f"partitions are on node {node}, which is not there")


@given(HISTORIES, st.integers(0, 40))
@example([("register", 1, 0, None), ("fence", 1), ("remove", 1)], 0)
def test_facts_and_snapshots_rebuild_the_state(operations: list[tuple[object, ...]], cut: int) -> None:
    """All facts, or a snapshot taken at any moment and the facts after it, lead to the same catalog."""
    live, from_snapshot, log = Catalog(), Catalog(), list[bytes]()
    for number, operation in enumerate(operations, 1):
        if number == cut:
            for fact in live.snapshot():
                from_snapshot.replay(decode_fact(encode_fact(fact)[1]))
            log_after = len(log)
        before = state(live)
        try:
            facts = carry_out(live, number, operation)
        except ApiError:
            facts = []
        assert state(live) == before
        play(live, facts)
        check_consistency(live)
        log += [encode_fact(fact)[1] for fact in facts]
    replayed = Catalog()
    for value in log:
        replayed.replay(decode_fact(value))
    assert state(replayed) == state(live)
    again = Catalog()
    play(again, list(live.snapshot()))
    assert state(again) == state(live)
    if 1 <= cut <= len(operations):
        for value in log[log_after:]:
            from_snapshot.replay(decode_fact(value))
        assert state(from_snapshot) == state(live)


@given(HISTORIES, st.integers(0, 40))
def test_a_copy_is_not_changed_by_what_comes_later(operations: list[tuple[object, ...]], cut: int) -> None:
    catalog = Catalog()
    copied, then = catalog.copy(), state(Catalog())
    for number, operation in enumerate(operations, 1):
        if number == cut:
            copied, then = catalog.copy(), deepcopy(state(catalog))
            assert vars(copied) == vars(catalog)
        try:
            facts = carry_out(catalog, number, operation)
        except ApiError:
            continue
        play(catalog, facts)
    assert state(copied) == then
    check_consistency(copied)


@given(HISTORIES, st.randoms(use_true_random=False))
def test_replay_accepts_any_fact_in_any_state(operations: list[tuple[object, ...]], random: Random) -> None:
    """A log that is cut, doubled or out of order cannot stop a node; and all nodes read the same out of it."""
    catalog, facts = Catalog(), list[Fact]()
    for number, operation in enumerate(operations, 1):
        try:
            made = carry_out(catalog, number, operation)
        except ApiError:
            continue
        play(catalog, made)
        facts += made
    facts += facts[::2]
    random.shuffle(facts)
    one, other = Catalog(), Catalog()
    for place, fact in enumerate(facts):
        one.replay(fact)
        other.replay(fact)
        if place == len(facts) // 2:
            restored = Catalog()
            play(restored, list(other.snapshot()))
            other = restored
    assert state(one) == state(other)
