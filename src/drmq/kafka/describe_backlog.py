"""DescribeBacklog (12005): what lies behind an offset: how far its partition goes, and how old its record is.

An API of DRMQ alone: Kafka has no request for the time of a record, and reading one record reads its whole batch.
"""

from __future__ import annotations

from drmq.kafka.context import Context
from drmq.model import ErrorCode, TopicId
from drmq.wire.messages.describe_backlog import (
    DescribeBacklogRequest,
    DescribeBacklogResponse,
    DescribeBacklogResponsePartition,
    DescribeBacklogResponseTopic,
)

OFFSETS_MAX = 10_000
"""Offsets in one request: each may take a read of the disk."""


async def handle(context: Context, request: DescribeBacklogRequest) -> DescribeBacklogResponse:
    count = sum(len(topic.partitions) for topic in request.topics)
    if count > OFFSETS_MAX:
        text = f"{count} offsets are asked for; a request may have {OFFSETS_MAX}: send several requests"
        return DescribeBacklogResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    topics = []
    wanted: list[tuple[TopicId, int, int]] = []
    asked: list[DescribeBacklogResponsePartition] = []
    catalog = context.services.cluster.catalog
    for topic in request.topics:
        known = catalog.topics.get(topic.name)
        answers = []
        for each in topic.partitions:
            answer = DescribeBacklogResponsePartition(each.partition_index, offset=each.offset)
            answers.append(answer)
            if known is None or not 0 <= each.partition_index < known.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append((known.topic_id, each.partition_index, max(0, each.offset)))
                asked.append(answer)
        topics.append(DescribeBacklogResponseTopic(topic.name, answers))
    for answer, found in zip(asked, await context.services.lease_queries.open_records(wanted), strict=True):
        answer.high_watermark, answer.oldest_ms = found
    return DescribeBacklogResponse(topics=topics)
