"""`drmq topic`: lists, creates, changes and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.completion import topic_names
from drmq.server.cli.config_values import plain_values
from drmq.server.cli.moves import COLUMNS, carry_out, confirm_moves, move_row, no_wait_option
from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import (
    INT16_MAX,
    INT32_MAX,
    ClusterChoice,
    bootstrap_option,
    confirm,
    dry_run_option,
    output_option,
    yes_option,
)
from drmq.server.cli.output import Column, Output, plural, size_text
from drmq.server.cli.positions import POSITION_HELP, Position, parse_position, resolve

if TYPE_CHECKING:
    from drmq.client import Admin, Topic
    from drmq.model import TopicPartition

UNITS_HELP = "Times and sizes may have a unit: retention.ms=7d, segment.bytes=64MiB."


def _no_set(context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> None:
    if values:
        raise click.UsageError("No such option: --set. Did you mean --config?", context)


_set_option = click.option("--set", multiple=True, hidden=True, expose_value=False, callback=_no_set)
"""Not an option, but many users try it first."""


@click.group(cls=Noun)
def topic() -> None:
    """List, create, change and delete topics."""


@topic.command("ls")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@bootstrap_option
@output_option
def list_topics(internal: bool, cluster: ClusterChoice, output: Output) -> None:
    """List topics with their partitions, records and size."""
    from drmq.client import ClientError

    with cluster.admin() as admin:
        topics = [found for found in admin.topics.all() if internal or not found.is_internal]
        try:
            records = _record_counts(admin, topics)
        except ClientError:
            # A topic was deleted between the two requests, or a partition has no leader. A list without counts is
            # better than no list.
            records = {}
        sizes = _sizes(admin)
    rows: list[dict[str, Any]] = [
        {
            "topic": found.name,
            "partitions": len(found.partitions),
            "replicas": max((len(partition.replicas) for partition in found.partitions), default=0),
            "records": records.get(found.name),
            "size_bytes": _total(sizes, found),
            "internal": found.is_internal,
        }
        for found in topics
    ]
    if output.is_human:
        rows = [row | {"size": size_text(row["size_bytes"])} for row in rows]
    columns = [
        Column("topic", "TOPIC"),
        Column("partitions", "PARTITIONS", right=True),
        Column("replicas", "REPLICAS", right=True),
        Column("records", "RECORDS", right=True),
        Column("size", "SIZE", right=True),
    ]
    output.rows(columns, rows, "There are no topics yet. `drmq topic create NAME` creates one.")


@topic.command()
@click.argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(1, INT32_MAX), help="Number of partitions.  [default: set by the broker]"
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(1, INT16_MAX),
    help="Replicas of each partition, each on its own node.  [default: 3, or the number of nodes if fewer]",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"A setting of the topic; may be repeated. {UNITS_HELP}",
)
@_set_option
@click.option("--if-missing", is_flag=True, help="Succeed if the topic already exists.")
@dry_run_option
@bootstrap_option
@output_option
def create(
    name: str,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_missing: bool,
    dry_run: bool,
    cluster: ClusterChoice,
    output: Output,
) -> None:
    """Create a topic.

    \b
      drmq topic create orders --partitions 3 --config retention.ms=7d
    """
    from drmq.client import NewTopic, Refused
    from drmq.model import ErrorCode

    wanted = NewTopic(name, partitions or -1, replicas or -1, plain_values(configs, "--config"))
    created = True
    with cluster.admin() as admin:
        try:
            count = admin.topics.create(wanted, validate_only=dry_run)
        except Refused as error:
            if not (if_missing and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            created, count = False, len(admin.topics.describe(name).partitions)
    if not created:
        text = f"Topic `{name}` already exists, with {plural(count, 'partition')}."
    elif dry_run:
        text = f"Topic `{name}` could be created with {plural(count, 'partition')}."
    else:
        text = f"Created topic `{name}` with {plural(count, 'partition')}."
    output.one({"topic": name, "partitions": count, "created": created and not dry_run}, text)


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option(
    "--all", "all_configs", is_flag=True, help="Show all settings, not only those that differ from the default."
)
@bootstrap_option
@output_option
def describe(name: str, all_configs: bool, cluster: ClusterChoice, output: Output) -> None:
    """Show the partitions and settings of a topic."""
    from drmq.client import ClientError
    from drmq.model import TopicPartition, topic_id_text

    with cluster.admin() as admin:
        found = admin.topics.describe(name)
        places = [
            TopicPartition(name, partition.index) for partition in found.partitions if partition.leader is not None
        ]
        try:
            bounds = admin.topics.bounds(places)
        except ClientError:
            # A leader has just changed or cannot be reached. Showing the replicas without offsets is then still useful.
            bounds = {}
        sizes = _sizes(admin)
        configs = [entry for entry in admin.configs.of_topic(name) if all_configs or not entry.is_default]
    partitions: list[dict[str, Any]] = []
    for partition in found.partitions:
        place = TopicPartition(name, partition.index)
        partitions.append(
            {
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "offline": list(partition.offline),
                "start_offset": bounds[place].start if place in bounds else None,
                "end_offset": bounds[place].end if place in bounds else None,
                "size_bytes": sizes.get(place),
            }
        )
    settings = [{"name": c.name, "value": c.value, "source": c.source, "read_only": c.read_only} for c in configs]
    if not output.is_human:
        output.data(
            {
                "topic": name,
                "topic_id": topic_id_text(found.topic_id),
                "internal": found.is_internal,
                "partitions": partitions,
                "configs": settings,
            }
        )
        return
    print(f"Topic `{name}`, id {topic_id_text(found.topic_id)}{', internal' if found.is_internal else ''}\n")
    columns = [
        Column("partition", "PARTITION", right=True),
        Column("leader", "LEADER", right=True),
        Column("leader_epoch", "EPOCH", right=True),
        Column("replicas", "REPLICAS"),
        Column("in_sync", "IN SYNC"),
        Column("start_offset", "START", right=True),
        Column("end_offset", "END", right=True),
        Column("size", "SIZE", right=True),
    ]
    output.rows(columns, [row | {"size": size_text(row["size_bytes"])} for row in partitions], "")
    print()
    columns = [Column("name", "SETTING"), Column("value", "VALUE"), Column("source", "FROM")]
    output.rows(columns, settings, "All settings have their defaults; `--all` lists them.")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Setting to change; may be repeated. {UNITS_HELP}",
)
@click.option(
    "--reset", "resets", multiple=True, metavar="NAME", help="Reset this setting to its default; may be repeated."
)
@click.option(
    "-r", "--replicas", type=click.IntRange(1, INT16_MAX), help="Replicas of each partition, each on its own node."
)
@_set_option
@dry_run_option
@no_wait_option
@yes_option
@bootstrap_option
@output_option
def alter(
    name: str,
    configs: tuple[str, ...],
    resets: tuple[str, ...],
    replicas: int | None,
    dry_run: bool,
    no_wait: bool,
    yes: bool,
    cluster: ClusterChoice,
    output: Output,
) -> None:
    """Change settings of a topic, or its number of replicas.

    `--replicas` prints a plan, asks for confirmation, and changes one partition at a time, as `drmq cluster rebalance`
    does: clients keep working while a new replica catches up. If a cluster has grown from one node, its topics keep one
    replica until this command changes it; this includes `__consumer_offsets`.
    """
    changes = plain_values(configs, "--config")
    if not changes and not resets and replicas is None:
        raise click.UsageError(
            "Nothing to change: give --config NAME=VALUE, --reset NAME or --replicas N.", click.get_current_context()
        )
    facts: dict[str, Any] = {"topic": name, "set": changes, "reset": list(resets), "altered": not dry_run}
    words = [f"{key}={value}" for key, value in changes.items()] + [f"{key} back to its default" for key in resets]
    with cluster.admin() as admin:
        if words:
            admin.configs.alter_topic(name, changes, list(resets), validate_only=dry_run)
        if replicas is not None:
            facts["moves"] = _alter_replicas(admin, name, replicas, output, yes=yes, dry_run=dry_run, no_wait=no_wait)
            words.append(f"{plural(replicas, 'replica')}{' soon' if no_wait and facts['moves'] else ''}")
    text = f"Topic `{name}`: {', '.join(words)}{' (not done: dry run)' if dry_run else ''}."
    output.one(facts, text)


def _alter_replicas(
    admin: Admin, name: str, count: int, output: Output, *, yes: bool, dry_run: bool, no_wait: bool
) -> list[dict[str, Any]]:
    """Change the number of replicas of each partition. Returns the plan, which is printed before the confirmation."""
    from drmq.server.rebalancing import plan_replicas

    # Raises if the topic does not exist.
    admin.topics.describe(name)
    moves = plan_replicas(admin.brokers.all(), admin.topics.all(), admin.replicas.reassignments(), name, count)
    rows = [move_row(move) for move in moves]
    if output.is_human and rows:
        output.rows(COLUMNS, rows, "")
    if moves and not dry_run:
        confirm_moves(moves, yes)
        carry_out(admin, moves, no_wait=no_wait, may_change_factor=True)
    return rows


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=topic_names)
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def delete(names: tuple[str, ...], dry_run: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Delete topics and all their records."""
    with cluster.admin() as admin:
        topics = [admin.topics.describe(name) for name in names]
        for found in topics:
            _check_not_internal(found)
        if dry_run:
            records = _record_counts(admin, topics)
            output.each(_would_delete(found, records) for found in topics)
            return
        if not yes:
            records = _record_counts(admin, topics)
            for found in topics:
                click.echo(f"{found.name}: {plural(records.get(found.name, 0), 'record')}", err=True)
        confirm(f"Delete {plural(len(names), 'topic')} permanently?", yes)
        output.each(_delete(admin, found.name) for found in topics)


