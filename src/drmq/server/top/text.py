"""Lines of text for `drmq top`: pure functions of a snapshot and a width. Colour is never needed to read them.

Names that clients chose may have any character. What could steer the terminal is escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from drmq.server.cli.output import duration_text, size_text
from drmq.server.top.observer import BrokerRow, GroupRow, Snapshot
from drmq.telemetry.logs import one_line

MARKS: Final = {"healthy": "●", "degraded": "▲", "down": "■"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH = 6
_STALE_S = 10.0

BROKER_ORDERS: Final[dict[str, Callable[[BrokerRow], tuple[float, int]]]] = {
    "id": lambda row: (0, row.node_id),
    "CPU": lambda row: (-(row.cpu_share or 0), row.node_id),
    "memory": lambda row: (-(row.resident_bytes or 0), row.node_id),
    "leaders": lambda row: (-(row.leaders or 0), row.node_id),
}
GROUP_ORDERS: Final[dict[str, Callable[[GroupRow], tuple[float, str]]]] = {
    "lag": lambda row: (-(row.lag or 0), row.group_id),
    "age": lambda row: (row.oldest_ms or float("inf"), row.group_id),
    "dead letters": lambda row: (-(row.dead_letters or 0), row.group_id),
    "name": lambda row: (0, row.group_id),
}


def bar(share: float | None, width: int = _BAR_WIDTH) -> str:
    """A share as a bar; spaces if it is not known."""
    if share is None:
        return " " * width
    full = round(min(max(share, 0.0), 1.0) * width)
    return "█" * full + "░" * (width - full)


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last values as a line of blocks, the newest at its end. A value that is not known is a gap."""
    shown = list(values[-width:])
    highest = max((value for value in shown if value is not None), default=0.0)
    steps = len(_BLOCKS) - 1
    line = ""
    for value in shown:
        if value is None:
            line += " "
        else:
            line += _BLOCKS[max(1, round(value / highest * steps)) if highest > 0 else 1]
    return line.rjust(width)


def status_line(shown: Snapshot, last_good: Snapshot | None, now_s: float) -> str:
    """The sentence about the cluster, and how old everything else is if it is not fresh."""
    sentence = one_line(f"{MARKS[shown.status]} {shown.status.capitalize()}: {shown.reason}.")
    if shown is not last_good:
        age = "" if last_good is None else f" The rest is {_age(last_good, now_s)} old."
        sentence += f"{age} Trying again."
    elif now_s - shown.at_s > _STALE_S:
        sentence += f" This is {_age(shown, now_s)} old."
    return sentence


def _age(snapshot: Snapshot, now_s: float) -> str:
    return duration_text(int(max(0.0, now_s - snapshot.at_s) * 1000)) or "0 s"


def rate_lines(snapshot: Snapshot, width: int) -> list[str]:
    """Rates with their past, latencies, leases and dead letters."""
    lines = []
    for label, name in (("produce", "produced"), ("consume", "consumed")):
        head = (
            f"{label}  {_number(snapshot.rates.get(name)):>9}/s {_bytes(snapshot.rates.get(name + '_bytes')):>10}/s  "
        )
        lines.append(head + sparkline(snapshot.past.get(name, ()), max(0, min(60, width - len(head)))))
    latencies = [
        ("produce p50", "produce_p50"),
        ("p99", "produce_p99"),
        ("commit p99", "commit_p99"),
        ("fsync p99", "fsync_p99"),
    ]
    lines.append("latency  " + "   ".join(f"{label} {_ms(snapshot.rates.get(name))}" for label, name in latencies))
    lines.append(
        f"queues   leases out {snapshot.held:,}   parked {snapshot.parked:,}   dead letters {snapshot.dead_letters:,}"
    )
    return lines


def broker_lines(rows: Sequence[BrokerRow], order: str, width: int) -> list[str]:
    """A heading and a line for each broker."""
    columns = ["LEADS", "CPU", "DISK", "MEMORY", "UPTIME", "CONNECTIONS", "DATA", "ADDRESS"]
    cells = [
        [
            f"node {row.node_id} {'DOWN' if not row.is_up else 'controller' if row.is_controller else ''}",
            "-" if row.leaders is None else f"{row.leaders:,} of {row.leaders + (row.followers or 0):,}",
            f"{bar(row.cpu_share)}{_share(row.cpu_share):>5}",
            f"{bar(row.disk_share)}{_share(row.disk_share):>5}",
            _bytes(row.resident_bytes),
            duration_text(row.uptime_ms) or "-",
            _number(row.connections),
            _bytes(row.log_bytes),
            row.address,
        ]
        for row in sorted(rows, key=BROKER_ORDERS[order])
    ]
    return _table([f"BROKERS by {order}", *columns], cells, width, left=("CPU", "DISK", "ADDRESS"))


def group_lines(rows: Sequence[GroupRow], order: str, now_s: float, width: int) -> list[str]:
    """A heading and a line for each group."""
    columns = ["LAG", "OLDEST", "OUT", "DEAD", "MEMBERS", "STATE", "TYPE", "PARKED"]
    cells = [
        [
            _cut(one_line(row.group_id), max(20, width - 55)),
            _number(row.lag),
            _age_of(row.oldest_ms, now_s),
            _number(row.held),
            _number(row.dead_letters),
            str(row.members),
            row.state,
            row.kind.lower(),
            _number(row.parked),
        ]
        for row in sorted(rows, key=GROUP_ORDERS[order])
    ]
    lines = _table([f"GROUPS by {order}", *columns], cells, width, left=("STATE", "TYPE"))
    return lines if rows else [f"GROUPS by {order}", "no groups"]


def _table(columns: list[str], rows: list[list[str]], width: int, left: Collection[str]) -> list[str]:
    """Columns under their names, the first one on the left. Those at the end that do not fit are left out."""
    widths = [max(len(cells[index]) for cells in [columns, *rows]) for index in range(len(columns))]
    while len(widths) > 1 and sum(widths) + 2 * (len(widths) - 1) > width:
        widths.pop()
    lines = []
    for cells in [columns, *rows]:
        parts = [
            cell.ljust(size) if not index or columns[index] in left else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(cells, widths, strict=False))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def event_lines(snapshot: Snapshot) -> list[str]:
    """A heading and a line for each event, the newest first."""
    lines = ["EVENTS"]
    for node_id, event in snapshot.events:
        at = time.strftime("%H:%M:%S", time.localtime(event.time_ms / 1000))
        level = "" if event.level == "info" else f"{event.level.upper()} "
        lines.append(one_line(f"{at}  node {node_id}  {level}{event.text}"))
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _age_of(time_ms: int | None, now_s: float) -> str:
    return "-" if time_ms is None else duration_text(max(0, int(now_s * 1000) - time_ms)) or "-"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _bytes(value: float | None) -> str:
    return "-" if value is None else size_text(int(value)) or "-"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f}%"
