"""Rates of counters between two readings."""

from __future__ import annotations

from drmq.client.rates import Change, Reading
from drmq.model.counters import Sample

READ = ("api", "PRODUCE")


def reading(at_s: float, uptime_us: int, count: int, buckets: tuple[int, ...] = ()) -> Reading:
    samples = [
        Sample("drmq_process_uptime_us", uptime_us),
        Sample("messages", count),
        Sample("time", 0, (READ,), buckets),
        Sample("sizes", 5, (("topic", "a"),)),
        Sample("sizes", 7, (("topic", "b"),)),
    ]
    return Reading(samples, at_s)


def test_rates_are_summed_over_the_nodes() -> None:
    before = {1: reading(10.0, 1_000, 100), 2: reading(10.0, 1_000, 0)}
    change = Change(before, {1: reading(12.0, 2_001_000, 300), 2: reading(14.0, 4_001_000, 40), 3: reading(12.0, 1, 9)})
    assert change.rate("messages") == 110.0
    assert change.rate_of(1, "messages") == 100.0
    assert change.rate_of(3, "messages") is None, "it was read once"
    assert reading(1.0, 1, 1).total("sizes") == 12


def test_a_restarted_node_has_no_rate() -> None:
    """Its counters begin again: the difference would be negative, or a jump."""
    change = Change({1: reading(10.0, 9_000_000, 500)}, {1: reading(12.0, 500_000, 600)})
    assert change.rate("messages") is None
    assert change.quantile(0.5, "time", READ) is None


def test_percentiles_are_those_of_the_new_values() -> None:
    before = {1: reading(1.0, 1, 0, (0, 0, 90))}
    change = Change(before, {1: reading(2.0, 2, 0, (0, 0, 90, 0, 99, 1))})
    assert change.quantile(0.5, "time", READ) == 12
    assert change.quantile(0.999, "time", READ) == 30
    assert Change(before, {1: reading(2.0, 2, 0, (0, 0, 90))}).quantile(0.5, "time", READ) is None
