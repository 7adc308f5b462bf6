"""What the section `scale` says: two tables, and which aims are met."""

from statistics import median

from rich.table import Table

from bench.clients.sweep import Swept
from bench.cluster.scale import Event, Scale
from bench.report import new_table
from bench.targets import Verdict

AIM_PARTITION_COUNT = 3_000
AIM_PARTITION_COUNT_LARGE = 10_000
PAUSE_SECONDS_MAX = {0: 10.0, 8: 60.0}
"""By burners: until all partitions of the smaller aim take a write."""
IDLE_CORE_SHARE_MAX = 0.10
REPLICA_BYTES_MAX = 40e3
METADATA_MS_MAX = 50.0
LINEAR_TOLERANCE = 1.2
"""Repetitions of one event differ by about a fifth."""
SHOWN_MARKS = ("5", "10", "30", "60", "120")


def judge(scales: list[Scale]) -> list[Verdict]:
    """A verdict for each aim; numbers at other sizes than that of the aim are shown and not judged."""
    out = []
    for scale in scales:
        out += _event_verdicts(scale)
        out += _idle_verdicts(scale)
    return out + _growth_verdicts(scales)


def _event_verdicts(scale: Scale) -> list[Verdict]:
    out = []
    is_judged = scale.partition_count == AIM_PARTITION_COUNT
    limit = PAUSE_SECONDS_MAX.get(scale.burner_count)
    pause = scale.event("pause")
    if pause is not None and limit is not None:
        seconds = pause.writes.seconds if pause.writes else None
        has_again = pause.writes_again is not None and pause.writes_again.seconds is not None
        is_met = seconds is not None and seconds <= limit and has_again
        name = f"{_where(scale)}: all take a write within {limit:.0f} s after a pause, and again"
        out.append(Verdict(name, _writes_text(pause, scale.partition_count), is_met if is_judged else None))
    if scale.burner_count >= 24:
        events = [event for name in ("form", "create", "start") if (event := scale.event(name))]
        reached = bool(events) and not scale.errors and all(event.is_reached for event in events)
        words = "; ".join(f"{event.name} {_seconds(event.in_sync_seconds, event)}" for event in events)
        name = f"{_where(scale)}: the cluster starts and serves"
        out.append(Verdict(name, words or "nothing", reached if is_judged or not reached else None))
    return out


def _idle_verdicts(scale: Scale) -> list[Verdict]:
    out = []
    is_large = scale.partition_count == AIM_PARTITION_COUNT_LARGE
    if scale.core_shares:
        name = f"{_where(scale)}: idle, a node uses at most {IDLE_CORE_SHARE_MAX * 100:.0f} % of a core"
        is_met = max(scale.core_shares) <= IDLE_CORE_SHARE_MAX
        each = ", ".join(f"{share * 100:.1f} %" for share in scale.core_shares)
        out.append(Verdict(name, each, is_met if is_large or not is_met else None))
    if scale.replica_bytes:
        name = f"{_where(scale)}: an idle replica takes at most {REPLICA_BYTES_MAX / 1e3:.0f} KB"
        is_met = max(scale.replica_bytes) <= REPLICA_BYTES_MAX
        each = ", ".join(f"{size / 1e3:.1f} KB" for size in scale.replica_bytes)
        out.append(Verdict(name, each, is_met if scale.partition_count >= AIM_PARTITION_COUNT else None))
    if scale.metadata_ms:
        name = f"{_where(scale)}: Metadata of all of them in under {METADATA_MS_MAX:.0f} ms of CPU"
        middle, worst = median(scale.metadata_cpu_ms), max(scale.metadata_cpu_ms)
        is_met = middle < METADATA_MS_MAX
        words = f"median {middle:.1f} ms, worst {worst:.1f} ms; with waiting {median(scale.metadata_ms):.1f} ms"
        out.append(Verdict(name, words, is_met if is_large or not is_met else None))
    return out


