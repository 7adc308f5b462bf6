"""What a dead letter is: a record with headers that say where it came from and why, and what it becomes again.

A letter has the key, the value and the headers of its record, and headers of its own, all text (`ERRORS`). Those that
Kafka has too have Kafka's names. When a letter is moved back, it becomes its record again: the headers about the error
are taken off, and what they said is kept as one header of the history (`HISTORY`), so that a record that fails again
and again shows how often, when and why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from drmq.leases import DeadRecord, Reason
from drmq.model import Offset, TopicId
from drmq.records import Codec, Record

ERRORS: Final = "__dlq.errors."
"""The names of a letter's own headers begin so."""
COUNT: Final = "__dlq.redrive.count"
"""How often a record was moved back."""
HISTORY: Final = "__dlq.redrive.history"
"""What the headers of an earlier letter said, as one JSON text for each time, the oldest first."""
HISTORY_MAX: Final = 10
"""Headers of the history that are kept: the newest."""
_REASONS: Final = {
    Reason.REJECTED: "it was rejected",
    Reason.ATTEMPTS: "it failed as often as the group allows",
}


class NotALetter(Exception):
    """A record in a dead-letter topic without the headers of a letter. The text says what is missing."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, and what its headers say."""

    partition: int
    """Of the dead-letter topic."""
    record: Record
    codec: Codec
    """How its batch was compressed."""
    topic: str
    origin_partition: int
    origin_offset: int
    topic_id: TopicId | None
    """The id that the topic had then; None in a letter that another system wrote."""
    group: str
    attempts: int
    reason: str
    first_failed_ms: int
    last_failed_ms: int
    has_record: bool
    """Whether key and value are those of the record. If not, the record was not copied."""
    redrive_count: int

    @property
    def offset(self) -> int:
        return self.record.offset


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


def letter_headers(source: str, run: DeadRecord, record: Record, fault: str = "") -> Headers:
    """The headers of a letter for a record. `fault` says why the record could not be copied, if it could not."""
    death = run.death
    reason = _REASONS.get(death.reason, death.reason.name)
    own: dict[str, object] = {
        "topic": source,
        "partition": run.key.partition,
        "offset": record.offset,
        "group": run.key.group,
        "delivery.count": death.attempt,
        "message": f"{reason}; {fault}" if fault else reason,
        "first.failure.ms": death.failed_ms,
        "last.failure.ms": death.ended_ms,
        "topic.id": run.key.topic_id.hex(),
        "timestamp": record.timestamp,
    }
    if fault:
        own["copied"] = "false"
    kept = tuple(header for header in record.headers if not header[0].startswith(ERRORS))
    return kept + tuple((ERRORS + name, str(value).encode()) for name, value in own.items())


def read_letter(partition: int, record: Record, codec: Codec) -> Letter:
    """The letter that a record is. Raises `NotALetter`."""
    said = _said(record)
    try:
        topic_id = said.get("topic.id")
        return Letter(
            partition=partition,
            record=record,
            codec=codec,
            topic=said["topic"],
            origin_partition=int(said["partition"]),
            origin_offset=int(said["offset"]),
            topic_id=None if topic_id is None else TopicId(bytes.fromhex(topic_id)),
            group=said.get("group", ""),
            attempts=int(said.get("delivery.count", 0)),
            reason=said.get("message", ""),
            first_failed_ms=int(said.get("first.failure.ms", record.timestamp)),
            last_failed_ms=int(said.get("last.failure.ms", record.timestamp)),
            has_record=said.get("copied") != "false",
            redrive_count=_count(record),
        )
    except KeyError as missing:
        raise NotALetter(f"it has no header {ERRORS}{missing.args[0]}") from None
    except ValueError as error:
        raise NotALetter(f"a header is malformed: {error}") from None


def redriven_record(letter: Letter, index: int, at_ms: int) -> Record:
    """The record that a letter becomes in its origin. It depends on nothing but the letter and the time."""
    record = letter.record
    past = json.dumps(_said(record), separators=(",", ":"), ensure_ascii=False).encode()
    history = [value for name, value in record.headers if name == HISTORY]
    headers = [
        header for header in record.headers if not header[0].startswith(ERRORS) and header[0] not in (COUNT, HISTORY)
    ]
    headers.append((COUNT, str(letter.redrive_count + 1).encode()))
    headers += [(HISTORY, value) for value in [*history, past][-HISTORY_MAX:]]
    return Record(Offset(index), at_ms, record.key, record.value, tuple(headers))


def _said(record: Record) -> Mapping[str, str]:
    """A letter's own headers, without the beginning of their names."""
    return {
        name[len(ERRORS) :]: (value or b"").decode(errors="replace")
        for name, value in record.headers
        if name.startswith(ERRORS)
    }


def _count(record: Record) -> int:
    found = [value for name, value in record.headers if name == COUNT]
    try:
        return int(found[-1] or b"0") if found else 0
    except ValueError:
        return 0
