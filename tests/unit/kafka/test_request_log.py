"""Lines about single requests: with an id that finds them, and not more than a disk full of them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.kafka.request_log import LINES_MAX, WINDOW_S, RequestLog, first_error
from drmq.transport import Connection
from drmq.wire import ApiKey, RequestHeader
from drmq.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

PEER = cast(Connection, SimpleNamespace(peer="10.0.0.7:5000", client_id="someone"))
HEADER = RequestHeader(ApiKey.CREATE_TOPICS, 7, 17, "drmq-gateway/order-9", 20)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return vars(record)


def test_a_slow_request_is_logged_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog()
    with caplog.at_level(logging.INFO):
        log.slow(PEER, HEADER, 1.25, False, 100.0)
        log.slow(PEER, HEADER, 3.5, True, 102.0)
    first, second = map(fields, caplog.records)
    assert (first["levelname"], second["levelname"]) == ("WARNING", "INFO")
    for found in (first, second):
        assert found["request_id"] == "10.0.0.7:5000/17"
        assert found["client_id"] == "drmq-gateway/order-9"
        assert found["api"] == "CREATE_TOPICS"
    assert (first["duration_ms"], second["duration_ms"]) == (1250, 3500)
    assert log.slow_counts == {"CREATE_TOPICS": 1}, "one request, however often it is logged"


def test_a_thousand_slow_requests_are_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog()
    with caplog.at_level(logging.INFO):
        for _ in range(1_000):
            log.slow(PEER, HEADER, 1.0, False, 100.0)
        assert len(caplog.records) == LINES_MAX
        log.slow(PEER, HEADER, 1.0, False, 100.0 + WINDOW_S)
    assert fields(caplog.records[-1])["unsaid"] == 1_000 - LINES_MAX
    assert log.slow_counts["CREATE_TOPICS"] == 1_001


def test_a_bug_has_the_id_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    RequestLog().bug(PEER, HEADER, ValueError("broken"))
    [record] = caplog.records
    assert fields(record)["request_id"] == "10.0.0.7:5000/17"
    assert "ValueError: broken" in caplog.text


def test_errors_are_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    answer = MetadataResponse(topics=[MetadataResponseTopic(), MetadataResponseTopic(error_code=3)])
    assert first_error(answer) == (3, None)
    assert first_error(MetadataResponse()) == (0, None)
    log = RequestLog()
    with caplog.at_level(logging.INFO, "drmq.kafka"):
        log.answered(PEER, HEADER, answer)
    assert not caplog.records
    with caplog.at_level(logging.DEBUG, "drmq.kafka"):
        log.answered(PEER, HEADER, answer)
        log.answered(PEER, HEADER, MetadataResponse())
    [record] = caplog.records
    assert (fields(record)["error_code"], fields(record)["request_id"]) == (3, "10.0.0.7:5000/17")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in record.getMessage()
