"""The last events of a node, for people and programs that watch it.

An event is a line of the node's log with level INFO or higher: an election, a node that goes down, a topic that is
created, a limit that is reached. They are kept in memory, the last `EVENTS_MAX` of them, and numbered, so that a reader
can ask for what is new. The file of the log has all of them.

The process that runs the node adds this handler to its logging. Several nodes in one process, as in tests, would all
get the lines of all.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

EVENTS_MAX: Final = 1_000
TEXT_MAX: Final = 1_000
"""Characters of an event. A name that a client chose may be long."""


class Event(NamedTuple):
    """One line of the log."""

    sequence: int
    time_ms: int
    level: str
    source: str
    """The part of the node, such as `broker`."""
    text: str


class Events(logging.Handler):
    """The ring of events. Lines may come from any thread."""

    def __init__(self, started_ms: int) -> None:
        super().__init__(logging.INFO)
        self.started_ms = started_ms
        self.http: str | None = None
        """Where the gateway of this node answers, `host:port`; None if it has none. Set by the process of the node."""
        self.grpc: str | None = None
        """Where it answers gRPC."""
        self._mutex = threading.Lock()
        self._ring: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._last_sequence = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()[:TEXT_MAX]
        except (TypeError, ValueError):
            text = str(record.msg)[:TEXT_MAX]  # a line whose values do not fit its format
        time_ms, level, source = int(record.created * 1000), record.levelname.lower(), record.name.removeprefix("drmq.")
        with self._mutex:
            self._last_sequence += 1
            self._ring.append(Event(self._last_sequence, time_ms, level, source, text))

    def after(self, sequence: int, count_max: int) -> Sequence[Event]:
        """The events with higher numbers, the oldest first. If there are more than `count_max`, the newest of them."""
        with self._mutex:
            newer = self._last_sequence - sequence
            count = max(0, min(newer, count_max, len(self._ring)))
            return list(islice(self._ring, len(self._ring) - count, None))
