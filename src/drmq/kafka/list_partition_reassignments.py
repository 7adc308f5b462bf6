"""ListPartitionReassignments (46): the moves of partitions that are in progress or waiting (KIP-455).

Any node answers from its catalog. Partitions that are not being moved or do not exist are left out of the answer.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import GroupId
from drmq.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)


def handle(context: Context, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    catalog = context.broker.metadata.committed_catalog
    wanted: set[GroupId] | None = None
    if request.topics is not None:
        wanted = {
            GroupId(catalog.topics[topic.name].topic_id, index)
            for topic in request.topics
            if topic.name in catalog.topics
            for index in topic.partition_indexes
        }
    moving: dict[str, list[ListPartitionReassignmentsResponsePartition]] = {}
    for group in catalog.reassignments:
        if wanted is not None and group not in wanted:
            continue
        topic = catalog.topics_by_id[group.topic_id]
        assignment = topic.partitions[group.partition]
        moving.setdefault(topic.name, []).append(
            ListPartitionReassignmentsResponsePartition(
                partition_index=group.partition,
                # The target replicas in their order, then those to be removed: a client can derive the target from it.
                replicas=[*assignment.planned, *assignment.removing],
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[ListPartitionReassignmentsResponseTopic(name, partitions) for name, partitions in moving.items()]
    )
