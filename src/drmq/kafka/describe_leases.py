"""DescribeLeases (12002): the queues of a lease group, and what is leased. An API of DRMQ alone.

A group without queues, because it does not exist or has not begun to work, has an empty list: whether it exists is
what ShareGroupDescribe tells. A shard that does not answer is a row of the internal topic, with the error.
"""

from __future__ import annotations

from drmq.broker.services.gate import Operation, on_topic
from drmq.broker.services.lease_queries import QueueReport
from drmq.kafka.context import Context
from drmq.model import NO_TOPIC_ID, ApiError, ErrorCode
from drmq.model.names import SHARE_GROUP_STATE
from drmq.wire.messages.describe_leases import (
    DescribedLease,
    DescribedQueue,
    DescribeLeasesRequest,
    DescribeLeasesResponse,
)

LEASES_MAX = 100_000


async def handle(context: Context, request: DescribeLeasesRequest) -> DescribeLeasesResponse:
    services, group = context.services, request.group_id
    catalog = services.cluster.catalog
    try:
        services.leases.shards.check_enabled()
        if not group:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        if not 0 <= request.leases_max <= LEASES_MAX:
            text = f"leases_max is {request.leases_max}; it must be from 0 to {LEASES_MAX}"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
    except ApiError as error:
        return DescribeLeasesResponse(error_code=error.code, error_message=error.message)
    named = None if request.topics is None else {name: catalog.topics.get(name) for name in request.topics}
    wanted = None if named is None else {topic.topic_id for topic in named.values() if topic is not None}
    reports, failures = await services.lease_queries.describe(group, wanted, request.leases_max)
    queues = []
    for report in reports:
        topic = catalog.topics_by_id.get(report.view.key.topic_id)
        # The queues of a topic that was deleted are removed soon.
        if topic is not None and context.may(on_topic(Operation.DESCRIBE, topic.name)):
            queues.append(_queue(topic.name, report))
    queues.sort(key=lambda queue: (queue.topic, queue.partition_index))
    for name in () if named is None else (name for name, topic in named.items() if topic is None):
        text = f"there is no topic {name}"
        queues.append(DescribedQueue(NO_TOPIC_ID, name, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
    for failure in failures:
        text = f"queues of the group may be missing here: {failure.error.message}"
        queues.append(DescribedQueue(NO_TOPIC_ID, SHARE_GROUP_STATE, failure.shard, failure.error.code, text))
    dead_letter_topic = context.broker.group_settings.dead_letter_topic_of(group)
    return DescribeLeasesResponse(dead_letter_topic=dead_letter_topic, queues=queues)


def _queue(topic: str, report: QueueReport) -> DescribedQueue:
    view = report.view
    return DescribedQueue(
        topic_id=view.key.topic_id,
        topic=topic,
        partition_index=view.key.partition,
        start_offset=view.start,
        end_offset=view.end,
        high_watermark=report.records.high_watermark,
        open_count=report.open_count,
        oldest_open_ms=report.records.oldest_ms,
        held_count=view.held_count,
        returned_count=view.returned_count,
        parked_count=view.parked_count,
        dying_count=view.dying_count,
        next_due_ms=-1 if view.next_due_ms is None else view.next_due_ms,
        is_paused=view.is_paused,
        leases=[
            DescribedLease(lease.first, lease.last, lease.member, lease.attempt, lease.token, lease.left_ms)
            for lease in view.leases
        ],
    )
