"""ElectLeaders (43): make the preferred replica of partitions, the first in their assignment, the leader.

The current leader hands over once the preferred replica has the whole log, so no records are lost, and clients find the
new leader without help. The answer waits for the handover. Any node serves this request. A partition that its preferred
replica already leads gets ELECTION_NOT_NEEDED; it is left out of the answer if the request is for all partitions.

There is no unclean election, which would elect a replica that lacks committed records. A partition without a leader
elects one as soon as a majority of its replicas is up, and never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator

from drmq.broker.services.cluster_view import ClusterView
from drmq.kafka.concurrently import concurrently
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode, TopicPartition
from drmq.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)

_PREFERRED, _UNCLEAN = 0, 1
_WAIT_MS_MAX = 120_000


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    deadline = asyncio.get_running_loop().time() + max(0, min(request.timeout_ms, _WAIT_MS_MAX)) / 1000
    elections = context.services.elections
    elect = elections.prefer if request.election_type == _PREFERRED else elections.refuse_unclean
    places = list(dict.fromkeys(_wanted(context.services.cluster, request)))
    errors = await concurrently(_result(elect(place, deadline)) for place in places)
    topics: dict[str, list[ElectLeadersResponsePartition]] = {}
    for place, error in zip(places, errors, strict=True):
        if request.topic_partitions is None and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        code, text = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
        topics.setdefault(place.topic, []).append(ElectLeadersResponsePartition(place.partition, code, text))
    return ElectLeadersResponse(
        replica_election_results=[ElectLeadersResponseTopic(name, results) for name, results in topics.items()]
    )


def _wanted(cluster: ClusterView, request: ElectLeadersRequest) -> Iterator[TopicPartition]:
    if request.topic_partitions is None:
        for topic in cluster.catalog.topics.values():
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
