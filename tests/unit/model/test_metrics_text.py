"""Counters in the text format of Prometheus: what a parser that is not ours reads from it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from drmq.model.counters import DESCRIPTIONS, Histogram, Kind, Sample, sample_of
from drmq.model.metrics_text import exported_help, exported_name, render


def parsed(*samples: Sample) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(render(samples)):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_counters_and_gauges() -> None:
    found = parsed(
        Sample("drmq_connections", 7),
        Sample("drmq_requests_total", 3, (("api", "Produce"),)),
        Sample("drmq_requests_total", 4, (("api", 'a "b" \\ c\nd'),)),
    )
    assert found["drmq_connections"] == {(): 7}
    assert found["drmq_requests_total"] == {(("api", "Produce"),): 3, (("api", 'a "b" \\ c\nd'),): 4}


def test_times_are_in_seconds() -> None:
    found = parsed(Sample("drmq_process_cpu_us_total", 2_500_000))
    assert found == {"drmq_process_cpu_seconds_total": {(): 2.5}}


def test_a_histogram_is_cumulative() -> None:
    histogram = Histogram()
    values = [0, 1, 3, 3, 1_000, 5_000_000, 2**60]
    for value in values:
        histogram.add(value)
    found = parsed(sample_of("drmq_sync_duration_us", histogram))
    assert found["drmq_sync_duration_seconds_count"] == {(): len(values)}
    assert found["drmq_sync_duration_seconds_sum"] == {(): sum(values) / 1e6}
    buckets = {dict(labels)["le"]: count for labels, count in found["drmq_sync_duration_seconds_bucket"].items()}
    assert buckets.pop("+Inf") == len(values)
    for bound, count in buckets.items():
        assert count == sum(value / 1e6 <= float(bound) for value in values), bound


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_every_exported_name_has_a_base_unit(name: str) -> None:
    exported = exported_name(name)
    assert "_us" not in exported
    assert exported.endswith("_total") == (DESCRIPTIONS[name].kind is Kind.COUNTER)
    assert "icroseconds" not in exported_help(name)


@pytest.mark.parametrize(
    "name",
    ["drmq_messages_produced_total", "drmq_messages_consumed_total", "drmq_raft_state", "drmq_log_size_bytes"],
)
def test_the_promised_names_are_there(name: str) -> None:
    assert exported_name(name) == name
    assert name in DESCRIPTIONS
