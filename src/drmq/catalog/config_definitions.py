"""Definitions of settings: the name, type and default of each, and which values are allowed.

Topics, brokers and groups have a table of definitions each (`topic_configs`, `broker_configs`, `group_configs`).
Checks, descriptions and reference pages follow from the tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from drmq.model import ApiError, ErrorCode

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"([0-9]{1,19}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?", re.ASCII)

Check = Callable[[str], str | None]
"""Returns what is wrong with a value, or None."""


class ConfigType(IntEnum):
    """The type of a setting, with the protocol's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One setting: its name, type and default, and the name of its broker-wide form in Kafka's tools, if it has one."""

    name: str
    type: ConfigType
    default: str
    broker_name: str | None
    doc: str
    problem: Check
    allowed: str = ""
    """The allowed values in words, where a reference page is made from the table."""


def table_of(*definitions: ConfigDefinition) -> dict[str, ConfigDefinition]:
    """The definitions by name."""
    return {definition.name: definition for definition in definitions}


def check_value(definitions: Mapping[str, ConfigDefinition], kind: str, name: str, value: str | None) -> None:
    """Raise `ApiError` (INVALID_CONFIG) unless the setting exists and the value is allowed. `kind` is for the text."""
    definition = definitions.get(name)
    if definition is None:
        known = ", ".join(definitions)
        raise ApiError(ErrorCode.INVALID_CONFIG, f"unknown {kind} setting {name!r}; known are: {known}")
    if value is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{name} has no value; give it one, or leave it out to keep its default"
        )
    problem = definition.problem(value)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}={value!r} {problem}")


def whole_number(first: int, last: int) -> Check:
    """A check that a value is a whole number in this range."""

    def problem(value: str) -> str | None:
        # Narrower than `int`: "1_000" would be stored as text, and clients could not read it.
        if not _WHOLE_NUMBER.fullmatch(value):
            return f"is not a whole number; allowed are {first} to {last}"
        if not first <= int(value) <= last:
            return f"is outside {first} to {last}"
        return None

    return problem


def number(first: int, last: int) -> Check:
    """A check that a value is a number in this range, with or without decimals."""

    def problem(value: str) -> str | None:
        if _NUMBER.fullmatch(value) and first <= float(value) <= last:
            return None
        return f"is not a number from {first} to {last}"

    return problem


def boolean(value: str) -> str | None:
    """A check that a value is true or false."""
    return None if value.lower() in ("true", "false") else "is neither true nor false"


def only_false(why: str) -> Check:
    """A check that a value is false, for what is not offered."""

    def problem(value: str) -> str | None:
        return f"is not offered: {why}" if value.lower() == "true" else boolean(value)

    return problem


def one_of(*allowed: str, why: str) -> Check:
    """A check that a value is one of these words."""

    def problem(value: str) -> str | None:
        return None if value in allowed else f"is not {' or '.join(allowed)}: {why}"

    return problem
