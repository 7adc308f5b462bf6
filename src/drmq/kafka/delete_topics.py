"""DeleteTopics (20): delete topics by name, or from v6 by id.

The answer is sent when the deletion is committed. The offsets that groups committed for the topics are deleted as well.
A topic that the request names twice, be it by name or id, is refused, and so is an entry with both a name and an id, or
with neither.
"""

from __future__ import annotations

from collections import Counter

from drmq.broker import Broker
from drmq.catalog import Catalog, Topic
from drmq.kafka.concurrently import concurrently
from drmq.kafka.context import Context
from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode, TopicId
from drmq.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)

_TOPIC_LIST_FROM = 6


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if context.version >= _TOPIC_LIST_FROM:
        wanted = request.topics
    else:
        wanted = [DeleteTopicsRequestTopic(name) for name in request.topic_names]
    entries = {(entry.name, entry.topic_id): entry for entry in wanted}
    catalog = context.services.cluster.catalog
    counts = Counter(_key(catalog, entry) for entry in wanted)
    deleted = await concurrently(
        _delete(context.broker, entry, counts[_key(catalog, entry)]) for entry in entries.values()
    )
    return DeleteTopicsResponse(responses=deleted)


def _key(catalog: Catalog, entry: DeleteTopicsRequestTopic) -> str | bytes | None:
    """The same for a topic that is named, and for one that is given by its id."""
    topic = catalog.topics_by_id.get(TopicId(entry.topic_id))
    return topic.name if topic is not None else entry.name or entry.topic_id


async def _delete(broker: Broker, entry: DeleteTopicsRequestTopic, count: int) -> DeleteTopicsResponseTopic:
    try:
        if count > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the topic is in the request {count} times; name it once")
        what = f"topic {entry.name!r}" if entry.name is not None else f"topic {entry.topic_id.hex()}"
        topic = await broker.topics.delete_found(lambda catalog: _find(catalog, entry), what)
    except ApiError as error:
        return DeleteTopicsResponseTopic(entry.name, entry.topic_id, error.code, error.message)
    return DeleteTopicsResponseTopic(topic.name, topic.topic_id)


def _find(catalog: Catalog, entry: DeleteTopicsRequestTopic) -> Topic:
    has_id = entry.topic_id != NO_TOPIC_ID
    if has_id and entry.name is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, not both")
    if has_id:
        return catalog.topic_by_id(TopicId(entry.topic_id))
    if entry.name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id")
    return catalog.topic(entry.name)
