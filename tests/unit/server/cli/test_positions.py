"""Positions and times as people write them."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from drmq.client import Admin, Bounds, OffsetAt
from drmq.model import TopicPartition
from drmq.server.cli.positions import BadPosition, Position, parse_position, parse_time, resolve, time_text

NOW_MS = 1_793_534_400_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("begin", Position("begin")),
        ("earliest", Position("begin")),
        ("END", Position("end")),
        ("latest", Position("end")),
        ("-10", Position("before_end", 10)),
        ("0", Position("offset", 0)),
        ("42", Position("offset", 42)),
        ("3:42", Position("offset", 42, 3)),
        ("@2026-11-01T12:00:00Z", Position("time", NOW_MS)),
        ("2026-11-01T12:00:00Z", Position("time", NOW_MS)),
        ("2026-11-01T13:00:00+01:00", Position("time", NOW_MS)),
        ("@1793534400000", Position("time", NOW_MS)),
    ],
)
def test_position(text: str, position: Position) -> None:
    """Every form has one meaning."""
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "x", "-", "--1", "1:", ":1", "1:2:3", "@", "@tomorrow", "-1:5", "1.5", "٣"])
def test_no_position(text: str) -> None:
    """What is not understood is refused with the list of what is."""
    with pytest.raises(BadPosition, match="Allowed"):
        parse_position(text)


@pytest.mark.parametrize(
    ("text", "ago_ms"), [("15m", 900_000), ("2h", 7_200_000), ("-7d", 604_800_000), ("1s ago", 1000)]
)
def test_time_ago(text: str, ago_ms: int) -> None:
    """A duration is so long before now."""
    assert parse_time(text, now_ms=NOW_MS) == NOW_MS - ago_ms


def test_time_without_zone_is_local() -> None:
    """A person means the clock on their wall."""
    local = time.mktime((2026, 11, 1, 12, 0, 0, 0, 0, -1))
    assert parse_time("2026-11-01T12:00:00") == int(local * 1000)


def test_time_text_is_read_back() -> None:
    """What is printed can be typed."""
    assert time_text(NOW_MS + 7) == "2026-11-01T12:00:00.007Z"
    assert parse_time("2026-11-01T12:00:00.007Z") == NOW_MS + 7
    assert time_text(-1) is None
    assert time_text(2**62) == str(2**62)
    # Times in microseconds, the year 10000, and what floating point would round.
    for time_ms in (1_700_000_000_000_000, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1, 1001, 4_107):
        assert parse_time(time_text(time_ms) or "") == time_ms


@pytest.mark.parametrize("text", ["9" * 20, str(2**63), "9" * 5_000, "9" * 5_000 + "d", "9999-12-31T23:59:59-01:00"])
def test_time_that_no_record_can_have(text: str) -> None:
    """Also one with more digits than Python converts."""
    with pytest.raises(BadPosition, match="after the year 9999, or more than 9223372036854775807 milliseconds"):
        parse_time(text)


@pytest.mark.parametrize("text", ["{}", "-{}", "3:{}", "{}:3"])
def test_position_with_many_digits(text: str) -> None:
    """More than Python converts: as far as any other large number."""
    assert parse_position(text.format("9" * 5_000)).kind in ("offset", "before_end")


@dataclass
class FakeTopics:
    """Partitions with a start and an end; the record at offset n has time n * 1000."""

    ranges: dict[TopicPartition, Bounds]

    def bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {place: self.ranges[place] for place in partitions}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        found = {}
        for place, timestamp in wanted.items():
            start, end = self.ranges[place]
            offset = max(start, -(-timestamp // 1000))
            found[place] = OffsetAt(offset if offset < end else -1, -1)
        return found


@dataclass
class FakeAdmin:
    topics: Any


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ADMIN = cast(Admin, FakeAdmin(FakeTopics({P0: Bounds(10, 20), P1: Bounds(0, 5)})))


@pytest.mark.parametrize(
    ("positions", "offsets"),
    [
        ([Position("begin")], {P0: 10, P1: 0}),
        ([Position("end")], {P0: 20, P1: 5}),
        ([Position("before_end", 3)], {P0: 17, P1: 2}),
        ([Position("before_end", 99)], {P0: 10, P1: 0}),
        ([Position("offset", 12)], {P0: 12, P1: 5}),
        ([Position("time", 4000)], {P0: 10, P1: 4}),
        ([Position("time", 14_500)], {P0: 15, P1: 5}),
        ([Position("offset", 13, 0)], {P0: 13}),
        ([Position("end"), Position("offset", 13, 0)], {P0: 13, P1: 5}),
    ],
)
def test_resolve(positions: list[Position], offsets: dict[TopicPartition, int]) -> None:
    """Offsets stay inside what a partition holds; a time after the last record is the end."""
    assert resolve(ADMIN, [P0, P1], positions) == offsets


@pytest.mark.parametrize("positions", [[Position("begin"), Position("end")], [Position("offset", 1, 7)]])
def test_resolve_refuses_nonsense(positions: list[Position]) -> None:
    """Two general positions, or a partition that is not there."""
    with pytest.raises(BadPosition):
        resolve(ADMIN, [P0, P1], positions)
