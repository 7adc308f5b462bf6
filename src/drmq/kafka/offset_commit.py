"""OffsetCommit (8): a group writes down how far it has read.

Which partitions there are is checked here, who may commit in `drmq.groups`; one partition's failure
does not keep the others from being stored. Topics go by name up to v9 and by id from v10.

An offset beyond the end of a partition is accepted, as Kafka accepts it: the committed offset says
where a group wants to go on, not what it has seen, and tools move groups ahead on purpose. -1 is
accepted too and reads back as "nothing committed". v2 to v4 could ask for a retention of their own. Why the
log is not asked: docs/decisions/0015.
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
    )
    return context.services.groups.ask(request.group_id, commit, groups.OffsetCommitResponse, translate)


def _to_commit(
    context: Context, topic: OffsetCommitRequestTopic, partition: OffsetCommitRequestPartition
) -> groups.OffsetToCommit:
    """What the group is to store. Raises `ApiError` for a partition or an offset that cannot be."""
    known = context.services.cluster.named_topic(topic.name, topic.topic_id, by_id=context.version >= _TOPIC_ID_FROM)
    check_partition(known, partition.partition_index)
    if partition.committed_offset < groups.NO_OFFSET:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{partition.committed_offset} is no offset")
    return groups.OffsetToCommit(
        known.name,
        partition.partition_index,
        Offset(partition.committed_offset),
        LeaderEpoch(partition.committed_leader_epoch),
        partition.committed_metadata,
        known.topic_id,
    )
