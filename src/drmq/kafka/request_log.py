"""Log lines about single requests: those that fail on a bug, and those that take long.

A request is identified by its connection and the correlation id that its client chose: `10.0.0.7:51324/1017`. Every
line about it has that as `request_id`, and the client's id. A gateway adds the id of the HTTP request to its client id,
so a search for that finds the lines of the node, too.

When a disk hangs, every request takes long. A few of them are logged, the others counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any, Final

from drmq.kafka.exchange import API_NAMES
from drmq.model import ErrorCode
from drmq.transport import Connection
from drmq.wire import ApiKey, RequestHeader

log = logging.getLogger("drmq.kafka")

PATIENT: Final = frozenset(
    map(
        int,
        (
            ApiKey.FETCH,
            ApiKey.SHARE_FETCH,
            ApiKey.LEASE_FETCH,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
        ),
    )
)
"""APIs whose requests wait for records or for other members, as their clients want."""
LINES_MAX: Final = 10
WINDOW_S: Final = 10.0
"""So many requests that take long are logged in a window of so many seconds."""
_TEXT_MAX = 255
_DEPTH_MAX = 2
"""How deep the entries of a response are searched for errors: topics, and their partitions."""


def fields_of(connection: Connection | None, header: RequestHeader | None) -> dict[str, Any]:
    """What a log line about a request has."""
    fields: dict[str, Any] = {}
    if header is not None:
        peer = "forwarded" if connection is None else connection.peer
        fields["request_id"] = f"{peer}/{header.correlation_id}"
        fields["api"] = API_NAMES.get(header.api_key, str(header.api_key))
        fields["client_id"] = (header.client_id or "")[:_TEXT_MAX]
    elif connection is not None:
        fields["client_id"] = connection.client_id
    return fields


class RequestLog:
    """The lines of one server. Used on its event loop."""

    def __init__(self) -> None:
        self.slow_counts: Counter[str] = Counter()
        """By API: requests that took long."""
        self._window_end = 0.0
        self._lines_left = 0
        self._unsaid = 0

    def slow(
        self, connection: Connection, header: RequestHeader, seconds: float, is_answered: bool, now: float
    ) -> None:
        if not is_answered:
            self.slow_counts[API_NAMES[header.api_key]] += 1
        if now >= self._window_end:
            self._window_end, self._lines_left = now + WINDOW_S, LINES_MAX
        if not self._lines_left:
            self._unsaid += 1
            return
        self._lines_left -= 1
        shown = fields_of(connection, header) | {"duration_ms": int(seconds * 1000)}
        if self._unsaid:
            shown["unsaid"], self._unsaid = self._unsaid, 0
        if is_answered:
            log.info("a slow request of %s is answered after more than %.1f s", connection.peer, seconds, extra=shown)
        else:
            log.warning("a request of %s has no answer after more than %.1f s", connection.peer, seconds, extra=shown)

    def bug(self, connection: Connection, header: RequestHeader | None, error: BaseException) -> None:
        log.error(
            "a request of %s (client %r) failed because of a bug in this node; its connection is closed",
            connection.peer,
            connection.client_id,
            exc_info=error,
            extra=fields_of(connection, header),
        )

    def answered(self, connection: Connection | None, header: RequestHeader, response: object) -> None:
        """A request is answered. Errors are part of normal operation, so they are logged for debugging only."""
        if log.isEnabledFor(logging.DEBUG):
            code, message = first_error(response)
            if code:
                shown = fields_of(connection, header) | {"error_code": code}
                log.debug("a request is answered with an error: %s", message or _name_of(code), extra=shown)


def first_error(response: object, depth: int = _DEPTH_MAX) -> tuple[int, str | None]:
    """The first error in a response or in its entries, with its message; 0 if there is none."""
    code = getattr(response, "error_code", 0)
    if code or not depth or not is_dataclass(response):
        return code, getattr(response, "error_message", None)
    for field in fields(response):
        for entry in _entries(getattr(response, field.name)):
            found = first_error(entry, depth - 1)
            if found[0]:
                return found
    return 0, None


def _entries(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
