"""Conditions about the fields of JSON values: `total >= 10 and customer.country = DE`.

A condition is a path alone, which must be there, or a path, an operator and a value. A path has the names of fields and
the indexes of lists, with dots between them; `$.` may stand before it. A value is a JSON literal; other words are text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from drmq.gateway.problems import ProblemError

Test = Callable[[bytes | None], bool]

_CONDITION: Final = re.compile(
    r"""\s*(?:\$\.)?(?P<path>[^\s=<>!"]+)\s*(?:(?P<operator><=|>=|!=|=|<|>)\s*(?P<value>"(?:[^"\\]|\\.)*"|[^\s"=<>!][^\s"]*))?\s*"""
)
_ORDERED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_INDEX: Final = re.compile(r"[0-9]{1,9}")
"""Python refuses to read numbers of thousands of digits."""
_MISSING: Final = object()


def compile_conditions(text: str) -> Test:
    """A function that tests a value. Raises `ProblemError` if the text is no conditions."""
    conditions = []
    at = 0
    while True:
        found = _CONDITION.match(text, at)
        if found is None:
            raise ProblemError(400, f"this is not a condition about JSON, as in `total >= 10`: {text[at:]!r}")
        conditions.append((found["path"].split("."), found["operator"], found["value"]))
        at = found.end()
        if at == len(text):
            break
        if not text.startswith("and ", at):
            raise ProblemError(400, f"conditions about JSON are joined by `and`, not by {text[at:]!r}")
        at += len("and ")
    tests = [(path, _comparison(sign, value)) for path, sign, value in conditions]

    def matches(value: bytes | None) -> bool:
        try:
            content = msgspec.json.decode(value or b"")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False
        return all(test(_field(content, path)) for path, test in tests)

    return matches


def _field(content: object, path: list[str]) -> object:
    for name in path:
        if isinstance(content, dict):
            content = content.get(name, _MISSING)
        elif isinstance(content, list) and _INDEX.fullmatch(name) and int(name) < len(content):
            content = content[int(name)]
        else:
            return _MISSING
    return content


def _comparison(sign: str | None, word: str | None) -> Callable[[object], bool]:
    if sign is None or word is None:
        return lambda found: found is not _MISSING
    try:
        wanted: object = msgspec.json.decode(word.encode())
    except msgspec.DecodeError:
        wanted = word
    if sign in _ORDERED:
        compare = _ORDERED[sign]
        return lambda found: _are_ordered(found, wanted) and compare(found, wanted)

    def is_equal(found: object) -> bool:
        # A number may be written as text in the value; in Python, 1 == True.
        return found == word or (found == wanted and isinstance(found, bool) == isinstance(wanted, bool))

    return is_equal if sign == "=" else lambda found: found is not _MISSING and not is_equal(found)


def _are_ordered(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return all(isinstance(each, int | float) for each in (left, right)) or (
        isinstance(left, str) and isinstance(right, str)
    )