def _would_delete(found: Topic, records: dict[str, int]) -> tuple[dict[str, Any], str]:
    count = records.get(found.name, 0)
    text = f"Topic `{found.name}` with {plural(count, 'record')} would be deleted."
    return {"topic": found.name, "deleted": False, "records": count}, text


def _delete(admin: Admin, name: str) -> tuple[dict[str, Any], str]:
    admin.topics.delete(name)
    return {"topic": name, "deleted": True}, f"Deleted topic `{name}`."


@topic.command("add-partitions")
@click.argument("name", shell_complete=topic_names)
@click.argument("total", type=click.IntRange(1, INT32_MAX))
@dry_run_option
@bootstrap_option
@output_option
def add_partitions(name: str, total: int, dry_run: bool, cluster: ClusterChoice, output: Output) -> None:
    """Raise the number of partitions of a topic to TOTAL.

    From then on, records with a key may go to other partitions than before. Partitions cannot be removed again.
    """
    with cluster.admin() as admin:
        admin.topics.add_partitions(name, total, validate_only=dry_run)
    has = "could have" if dry_run else "now has"
    facts = {"topic": name, "partitions": total, "added": not dry_run}
    output.one(facts, f"Topic `{name}` {has} {plural(total, 'partition')}.")


@topic.command()
@click.argument("name", shell_complete=topic_names)
@click.option(
    "--before",
    "positions",
    multiple=True,
    required=True,
    type=parse_position,
    metavar="POSITION",
    help=f"Delete the records before this position: {POSITION_HELP}.",
)
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def trim(
    name: str, positions: tuple[Position, ...], dry_run: bool, yes: bool, cluster: ClusterChoice, output: Output
) -> None:
    """Delete the oldest records of a topic.

    \b
      drmq topic trim orders --before @2026-11-01 --dry-run
    """
    with cluster.admin() as admin:
        found = admin.topics.describe(name)
        _check_not_internal(found)
        places = _places(found)
        before = resolve(admin, places, positions)
        bounds = admin.topics.bounds(before)
        rows = [
            {
                "partition": place.partition,
                "start_offset": bounds[place].start,
                "new_start_offset": offset,
                "records": offset - bounds[place].start,
            }
            for place, offset in before.items()
        ]
        total = sum(row["records"] for row in rows)
        if not dry_run:
            if not yes:
                click.echo(f"{plural(total, 'record')} in {plural(len(rows), 'partition')} would be deleted.", err=True)
            confirm("Delete them permanently?", yes)
            lows = admin.topics.trim(before)
            rows = [row | {"new_start_offset": lows[place]} for row, place in zip(rows, before, strict=True)]
    columns = [
        Column("partition", "PARTITION", right=True),
        Column("start_offset", "START", right=True),
        Column("new_start_offset", "NEW START", right=True),
        Column("records", "DELETED" if not dry_run else "WOULD DELETE", right=True),
    ]
    output.rows(columns, rows, "Nothing to delete.")


