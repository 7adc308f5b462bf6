"""`drmq debug`: what the nodes count, for people who look for the cause of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import INT32_MAX, ClusterChoice, bootstrap_option, output_option
from drmq.server.cli.output import Column, Output

if TYPE_CHECKING:
    from drmq.model.counters import Sample


@click.group(cls=Noun)
def debug() -> None:
    """Look inside the nodes of a cluster."""


@debug.command("counters")
@click.argument("prefix", default="", metavar="[PREFIX]")
@click.option(
    "--node", "nodes", type=click.IntRange(0, INT32_MAX), multiple=True, help="Only this node; can be repeated."
)
@bootstrap_option
@output_option
def counters(prefix: str, nodes: tuple[int, ...], cluster: ClusterChoice, output: Output) -> None:
    """Print the counters of each node, or only those whose names begin with PREFIX.

    A name that ends in _total only grows from the start of the process. A name that ends in _us is a time in
    microseconds: COUNT is how many were measured, VALUE their sum, and P50 and P99 are upper bounds for half and for
    99 % of them. Counters without a value are left out.
    """
    with cluster.admin() as admin:
        chosen = sorted(nodes) or [broker.node_id for broker in admin.brokers.all() if not broker.is_fenced]
        rows = [_row(node_id, sample) for node_id in chosen for sample in admin.counters.of(node_id, prefix)]
    if output.is_human:
        rows = [row for row in rows if row["value"] or row["count"]]
    columns = [
        Column("node", "NODE", right=True),
        Column("name", "NAME"),
        Column("label_text", "LABELS"),
        Column("value", "VALUE", right=True),
        Column("count", "COUNT", right=True),
        Column("p50", "P50", right=True),
        Column("p99", "P99", right=True),
    ]
    if not output.is_human:
        for row in rows:
            del row["label_text"]
    output.rows(columns, rows, f"No counter begins with {prefix!r}." if prefix else "There are no counters.")


def _row(node_id: int, sample: Sample) -> dict[str, Any]:
    from drmq.model.counters import COUNTERS, Kind, quantile

    described = COUNTERS.get(sample.name)
    buckets = list(sample.buckets)
    is_histogram = bool(buckets) or (described is not None and described.kind is Kind.HISTOGRAM)
    return {
        "node": node_id,
        "name": sample.name,
        "labels": dict(sample.labels),
        "label_text": " ".join(f"{name}={value}" for name, value in sample.labels),
        "value": sample.value,
        "count": sum(buckets) if is_histogram else None,
        "p50": quantile(buckets, 0.5) if is_histogram else None,
        "p99": quantile(buckets, 0.99) if is_histogram else None,
        "buckets": buckets,
    }
