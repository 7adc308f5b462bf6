"""ShareFetch (78): lease records, and settle others on the way.

The acknowledgements of a request are carried out first: what a member accepts makes room for what it takes next. A
request that closes the session, or that only renews leases, takes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import cast

from drmq.broker.services.lease_calls import PartResult, Place
from drmq.broker.services.lease_sessions import CLOSES
from drmq.broker.services.reads import MISDIRECTED
from drmq.kafka.context import Context
from drmq.kafka.share_acknowledgements import check_member, error_of, parts_of, places_of
from drmq.model import ApiError, ErrorCode, NodeId, TopicId
from drmq.wire import Buffer, Pieces
from drmq.wire.messages.share_fetch import (
    ShareAcquiredRecords,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
    ShareLeader,
    ShareNode,
)


def handle(context: Context, request: ShareFetchRequest) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
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
    closes = request.share_session_epoch == CLOSES
    places = session.in_turn()
    parts, refused = parts_of(named, () if closes or request.is_renew_ack else places, renews=request.is_renew_ack)
    # A client that waits for the result of its acknowledgements is answered at once.
    wait_ms = 0 if refused or any(part.settlements for part in parts) else request.max_wait_ms
    room = context.room(min(request.max_bytes, context.broker.options.fetch_bytes_max))
    count_max = request.max_records if room else 0
    call = services.leases.call(
        group,
        member,
        context.client_host,
        parts,
        count_max,
        room,
        wait_ms,
        lambda results: _response(context, group, results, refused),
    )
    return _close(context, group, member, places, call) if closes else call


async def _close(
    context: Context, group: str, member: str, places: Sequence[Place], answer: Awaitable[ShareFetchResponse]
) -> ShareFetchResponse:
    response = await answer
    await context.services.leases.release(group, member, places)
    return response


def _check_limits(request: ShareFetchRequest) -> None:
    if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a request that renews leases must not ask for records")
    if not request.is_renew_ack and request.share_session_epoch != CLOSES and request.max_records < 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "max_records must be at least 1")


def _response(
    context: Context, group: str, results: Sequence[PartResult], refused: Mapping[Place, ApiError]
) -> ShareFetchResponse:
    topics: dict[TopicId, ShareFetchResponseTopic] = {}
    leaders: dict[int, None] = {}

    def add(place: Place, partition: ShareFetchResponsePartition) -> None:
        if partition.error_code in MISDIRECTED or partition.acknowledge_error_code in MISDIRECTED:
            leader = context.services.cluster.leader_elsewhere(*place)
            if leader is not None:
                partition.current_leader = ShareLeader(*leader)
                leaders[leader[0]] = None
        topics.setdefault(place.topic_id, ShareFetchResponseTopic(place.topic_id)).partitions.append(partition)

    for result in results:
        partition = _partition(result, refused.get(result.place))
        if partition is not None:
            add(result.place, partition)
    for place in refused.keys() - {result.place for result in results}:
        add(place, _partition(PartResult(place), refused[place]) or ShareFetchResponsePartition())
    brokers = context.services.cluster.catalog.brokers
    known = [brokers[NodeId(leader)] for leader in leaders if NodeId(leader) in brokers]
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=context.broker.leases.options_of(group).duration_ms,
        responses=list(topics.values()),
        node_endpoints=[ShareNode(each.node_id, each.host, each.port, each.rack) for each in known],
    )


def _partition(result: PartResult, refused: ApiError | None) -> ShareFetchResponsePartition | None:
    """The answer for a partition; None if there is nothing to say about it."""
    acknowledged = refused or error_of(result)
    error = result.error
    if error is not None and error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        error = None  # No code of ShareFetch says this. The client asks again.
    if not (result.deliveries or result.is_settled or acknowledged or error):
        return None
    partition = ShareFetchResponsePartition(result.place.partition)
    if acknowledged is not None:
        partition.acknowledge_error_code = acknowledged.code
        partition.acknowledge_error_message = acknowledged.message
    if error is not None:
        partition.error_code = error.code
        partition.error_message = error.message
    if result.deliveries:
        partition.records = cast("Buffer", Pieces(result.records))
        partition.acquired_records = [ShareAcquiredRecords(*delivery) for delivery in result.deliveries]
    return partition
