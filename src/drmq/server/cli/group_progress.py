"""How far a group is: its partitions with lag, and for a lease group what is out, parked and given up.

Both types of groups have the same keys for programs. What a type does not have is null.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.hints import with_bootstrap
from drmq.server.cli.output import Column, duration_text, plural

if TYPE_CHECKING:
    from drmq.client import Admin, Group

CLASSIC_COLUMNS = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("committed_offset", "COMMITTED", right=True),
    Column("end_offset", "END", right=True),
    Column("lag", "LAG", right=True),
    Column("client_id", "CLIENT"),
]
LEASE_COLUMNS = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("committed_offset", "DONE BEFORE", right=True),
    Column("end_offset", "END", right=True),
    Column("lag", "LAG", right=True),
    Column("age", "OLDEST", right=True),
    Column("out", "OUT", right=True),
    Column("parked", "PARKED", right=True),
    Column("dying", "GIVEN UP", right=True),
]


@dataclass(frozen=True)
class Progress:
    """The partitions of a group as rows, and its dead letters: their topic, and how many are in it."""

    rows: list[dict[str, Any]]
    dead_letter_topic: str | None = None
    dead_letters: int | None = None
    failures: Sequence[Exception] = ()
    """Why some partitions of a lease group may be missing."""

    def total(self, key: str) -> int | None:
        """The sum over all partitions where it is known; None if it is known for none."""
        known = [row[key] for row in self.rows if row[key] is not None]
        return sum(known) if known else None

    @property
    def oldest_ms(self) -> int | None:
        return min((row["oldest_ms"] for row in self.rows if row["oldest_ms"] is not None), default=None)

    @property
    def facts(self) -> dict[str, Any]:
        """The totals, for programs."""
        return {
            "lag": self.total("lag"),
            "oldest_ms": self.oldest_ms,
            "out": self.total("out"),
            "parked": self.total("parked"),
            "dying": self.total("dying"),
            "dead_letter_topic": self.dead_letter_topic,
            "dead_letters": self.dead_letters,
        }


def progress(admin: Admin, group: Group) -> Progress:
    """The progress of a group of either type."""
    return _lease_progress(admin, group) if group.is_lease else Progress(_classic_rows(admin, group))


def columns_of(group: Group) -> list[Column]:
    return LEASE_COLUMNS if group.is_lease else CLASSIC_COLUMNS


def _row(topic: str, partition: int, **known: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"topic": topic, "partition": partition}
    keys = ("committed_offset", "end_offset", "lag", "client_id", "oldest_ms", "out", "parked", "dying", "next_due_ms")
    return row | dict.fromkeys(keys) | {"paused": False} | known


def _classic_rows(admin: Admin, found: Group) -> list[dict[str, Any]]:
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
        row = _row(place.topic, place.partition, committed_offset=offset, client_id=owners.get(place))
        if place in bounds:
            # Records that retention has removed cannot be read any more, so they do not count as lag.
            start, end = bounds[place]
            row |= {"end_offset": end, "lag": max(0, end - max(start, offset or 0))}
        rows.append(row)
    return rows


def _lease_progress(admin: Admin, found: Group) -> Progress:
    state = admin.lease_groups.state(found.group_id)
    rows = [
        _row(
            queue.place.topic,
            queue.place.partition,
            committed_offset=queue.start_offset,
            end_offset=queue.high_watermark,
            lag=queue.lag,
            oldest_ms=queue.oldest_ms,
            out=queue.held,
            parked=queue.parked,
            dying=queue.dying,
            next_due_ms=queue.next_due_ms,
            paused=queue.is_paused,
        )
        for queue in state.queues
    ]
    letters = _dead_letters(admin, state.dead_letter_topic)
    return Progress(rows, state.dead_letter_topic, letters, state.failures)


def _dead_letters(admin: Admin, topic: str | None) -> int | None:
    """How many records the topic of dead letters has. It is created with the first of them."""
    from drmq.model import TopicPartition

    if topic is None:
        return None
    known = [found for found in admin.topics.all() if found.name == topic]
    places = [
        TopicPartition(topic, partition.index)
        for found in known
        for partition in found.partitions
        if partition.leader is not None
    ]
    return sum(end - start for start, end in admin.topics.bounds(places).values())


def warn(failures: Sequence[Exception]) -> None:
    """Say what may be missing in the output, where it does not disturb programs."""
    for failure in failures:
        click.echo(with_bootstrap(f"warning: {failure}"), err=True)


def age_ms(oldest_ms: int | None) -> int | None:
    """How long ago this was."""
    return None if oldest_ms is None else max(0, int(time.time() * 1000) - oldest_ms)


def shown_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows for people: ages instead of times."""
    return [row | {"age": duration_text(age_ms(row["oldest_ms"]))} for row in rows]


def behind_text(rows: list[dict[str, Any]]) -> str:
    """`5 records behind`, and for how many partitions that is unknown."""
    unknown = sum(row["lag"] is None for row in rows)
    gap = f"; unknown for {plural(unknown, 'partition')} (deleted, or without a leader)" if unknown else ""
    return f"{plural(sum(row['lag'] or 0 for row in rows), 'record')} behind{gap}."


def summary_lines(group: Group, found: Progress) -> list[str]:
    """What matters about the progress of a group, in sentences."""
    lines = [behind_text(found.rows)]
    if not group.is_lease:
        return lines
    age = duration_text(age_ms(found.oldest_ms))
    if age is not None:
        lines[0] = f"{lines[0].removesuffix('.')}, the oldest is {age} old."
    lines.append(f"{plural(found.total('out') or 0, 'record')} out, {found.total('parked') or 0} parked.")
    if found.dead_letter_topic is None:
        lines.append("Records that are given up are dropped: the group has no topic for dead letters.")
    else:
        dying = found.total("dying")
        more = f", {dying} more to be written" if dying else ""
        lines.append(f"{plural(found.dead_letters or 0, 'dead letter')} in topic `{found.dead_letter_topic}`{more}.")
    paused = [f"{row['topic']}-{row['partition']}" for row in found.rows if row["paused"]]
    if paused:
        lines.append(f"Paused, because too many records are parked or given up: {', '.join(paused)}.")
    return lines
