"""OffsetCommit (8): store the committed offsets of a group.

This module checks that the partitions exist; `drmq.groups` checks whether the member may commit. If one partition
fails, the others are still stored. Topics are given by name up to v9 and by id from v10.

An offset beyond the end of a partition is accepted, as in Kafka: the committed offset says where a group wants to
continue, not what it has read, and tools move groups ahead on purpose. docs/decisions/0015 explains why offsets are not
compared with the log. Negative offsets are stored and returned as well: kafkajs commits -2 for "the earliest" and -1
for "the latest", and all clients treat a negative offset as "nothing committed". v2 to v4 can ask for their own
retention time.
"""

from __future__ import annotations

import asyncio

from drmq import groups
from drmq.broker.services.cluster_view import check_partition
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode, LeaderEpoch, Offset
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_ID_FROM = 10


def handle(
    context: Context, request: OffsetCommitRequest
) -> OffsetCommitResponse | asyncio.Future[OffsetCommitResponse]:
    offsets: list[groups.OffsetToCommit] = []
    asked: list[OffsetCommitResponsePartition] = []
    """The partitions of the response that `offsets` are for, in the same order."""
    response = OffsetCommitResponse()
    for topic in request.topics:
        answered = OffsetCommitResponseTopic(topic.name, topic.topic_id)
        response.topics.append(answered)
        for partition in topic.partitions:
            result = OffsetCommitResponsePartition(partition.partition_index)
            answered.partitions.append(result)
            try:
                offsets.append(_to_commit(context, topic, partition))
            except ApiError as error:
                result.error_code = error.code
            else:
                asked.append(result)
    if not offsets:
        return response

    def translate(answer: groups.OffsetCommitResponse | ErrorCode) -> OffsetCommitResponse:
        if isinstance(answer, ErrorCode):
            for result in asked:
                result.error_code = answer
        else:
            for result, committed in zip(asked, answer.results, strict=True):
                result.error_code = committed.error
        return response

    commit = groups.OffsetCommitRequest(
        group_id=request.group_id,
        offsets=tuple(offsets),
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms if request.retention_time_ms >= 0 else None,
        client_host=context.client_host,
    )
    return context.services.groups.ask(request.group_id, commit, groups.OffsetCommitResponse, translate)


def _to_commit(
    context: Context, topic: OffsetCommitRequestTopic, partition: OffsetCommitRequestPartition
) -> groups.OffsetToCommit:
    """The offset that the group is to store. Raises `ApiError` for an unknown partition."""
    known = context.services.cluster.named_topic(topic.name, topic.topic_id, by_id=context.version >= _TOPIC_ID_FROM)
    check_partition(known, partition.partition_index)
    return groups.OffsetToCommit(
        known.name,
        partition.partition_index,
        Offset(partition.committed_offset),
        LeaderEpoch(partition.committed_leader_epoch),
        partition.committed_metadata,
        known.topic_id,
    )
