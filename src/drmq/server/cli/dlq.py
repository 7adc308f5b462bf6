"""`drmq dlq`: lists dead letters, shows them, moves them back to where they came from, and purges them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drmq.server.cli.completion import topic_names
from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import (
    INT32_MAX,
    ClusterChoice,
    bootstrap_option,
    confirm,
    dry_run_option,
    key_values,
    output_option,
    yes_option,
)
from drmq.server.cli.output import Column, Output, plural

if TYPE_CHECKING:
    from drmq.client import Admin
    from drmq.client.dead_letters import DeadLetter, DeadLetterStatus

Function = TypeVar("Function", bound=Callable[..., Any])

_LOOK_S = 0.2
"""How often a redrive that is waited for is looked at."""
_SHOWN_MAX = 10


@click.group(cls=Noun)
def dlq() -> None:
    """List, show, redrive and purge dead letters.

    A NAME is that of a dead-letter topic, or of a group: then only the letters of that group are meant.
    """


def _time(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from drmq.server.cli.positions import BadPosition, parse_time

    if value is None:
        return None
    try:
        return parse_time(value)
    except BadPosition as error:
        raise click.BadParameter(str(error), context, parameter) from None


_FILTERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--key", {"metavar": "TEXT", "help": "Only letters with this key."}),
    ("--value-contains", {"metavar": "TEXT", "help": "Only letters with this text in their value."}),
    ("--reason", {"metavar": "TEXT", "help": "Only letters with this text in their reason."}),
    ("--topic", {"metavar": "TOPIC", "help": "Only letters from this topic.", "shell_complete": topic_names}),
    ("--partition", {"type": click.IntRange(0, INT32_MAX), "help": "Only letters from this partition of their topic."}),
    ("--header", {"multiple": True, "metavar": "NAME=VALUE", "help": "Only letters with this header; repeatable."}),
    (
        "--attempts-min",
        {"type": click.IntRange(0, INT32_MAX), "help": "Only letters that were delivered so often at least."},
    ),
    (
        "--redrives-max",
        {"type": click.IntRange(0, INT32_MAX), "help": "Only letters that were moved back so often at most."},
    ),
    ("--since", {"metavar": "TIME", "callback": _time, "help": "Only letters that failed at this time or later."}),
    ("--until", {"metavar": "TIME", "callback": _time, "help": "Only letters that failed before this time."}),
)
_FIELDS = {"since": "failed_since_ms", "until": "failed_until_ms"}


def filter_options(function: Function) -> Function:
    """Which letters are meant: the parameters of `_filter`."""
    for name, options in reversed(_FILTERS):
        function = click.option(name, **options)(function)
    return function


def _filter(chosen: dict[str, Any], group: str | None) -> dict[str, Any]:
    """The filter in the form of the server."""
    found = {_FIELDS.get(name, name): value for name, value in chosen.items() if value not in (None, ())}
    if "header" in found:
        found["header"] = key_values(found["header"], "--header")
    return found if group is None else found | {"group": group}


def _find(admin: Admin, name: str) -> tuple[str, str | None]:
    """The dead-letter topic that a name stands for, and the group if it is the name of one."""
    if name in admin.dead_letters.topics():
        return name, None
    topics = {topic.name for topic in admin.topics.all()}
    topic = admin.dead_letters.topic_of(name)
    if name in topics and topic not in topics:
        raise click.ClickException(
            f"Topic `{name}` takes no dead letters (errors.deadletterqueue.group.enable is not true on it), so its "
            "records are left alone. `drmq dlq ls` lists the topics that do."
        )
    if topic is None:
        raise click.ClickException(f"Group `{name}` has no dead-letter topic: records that it gives up are dropped.")
    if topic not in topics:
        raise click.ClickException(
            f"There is no dead-letter topic `{name}`, and no group `{name}` has dead letters (they would be in "
            f"`{topic}`). `drmq dlq ls` lists the topics that there are."
        )
    return topic, name


@dlq.command("ls")
@bootstrap_option
@output_option
def list_topics(cluster: ClusterChoice, output: Output) -> None:
    """List dead-letter topics, with what waits in them."""
    from drmq.server.cli.positions import time_text

    with cluster.admin() as admin:
        found = [admin.dead_letters.status(topic, with_letters=True) for topic in admin.dead_letters.topics()]
    rows = []
    for status in found:
        ends = [letter for letter in (status.oldest, status.newest) if letter is not None]
        rows.append(
            {
                "topic": status.topic,
                "groups": sorted({letter.group for letter in ends}),
                "waiting": status.waiting,
                "oldest": time_text(status.oldest.last_failed_ms) if status.oldest is not None else None,
                "last_reason": status.newest.reason if status.newest is not None else None,
                "redrive": status.redrive.state if status.redrive is not None else None,
            }
        )
    columns = [
        Column("topic", "TOPIC"),
        Column("groups", "GROUP"),
        Column("waiting", "WAITING", right=True),
        Column("oldest", "OLDEST"),
        Column("last_reason", "LAST REASON"),
        Column("redrive", "REDRIVE"),
    ]
    output.rows(columns, rows, "There are no dead-letter topics. A record that a lease group gives up makes one.")


@dlq.command()
@click.argument("name", metavar="NAME", shell_complete=topic_names)
@filter_options
@click.option(
    "-n", "--count", type=click.IntRange(1, INT32_MAX), default=_SHOWN_MAX, show_default=True, help="How many, at most."
)
@bootstrap_option
@output_option
def show(name: str, count: int, cluster: ClusterChoice, output: Output, **chosen: Any) -> None:
    """Show the dead letters that wait: where they came from, why, and what they contain.

    \b
      drmq dlq show billing
      drmq dlq show dlq.billing --reason rejected --since 1h -o json
    """
    with cluster.admin() as admin:
        topic, group = _find(admin, name)
        wanted = _filter(chosen, group)
        found = list(admin.dead_letters.find(topic, wanted, count_max=count))
        waiting = admin.dead_letters.count(topic, wanted) if output.is_human and len(found) == count else len(found)
    if not output.is_human:
        output.data([_facts(topic, letter) for letter in found])
        return
    for letter in found:
        print(_letter_text(topic, letter))
    if not found:
        print("No dead letter matches." if wanted else f"No dead letter waits in `{topic}`.")
    elif waiting > len(found):
        print(f"{plural(waiting, 'dead letter')} in all; `-n` shows more.")


def _facts(topic: str, letter: DeadLetter) -> dict[str, Any]:
    from drmq.server.cli.record_text import json_bytes

    return {
        "topic": topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "origin_topic": letter.origin_topic,
        "origin_partition": letter.origin_partition,
        "origin_offset": letter.origin_offset,
        "group": letter.group,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "first_failed_ms": letter.first_failed_ms,
        "last_failed_ms": letter.last_failed_ms,
        "redrive_count": letter.redrive_count,
        "has_record": letter.has_record,
        "key": json_bytes(letter.key),
        "value": json_bytes(letter.value),
        "headers": [[name, json_bytes(value)] for name, value in letter.headers],
    }


def _letter_text(topic: str, letter: DeadLetter) -> str:
    from drmq.server.cli.positions import time_text

    origin = f"{letter.origin_topic}-{letter.origin_partition} offset {letter.origin_offset}"
    lines = [
        f"{topic}-{letter.partition} offset {letter.offset}, from {origin}",
        f"  group {letter.group}: {letter.reason} ({plural(letter.attempts, 'attempt')})",
        f"  failed   {time_text(letter.first_failed_ms)} first, {time_text(letter.last_failed_ms)} last",
    ]
    if letter.redrive_count:
        lines.append(f"  redriven {plural(letter.redrive_count, 'time')} before")
    if letter.has_record:
        lines += [f"  key      {_text(letter.key)}", f"  value    {_text(letter.value)}"]
    return "\n".join(lines)


def _text(content: bytes | None) -> str:
    if content is None:
        return "-"
    text = content.decode(errors="backslashreplace")
    return text if text.isprintable() else repr(text)[1:-1]


@dlq.command()
@click.argument("name", metavar="NAME", shell_complete=topic_names)
@filter_options
@click.option(
    "-n", "--count", type=click.IntRange(1, INT32_MAX), help="Move so many at most; without it, all that match."
)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the redrive has ended.")
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def redrive(
    name: str,
    count: int | None,
    wait: bool,
    dry_run: bool,
    yes: bool,
    cluster: ClusterChoice,
    output: Output,
    **chosen: Any,
) -> None:
    """Move dead letters back to the topics and partitions that they came from.

    The cluster moves them, each exactly once, also if nodes fail meanwhile. All groups that read these topics see the
    records again. Letters that arrive after the start are not moved. Ctrl-C stops the redrive.

    \b
      drmq dlq redrive billing --reason rejected --dry-run
      drmq dlq redrive billing --count 10 --yes
    """
    with cluster.admin() as admin:
        topic, group = _find(admin, name)
        wanted = _filter(chosen, group)
        if dry_run or not yes:
            matching = admin.dead_letters.count(topic, wanted)
            moved = matching if count is None else min(matching, count)
        if dry_run:
            facts = {"topic": topic, "matching": matching, "would_move": moved}
            output.one(facts, f"{plural(moved, 'dead letter')} of `{topic}` would be moved back.")
            return
        if not yes:
            confirm(f"Move {plural(moved, 'dead letter')} of `{topic}` back?", yes)
        status = admin.dead_letters.redrive(topic, wanted, count_max=count or 0)
        if wait:
            status = _wait(admin, status)
    _report(status, output)


def _wait(admin: Admin, status: DeadLetterStatus) -> DeadLetterStatus:
    """Wait until the redrive that runs has ended. Ctrl-C stops it."""
    from drmq.server.cli.progress import StatusLine

    topic = status.topic
    with StatusLine() as line:
        try:
            while status.redrive is not None and status.redrive.is_running:
                line.show(f"{plural(status.redrive.redriven, 'dead letter')} moved back; {status.redrive.reason}")
                time.sleep(_LOOK_S)
                status = admin.dead_letters.status(topic)
        except KeyboardInterrupt:
            line.show("stopping the redrive")
            status = _stop(admin, topic)
            click.echo(f"Stopped the redrive of `{topic}`. What it has moved stays moved.", err=True)
    return status


def _stop(admin: Admin, topic: str) -> DeadLetterStatus:
    from drmq.client import Refused
    from drmq.model import ErrorCode

    try:
        status = admin.dead_letters.stop(topic)
    except Refused as error:
        if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise
        return admin.dead_letters.status(topic)
    deadline = time.monotonic() + 10
    while status.redrive is not None and status.redrive.is_running and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        status = admin.dead_letters.status(topic)
    return status


def _report(status: DeadLetterStatus, output: Output) -> None:
    """Print how a redrive went."""
    run = status.redrive
    facts: dict[str, Any] = {"topic": status.topic, "waiting": status.waiting, "purged": status.purged}
    if run is None:
        facts["redrive"] = None
        output.one(facts, f"{plural(status.waiting, 'dead letter')} waiting in `{status.topic}`. No redrive has run.")
        return
    facts["redrive"] = {
        "number": run.number,
        "state": run.state,
        "redriven": run.redriven,
        "skipped": run.skipped,
        "failed": run.failed,
        "reason": run.reason or None,
        "filter": run.filter or None,
        "count_max": run.count_max or None,
        "started_ms": run.started_ms,
        "ended_ms": run.ended_ms,
    }
    text = f"Redrive of `{status.topic}` {run.state}: {plural(run.redriven, 'dead letter')} moved back"
    if run.skipped:
        text += f", {run.skipped:,} did not match"
    if run.failed:
        text += f", {run.failed:,} could not be moved"
    text += f", {status.waiting:,} waiting."
    if run.reason:
        text += f"\n{run.reason[0].upper()}{run.reason[1:]}."
    if run.state == "stopping":
        text += "\nIt stops when the batch under way is committed."
    output.one(facts, text)


@dlq.command()
@click.argument("name", metavar="NAME", shell_complete=topic_names)
@bootstrap_option
@output_option
def status(name: str, cluster: ClusterChoice, output: Output) -> None:
    """Show how the redrive that runs or ran last goes."""
    with cluster.admin() as admin:
        found = admin.dead_letters.status(_find(admin, name)[0])
    _report(found, output)


@dlq.command()
@click.argument("name", metavar="NAME", shell_complete=topic_names)
@bootstrap_option
@output_option
def stop(name: str, cluster: ClusterChoice, output: Output) -> None:
    """Stop a redrive. What it has moved stays moved."""
    with cluster.admin() as admin:
        topic = _find(admin, name)[0]
        admin.dead_letters.stop(topic)
        found = _stop(admin, topic)
    _report(found, output)


@dlq.command()
@click.argument("name", metavar="NAME", shell_complete=topic_names)
@filter_options
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def purge(name: str, dry_run: bool, yes: bool, cluster: ClusterChoice, output: Output, **chosen: Any) -> None:
    """Give up dead letters for good: all of them, or those that match.

    They are neither shown nor moved back any more. Without a filter they are also deleted from their topic; those of a
    filter stay in it until its retention removes them.

    \b
      drmq dlq purge billing --until @2026-11-01 --dry-run
    """
    with cluster.admin() as admin:
        topic, group = _find(admin, name)
        wanted = _filter(chosen, group)
        if dry_run or not yes:
            count = admin.dead_letters.purgeable(topic, wanted)
        if dry_run:
            text = f"{plural(count, 'dead letter')} of `{topic}` would be purged."
            output.one({"topic": topic, "matching": count, "purged": 0}, text)
            return
        if not yes:
            confirm(f"Purge {plural(count, 'dead letter')} of `{topic}`? This cannot be undone.", yes)
        count = admin.dead_letters.purge(topic, wanted or None)
    output.one({"topic": topic, "purged": count}, f"Purged {plural(count, 'dead letter')} of `{topic}`.")
