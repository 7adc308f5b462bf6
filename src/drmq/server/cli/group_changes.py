"""`drmq group reset`, `delete` and `alter`: commands that change a group of either type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.completion import group_names, topic_names
from drmq.server.cli.config_values import plain_values
from drmq.server.cli.options import (
    ClusterChoice,
    bootstrap_option,
    confirm,
    dry_run_option,
    output_option,
    yes_option,
)
from drmq.server.cli.output import Column, Output, plural
from drmq.server.cli.positions import POSITION_HELP, Position, parse_position, resolve

if TYPE_CHECKING:
    from drmq.client import Admin, Group
    from drmq.model import TopicPartition


@click.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option(
    "--to",
    "positions",
    required=True,
    multiple=True,
    type=parse_position,
    metavar="POSITION",
    help=f"Where the group continues reading: {POSITION_HELP}.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=topic_names,
    help="Only this topic; required for a topic that the group has not read yet.",
)
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def reset(
    name: str,
    positions: tuple[Position, ...],
    topics: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    cluster: ClusterChoice,
    output: Output,
) -> None:
    """Move a group to another position. Its consumers must be stopped.

    In a lease group, all records from the new position on are open again, with no attempts behind them, and all
    records before it are done.

    \b
      drmq group reset billing --to earliest --dry-run
      drmq group reset billing --to @2026-11-01 --topic orders
    """
    from drmq.client import Refused

    with cluster.admin() as admin:
        found = _inactive(admin, name)
        is_lease = found is not None and found.is_lease
        committed = _starts(admin, name) if is_lease else _committed(admin, name)
        chosen = list(topics) or sorted({place.topic for place in committed})
        if not chosen:
            raise click.UsageError(
                f"Group `{name}` has read nothing yet. Name a topic with --topic.", click.get_current_context()
            )
        new: dict[TopicPartition, int] = {}
        for topic in chosen:
            try:
                new |= resolve(admin, _partitions(admin, topic), positions)
            except Refused:
                # A topic that was deleted is skipped unless it was named explicitly.
                if topics:
                    raise
        rows = [_move(place, committed.get(place), offset) for place, offset in new.items()]
        if not dry_run:
            if not yes:
                for row in rows:
                    click.echo(
                        f"{row['topic']}-{row['partition']}: {row['from_offset']} -> {row['to_offset']}", err=True
                    )
            confirm(f"Move group `{name}`?", yes)
            if is_lease:
                admin.lease_groups.alter_offsets(name, new)
            else:
                admin.groups.commit(name, new)
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", right=True),
        Column("from_offset", "FROM", right=True),
        Column("to_offset", "TO" if not dry_run else "WOULD BE", right=True),
        Column("change", "CHANGE", right=True),
    ]
    output.rows(columns, rows, "Nothing to move.")


def _committed(admin: Admin, name: str) -> dict[TopicPartition, int]:
    """Where a classic group continues reading."""
    return {place: entry.offset for place, entry in admin.groups.offsets(name).items()}


def _starts(admin: Admin, name: str) -> dict[TopicPartition, int]:
    """Where a lease group is: the first offset of each partition that is not done."""
    return {queue.place: queue.start_offset for queue in admin.lease_groups.state(name).queues}


def _inactive(admin: Admin, name: str) -> Group | None:
    """The group, or None if it does not exist. Raises `Refused` if it has members."""
    from drmq.client import Refused
    from drmq.model import ErrorCode

    try:
        found = admin.groups.describe(name)
    except Refused as error:
        # A classic group can be created by committing offsets before its first consumer joins.
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    if found.is_active:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"Group `{name}` is {found.state} with {plural(len(found.members), 'member')}",
            advice="Members continue from their own position. Stop them first.",
        )
    return found


def _partitions(admin: Admin, topic: str) -> list[TopicPartition]:
    from drmq.model import TopicPartition

    return [TopicPartition(topic, partition.index) for partition in admin.topics.describe(topic).partitions]


def _move(place: TopicPartition, old: int | None, new: int) -> dict[str, Any]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "from_offset": old,
        "to_offset": new,
        "change": new - old if old is not None else None,
    }


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def delete(names: tuple[str, ...], dry_run: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Delete groups, and with them what they have committed, leased and parked. Their consumers must be stopped."""
    with cluster.admin() as admin:
        for name in names:
            admin.groups.describe(name)
        if dry_run:
            output.each(_would_delete(admin, name) for name in names)
            return
        confirm(f"Delete {plural(len(names), 'group')} and their progress?", yes)
        output.each(_delete(admin, name) for name in names)


def _would_delete(admin: Admin, name: str) -> tuple[dict[str, Any], str]:
    found = _inactive(admin, name)
    is_lease = found is not None and found.is_lease
    count = len(_starts(admin, name) if is_lease else _committed(admin, name))
    what = "progress in" if is_lease else "committed offsets of"
    text = f"Group `{name}` with the {what} {plural(count, 'partition')} would be deleted."
    return {"group": name, "deleted": False, "offsets": count}, text


def _delete(admin: Admin, name: str) -> tuple[dict[str, Any], str]:
    admin.groups.delete(name)
    return {"group": name, "deleted": True}, f"Deleted group `{name}`."


@click.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.argument("changes", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--reset", "resets", multiple=True, metavar="NAME", help="Reset this setting to its default; may be repeated."
)
@dry_run_option
@bootstrap_option
@output_option
def alter(
    name: str,
    changes: tuple[str, ...],
    resets: tuple[str, ...],
    dry_run: bool,
    cluster: ClusterChoice,
    output: Output,
) -> None:
    """Change settings of a lease group. It need not exist yet.

    Times may have a unit. `drmq group describe GROUP --all` lists the settings.

    \b
      drmq group alter billing share.record.lock.duration.ms=60s share.delivery.count.limit=3
      drmq group alter billing share.auto.offset.reset=earliest
    """
    values = plain_values(changes, "NAME=VALUE")
    if not values and not resets:
        raise click.UsageError("Nothing to change: give NAME=VALUE or --reset NAME.", click.get_current_context())
    with cluster.admin() as admin:
        admin.configs.alter_group(name, values, list(resets), validate_only=dry_run)
    words = [f"{key}={value}" for key, value in values.items()] + [f"{key} back to its default" for key in resets]
    text = f"Group `{name}`: {', '.join(words)}{' (not done: dry run)' if dry_run else ''}."
    output.one({"group": name, "set": values, "reset": list(resets), "altered": not dry_run}, text)
