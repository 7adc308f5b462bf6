"""Log lines in both forms, and events that are said once."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from drmq.telemetry import request_ids
from drmq.telemetry.logs import JsonFormatter, RepeatFilter, TextFormatter, configure, report_counts


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("drmq.test").makeRecord(
        "drmq.test", logging.INFO, "file", 1, message, (), None, extra=extra
    )
    made.created, made.msecs = 1793534400.5, 500.0
    return made


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """`configure` replaces the handlers of the whole process; put them back."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_line() -> None:
    """Time, level, logger, message, then the fields; values with spaces are quoted."""
    line = TextFormatter().format(record("listening", port=9092, why="a b", none=""))
    assert line == '2026-11-01T12:00:00.500Z INFO    drmq.test: listening port=9092 why="a b" none=""'


def test_json_line() -> None:
    """The four members that every line has cannot be replaced by a field."""
    content = json.loads(JsonFormatter().format(record("listening", port=9092, level="mine", logger="mine")))
    assert content == {
        "time": "2026-11-01T12:00:00.500Z",
        "level": "info",
        "logger": "drmq.test",
        "message": "listening",
        "port": 9092,
    }


def test_exception_is_part_of_the_line() -> None:
    """A traceback is one member in JSON, and follows the line in text."""
    try:
        raise ValueError("broken")
    except ValueError as error:
        made = record("failed")
        made.exc_info = (type(error), error, error.__traceback__)
    assert "ValueError: broken" in json.loads(JsonFormatter().format(made))["exception"]
    assert "ValueError: broken" in TextFormatter().format(made)


def test_repeated_event_is_said_once_and_counted() -> None:
    """Within a window only the first passes; the next one after it carries the count."""
    now = [0.0]
    repeats = RepeatFilter(60.0, clock=lambda: now[0])
    assert repeats.filter(record("bad frame", repeat_key="bad"))
    assert not any(repeats.filter(record("bad frame", repeat_key="bad")) for _ in range(999))
    assert repeats.filter(record("other", repeat_key="other"))
    assert repeats.filter(record("plain"))
    now[0] = 61.0
    again = record("bad frame", repeat_key="bad")
    assert repeats.filter(again)
    assert "unsaid=999" in TextFormatter().format(again)
    assert repeats.take_counts() == []


def test_number_of_keys_is_bounded() -> None:
    """A peer that makes up new events makes us forget old ones, not grow."""
    repeats = RepeatFilter()
    for number in range(5000):
        assert repeats.filter(record("x", repeat_key=f"key {number}"))
    assert len(repeats._events) <= 1000


@pytest.mark.usefixtures("restored_logging")
def test_counts_are_told_at_the_end() -> None:
    """What was counted and never said is said when the process ends."""
    stream = io.StringIO()
    repeats = configure("info", "text", stream)
    log = logging.getLogger("drmq.test")
    for _ in range(5):
        log.warning("closed %s", "peer", extra={"repeat_key": "closed"})
    log.debug("not said at this level")
    report_counts(repeats)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("WARNING drmq.test: closed peer")
    assert lines[1].endswith("drmq.log: 4 more times: closed peer")


BAD_NAMES = ["two\nlines", "carriage\r\nreturn", "\x1b[31mred", "half \udc80 of a pair", "\u2028", "\x00", "\x85", '"{']


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_line_is_one_line_whatever_a_client_calls_itself(name: str) -> None:
    """Names of clients and topics are in messages and in fields. Both forms can be written to any stream."""
    made = record(f"closed {name}", client_id=name)
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(made)
        assert len(line.splitlines()) == 1
        assert not any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in line)
        line.encode()
    content = json.loads(JsonFormatter().format(made))
    assert content["client_id"] == name, "nothing is lost"


def test_a_message_whose_values_do_not_fit_is_logged_as_it_is() -> None:
    """A bug in a log line must not cost the line, and in JSON not print a traceback between lines."""
    made = record("%d of %s")
    made.args = ("many",)
    assert "%d of %s ('many',)" in TextFormatter().format(made)
    assert json.loads(JsonFormatter().format(made))["message"] == "%d of %s ('many',)"


def test_values_of_any_type_make_valid_json() -> None:
    line = JsonFormatter().format(record("x", a=float("nan"), b=1.5, c={"set"}, d=None, e=True))
    content = json.loads(line, parse_constant=lambda text: pytest.fail(text))
    assert (content["a"], content["b"], content["c"], content["d"], content["e"]) == ("nan", 1.5, "{'set'}", None, True)


def test_each_json_line_names_its_process() -> None:
    content = json.loads(JsonFormatter({"process": "node", "node_id": 3}).format(record("x", node_id=9)))
    assert (content["process"], content["node_id"]) == ("node", 3)


def test_lines_of_a_request_have_its_id() -> None:
    token = request_ids.current.set("order-17")
    try:
        assert json.loads(JsonFormatter().format(record("x")))["request_id"] == "order-17"
        assert TextFormatter().format(record("x")).endswith(" request_id=order-17")
        assert request_ids.with_id("gateway") == "gateway/order-17"
    finally:
        request_ids.current.reset(token)
    assert "request_id" not in json.loads(JsonFormatter().format(record("x")))
    assert request_ids.with_id("gateway") == "gateway"


@pytest.mark.parametrize("text", ["", "a b", "a\nb", "a" * 65, "é", '"', None])
def test_an_id_that_is_not_plain_is_replaced(text: str | None) -> None:
    assert request_ids.accepted("order-17:3") == "order-17:3"
    made = request_ids.accepted(text)
    assert made != text
    assert len(made) == 16
