"""AlterPartitionReassignments (45): move partitions to other nodes, or with null stop a move (KIP-455).

The answer comes when the moves are decided. They are carried out one partition at a time, each as a change of the
partition's replica group: the new replicas get the log, then the members change, then the old replicas go.
ListPartitionReassignments shows what is left. Each partition succeeds or fails by itself; one that the request names
twice is refused, since the two may differ. The request's timeout is not used.
"""

from __future__ import annotations

from collections import Counter

from drmq.broker import Broker
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
    topics: dict[str, list[AlterPartitionReassignmentsResponsePartition]] = {}
    for topic in request.topics:
        results = topics.setdefault(topic.name, [])
        for entry in topic.partitions:
            place = TopicPartition(topic.name, entry.partition_index)
            count = named.pop(place, 0)
            if not count:
                continue
            code, text = _alter(broker, place, count, entry.replicas, may_change_factor=may_change_factor)
            results.append(AlterPartitionReassignmentsResponsePartition(place.partition, code, text))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor,
        responses=[AlterPartitionReassignmentsResponseTopic(name, results) for name, results in topics.items()],
    )
    try:
        await broker.metadata.committed("the reassignment of partitions")
    except ApiError as error:
        response.error_code, response.error_message = error.code, error.message
    return response


def _alter(
    broker: Broker, place: TopicPartition, count: int, replicas: list[int] | None, *, may_change_factor: bool
) -> tuple[ErrorCode, str | None]:
    catalog = broker.catalog
    try:
        if count > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{place} is in the request {count} times")
        topic = catalog.topic(place.topic)
        if replicas is None:
            facts = catalog.cancel_reassignment(topic, place.partition)
        else:
            facts = catalog.start_reassignment(topic, place.partition, [NodeId(node_id) for node_id in replicas])
            present = len(topic.partitions[place.partition].replicas)
            if len(replicas) != present and not may_change_factor:
                raise ApiError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{place} has {present} replicas and would have {len(replicas)}, which the request does not allow",
                )
        broker.metadata.append(facts)
    except ApiError as error:
        return error.code, error.message
    return ErrorCode.NONE, None
