"""Positions in a topic as users write them: `begin`, `end`, `-10`, `@2026-11-01`, `42`, `3:42`.

`consume --from`, `group reset --to` and `topic trim --before` share this grammar. Parsing and resolving are separate:
`parse_position` needs no broker, `resolve` asks one for the offsets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from drmq.client import Admin
    from drmq.model import TopicPartition

POSITION_HELP = "`begin`, `end`, `-N` (N before the end of each partition), `@TIME`, an offset, or `PARTITION:OFFSET`"
TIME_HELP = "2026-11-01, 2026-11-01T12:00:00Z (local time without Z), milliseconds since 1970, or 15m, 2h, 7d ago"

_INT64_MAX = 2**63 - 1
"""The latest time that a record can have."""
_CALENDAR_MS_MAX = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS_MAX = 40
"""More than any number here can have, and less than Python refuses to convert."""
_AGO = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class BadPosition(click.UsageError):
    """A text that is not a position or time. The message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in each partition. `kind` is `begin`, `end`, `before_end`, `time` or `offset`."""

    kind: str
    value: int = 0
    partition: int | None = None


def parse_time(text: str, now_ms: int | None = None) -> int:
    """A time, in any of the accepted notations, as milliseconds since 1970. Raises `BadPosition`."""
    plain = text.strip().removeprefix("@")
    if plain.isascii() and plain.isdigit() and len(plain) > 8:
        # Kafka allows any number: some producers count microseconds.
        found, largest = _whole(plain), _INT64_MAX
    else:
        found, largest = _calendar_ms(plain, now_ms), _CALENDAR_MS_MAX
    if not 0 <= found <= largest:
        raise BadPosition(
            f"{text!r} is before 1970 or after the year 9999, or more than {_INT64_MAX} milliseconds. "
            f"Allowed: {TIME_HELP}."
        )
    return found


def _whole(digits: str) -> int:
    """A whole number. The first digits of one that is far too large are as good as all."""
    return int(digits.lstrip("0")[:_DIGITS_MAX] or "0")


def _calendar_ms(text: str, now_ms: int | None) -> int:
    ago = re.fullmatch(r"-?(\d+)([smhdw])(?: ago)?", text)
    if ago:
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        return now_ms - _whole(ago.group(1)) * _AGO[ago.group(2)]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPosition(f"{text!r} is not a time. Allowed: {TIME_HELP}.") from None
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return -1  # a local time at either end of the calendar


def time_text(timestamp_ms: int) -> str | None:
    """The time in UTC with milliseconds, in a notation that `parse_time` reads; None for a record without a time."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


def parse_position(text: str) -> Position:
    """Parse a position. Raises `BadPosition`."""
    word = text.strip().lower()
    if word in ("begin", "beginning", "earliest", "start"):
        return Position("begin")
    if word in ("end", "latest"):
        return Position("end")
    if word.startswith("@"):
        return Position("time", parse_time(text))
    if re.fullmatch(r"-\d+", word):
        return Position("before_end", _whole(word[1:]))
    if word.isascii() and word.isdigit():
        return Position("offset", _whole(word))
    placed = re.fullmatch(r"(\d+):(\d+)", word)
    if placed:
        return Position("offset", _whole(placed.group(2)), _whole(placed.group(1)))
    if re.match(r"\d{4}-\d\d", word):
        return Position("time", parse_time(text))
    raise BadPosition(f"{text!r} is not a position. Allowed: {POSITION_HELP}; TIME is {TIME_HELP}.")


def resolve(
    admin: Admin, partitions: Iterable[TopicPartition], positions: Iterable[Position]
) -> dict[TopicPartition, int]:
    """The offset of each partition at its position, clamped to what the partition contains.

    A position for one partition overrides a general one. If only positions for single partitions are given, the other
    partitions are left out. A time after the last record means the end.
    """
    wanted = list(partitions)
    chosen = _choose(wanted, list(positions))
    bounds = admin.topics.bounds(chosen)
    times = {place: position.value for place, position in chosen.items() if position.kind == "time"}
    at_times = admin.topics.offsets(times)
    found = {}
    for place, position in chosen.items():
        start, end = bounds[place]
        if position.kind == "begin":
            offset = start
        elif position.kind == "end":
            offset = end
        elif position.kind == "before_end":
            offset = end - position.value
        elif position.kind == "time":
            offset = at_times[place].offset if at_times[place].offset >= 0 else end
        else:
            offset = position.value
        found[place] = min(max(offset, start), end)
    return found


def _choose(partitions: list[TopicPartition], positions: list[Position]) -> Mapping[TopicPartition, Position]:
    general = [position for position in positions if position.partition is None]
    if len(general) > 1:
        raise BadPosition("Give one position for all partitions, or one for each as PARTITION:OFFSET.")
    special = {position.partition: position for position in positions if position.partition is not None}
    missing = set(special) - {place.partition for place in partitions}
    if missing:
        raise BadPosition(f"The topic has no partition {min(missing)}.")
    chosen = {}
    for place in partitions:
        position = special.get(place.partition, general[0] if general else None)
        if position is not None:
            chosen[place] = position
    return chosen
