"""What several handlers need to know about topics: by name or by id, and whether a partition exists."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from drmq.catalog import Catalog, Topic
from drmq.model import ApiError, ErrorCode, TopicId

T = TypeVar("T", bound=Hashable)
E = TypeVar("E")


def each_once(topics: Iterable[tuple[T, Iterable[E]]], question: Callable[[E], Hashable]) -> dict[T, list[E]]:
    """What a request asks of each topic, and of it each question once, in the order of the request.

    A request may repeat itself a hundred thousand times. No client does, and the answer would be out of all proportion.
    """
    asked: dict[T, dict[Hashable, E]] = {}
    for topic, entries in topics:
        questions = asked.setdefault(topic, {})
        for entry in entries:
            questions.setdefault(question(entry), entry)
    return {topic: list(questions.values()) for topic, questions in asked.items()}


def named_topic(catalog: Catalog, name: str, topic_id: bytes, *, by_id: bool) -> Topic:
    """The topic that a request means, by whichever of the two its version has. Raises `ApiError`."""
    return catalog.topic_by_id(TopicId(topic_id)) if by_id else catalog.topic(name)


def check_partition(topic: Topic, index: int) -> None:
    """Raise `ApiError` unless the topic has this partition, served or stopped."""
    if not 0 <= index < topic.partition_count:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {index}",
        )
