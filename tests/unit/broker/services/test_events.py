"""The ring of a node's last events: numbered, bounded, and never a reason to fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from drmq.broker.services.events import EVENTS_MAX, TEXT_MAX, Events
from drmq.wire.messages.describe_events import DescribeEventsRequest
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness


@pytest.fixture
def events() -> Iterator[Events]:
    ring = Events(1_000)
    logger = logging.getLogger("drmq.test-events")
    logger.addHandler(ring)
    logger.setLevel(logging.DEBUG)
    yield ring
    logger.removeHandler(ring)


def say(level: int, text: str, *values: object) -> None:
    logging.getLogger("drmq.test-events").log(level, text, *values)


def test_a_reader_gets_what_is_new(events: Events) -> None:
    say(logging.INFO, "node %d is up", 1)
    say(logging.DEBUG, "not an event")
    say(logging.ERROR, "node %d is down", 2)
    first, second = events.after(0, 10)
    assert (first.sequence, first.level, first.source, first.text) == (1, "info", "test-events", "node 1 is up")
    assert (second.sequence, second.level) == (2, "error")
    assert events.after(1, 10) == [second]
    assert events.after(2, 10) == []
    assert events.after(99, 10) == [], "a number of an earlier run"


def test_the_newest_are_kept_and_returned(events: Events) -> None:
    for number in range(EVENTS_MAX + 5):
        say(logging.INFO, "event %d", number)
    kept = events.after(0, 10**6)
    assert [event.text for event in kept] == [f"event {number}" for number in range(5, EVENTS_MAX + 5)]
    assert [event.text for event in events.after(0, 2)] == [f"event {EVENTS_MAX + 3}", f"event {EVENTS_MAX + 4}"]
    assert events.after(0, -1) == []


def test_a_long_line_is_cut_and_a_bad_one_does_no_harm(events: Events) -> None:
    say(logging.INFO, "x" * 5_000)
    bad_line = {"name": "drmq.test", "msg": "%d is no number", "args": ("one",), "levelno": 20, "levelname": "INFO"}
    events.handle(logging.makeLogRecord(bad_line))
    long, bad = events.after(0, 10)
    assert len(long.text) == TEXT_MAX
    assert bad.text == "%d is no number"


def test_over_the_wire(harness: Harness) -> None:
    kafka = KafkaHarness(harness)
    ring = harness.broker.services.events
    ring.handle(logging.makeLogRecord({"name": "drmq.broker", "msg": "a leader", "levelno": 20, "levelname": "INFO"}))
    answer = kafka.ask(DescribeEventsRequest(0, 10), 0)
    assert [(event.sequence, event.source, event.text) for event in answer.events] == [(1, "broker", "a leader")]
    assert answer.node_id == harness.broker.node_id
    assert answer.started_ms == ring.started_ms
