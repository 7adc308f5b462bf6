"""ShareFetch (78): lease records, and settle others on the way.

The acknowledgements of a request are carried out first: what a member accepts makes room for what it takes next. A
request that closes the session, or that only renews leases, takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from drmq.broker.services.lease_sessions import CLOSES
from drmq.broker.services.leases import Place, Taken
from drmq.kafka.context import Context
from drmq.kafka.share_acknowledgements import Acknowledged, check_member, places_of, settle
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.wire.messages.share_fetch import (
    ShareAcquiredRecords,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
)


async def handle(context: Context, request: ShareFetchRequest) -> ShareFetchResponse:
    services = context.services
    try:
        group, member = check_member(services.leases, request.group_id, request.member_id)
        _check_limits(request)
        session = services.lease_sessions.use(group, member, request.share_session_epoch)
    except ApiError as error:
        return ShareFetchResponse(error_code=error.code, error_message=error.message)
    named = places_of(request.topics)
    forgotten = [
        Place(TopicId(topic.topic_id), index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    session.change(named, forgotten)
    settled = await settle(services.leases, group, member, named, renews=request.is_renew_ack)
    taken: list[Taken] = []
    if request.share_session_epoch == CLOSES:
        await services.leases.release(group, member, session.in_turn())
    elif not request.is_renew_ack:
        bytes_max = min(request.max_bytes, context.broker.options.fetch_bytes_max)
        # A client that waits for the result of its acknowledgements is answered at once.
        wait_ms = 0 if settled else request.max_wait_ms
        taken = await services.leases.take(group, member, session.in_turn(), request.max_records, bytes_max, wait_ms)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=context.broker.leases.options_of(group).duration_ms,
        responses=_responses(settled, taken),
    )


def _check_limits(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a request that renews leases must not ask for records")
    if not request.is_renew_ack and request.share_session_epoch != CLOSES and request.max_records < 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "max_records must be at least 1")


def _responses(settled: Mapping[Place, Acknowledged], taken: Iterable[Taken]) -> list[ShareFetchResponseTopic]:
    partitions: dict[Place, ShareFetchResponsePartition] = {}
    for place, result in settled.items():
        partitions[place] = ShareFetchResponsePartition(
            place.partition, acknowledge_error_code=result.error, acknowledge_error_message=result.message
        )
    for got in taken:
        if got.error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            continue  # No code of ShareFetch says this. The client asks again.
        partition = partitions.setdefault(got.place, ShareFetchResponsePartition(got.place.partition))
        partition.error_code = got.error
        partition.error_message = got.message
        partition.records = got.records
        partition.acquired_records = [ShareAcquiredRecords(*delivery) for delivery in got.deliveries]
    topics: dict[TopicId, ShareFetchResponseTopic] = {}
    for place, partition in partitions.items():
        topics.setdefault(place.topic_id, ShareFetchResponseTopic(place.topic_id)).partitions.append(partition)
    return list(topics.values())
