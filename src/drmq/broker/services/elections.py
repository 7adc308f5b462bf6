"""Elections of the preferred replica of a partition, which is the first in its assignment.

The current leader hands over once the preferred replica has the whole log, so no records are lost, and clients find the
new leader without help. There is no unclean election, which would elect a replica that lacks committed records. A
partition without a leader elects one as soon as a majority of its replicas is up, and never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from drmq.broker.replication.group_host import GroupHost
from drmq.broker.services.cluster_view import NO_LEADER, ClusterView, check_partition
from drmq.model import ApiError, ErrorCode, GroupId, NodeId, TopicPartition

_ASK_AGAIN_S = 1.0
"""How often the leader is asked. A leader that is busy with another change ignores the request to hand over."""


class Elections:
    """Elections that clients request. Any node serves them."""

    def __init__(self, cluster: ClusterView, host: GroupHost, elect: Callable[[GroupId, NodeId], None]) -> None:
        self._cluster = cluster
        self._host = host
        self._elect = elect

    async def prefer(self, place: TopicPartition, deadline: float) -> None:
        """Make the preferred replica the leader, by `deadline` in the loop's time. Raises `ApiError`."""
        topic = self._cluster.catalog.topic(place.topic)
        check_partition(topic, place.partition)
        view = self._cluster.partition(topic, place.partition)
        preferred = topic.partitions[place.partition].replicas[0]
        if view.leader == preferred:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"node {preferred} already leads {place}")
        if view.leader == NO_LEADER:
            raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, _why_leaderless(place, view.replicas))
        if preferred not in view.in_sync:
            state = "down" if preferred in view.offline else "not in sync"
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"node {preferred}, the preferred leader of {place}, is {state}, so node {view.leader} stays leader; "
                "try again when it is in sync",
            )
        await self._hand_over(GroupId(topic.topic_id, place.partition), place, preferred, deadline)

    async def _hand_over(self, group: GroupId, place: TopicPartition, preferred: NodeId, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        ask_at = loop.time()
        while True:
            notice = self._host.leaders.get(group)
            if notice is not None and notice.leader == preferred:
                return
            now = loop.time()
            if now >= ask_at:
                self._elect(group, preferred)
                ask_at = now + _ASK_AGAIN_S
            if now >= deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"node {preferred} does not lead {place} yet, but may still become its leader; check it later",
                )
            await self._host.next_leader_news(min(deadline, ask_at) - now)

    async def refuse_unclean(self, place: TopicPartition, deadline: float) -> None:
        """Always raise `ApiError`, with the reason why there is no unclean election of this partition."""
        topic = self._cluster.catalog.topic(place.topic)
        check_partition(topic, place.partition)
        view = self._cluster.partition(topic, place.partition)
        if view.leader != NO_LEADER:
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"node {view.leader} leads {place}")
        reason = _why_leaderless(place, view.replicas)
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"unclean elections are not supported, because they lose committed records: {reason}",
        )


def _why_leaderless(place: TopicPartition, replicas: Sequence[int]) -> str:
    majority = len(replicas) // 2 + 1
    return (
        f"{place} has no leader; it elects one once {majority} of its replicas ({', '.join(map(str, replicas))}) are up"
    )
