"""ShareAcknowledge (79): settle leased records without taking others."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from drmq.broker.services.lease_calls import PartResult, Place
from drmq.broker.services.lease_sessions import CLOSES, OPENS
from drmq.kafka.context import Context
from drmq.kafka.share_acknowledgements import check_member, error_of, parts_of, places_of
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
)


def handle(
    context: Context, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Awaitable[ShareAcknowledgeResponse]:
    services = context.services
    try:
        group, member = check_member(services.leases, request.group_id, request.member_id)
        if request.share_session_epoch == OPENS:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
        session = services.lease_sessions.use(group, member, request.share_session_epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    parts, refused = parts_of(places_of(request.topics), (), renews=request.is_renew_ack)
    duration_ms = context.broker.leases.options_of(group).duration_ms

    def finish(results: list[PartResult]) -> ShareAcknowledgeResponse:
        errors: dict[Place, ApiError | None] = {result.place: error_of(result) for result in results}
        topics: dict[TopicId, ShareAcknowledgeResponseTopic] = {}
        for place, error in (errors | refused).items():
            topic = topics.setdefault(place.topic_id, ShareAcknowledgeResponseTopic(place.topic_id))
            topic.partitions.append(_partition(place, error))
        return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=duration_ms, responses=list(topics.values()))

    call = services.leases.call(group, member, context.client_host, parts, 0, 0, 0, finish)
    if request.share_session_epoch == CLOSES:
        return _close(context, group, member, session.in_turn(), call)
    return call


async def _close(
    context: Context,
    group: str,
    member: str,
    places: Sequence[Place],
    answer: Awaitable[ShareAcknowledgeResponse],
) -> ShareAcknowledgeResponse:
    response = await answer
    await context.services.leases.release(group, member, places)
    return response


def _partition(place: Place, error: ApiError | None) -> ShareAcknowledgeResponsePartition:
    if error is None:
        return ShareAcknowledgeResponsePartition(place.partition)
    return ShareAcknowledgeResponsePartition(place.partition, error.code, error.message)
