"""DescribeShareGroupOffsets (90): the first open offset of share groups in partitions, and how many records are open.

The coordinator of a group answers: it asks the shards that hold the queues of the group, and the leaders of the data. A
partition in which the group has not begun has the offset -1. If a shard does not answer, its partitions have an error.
If all topics are asked for, the whole group has, because it is not known which queues are missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq import groups
from drmq.broker.services.cluster_view import check_partition
from drmq.broker.services.lease_queries import QueueReport, ShardFailure
from drmq.kafka.context import Context
from drmq.kafka.topics import each_once
from drmq.leases import QueueKey
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

_NO_OFFSET = -1


async def handle(context: Context, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    wanted = {group.group_id: group for group in request.groups}
    described = []
    for group in wanted.values():
        try:
            described.append(DescribeShareGroupOffsetsResponseGroup(group.group_id, await _topics(context, group)))
        except ApiError as error:
            described.append(
                DescribeShareGroupOffsetsResponseGroup(
                    group.group_id, error_code=error.code, error_message=error.message
                )
            )
    return DescribeShareGroupOffsetsResponse(groups=described)


async def _topics(
    context: Context, group: DescribeShareGroupOffsetsRequestGroup
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    context.services.leases.shards.check_enabled()
    await _check_exists(context, group.group_id)
    catalog = context.services.cluster.catalog
    if group.topics is None:
        reports, failures = await context.services.lease_queries.describe(group.group_id, None, 0)
        if failures:
            raise ApiError(failures[0].error.code, failures[0].error.message)
        topics: dict[TopicId, DescribeShareGroupOffsetsResponseTopic] = {}
        for report in reports:
            key = report.view.key
            if key.topic_id in catalog.topics_by_id:
                name = catalog.topics_by_id[key.topic_id].name
                topic = topics.setdefault(key.topic_id, DescribeShareGroupOffsetsResponseTopic(name, key.topic_id))
                topic.partitions.append(_described(report))
        return list(topics.values())
    asked = each_once(((topic.topic_name, topic.partitions) for topic in group.topics), int)
    known = [catalog.topics[name].topic_id for name in asked if name in catalog.topics]
    reports, failures = await context.services.lease_queries.describe(group.group_id, known, 0)
    return [_topic(context, group.group_id, name, asked[name], reports, failures) for name in asked]


async def _check_exists(context: Context, group: str) -> None:
    """Raise `ApiError` unless this node coordinates the group, and the group exists."""

    def error_of(answer: groups.DescribeShareGroupsResponse | ErrorCode) -> ApiError | None:
        if isinstance(answer, ErrorCode):
            return ApiError(answer, "this node does not coordinate the group, or cannot now")
        error = answer.groups[0].error
        return None if error is ErrorCode.NONE else ApiError(error, f"there is no share group {group}")

    answer = context.services.groups.ask(
        group, groups.DescribeShareGroupsRequest((group,)), groups.DescribeShareGroupsResponse, error_of
    )
    error = answer if isinstance(answer, ApiError) or answer is None else await answer
    if error is not None:
        raise error


def _topic(
    context: Context,
    group: str,
    name: str,
    partitions: Sequence[int],
    reports: Sequence[QueueReport],
    failures: Sequence[ShardFailure],
) -> DescribeShareGroupOffsetsResponseTopic:
    try:
        topic = context.services.cluster.catalog.topic(name)
    except ApiError as error:
        return DescribeShareGroupOffsetsResponseTopic(name, partitions=[_failed(index, error) for index in partitions])
    found = {report.view.key: report for report in reports}
    failed = {failure.shard: failure.error for failure in failures}
    answered = DescribeShareGroupOffsetsResponseTopic(name, topic.topic_id)
    for index in partitions:
        key = QueueKey(group, topic.topic_id, index)
        report = found.get(key)
        failure = failed.get(context.broker.leases.index_of(key))
        try:
            check_partition(topic, index)
        except ApiError as error:
            failure = error
        if failure is not None:
            answered.partitions.append(_failed(index, failure))
        elif report is not None:
            answered.partitions.append(_described(report))
        else:
            answered.partitions.append(DescribeShareGroupOffsetsResponsePartition(index, _NO_OFFSET))
    return answered


def _described(report: QueueReport) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        report.view.key.partition, report.view.start, lag=report.open_count
    )


def _failed(index: int, error: ApiError) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        index, _NO_OFFSET, error_code=error.code, error_message=error.message
    )
