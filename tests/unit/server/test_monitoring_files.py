"""The dashboard for Grafana and the alert rules: every query is valid, and asks for what a node exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from drmq.kafka.exchange import API_NAMES
from drmq.model.counters import DESCRIPTIONS, Kind
from drmq.model.metrics_text import exported_name

_DEPLOY = Path(__file__).parents[3] / "deploy"
_METRIC = re.compile(r"\b(drmq_[a-z0-9_]+)(\{[^}]*\})?")
_LABEL = re.compile(r"([a-z_]+)\s*=~?")
_TARGET_LABELS = {"instance", "job"}


def _exported() -> dict[str, set[str]]:
    """The labels of every exported series."""
    found: dict[str, set[str]] = {}
    for name, row in DESCRIPTIONS.items():
        series = exported_name(name)
        if row.kind is Kind.HISTOGRAM:
            found |= {f"{series}_sum": set(row.labels), f"{series}_count": set(row.labels)}
            found[f"{series}_bucket"] = {*row.labels, "le"}
        else:
            found[series] = set(row.labels)
    return found


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((_DEPLOY / "grafana" / "drmq.json").read_text())["panels"]
    return panels


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((_DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


_QUERIES = [(panel["title"], target["expr"]) for panel in _panels() for target in panel["targets"]]
_QUERIES += [(rule["alert"], rule["expr"]) for rule in _rules()]


@pytest.mark.parametrize(("name", "query"), _QUERIES)
def test_a_query_is_valid_and_about_exported_series(name: str, query: str) -> None:
    plain = query.replace("$node", ".*")
    promql_parser.parse(plain)
    exported = _exported()
    for series, labels in _METRIC.findall(plain):
        assert series in exported, f"{name} asks for {series}, which no node exports"
        asked = set(_LABEL.findall(labels)) - _TARGET_LABELS
        assert asked <= exported[series], f"{name} asks for the labels {asked} of {series}"
        for api in re.findall(r'api="([^"]*)"', labels):
            assert api in API_NAMES.values(), f"{name} asks for the API {api}, which no node has"


def test_panels_do_not_overlap_and_alerts_say_what_to_do() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in _panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    for rule in _rules():
        assert rule["annotations"]["summary"], rule
        assert rule["annotations"]["description"], rule
        assert rule["labels"]["severity"] in ("warning", "critical"), rule
