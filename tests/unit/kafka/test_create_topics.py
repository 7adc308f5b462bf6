"""CreateTopics: counts, assignments, settings, and what the answer tells."""

from __future__ import annotations

import pytest

from drmq.kafka.config_entries import ConfigSource
from drmq.model import NO_TOPIC_ID, ErrorCode
from drmq.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponseTopic,
)
from support.broker_harness import NODE, Harness


def create(
    harness: Harness, *topics: CreateTopicsRequestTopic, validate_only: bool = False, version: int | None = None
) -> list[CreateTopicsResponseTopic]:
    answer = harness.ask(CreateTopicsRequest(list(topics), validate_only=validate_only), version)
    found: list[CreateTopicsResponseTopic] = answer.topics
    return found


def error(harness: Harness, topic: CreateTopicsRequestTopic) -> ErrorCode:
    """The refusal of a topic, which must come with a sentence and leave nothing behind."""
    [answer] = create(harness, topic)
    assert answer.error_message
    assert topic.name not in harness.broker.catalog.topics
    return ErrorCode(answer.error_code)


def assigned(*partitions: tuple[int, list[int]], count: int = -1, factor: int = -1) -> CreateTopicsRequestTopic:
    assignments = [CreateTopicsRequestAssignment(index, nodes) for index, nodes in partitions]
    return CreateTopicsRequestTopic("orders", count, factor, assignments)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_and_from_v5_described(harness: Harness, version: int) -> None:
    wanted = CreateTopicsRequestTopic("orders", 3, 1, configs=[CreateTopicsRequestConfig("retention.ms", "1000")])
    [answer] = create(harness, wanted, version=version)
    assert (answer.name, answer.error_code, answer.error_message) == ("orders", 0, None)
    topic = harness.broker.catalog.topic("orders")
    assert topic.partition_count == 3
    assert topic.configs == {"retention.ms": "1000"}
    assert answer.topic_id == (topic.topic_id if version >= 7 else NO_TOPIC_ID)
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        assert answer.configs is not None
        sources = {config.name: (config.value, config.config_source) for config in answer.configs}
        assert sources["retention.ms"] == ("1000", ConfigSource.TOPIC)
        assert sources["cleanup.policy"] == ("delete", ConfigSource.DEFAULT)


def test_minus_one_asks_for_the_defaults(harness: Harness) -> None:
    [answer] = create(harness, CreateTopicsRequestTopic("orders", -1, -1))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)


def test_the_partitions_can_be_written_to_at_once(harness: Harness) -> None:
    create(harness, CreateTopicsRequestTopic("orders", 2, 1))
    assert harness.produce("orders", 1) == 0


@pytest.mark.parametrize("factor", [0, 2, 3, -2])
def test_one_node_has_one_replica(harness: Harness, factor: int) -> None:
    assert error(harness, CreateTopicsRequestTopic("orders", 1, factor)) is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("count", [0, -2, 1_000_000])
def test_impossible_numbers_of_partitions(harness: Harness, count: int) -> None:
    assert error(harness, CreateTopicsRequestTopic("orders", count, 1)) is ErrorCode.INVALID_PARTITIONS


def test_an_assignment_to_this_node_is_fine(harness: Harness) -> None:
    [answer] = create(harness, assigned((1, [NODE]), (0, [NODE])))
    assert (answer.error_code, answer.num_partitions) == (0, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (assigned((0, [NODE]), count=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [NODE]), factor=1), ErrorCode.INVALID_REQUEST),
        (assigned((0, [2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [NODE, NODE])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((1, [NODE])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned((0, [NODE]), (0, [NODE])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_other_assignments_are_not(harness: Harness, topic: CreateTopicsRequestTopic, code: ErrorCode) -> None:
    assert error(harness, topic) is code


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "x" * 250, "__consumer_offsets", "__cluster_metadata"])
def test_names_that_cannot_be(harness: Harness, name: str) -> None:
    [answer] = create(harness, CreateTopicsRequestTopic(name, 1, 1))
    assert answer.error_code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_a_name_that_is_taken(harness: Harness) -> None:
    harness.create_topic("orders")
    [answer] = create(harness, CreateTopicsRequestTopic("orders", 1, 1))
    assert answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_names_that_collide_within_one_request(harness: Harness) -> None:
    answers = create(harness, CreateTopicsRequestTopic("a.b", 1, 1), CreateTopicsRequestTopic("a_b", 1, 1))
    assert sorted(answer.error_code for answer in answers) == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("no.such.setting", "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", None)], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", "1"), ("retention.ms", "2")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_cannot_be(harness: Harness, configs: list[tuple[str, str | None]], code: ErrorCode) -> None:
    settings = [CreateTopicsRequestConfig(*each) for each in configs]
    assert error(harness, CreateTopicsRequestTopic("orders", 1, 1, configs=settings)) is code


def test_a_name_that_is_twice_in_a_request_is_refused_and_the_others_are_created(harness: Harness) -> None:
    answers = create(
        harness,
        CreateTopicsRequestTopic("twice", 1, 1),
        CreateTopicsRequestTopic("once", 1, 1),
        CreateTopicsRequestTopic("twice", 2, 1),
    )
    assert [(answer.name, answer.error_code) for answer in answers] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", 0),
    ]
    assert "twice" not in harness.broker.catalog.topics


def test_validation_creates_nothing(harness: Harness) -> None:
    [good, bad] = create(
        harness, CreateTopicsRequestTopic("orders", 3, 1), CreateTopicsRequestTopic("bad", 0, 1), validate_only=True
    )
    assert (good.error_code, good.num_partitions, good.topic_id) == (0, 3, NO_TOPIC_ID)
    assert bad.error_code == ErrorCode.INVALID_PARTITIONS
    assert "orders" not in harness.broker.catalog.topics
