"""ElectLeaders (43): let the preferred replica of partitions lead, the one that comes first in their assignment.

The leader hands over once the other has everything, so nothing is lost and clients find the new leader by
themselves; the answer waits for it. Any node serves this. A partition that its preferred replica leads already is
told so, and left out where all partitions were asked for.

An unclean election, which would let a replica lead that lacks committed records, does not exist. A partition without
a leader gets one by itself as soon as a majority of its replicas is up, and never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from drmq.broker import Broker
from drmq.kafka.concurrently import concurrently
from drmq.kafka.context import Context
from drmq.kafka.topics import check_partition
from drmq.kafka.views import NO_LEADER, partition_view
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicPartition
from drmq.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)

_PREFERRED, _UNCLEAN = 0, 1
_ASK_AGAIN_S = 1.0
"""A leader that is busy with something else does not hand over; it is asked again."""
_WAIT_MS_MAX = 120_000


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    broker = context.broker
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    deadline = asyncio.get_running_loop().time() + max(0, min(request.timeout_ms, _WAIT_MS_MAX)) / 1000
    elect = _prefer if request.election_type == _PREFERRED else _refuse_unclean
    places = list(dict.fromkeys(_wanted(broker, request)))
    errors = await concurrently(_result(elect(broker, place, deadline)) for place in places)
    topics: dict[str, list[ElectLeadersResponsePartition]] = {}
    for place, error in zip(places, errors, strict=True):
        if request.topic_partitions is None and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        code, text = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        topics.setdefault(place.topic, []).append(ElectLeadersResponsePartition(place.partition, code, text))
    return ElectLeadersResponse(
        replica_election_results=[ElectLeadersResponseTopic(name, results) for name, results in topics.items()]
    )


def _wanted(broker: Broker, request: ElectLeadersRequest) -> Iterator[TopicPartition]:
    if request.topic_partitions is None:
        for topic in broker.metadata.committed_catalog.topics.values():
            yield from (TopicPartition(topic.name, index) for index in range(topic.partition_count))
        return
    for wanted in request.topic_partitions:
        yield from (TopicPartition(wanted.topic, index) for index in wanted.partitions)


async def _result(election: Awaitable[None]) -> ApiError | None:
    try:
        await election
    except ApiError as error:
        return error
    return None


async def _prefer(broker: Broker, place: TopicPartition, deadline: float) -> None:
    """Have the preferred replica lead. Raises `ApiError`."""
    topic = broker.metadata.committed_catalog.topic(place.topic)
    check_partition(topic, place.partition)
    view = partition_view(broker, topic, place.partition)
    preferred = topic.partitions[place.partition].replicas[0]
    if view.leader == preferred:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} leads {place} already")
    if view.leader == NO_LEADER:
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, _why_leaderless(place, view.replicas))
    if preferred not in view.in_sync:
        state = "down" if preferred in view.offline else "not in sync"
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"node {preferred}, which should lead {place}, is {state}; node {view.leader} goes on leading",
        )
    await _hand_over(broker, GroupId(topic.topic_id, place.partition), place, preferred, deadline)


async def _hand_over(broker: Broker, group: GroupId, place: TopicPartition, preferred: NodeId, deadline: float) -> None:
    loop = asyncio.get_running_loop()
    ask_at = loop.time()
    while True:
        notice = broker.host.leaders.get(group)
        if notice is not None and notice.leader == preferred:
            return
        now = loop.time()
        if now >= ask_at:
            broker.elect(group, preferred)
            ask_at = now + _ASK_AGAIN_S
        if now >= deadline:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {preferred} was asked to lead {place} and does not yet; it may still come to lead",
            )
        await broker.host.next_leader_news(min(deadline, ask_at) - now)


async def _refuse_unclean(broker: Broker, place: TopicPartition, deadline: float) -> None:
    topic = broker.metadata.committed_catalog.topic(place.topic)
    check_partition(topic, place.partition)
    view = partition_view(broker, topic, place.partition)
    if view.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"node {view.leader} leads {place}")
    raise ApiError(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        f"there is no unclean election, since it would lose committed records: {_why_leaderless(place, view.replicas)}",
    )


def _why_leaderless(place: TopicPartition, replicas: list[int]) -> str:
    majority = len(replicas) // 2 + 1
    return (
        f"{place} has no leader at the moment and gets one by itself once {majority} of its replicas "
        f"({', '.join(map(str, replicas))}) are up"
    )
