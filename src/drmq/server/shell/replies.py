"""What the shell prints: each reply is a text for people, and the same facts for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drmq.server.cli.group_progress import behind_text, columns_of, progress, shown_rows
from drmq.server.cli.output import Column, plural, table
from drmq.server.cli.record_text import ReadRecord, record_facts

if TYPE_CHECKING:
    from drmq.client import Admin, Bounds
    from drmq.model import TopicPartition
    from drmq.server.cli.options import ClusterChoice


@dataclass(frozen=True)
class Reply:
    """Something to print."""

    text: str
    facts: Any


def message_reply(record: ReadRecord, number: int | None = None) -> Reply:
    """A message; one that is leased has a number, by which `ack` and its like name it."""
    facts = record_facts(record)
    if number is None:
        return Reply(_message_text(record), facts)
    return Reply(f"[{number}] {_message_text(record)}", {"message": number} | facts)


def _message_text(record: ReadRecord) -> str:
    parts = [f"{record.topic}-{record.partition} offset {record.offset}"]
    if record.key is not None:
        parts.append(f"key {_shown(record.key)}")
    parts += [f"{name}={_shown(value)}" for name, value in record.headers]
    if record.attempt is not None and record.attempt > 1:
        parts.append(f"attempt {record.attempt}")
    return f"{', '.join(parts)}: {_shown(record.value)}"


def _shown(content: bytes | None) -> str:
    """Bytes as a terminal can show them: a message must not be able to move the cursor or change the colours."""
    if content is None:
        return "(null)"
    text = content.decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def topics_reply(admin: Admin) -> Reply:
    rows = [
        {"topic": topic.name, "partitions": len(topic.partitions)}
        for topic in admin.topics.all()
        if not topic.is_internal
    ]
    columns = [Column("topic", "TOPIC"), Column("partitions", "PARTITIONS", right=True)]
    return Reply(table(columns, rows, None) if rows else "There are no topics. `send` creates one.", rows)


def lag_reply(admin: Admin, group: str) -> Reply:
    """How far a group of either type is."""
    found = admin.groups.describe(group)
    rows = progress(admin, found).rows
    if not rows:
        return Reply(f"Group `{group}` has read nothing.", rows)
    return Reply(f"{table(columns_of(found), shown_rows(rows), None)}\n{behind_text(rows)}", rows)


def reader_lag_reply(positions: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds]) -> Reply:
    """How far a reader with positions of its own is."""
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "position": position,
            "end_offset": bounds[place].end,
            "lag": max(0, bounds[place].end - max(position, bounds[place].start)),
        }
        for place, position in sorted(positions.items())
    ]
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", right=True),
        Column("position", "POSITION", right=True),
        Column("end_offset", "END", right=True),
        Column("lag", "LAG", right=True),
    ]
    return Reply(f"{table(columns, rows, None)}\n{behind_text(rows)}", rows)


def status_reply(cluster: ClusterChoice, state: dict[str, Any]) -> Reply:
    """What the session does, and whether the cluster is healthy."""
    from drmq.server.cli.status import examine

    found = examine(cluster)
    held = f", {plural(len(state['held']), 'message')} held" if state["mode"] == "group" else ""
    lines = [
        f"Mode {state['mode']}, group {state['group'] or '-'}, topic {state['topic'] or '-'}{held}, "
        f"autocommit {'on' if state['autocommit'] else 'off'}.",
        f"{found['status'].capitalize()}: {found['reason']}.",
    ]
    return Reply("\n".join(lines), state | {"cluster": found["status"], "reason": found["reason"]})
