"""The lines of `drmq top`: readable at any width and without colour."""

from __future__ import annotations

import pytest

from drmq.client.events import Event
from drmq.server.top.observer import BrokerRow, GroupRow, Snapshot
from drmq.server.top.text import bar, broker_lines, event_lines, group_lines, rate_lines, sparkline, status_line

BROKERS = [
    BrokerRow(1, "127.0.0.1:9092", False, True, 12, 24, 0.5, 100 << 20, 0.25, 5 << 30, 17, 90_000),
    BrokerRow(2, "127.0.0.1:9093", True, True, 14, 22, 0.9, 90 << 20, 0.25, 5 << 30, 11, 3_700_000),
    BrokerRow(3, "127.0.0.1:9094", False, False),
]
GROUPS = [
    GroupRow("arrivals", "classic", "Stable", 2, 120),
    GroupRow("billing", "share", "Stable", 1, 7, 1_000_000 - 65_000, 4, 1, 3),
    GroupRow("x" * 200, "classic", "Empty", 0, None),
]


def snapshot(status: str = "healthy", at_s: float = 1_000.0) -> Snapshot:
    return Snapshot(
        at_s,
        status,
        "3 nodes, 20 partitions",
        BROKERS,
        GROUPS,
        [(2, Event(9, 1_000_000, "warning", "lab", "fault lab: kill node 3"))],
        {"produced": 1234.5, "consumed": None, "produced_bytes": 2_500_000.0, "produce_p99": 12.3, "fsync_p99": 0.5},
        {"produced": [0.0, 5.0, 10.0, None, 10.0]},
        held=4,
        dead_letters=3,
    )


def test_bars_and_sparklines() -> None:
    assert [bar(share, 4) for share in (None, 0.0, 0.5, 1.0, 7.0)] == ["    ", "░░░░", "██░░", "████", "████"]
    assert sparkline([0.0, 5.0, 10.0, None, 10.0], 7) == "  ▁▄█ █"
    assert sparkline([1.0, 2.0, 3.0], 2) == "▅█"
    assert sparkline([], 3) == "   "
    assert sparkline([0.0, 0.0], 2) == "▁▁"


def test_the_status_is_a_word_and_says_how_old_the_rest_is() -> None:
    good, gone = snapshot(), Snapshot(1_030.0, "down", "no node answers")
    assert status_line(good, good, 1_001.0) == "● Healthy: 3 nodes, 20 partitions."
    assert status_line(good, good, 1_060.0) == "● Healthy: 3 nodes, 20 partitions. This is 1 min old."
    assert status_line(gone, good, 1_030.0) == "■ Down: no node answers. The rest is 30 s old. Trying again."
    assert status_line(gone, None, 1_030.0) == "■ Down: no node answers. Trying again."


@pytest.mark.parametrize("width", [40, 78, 118, 200])
def test_tables_fit_the_width(width: int) -> None:
    brokers, groups = broker_lines(BROKERS, "id", width), group_lines(GROUPS, "lag", 1_000.0, width)
    assert all(len(line) <= width for line in [*brokers, *groups, *rate_lines(snapshot(), width)[:2]])
    assert [line.split()[1] for line in brokers[1:]] == ["1", "2", "3"]
    assert "DOWN" in brokers[3]
    assert "controller" in brokers[2]


def test_what_matters_is_shown_in_80_columns() -> None:
    brokers, groups = broker_lines(BROKERS, "CPU", 78), group_lines(GROUPS, "age", 1_000.0, 78)
    assert [word for word in brokers[0].split() if word.isupper()] == [
        *("BROKERS", "CPU", "LEADS", "CPU", "DISK", "MEMORY", "UPTIME"),
    ]
    assert brokers[1].split()[:3] == ["node", "2", "controller"]
    assert groups[1].split() == ["billing", "7", "1", "min", "5", "s", "4", "3", "1", "Stable", "share"]
    text = "\n".join(rate_lines(snapshot(), 78))
    assert "produce      1,234/s    2.4 MiB/s" in text
    assert "consume          -/s" in text
    assert "p99 12 ms" in text
    assert "fsync p99 0.5 ms" in text
    assert "leases out 4   parked 0   dead letters 3" in text
    assert event_lines(snapshot())[1].endswith("  node 2  WARNING fault lab: kill node 3")


@pytest.mark.parametrize(
    ("order", "expected"), [("id", "1 2 3"), ("CPU", "2 1 3"), ("memory", "1 2 3"), ("leaders", "2 1 3")]
)
def test_brokers_are_sorted(order: str, expected: str) -> None:
    assert [line.split()[1] for line in broker_lines(BROKERS, order, 78)[1:]] == expected.split()


def test_names_that_clients_choose_cannot_steer_the_terminal() -> None:
    evil = "\x1b]0;mine\x07\nnode 9"
    shown = snapshot()
    shown.reason = f"group {evil}"
    shown.events = [(2, Event(9, 1_000_000, "info", "broker", f"group {evil} is gone"))]
    lines = [*event_lines(shown), status_line(shown, shown, 1_001.0)]
    lines += group_lines([GroupRow(evil, "classic", "Empty", 0, None)], "name", 1_000.0, 200)
    assert all(line.isprintable() for line in lines), lines
    assert len(lines) == 5
