"""The catalog's facts, as values and as bytes.

Each is one record of the metadata log: the key says what it is about, the value is a JSON object
with the fact's `kind` and fields, so that `drmq log dump` shows a person what happened. A kind that
this version does not know comes from a newer one: better to stop than to run on half a truth.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

from drmq.model import DrmqError, TopicId


class UnknownFact(DrmqError):
    """The metadata log holds a record that this version of DRMQ does not understand."""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic_id: TopicId
    name: str
    partition_count: int
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """Nobody can see the topic any more; its files may still be there."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class TopicPurged:
    """The files of a deleted topic are gone."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    topic_id: TopicId
    partition_count: int


@dataclass(frozen=True, slots=True)
class TopicConfigsSet:
    """All settings that the topic has of its own, replacing those it had."""

    topic_id: TopicId
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """Every producer id below `next_id` may have been given out."""

    next_id: int


Fact: TypeAlias = TopicCreated | TopicDeleted | TopicPurged | PartitionsAdded | TopicConfigsSet | ProducerIdsReserved

_KINDS: dict[str, type[Fact]] = {
    "topic-created": TopicCreated,
    "topic-deleted": TopicDeleted,
    "topic-purged": TopicPurged,
    "partitions-added": PartitionsAdded,
    "topic-configs-set": TopicConfigsSet,
    "producer-ids-reserved": ProducerIdsReserved,
}
_NAMES = {cls: kind for kind, cls in _KINDS.items()}


def encode_fact(fact: Fact) -> tuple[bytes, bytes]:
    """Key and value of the record that holds this fact."""
    kind = _NAMES[type(fact)]
    fields: dict[str, Any] = asdict(fact)
    subject = "producer-ids"
    if "topic_id" in fields:
        subject = fields["topic_id"] = fields["topic_id"].hex()
    value = json.dumps({"kind": kind, "version": 1, **fields}, separators=(",", ":"))
    return f"{kind}:{subject}".encode(), value.encode()


def decode_fact(value: bytes) -> Fact:
    """The fact in a record's value. Raises `UnknownFact` for what a newer version wrote."""
    fields = json.loads(value)
    kind, version = fields.pop("kind", None), fields.pop("version", None)
    if kind not in _KINDS or version != 1:
        raise UnknownFact(
            f"the metadata log holds a {kind!r} record of version {version}, which this version of DRMQ does not know; "
            "start the version that wrote it"
        )
    if "topic_id" in fields:
        fields["topic_id"] = TopicId(bytes.fromhex(fields["topic_id"]))
    return _KINDS[kind](**fields)
