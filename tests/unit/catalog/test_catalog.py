"""The catalog: what it refuses, and that its facts, or a snapshot of them, are all there is to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.catalog import Catalog, Fact, decode_fact, encode_fact
from drmq.catalog.catalog import PARTITIONS_MAX
from drmq.model import ApiError, ErrorCode, TopicId


def an_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def with_topics(*names: str) -> Catalog:
    catalog = Catalog()
    for number, name in enumerate(names, 1):
        play(catalog, catalog.create_topic(name, an_id(number), 2, {}, internal=name.startswith("__")))
    return catalog


def play(catalog: Catalog, facts: list[Fact]) -> None:
    for fact in facts:
        catalog.replay(fact)


def refusal(operation: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        operation()
    assert caught.value.message
    return caught.value.code


# ---- operations -------------------------------------------------------------------------------------


def test_an_operation_changes_nothing_before_its_facts_are_replayed() -> None:
    catalog = Catalog()
    facts = catalog.create_topic("orders", an_id(1), 3, {"retention.ms": "5"}, internal=False)
    assert catalog.topics == {}
    play(catalog, facts)
    topic = catalog.topic("orders")
    assert (topic.topic_id, topic.partition_count, topic.configs) == (an_id(1), 3, {"retention.ms": "5"})
    assert catalog.topic_by_id(an_id(1)) is topic


@pytest.mark.parametrize(
    ("name", "count", "code"),
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
def test_topics_that_cannot_be_created(name: str, count: int, code: ErrorCode) -> None:
    catalog = with_topics("orders", "a.b")
    assert refusal(lambda: catalog.create_topic(name, an_id(9), count, {}, internal=False)) is code


def test_internal_topics_are_the_brokers() -> None:
    catalog = with_topics("__consumer_offsets")
    topic = catalog.topic("__consumer_offsets")
    assert topic.is_internal
    assert refusal(lambda: catalog.delete_topic(topic)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(lambda: catalog.add_partitions(topic.name, 9)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_what_is_not_there_is_unknown() -> None:
    catalog = Catalog()
    assert refusal(lambda: catalog.topic("nowhere")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: catalog.topic_by_id(an_id(1))) is ErrorCode.UNKNOWN_TOPIC_ID
    assert refusal(lambda: catalog.add_partitions("nowhere", 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: catalog.set_configs("nowhere", {})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refusal(lambda: catalog.change_configs("nowhere", {})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert catalog.purged(an_id(1)) == []


def test_partitions_only_grow() -> None:
    catalog = with_topics("orders")
    play(catalog, catalog.add_partitions("orders", 5))
    assert catalog.topic("orders").partition_count == 5
    for count in (5, 1, PARTITIONS_MAX + 1):
        assert refusal(lambda count=count: catalog.add_partitions("orders", count)) is ErrorCode.INVALID_PARTITIONS  # type: ignore[misc]


def test_settings_are_replaced_or_changed_one_by_one() -> None:
    catalog = with_topics("orders")
    play(catalog, catalog.set_configs("orders", {"retention.ms": "5", "segment.ms": "6"}))
    play(catalog, catalog.change_configs("orders", {"retention.ms": None, "max.message.bytes": "7"}))
    assert catalog.topic("orders").configs == {"segment.ms": "6", "max.message.bytes": "7"}
    play(catalog, catalog.set_configs("orders", {}))
    assert catalog.topic("orders").configs == {}
    for changes in ({"no.such": "1"}, {"no.such": None}, {"retention.ms": "soon"}):
        assert refusal(lambda changes=changes: catalog.change_configs("orders", changes)) is ErrorCode.INVALID_CONFIG  # type: ignore[misc]
    assert refusal(lambda: catalog.set_configs("orders", {"retention.ms": None})) is ErrorCode.INVALID_CONFIG


def test_a_deleted_topic_waits_for_its_files_to_go() -> None:
    catalog = with_topics("orders")
    topic = catalog.topic("orders")
    play(catalog, catalog.delete_topic(topic))
    assert not catalog.topics
    assert not catalog.topics_by_id
    assert catalog.purges_pending == {topic.topic_id: topic}
    play(catalog, catalog.create_topic("orders", an_id(7), 1, {}, internal=False))
    play(catalog, catalog.purged(topic.topic_id))
    assert catalog.purges_pending == {}
    assert catalog.topic("orders").topic_id == an_id(7)


def test_producer_ids_are_given_out_once() -> None:
    catalog = Catalog()
    play(catalog, catalog.reserve_producer_ids(1_000))
    assert catalog.next_producer_id == 1_000
    old = catalog.reserve_producer_ids(5)
    play(catalog, catalog.reserve_producer_ids(1_000))
    play(catalog, old)
    assert catalog.next_producer_id == 2_000


# ---- replay -----------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("purge"), st.integers(0, 5)),
    st.tuples(st.just("grow"), NAMES, st.integers(1, 6)),
    st.tuples(st.just("set"), NAMES, st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.just("5"))),
    st.tuples(
        st.just("change"),
        NAMES,
        st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["7", None])),
    ),
    st.tuples(st.just("reserve"), st.integers(1, 10)),
)


def carry_out(catalog: Catalog, number: int, operation: tuple[object, ...]) -> list[Fact]:
    """The facts of an operation; none where the catalog refuses it."""
    match operation:
        case ("create", str(name), int(count)):
            return catalog.create_topic(name, an_id(number), count, {"segment.ms": "9"}, internal=False)
        case ("delete", str(name)):
            return catalog.delete_topic(catalog.topic(name))
        case ("purge", int(place)):
            pending = list(catalog.purges_pending)
            return catalog.purged(pending[place % len(pending)]) if pending else []
        case ("grow", str(name), int(count)):
            return catalog.add_partitions(name, count)
        case ("set", str(name), dict(configs)):
            return catalog.set_configs(name, configs)
        case ("change", str(name), dict(changes)):
            return catalog.change_configs(name, changes)
        case ("reserve", int(count)):
            return catalog.reserve_producer_ids(count)
    raise AssertionError(operation)


def state(catalog: Catalog) -> tuple[object, ...]:
    return catalog.topics, catalog.topics_by_id, catalog.purges_pending, catalog.next_producer_id


@given(st.lists(OPERATIONS, max_size=40), st.integers(0, 40))
def test_facts_and_snapshots_rebuild_the_state(operations: list[tuple[object, ...]], cut: int) -> None:
    """All facts, or a snapshot taken at any moment and the facts after it, lead to the same catalog."""
    live, from_snapshot, log = Catalog(), Catalog(), list[bytes]()
    for number, operation in enumerate(operations, 1):
        if number == cut:
            for fact in live.snapshot():
                from_snapshot.replay(decode_fact(encode_fact(fact)[1]))
            log_after = len(log)
        try:
            facts = carry_out(live, number, operation)
        except ApiError:
            continue
        play(live, facts)
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


@given(st.lists(OPERATIONS, max_size=20))
def test_facts_about_topics_that_are_gone_change_nothing(operations: list[tuple[object, ...]]) -> None:
    """Replay accepts any fact in any state: a log that is cut or doubled cannot stop a node."""
    catalog, facts = Catalog(), list[Fact]()
    for number, operation in enumerate(operations, 1):
        try:
            made = carry_out(catalog, number, operation)
        except ApiError:
            continue
        play(catalog, made)
        facts += made
    for fact in facts[::-1]:
        Catalog().replay(fact)
