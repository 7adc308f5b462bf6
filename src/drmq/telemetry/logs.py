"""Where log lines go and how they are formatted.

The lower layers use the standard `logging` module and nothing of this one. Whatever they pass in `extra` becomes a
field: `key=value` at the end of a text line, or a member of the object in a JSON line. A line about an HTTP request has
its id (`request_ids`), and one within a span the id of its trace.

Names that clients choose may have any character. Control characters, line ends and halves of surrogate pairs are
escaped, so that a line is one line, and what a client writes is not taken for one of ours.

A broken client can cause the same event a thousand times a second, and a log full of repetitions is a second failure.
A record with the field `repeat_key` is therefore logged once. Further records with the same key within a minute are
only counted, and the next record that is logged carries the count in the field `unsaid`:

    log.warning("closed %s: %s", peer, reason, extra={"repeat_key": "request-too-large"})
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TextIO

from drmq.telemetry import request_ids, tracing

REPEAT_WINDOW_S = 60.0
REPEAT_KEYS_MAX = 1000
"""Keys remembered at a time. A key may contain an address, so clients determine how many there are."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "repeat_key", "taskName"}


_UNSAFE: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")


def one_line(text: str) -> str:
    """The text with everything escaped that could end a line, steer a terminal, or not be encoded."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def message_of(record: logging.LogRecord) -> str:
    """The message of a record. If its values do not fit its format, both as they are: a line is never lost."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        return f"{record.msg} {record.args!r}"


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller passed in `extra`, and the ids of the request and of the trace."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    request_id = request_ids.current.get()
    if request_id:
        fields.setdefault("request_id", request_id)
    span = tracing.current()
    if span is not None:
        fields.setdefault("trace_id", f"{span.trace_id:032x}")
    return fields


def _time_text(record: logging.LogRecord) -> str:
    """The time in UTC with milliseconds, in a format that sorts."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`2026-11-01T12:00:00.123Z INFO    drmq.node: listening port=9092`"""

    def format(self, record: logging.LogRecord) -> str:
        parts = [f"{_time_text(record)} {record.levelname:<7} {record.name}: {message_of(record)}"]
        parts += [f"{name}={_plain(value)}" for name, value in fields_of(record).items()]
        line = one_line(" ".join(parts))
        if record.exc_info:
            shown = self.formatException(record.exc_info).split("\n")
            line += "\n" + "\n".join(map(one_line, shown))
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, the fields, and `exception` if there is one.

    `fields` are in every line: which process it is.
    """

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._fields = dict(fields or {})

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "time": _time_text(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_of(record),
            **self._fields,
        }
        # A field must not replace one that every line has: monitoring relies on them.
        content |= {name: value for name, value in fields_of(record).items() if name not in content}
        if record.exc_info:
            content["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: _json_value(value) for name, value in content.items()})


def _json_value(value: Any) -> Any:
    """A value that is the same in JSON; others as text. JSON has no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, (str, int)) or value is None else str(value)


def _plain(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c == '"' for c in text) else text


@dataclass(slots=True)
class _Repeated:
    """One event with a `repeat_key`: when it was last logged, and how many repetitions were suppressed since."""

    said_at: float
    message: str
    unsaid: int = 0


class RepeatFilter(logging.Filter):
    """Passes the first record of each `repeat_key`, then only counts for `window_s` seconds. Thread-safe."""

    def __init__(self, window_s: float = REPEAT_WINDOW_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._window_s = window_s
        self._clock = clock
        self._lock = threading.Lock()
        self._events: dict[str, _Repeated] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = getattr(record, "repeat_key", None)
        if key is None:
            return True
        now = self._clock()
        with self._lock:
            event = self._events.get(key)
            if event is not None and now - event.said_at < self._window_s:
                event.unsaid += 1
                return False
            if event is None and len(self._events) >= REPEAT_KEYS_MAX:
                self._forget_oldest()
            self._events[key] = _Repeated(now, message_of(record))
        if event is not None and event.unsaid:
            record.unsaid = event.unsaid
        return True

    def _forget_oldest(self) -> None:
        oldest = min(self._events, key=lambda key: self._events[key].said_at)
        del self._events[oldest]

    def take_counts(self) -> list[tuple[str, int]]:
        """Take the suppressed events with their counts, and reset the counts. For the end of a process."""
        with self._lock:
            counted = [(event.message, event.unsaid) for event in self._events.values() if event.unsaid]
            self._events.clear()
        return counted


def configure(
    level: str, log_format: str, stream: TextIO | None = None, fields: Mapping[str, Any] | None = None
) -> RepeatFilter:
    """Send the log of this process to standard error or `stream`, in one of the two formats. Replaces earlier calls.

    `fields` are in every JSON line.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter(fields) if log_format == "json" else TextFormatter())
    repeats = RepeatFilter()
    handler.addFilter(repeats)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # At debug level, asyncio logs "Using selector" for each loop, and slow callbacks that a debugger causes.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return repeats


def report_counts(repeats: RepeatFilter) -> None:
    """Log the number of suppressed repetitions. Call it once, when the process ends."""
    log = logging.getLogger("drmq.log")
    for message, count in repeats.take_counts():
        log.info("%d more times: %s", count, message)
