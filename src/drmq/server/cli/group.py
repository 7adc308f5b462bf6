"""`drmq group`: lists consumer groups, shows their progress, and moves their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.completion import group_names, topic_names
from drmq.server.cli.nouns import Noun
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


@click.group(cls=Noun)
def group() -> None:
    """List, inspect, reset and delete consumer groups."""


@group.command("ls")
@bootstrap_option
@output_option
def list_groups(cluster: ClusterChoice, output: Output) -> None:
    """List groups and their states."""
    with cluster.admin() as admin:
        groups = admin.groups.all()
    rows = [{"group": found.group_id, "state": found.state, "protocol_type": found.protocol_type} for found in groups]
    columns = [Column("group", "GROUP"), Column("state", "STATE"), Column("protocol_type", "TYPE")]
    output.rows(columns, rows, "There are no groups. A consumer with a group id makes one.")


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@bootstrap_option
@output_option
def describe(name: str, cluster: ClusterChoice, output: Output) -> None:
    """Show the members of a group and the partitions that each of them reads."""
    with cluster.admin() as admin:
        found = admin.groups.describe(name)
    members: list[dict[str, Any]] = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": [{"topic": place.topic, "partition": place.partition} for place in member.partitions],
        }
        for member in found.members
    ]
    facts = {"group": name, "state": found.state, "protocol_type": found.protocol_type, "protocol": found.protocol}
    if not output.is_human:
        output.data(facts | {"members": members})
        return
    assignor = f", assignor {found.protocol}" if found.protocol else ""
    print(f"Group `{name}`: {found.state}{assignor}, {plural(len(members), 'member')}\n")
    shown = [
        row | {"reads": [str(place) for place in member.partitions]}
        for row, member in zip(members, found.members, strict=True)
    ]
    columns = [
        Column("client_id", "CLIENT"),
        Column("host", "HOST"),
        Column("member_id", "MEMBER"),
        Column("reads", "READS"),
    ]
    output.rows(columns, shown, f"The group has no members. `drmq group lag {name}` shows how far it has read.")


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@bootstrap_option
@output_option
def lag(name: str, cluster: ClusterChoice, output: Output) -> None:
    """Show for each partition how far behind a group is.

    Lists all partitions of every topic that the group has committed offsets for or is assigned to. Where it has
    committed nothing yet (`-`), all records from the start of the partition count.
    """
    with cluster.admin() as admin:
        rows = _lag_rows(admin, admin.groups.describe(name))
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", right=True),
        Column("committed_offset", "COMMITTED", right=True),
        Column("end_offset", "END", right=True),
        Column("lag", "LAG", right=True),
        Column("client_id", "CLIENT"),
    ]
    output.rows(columns, rows, f"Group `{name}` has committed nothing.")
    if output.is_human and rows:
        unknown = sum(row["lag"] is None for row in rows)
        gap = f"; unknown for {plural(unknown, 'partition')} (deleted, or without a leader)" if unknown else ""
        print(f"\n{plural(sum(row['lag'] or 0 for row in rows), 'record')} behind{gap}.")


def _lag_rows(admin: Admin, found: Group) -> list[dict[str, Any]]:
    """Every partition of each topic that the group has committed offsets for or has partitions of.

    A partition that was deleted or has no leader has no end offset and no lag.
    """
    from drmq.model import TopicPartition

    committed = admin.groups.offsets(found.group_id)
    owners = {place: member.client_id for member in found.members for place in member.partitions}
    topics = {place.topic for place in committed} | {place.topic for place in owners}
    led = {
        TopicPartition(topic.name, partition.index): partition.leader is not None
        for topic in admin.topics.all()
        if topic.name in topics
        for partition in topic.partitions
    }
    places = sorted({*committed, *owners, *led})
    bounds = admin.topics.bounds([place for place in places if led.get(place, False)])
    rows = []
    for place in places:
        offset = committed[place].offset if place in committed else None
        row: dict[str, Any] = {
            "topic": place.topic,
            "partition": place.partition,
            "committed_offset": offset,
            "end_offset": None,
            "lag": None,
            "client_id": owners.get(place),
        }
        if place in bounds:
            # Records that retention has removed cannot be read any more, so they do not count as lag.
            start, end = bounds[place]
            row |= {"end_offset": end, "lag": max(0, end - max(start, offset or 0))}
        rows.append(row)
    return rows


@group.command()
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

    \b
      drmq group reset billing --to begin --dry-run
      drmq group reset billing --to @2026-11-01 --topic orders
    """
    from drmq.client import Refused

    with cluster.admin() as admin:
        committed = {place: entry.offset for place, entry in admin.groups.offsets(name).items()}
        _refuse_active(admin, name)
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
            admin.groups.commit(name, new)
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", right=True),
        Column("from_offset", "FROM", right=True),
        Column("to_offset", "TO" if not dry_run else "WOULD BE", right=True),
        Column("change", "CHANGE", right=True),
    ]
    output.rows(columns, rows, "Nothing to move.")


def _refuse_active(admin: Admin, name: str) -> None:
    from drmq.client import Refused
    from drmq.model import ErrorCode

    try:
        found = admin.groups.describe(name)
    except Refused as error:
        # A group can be created by committing offsets before its first consumer joins.
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if found.is_active:
        raise Refused(
            ErrorCode.NON_EMPTY_GROUP,
            f"Group `{name}` is {found.state} with {plural(len(found.members), 'member')}",
            advice="Members continue from their own position. Stop them first.",
        )


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


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=group_names)
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def delete(names: tuple[str, ...], dry_run: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Delete groups and their committed offsets. Their consumers must be stopped."""
    with cluster.admin() as admin:
        for name in names:
            admin.groups.describe(name)
        if dry_run:
            output.each(_would_delete(admin, name) for name in names)
            return
        confirm(f"Delete {plural(len(names), 'group')} and their committed offsets?", yes)
        output.each(_delete(admin, name) for name in names)


def _would_delete(admin: Admin, name: str) -> tuple[dict[str, Any], str]:
    _refuse_active(admin, name)
    count = len(admin.groups.offsets(name))
    text = f"Group `{name}` with the committed offsets of {plural(count, 'partition')} would be deleted."
    return {"group": name, "deleted": False, "offsets": count}, text


def _delete(admin: Admin, name: str) -> tuple[dict[str, Any], str]:
    admin.groups.delete(name)
    return {"group": name, "deleted": True}, f"Deleted group `{name}`."
