"""CreatePartitions (37): increase the number of partitions of topics. `count` is the new total.

The number never decreases. Existing records stay where they are, so new records with a given key may go to a different
partition than old ones. Consumers that rely on the order of a key's records are affected, which is why partitions are
only added on request.
"""

from __future__ import annotations

from collections import Counter

from drmq.broker import Broker
from drmq.kafka.concurrently import concurrently
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode, NodeId
from drmq.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
)


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}.values()
    results = await concurrently(
        _grow(context.broker, topic, counts[topic.name], validate_only=request.validate_only) for topic in topics
    )
    return CreatePartitionsResponse(results=results)


async def _grow(
    broker: Broker, wanted: CreatePartitionsRequestTopic, count: int, *, validate_only: bool
) -> CreatePartitionsResponseResult:
    try:
        if count > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"topic {wanted.name!r} is in the request {count} times; name it once"
            )
        replicas = None
        if wanted.assignments is not None:
            replicas = [[NodeId(node_id) for node_id in each.broker_ids] for each in wanted.assignments]
        await broker.topics.add_partitions(wanted.name, wanted.count, replicas=replicas, validate_only=validate_only)
    except ApiError as error:
        return CreatePartitionsResponseResult(wanted.name, error.code, error.message)
    return CreatePartitionsResponseResult(wanted.name)
