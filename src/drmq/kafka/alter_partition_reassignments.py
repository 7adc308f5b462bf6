"""AlterPartitionReassignments (45): move partitions to other nodes, or cancel a move with null (KIP-455).

The answer is sent when the moves are decided. They are carried out one partition at a time, each as a membership change
of the partition's replica group: the new replicas receive the log, then the membership changes, then the old replicas
are removed. ListPartitionReassignments shows the moves that are left. Each partition succeeds or fails on its own. A
partition that the request names twice is refused, since the two entries may differ. The request's timeout is ignored.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence

from drmq.broker import Broker
from drmq.catalog import Catalog, Fact, check_capacity
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode, NodeId, TopicPartition
from drmq.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)


async def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    broker = context.broker
    may_change_factor = request.allow_replication_factor_change
    if not broker.is_controller:
        refusal = broker.metadata.not_controller()
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_change_factor, error_code=refusal.code, error_message=refusal.message
        )
    named = Counter(
        TopicPartition(topic.name, entry.partition_index) for topic in request.topics for entry in topic.partitions
    )
    changes: list[Awaitable[ApiError | None]] = []
    topics: dict[str, list[AlterPartitionReassignmentsResponsePartition]] = {}
    for topic in request.topics:
        results = topics.setdefault(topic.name, [])
        for entry in topic.partitions:
            place = TopicPartition(topic.name, entry.partition_index)
            count = named.pop(place, 0)
            if not count:
                continue
            result = AlterPartitionReassignmentsResponsePartition(place.partition)
            results.append(result)
            changes.append(_alter(broker, place, count, entry.replicas, result, may_change_factor=may_change_factor))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor,
        responses=[AlterPartitionReassignmentsResponseTopic(name, results) for name, results in topics.items()],
    )
    for failure in await asyncio.gather(*changes):
        if failure is not None:
            response.error_code, response.error_message = failure.code, failure.message
    return response


async def _alter(
    broker: Broker,
    place: TopicPartition,
    count: int,
    replicas: list[int] | None,
    result: AlterPartitionReassignmentsResponsePartition,
    *,
    may_change_factor: bool,
) -> ApiError | None:
    """Change one partition. A refusal is stored in `result`; an error that concerns the whole request is returned.

    A failure to store the decision concerns the whole request: the outcome of all its partitions is unknown.
    """
    refusals: list[ApiError] = []

    def decide(catalog: Catalog) -> Sequence[Fact]:
        try:
            facts = _decide(catalog, place, count, replicas, may_change_factor=may_change_factor)
            check_capacity(catalog, facts, broker.topics.replicas_max)
            return facts
        except ApiError as refusal:
            refusals.append(refusal)
            raise

    try:
        await broker.metadata.decide(decide, "the reassignment of partitions")
    except ApiError as error:
        if error not in refusals:
            return error
        result.error_code, result.error_message = error.code, error.message
    return None


def _decide(
    catalog: Catalog, place: TopicPartition, count: int, replicas: list[int] | None, *, may_change_factor: bool
) -> list[Fact]:
    if count > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{place} is in the request {count} times; name it once")
    topic = catalog.topic(place.topic)
    if replicas is None:
        return catalog.cancel_reassignment(topic, place.partition)
    facts = catalog.start_reassignment(topic, place.partition, [NodeId(node_id) for node_id in replicas])
    present = len(topic.partitions[place.partition].replicas)
    if len(replicas) != present and not may_change_factor:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{place} has {present} replicas and would have {len(replicas)}, but the request does not allow a change "
            "of the replication factor; name as many nodes, or set allow_replication_factor_change",
        )
    return facts