def _check_not_internal(found: Topic) -> None:
    """The broker refuses it; a dry run must not promise it."""
    if found.is_internal:
        raise click.ClickException(
            f"Topic `{found.name}` is internal: it holds the state of the broker, so its records are left alone."
        )


def _places(found: Topic) -> list[TopicPartition]:
    from drmq.model import TopicPartition

    return [TopicPartition(found.name, partition.index) for partition in found.partitions]


def _record_counts(admin: Admin, topics: list[Topic]) -> dict[str, int]:
    """The number of offsets between start and end of each topic. Compaction and markers can leave fewer records."""
    from drmq.model import TopicPartition

    places = [
        TopicPartition(found.name, partition.index)
        for found in topics
        for partition in found.partitions
        if partition.leader is not None
    ]
    counts = dict.fromkeys((found.name for found in topics), 0)
    for place, (start, end) in admin.topics.bounds(places).items():
        counts[place.topic] += end - start
    return counts


def _sizes(admin: Admin) -> dict[TopicPartition, int]:
    """The size on disk of each partition's largest replica, in bytes; empty if the broker does not report sizes."""
    from drmq.client import Refused

    found: dict[TopicPartition, int] = {}
    try:
        for directory in admin.log_dirs():
            for place, size in directory.sizes.items():
                found[place] = max(size, found.get(place, 0))
    except Refused:
        return {}
    return found


def _total(sizes: dict[TopicPartition, int], found: Topic) -> int | None:
    known = [sizes[place] for place in _places(found) if place in sizes]
    return sum(known) if known else None
