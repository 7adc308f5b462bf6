"""Types for options that carry their own bounds, used by the options classes of all packages.

An option is a field of a frozen dataclass. Its type says which values are allowed and its docstring says what it is
for. Code that holds the options therefore does not check them again, and the reference manual is generated from them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeAlias, get_type_hints

from drmq.model.errors import DrmqError

INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class InvalidOption(DrmqError):
    """An option has a value that is not allowed. Carries the option's name, and the reason with the allowed values."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Range:
    """The values that an integer option may have, both ends included. Part of the option's type annotation."""

    minimum: int
    maximum: int = _INT64_MAX

    def __str__(self) -> str:
        if self.maximum in (INT32_MAX, _INT64_MAX):
            return f"{self.minimum} or more"
        return f"{self.minimum} to {self.maximum}"

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.minimum <= value <= self.maximum


PARTITIONS_MAX = 10_000
"""The maximum number of partitions of a topic: each one costs a directory and open files."""

Count: TypeAlias = Annotated[int, Range(1, INT32_MAX)]
Partitions: TypeAlias = Annotated[int, Range(1, PARTITIONS_MAX)]
Bytes: TypeAlias = Annotated[int, Range(1)]
Bytes32: TypeAlias = Annotated[int, Range(1, INT32_MAX)]
"""A size that Kafka's protocol, or a segment's index, keeps in 32 bits."""
BytesOrUnlimited: TypeAlias = Annotated[int, Range(-1)]
Milliseconds: TypeAlias = Annotated[int, Range(1)]
MillisecondsOrZero: TypeAlias = Annotated[int, Range(0)]
MillisecondsOrForever: TypeAlias = Annotated[int, Range(-1)]


@cache
def option_types(cls: type) -> dict[str, Any]:
    """Each option's type with its `Range`, by name."""
    return get_type_hints(cls, include_extras=True)


def check_ranges(options: Any) -> None:
    """Raise `InvalidOption` for the first integer option outside its range."""
    cls: type = type(options)
    hints = option_types(cls)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        for allowed in getattr(hints[field.name], "__metadata__", ()):
            if isinstance(allowed, Range) and value not in allowed:
                raise InvalidOption(field.name, f"{value!r} is not possible; allowed is {allowed}")
