"""Counters as text in the format of Prometheus, version 0.0.4.

Prometheus wants base units: what is counted in microseconds (`_us`) is exported in seconds. The buckets of a histogram
are powers of two, of which every second one is exported, so that a histogram has at most twenty.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from drmq.model.counters import BUCKET_COUNT, DESCRIPTIONS, Kind, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MICROSECONDS = "_us"
_US_PER_S = 1_000_000
_TYPES = {Kind.COUNTER: "counter", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}


def exported_name(name: str) -> str:
    """The name of a counter in the exported text."""
    base = name.removesuffix("_total")
    if not base.endswith(_MICROSECONDS):
        return name
    return base.removesuffix(_MICROSECONDS) + "_seconds" + name[len(base) :]


def exported_help(name: str) -> str:
    """The description of a counter in its exported unit."""
    text = DESCRIPTIONS[name].text
    if exported_name(name) == name:
        return text
    return text.replace("Microseconds", "Seconds").replace("in microseconds", "in seconds")


def render(samples: Iterable[Sample]) -> str:
    """All samples as text. Samples of one counter must follow each other."""
    lines: list[str] = []
    for name, group in groupby(samples, key=lambda sample: sample.name):
        exported, kind = exported_name(name), DESCRIPTIONS[name].kind
        scale = 1 if exported == name else _US_PER_S
        lines.append(f"# HELP {exported} {_escaped_help(exported_help(name))}")
        lines.append(f"# TYPE {exported} {_TYPES[kind]}")
        for sample in group:
            if kind is Kind.HISTOGRAM:
                lines += _histogram(exported, sample, scale)
            else:
                lines.append(f"{exported}{_labels(sample.labels)} {_number(sample.value, scale)}")
    return "\n".join(lines) + "\n"


def _histogram(name: str, sample: Sample, scale: int) -> Iterable[str]:
    total = 0
    for bucket in range(BUCKET_COUNT - 1):
        total += sample.buckets[bucket] if bucket < len(sample.buckets) else 0
        if bucket % 2:
            # Bucket i has the integers below 2^i, so its largest value is 2^i - 1.
            bound = _number((1 << bucket) - 1, scale)
            yield f"{name}_bucket{_labels((*sample.labels, ('le', bound)))} {total}"
    count = sum(sample.buckets)
    yield f"{name}_bucket{_labels((*sample.labels, ('le', '+Inf')))} {count}"
    yield f"{name}_sum{_labels(sample.labels)} {_number(sample.value, scale)}"
    yield f"{name}_count{_labels(sample.labels)} {count}"


def _number(value: int, scale: int) -> str:
    return str(value) if scale == 1 else repr(value / scale)


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{text}}}" if text else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
