"""`drmq offsets`: the first and last offsets of the partitions of a topic, or the offsets at a time."""

from __future__ import annotations

from typing import Any

import click

from drmq.server.cli.completion import topic_names
from drmq.server.cli.options import ClusterChoice, bootstrap_option, output_option
from drmq.server.cli.output import Column, Output
from drmq.server.cli.positions import TIME_HELP, parse_time, time_text


@click.command()
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@click.option("--time", "timestamp", type=parse_time, metavar="TIME", help=f"First record at or after: {TIME_HELP}.")
@bootstrap_option
@output_option
def offsets(name: str, timestamp: int | None, cluster: ClusterChoice, output: Output) -> None:
    """Show the first and last offsets of a topic, or those at a time."""
    from drmq.model import TopicPartition

    with cluster.admin() as admin:
        places = [TopicPartition(name, partition.index) for partition in admin.topics.describe(name).partitions]
        bounds = admin.topics.bounds(places)
        at_time = admin.topics.offsets(dict.fromkeys(places, timestamp)) if timestamp is not None else {}
    rows: list[dict[str, Any]] = []
    for place in places:
        start, end = bounds[place]
        row: dict[str, Any] = {
            "partition": place.partition,
            "start_offset": start,
            "end_offset": end,
            "records": end - start,
        }
        if timestamp is not None:
            found = at_time[place]
            row |= {"offset": found.offset if found.offset >= 0 else None, "timestamp_ms": found.timestamp}
        rows.append(row)
    columns = [
        Column("partition", "PARTITION", right=True),
        Column("start_offset", "START", right=True),
        Column("end_offset", "END", right=True),
        Column("records", "RECORDS", right=True),
    ]
    if timestamp is not None:
        columns += [Column("offset", "AT TIME", right=True), Column("time", "RECORD TIME")]
        if output.is_human:
            rows = [row | {"time": time_text(row["timestamp_ms"])} for row in rows]
    output.rows(columns, rows, f"Topic `{name}` has no partitions.")
