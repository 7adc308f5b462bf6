"""What several handlers need to know about topics: by name or by id, and whether a partition exists."""

from __future__ import annotations

from drmq.catalog import Catalog, Topic
from drmq.model import ApiError, ErrorCode, TopicId


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
