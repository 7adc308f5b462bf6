"""ShareAcknowledge (79): settle leased records without taking others."""

from __future__ import annotations

from drmq.broker.services.lease_sessions import CLOSES, OPENS
from drmq.kafka.context import Context
from drmq.kafka.share_acknowledgements import check_member, places_of, settle
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
)


async def handle(context: Context, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    services = context.services
    try:
        group, member = check_member(services.leases, request.group_id, request.member_id)
        if request.share_session_epoch == OPENS:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
        session = services.lease_sessions.use(group, member, request.share_session_epoch)
    except ApiError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    settled = await settle(services.leases, group, member, places_of(request.topics), renews=request.is_renew_ack)
    if request.share_session_epoch == CLOSES:
        await services.leases.release(group, member, session.in_turn())
    topics: dict[TopicId, ShareAcknowledgeResponseTopic] = {}
    for place, result in settled.items():
        topic = topics.setdefault(place.topic_id, ShareAcknowledgeResponseTopic(place.topic_id))
        topic.partitions.append(ShareAcknowledgeResponsePartition(place.partition, result.error, result.message))
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=context.broker.leases.options_of(group).duration_ms,
        responses=list(topics.values()),
    )
