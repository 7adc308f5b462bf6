"""Which dead letters are meant: a JSON object whose fields must all be true of a letter.

    {"group": "billing", "reason": "rejected", "attempts_min": 3}

`FIELDS` is the complete list. An empty text, or an empty object, means all letters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from drmq.broker.services.redrive.letters import Letter
from drmq.model import ApiError, ErrorCode

FILTER_BYTES_MAX: Final = 16_384


def _header(letter: Letter, wanted: Mapping[str, str]) -> bool:
    headers = {(name, (value or b"").decode(errors="replace")) for name, value in letter.record.headers}
    return wanted.items() <= headers


FIELDS: Final[dict[str, tuple[type, str, Callable[[Letter, Any], bool]]]] = {
    "group": (str, "the group that gave the record up", lambda letter, wanted: letter.group == wanted),
    "topic": (str, "the topic that it came from", lambda letter, wanted: letter.topic == wanted),
    "partition": (int, "the partition that it came from", lambda letter, wanted: letter.origin_partition == wanted),
    "key": (str, "its key, as text", lambda letter, wanted: letter.record.key == wanted.encode()),
    "value_contains": (
        str,
        "text that is in its value",
        lambda letter, wanted: wanted.encode() in (letter.record.value or b""),
    ),
    "reason": (str, "text that is in the reason", lambda letter, wanted: wanted in letter.reason),
    "header": (dict, "names and values of headers that it has", _header),
    "attempts_min": (int, "the least number of deliveries", lambda letter, wanted: letter.attempts >= wanted),
    "redrives_max": (
        int,
        "the largest number of times that it was moved back before",
        lambda letter, wanted: letter.redrive_count <= wanted,
    ),
    "failed_since_ms": (
        int,
        "the earliest time of its last failure",
        lambda letter, wanted: letter.last_failed_ms >= wanted,
    ),
    "failed_until_ms": (
        int,
        "the time before which its last failure was",
        lambda letter, wanted: letter.last_failed_ms < wanted,
    ),
}
"""By name: the type of the field in JSON, what it means, and whether it is true of a letter."""

_TYPE_NAMES = {str: "a text", int: "a whole number", dict: "an object of texts"}


class LetterFilter:
    """A filter that was checked."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._tests = [(FIELDS[name][2], value) for name, value in wanted.items()]
        self.text = json.dumps(wanted, separators=(",", ":"), sort_keys=True, ensure_ascii=False) if wanted else ""
        """The filter as one JSON text; empty if it means all letters."""

    @classmethod
    def parse(cls, text: str | None) -> LetterFilter:
        """Read a filter. Raises `ApiError` that says what is wrong with it."""
        if not text:
            return cls({})
        if len(text.encode()) > FILTER_BYTES_MAX:
            raise _bad(f"it is longer than {FILTER_BYTES_MAX:,} bytes")
        try:
            wanted = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(f"it is not JSON: {error}") from None
        if not isinstance(wanted, dict):
            raise _bad("it is not a JSON object")
        for name, value in wanted.items():
            if name not in FIELDS:
                raise _bad(f"there is no field {name!r:.80}; there are {', '.join(FIELDS)}")
            kind = FIELDS[name][0]
            is_right = isinstance(value, kind) and not isinstance(value, bool)
            if kind is dict and is_right:
                is_right = all(isinstance(each, str) for each in value.values())
            if not is_right:
                raise _bad(f"{name} must be {_TYPE_NAMES[kind]}")
        found = cls(wanted)
        try:
            found.text.encode()
        except UnicodeEncodeError:
            raise _bad("it has half of a pair of surrogates") from None
        return found

    def matches(self, letter: Letter) -> bool:
        """Whether all fields are true of a letter."""
        return all(test(letter, wanted) for test, wanted in self._tests)


def _bad(problem: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"the filter cannot be used: {problem}")