def _growth_verdicts(scales: list[Scale]) -> list[Verdict]:
    """From the smallest to the largest size, with the same burners: the time until all is in sync."""
    out = []
    for burner_count in dict.fromkeys(scale.burner_count for scale in scales):
        row = sorted((scale for scale in scales if scale.burner_count == burner_count), key=lambda s: s.partition_count)
        small, large = row[0], row[-1]
        if small.partition_count == large.partition_count:
            continue
        times = large.partition_count / small.partition_count
        parts, is_met = [], True
        for event in small.events:
            other = large.event(event.name)
            if event.name == "form" or event.in_sync_seconds is None:
                continue
            if other is None or other.in_sync_seconds is None:
                parts.append(f"{event.name}: not reached")
                is_met = False
                continue
            ratio = other.in_sync_seconds / event.in_sync_seconds
            parts.append(f"{event.name} × {ratio:.1f}")
            is_met = is_met and ratio <= times * LINEAR_TOLERANCE
        if parts:
            name = (
                f"{burner_count} burners: from {small.partition_count:,} to {large.partition_count:,} partitions (× "
                f"{times:.1f}) the time until all is in sync grows at most linearly"
            )
            out.append(Verdict(name, ", ".join(parts), is_met))
    return out


def _where(scale: Scale) -> str:
    return f"{scale.partition_count:,} partitions, {scale.burner_count} burners"


def _seconds(seconds: float | None, event: Event) -> str:
    return f"not in {event.seconds_max:.0f}" if seconds is None else f"{seconds:,.1f}"


def _reached(seconds: float | None, count: int, event: Event) -> str:
    """The seconds, or how far it came within the limit."""
    return _seconds(seconds, event) + (f" ({count:,})" if seconds is None else "")


def _writes_text(event: Event, partition_count: int) -> str:
    if event.writes is None:
        return "not measured"
    if event.writes.seconds is None:
        return f"{event.writes.count:,} of {partition_count:,} within {event.seconds_max:.0f} s"
    again = event.writes_again
    if again is None or again.seconds is None:
        words = f"{again.count:,} of {partition_count:,}" if again else "none"
        return f"{event.writes.seconds:.1f} s; then again only {words} within {event.seconds_max:.0f} s"
    return f"{event.writes.seconds:.1f} s, and again in {again.seconds:.1f} s"


def _marks(swept: Swept) -> list[str]:
    """After 5, 10, 30, 60 and 120 s; nothing after all took one."""
    return [f"{swept.counts[mark]:,}" if mark in swept.counts else "" for mark in SHOWN_MARKS]


def events_table(scales: list[Scale]) -> Table:
    """A row per event; a time that was not reached says so, with how many partitions were."""
    table = new_table(
        "Many partitions, a replica on every node: seconds from an event (a number in brackets: so many of them were)",
        ("partitions", "burners", "event"),
        ("all led", "all in sync", "all take\na write", *(f"after\n{mark} s" for mark in SHOWN_MARKS),
         "all take\nanother", "whole after\nthe load", "elections", "loop late\nat most ms"),
    )  # fmt: skip
    for scale in scales:
        titles = [f"{scale.partition_count:,}", str(scale.burner_count)]
        for event in scale.events:
            writes = ["–", *[""] * len(SHOWN_MARKS)]
            if event.writes is not None:
                writes = [_reached(event.writes.seconds, event.writes.count, event), *_marks(event.writes)]
            again = event.writes_again
            table.add_row(
                *titles, event.name,
                _reached(event.led_seconds, event.led_count, event),
                _reached(event.in_sync_seconds, event.in_sync_count, event), *writes,
                "–" if again is None else _reached(again.seconds, again.count, event),
                "" if event.whole_seconds is None else f"{event.whole_seconds:,.1f}",
                " ".join(f"{count:,}" for count in event.elections),
                " ".join(f"{bound:,.0f}" for bound in event.loop_delay_ms_bound),
            )  # fmt: skip
            titles = ["", ""]
    return table


def idle_table(scales: list[Scale]) -> Table:
    """A row per size."""
    table = new_table(
        "Many idle partitions",
        ("partitions",),
        (
            "CPU per node\n% of a core",
            "RSS MB\nper node",
            "KB per replica",
            "Metadata of all\nCPU ms",
            "with waiting\nms",
        ),
    )
    for scale in scales:
        if scale.core_shares:
            table.add_row(
                f"{scale.partition_count:,}",
                " ".join(f"{share * 100:.1f}" for share in scale.core_shares),
                " ".join(f"{size / 1e6:.0f}" for size in scale.rss_bytes),
                " ".join(f"{size / 1e3:.1f}" for size in scale.replica_bytes),
                f"{median(scale.metadata_cpu_ms):.1f}" if scale.metadata_cpu_ms else "–",
                f"{median(scale.metadata_ms):.1f}" if scale.metadata_ms else "–",
            )
    return table
