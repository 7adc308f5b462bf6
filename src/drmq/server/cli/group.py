"""`drmq group`: lists groups of both types, and shows their progress, members and leases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.completion import group_names, topic_names
from drmq.server.cli.group_changes import alter, delete, reset
from drmq.server.cli.group_progress import (
    age_ms,
    behind_text,
    columns_of,
    progress,
    shown_rows,
    summary_lines,
    warn,
)
from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import INT32_MAX, ClusterChoice, Watch, bootstrap_option, output_option, watch_option
from drmq.server.cli.output import Column, Output, duration_text, plural
from drmq.server.cli.positions import time_text

if TYPE_CHECKING:
    from drmq.client import Admin, Group, LeaseQueue

_LEASES_MAX = 10_000
"""Runs of leased offsets that are asked for to find out who holds how many records."""


@click.group(cls=Noun)
def group() -> None:
    """List, inspect, reset, change and delete groups of consumers and of workers."""


@group.command("ls")
@click.option("-l", "--lag", "with_lag", is_flag=True, help="Also show members, lag, and what is out, parked or dead.")
@watch_option
@bootstrap_option
@output_option
def list_groups(with_lag: bool, watch: Watch, cluster: ClusterChoice, output: Output) -> None:
    """List groups, their types and their states.

    A group is `classic` if it reads partitions and commits offsets, and `lease` if it leases single records. Kafka
    calls a lease group a share group.
    """
    columns = [Column("group", "GROUP"), Column("type", "TYPE"), Column("state", "STATE")]
    if with_lag:
        columns += [
            Column("members", "MEMBERS", right=True),
            Column("lag", "LAG", right=True),
            Column("age", "OLDEST", right=True),
            Column("out", "OUT", right=True),
            Column("parked", "PARKED", right=True),
            Column("dead_letters", "DEAD", right=True),
        ]

    def show() -> None:
        with cluster.admin() as admin:
            rows = []
            for each in admin.groups.all():
                row: dict[str, Any] = {
                    "group": each.group_id,
                    "type": each.kind,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                }
                if with_lag:
                    row |= _lag_facts(admin, each.group_id)
                rows.append(row)
        if output.is_human and with_lag:
            rows = [row | {"age": duration_text(age_ms(row["oldest_ms"]))} for row in rows]
        output.rows(columns, rows, "There are no groups. A consumer with a group id makes one.")

    watch.show(output, show)


def _lag_facts(admin: Admin, name: str) -> dict[str, Any]:
    found = admin.groups.describe(name)
    return {"members": len(found.members)} | progress(admin, found).facts


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option("--all", "show_all", is_flag=True, help="Also list the settings that have their defaults.")
@watch_option
@bootstrap_option
@output_option
def describe(name: str, show_all: bool, watch: Watch, cluster: ClusterChoice, output: Output) -> None:
    """Show a group: its state, how far it is, and its settings."""

    def show() -> None:
        with cluster.admin() as admin:
            found = admin.groups.describe(name)
            reached = progress(admin, found)
            warn(reached.failures)
            settings = [
                {"name": entry.name, "value": entry.value, "source": entry.source}
                for entry in (admin.configs.of_group(name) if found.is_lease else ())
                if show_all or not entry.is_default
            ]
        if not output.is_human:
            facts = {
                "group": name,
                "type": found.kind,
                "state": found.state,
                "protocol_type": found.protocol_type,
                "protocol": found.protocol,
                "members": _member_rows(found),
            }
            output.data(facts | reached.facts | {"settings": settings, "partitions": reached.rows})
            return
        assignor = f", assignor {found.protocol}" if found.protocol and not found.is_lease else ""
        print(f"Group `{name}`: {found.kind}, {found.state}{assignor}, {plural(len(found.members), 'member')}")
        for line in summary_lines(found, reached):
            print(line)
        print()
        output.rows(columns_of(found), shown_rows(reached.rows), "The group has read nothing.")
        if settings:
            print()
            columns = [Column("name", "SETTING"), Column("value", "VALUE"), Column("source", "FROM")]
            output.rows(columns, settings, "")

    watch.show(output, show)


def _member_rows(found: Group) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": [{"topic": place.topic, "partition": place.partition} for place in member.partitions],
        }
        for member in found.members
    ]


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@watch_option
@bootstrap_option
@output_option
def members(name: str, watch: Watch, cluster: ClusterChoice, output: Output) -> None:
    """Show the members of a group, the partitions of each, and how many records each has leased."""

    def show() -> None:
        with cluster.admin() as admin:
            found = admin.groups.describe(name)
            out: dict[str, int] = {}
            for queue in admin.lease_groups.state(name, leases_max=_LEASES_MAX).queues if found.is_lease else ():
                for lease in queue.leases:
                    count = lease.last_offset - lease.first_offset + 1
                    out[lease.member_id] = out.get(lease.member_id, 0) + count
        rows = [row | {"out": out.get(row["member_id"], 0) if found.is_lease else None} for row in _member_rows(found)]
        columns = [
            Column("client_id", "CLIENT"),
            Column("host", "HOST"),
            Column("member_id", "MEMBER"),
            Column("out", "OUT", right=True),
            Column("reads", "WORKS ON" if found.is_lease else "READS"),
        ]
        if output.is_human:
            reads = [[str(place) for place in member.partitions] for member in found.members]
            rows = [row | {"reads": places} for row, places in zip(rows, reads, strict=True)]
            columns = [column for column in columns if found.is_lease or column.key != "out"]
        empty = f"Group `{name}` has no members. `drmq group describe {name}` shows how far it is."
        output.rows(columns, rows, empty)

    watch.show(output, show)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@watch_option
@bootstrap_option
@output_option
def lag(name: str, watch: Watch, cluster: ClusterChoice, output: Output) -> None:
    """Show for each partition how far behind a group is.

    For a classic group, lists all partitions of every topic that the group has committed offsets for or is assigned to.
    Where it has committed nothing yet (`-`), all records from the start of the partition count. For a lease group, all
    records that are not done count.
    """

    def show() -> None:
        with cluster.admin() as admin:
            found = admin.groups.describe(name)
            reached = progress(admin, found)
            rows = reached.rows
        warn(reached.failures)
        if output.is_human:
            rows = shown_rows(rows)
        empty = f"Group `{name}` has {'leased' if found.is_lease else 'committed'} nothing."
        output.rows(columns_of(found), rows, empty)
        if output.is_human and rows:
            print(f"\n{behind_text(rows)}")

    watch.show(output, show)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option(
    "-t", "--topic", "topics", multiple=True, shell_complete=topic_names, help="Only this topic; may be repeated."
)
@click.option(
    "--max",
    "leases_max",
    type=click.IntRange(1, INT32_MAX),
    default=1000,
    show_default=True,
    metavar="N",
    help="List up to N leases.",
)
@watch_option
@bootstrap_option
@output_option
def leases(
    name: str, topics: tuple[str, ...], leases_max: int, watch: Watch, cluster: ClusterChoice, output: Output
) -> None:
    """Show which records of a lease group are out: with which member, until when, and at which attempt."""
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", right=True),
        Column("offsets", "OFFSETS", right=True),
        Column("records", "RECORDS", right=True),
        Column("client_id", "CLIENT"),
        Column("member_id", "MEMBER"),
        Column("attempt", "ATTEMPT", right=True),
        Column("left", "LEFT", right=True),
        Column("until", "UNTIL"),
    ]

    def show() -> None:
        with cluster.admin() as admin:
            found = admin.groups.describe(name)
            _refuse_classic(found)
            state = admin.lease_groups.state(name, list(topics) or None, leases_max=leases_max)
        rows = _lease_rows(found, state.queues)
        held = sum(queue.held for queue in state.queues)
        if output.is_human:
            rows = [_shown_lease(row) for row in rows]
        output.rows(columns, rows, f"Nothing of group `{name}` is leased.")
        warn(state.failures)
        listed = sum(row["records"] for row in rows)
        if output.is_human and rows:
            more = f"; {listed:,} of them are listed (--max)" if listed < held else ""
            print(f"\n{plural(max(held, listed), 'record')} out{more}.")

    watch.show(output, show)


def _lease_rows(found: Group, queues: Sequence[LeaseQueue]) -> list[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    known = {member.member_id: member for member in found.members}
    rows = []
    for queue in queues:
        for lease in queue.leases:
            member = known.get(lease.member_id)
            rows.append(
                {
                    "topic": queue.place.topic,
                    "partition": queue.place.partition,
                    "first_offset": lease.first_offset,
                    "last_offset": lease.last_offset,
                    "records": lease.last_offset - lease.first_offset + 1,
                    "member_id": lease.member_id,
                    "client_id": None if member is None else member.client_id,
                    "host": None if member is None else member.host,
                    "attempt": lease.attempt,
                    "left_ms": lease.left_ms,
                    "until_ms": now_ms + lease.left_ms,
                }
            )
    return rows


def _shown_lease(row: dict[str, Any]) -> dict[str, Any]:
    first, last = row["first_offset"], row["last_offset"]
    return row | {
        "offsets": str(first) if first == last else f"{first}-{last}",
        "left": duration_text(row["left_ms"]),
        "until": time_text(row["until_ms"]),
    }


def _refuse_classic(found: Group) -> None:
    from drmq.client import Refused
    from drmq.model import ErrorCode

    if not found.is_lease:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Group `{found.group_id}` is a classic group, which has no leases",
            advice=f"`drmq group members {found.group_id}` shows which member reads which partitions.",
        )


for _command in (reset, delete, alter):
    group.add_command(_command)
