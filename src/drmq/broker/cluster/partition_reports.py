"""Reports of a node to the controller about its partitions: a move is complete, or a copy is unusable.

Each report is a few bytes to the controller, which may be this node. It identifies the move, or the copy, that it is
about, so a late report has no effect on a later state of the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from drmq.broker.cluster.controller import Controller
from drmq.broker.cluster.membership import Buffer, Membership, Request
from drmq.broker.cluster.metadata import Metadata
from drmq.catalog import Catalog, Fact
from drmq.model import ApiError, GroupId, NodeId, TopicId

log = logging.getLogger("drmq.broker")

_TIMEOUT_S = 10.0


class PartitionReports:
    """Both ends of the reports: `reassigned` and `lost` send them, `serve_...` handles them on the controller."""

    def __init__(self, node_id: NodeId, metadata: Metadata, membership: Membership, controller: Controller) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._membership = membership
        self._controller = controller

    async def reassigned(self, group: GroupId, move: int) -> None:
        """Report that a partition which this node leads has the members that it should have after this move."""
        try:
            await self._report(Request.REASSIGNED, self.serve_reassigned, group, move)
        except ApiError as error:
            log.info("the end of the move of %s could not be reported to the controller yet: %s", group, error.message)

    async def lost(self, group: GroupId, arrival: int) -> bool:
        """Report that this node's copy of a partition is unusable; returns whether the controller has recorded it."""
        try:
            await self._report(Request.REPLICA_LOST, self.serve_lost, group, arrival)
        except ApiError as error:
            repeat = {"repeat_key": f"lost {group}"}
            log.warning("%s cannot be rebuilt on this node yet: %s", group, error.message, extra=repeat)
            return False
        return True

    async def _report(
        self,
        request: Request,
        serve: Callable[[NodeId, memoryview], Awaitable[Sequence[Buffer]]],
        group: GroupId,
        number: int,
    ) -> None:
        payload = group_to_bytes(group) + number.to_bytes(8, "big")
        if self._metadata.is_controller:
            await serve(self._node_id, memoryview(payload))
        else:
            await self._membership.ask_controller(request, (payload,), _TIMEOUT_S)

    # ---- on the controller ----------------------------------------------------------------------

    async def serve_reassigned(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        group, move = group_from(payload), int.from_bytes(payload[20:28], "big")

        def finish(catalog: Catalog) -> Sequence[Fact]:
            topic = catalog.topics_by_id.get(group.topic_id)
            if topic is None or group not in catalog.reassignments or topic.partitions[group.partition].moves != move:
                return ()  # deleted, or moved to another target since: the report is about an earlier move
            return catalog.finish_reassignment(topic, group.partition)

        await self._metadata.decide(finish, f"the end of the reassignment of {group}")
        return ()

    async def serve_lost(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        group, arrival = group_from(payload), int.from_bytes(payload[20:28], "big")

        def lose(catalog: Catalog) -> Sequence[Fact]:
            topic = catalog.topics_by_id.get(group.topic_id)
            if topic is None:
                return ()
            self._controller.check_majority_without(peer, group, topic)
            return catalog.lose_replica(topic, group.partition, peer, arrival)

        await self._metadata.decide(lose, f"the loss of {group} on node {peer}")
        return ()


def group_to_bytes(group: GroupId) -> bytes:
    return group.topic_id + group.partition.to_bytes(4, "big")


def group_from(payload: memoryview) -> GroupId:
    """Decode the partition at the start of a report, or of a request to a leader."""
    return GroupId(TopicId(bytes(payload[:16])), int.from_bytes(payload[16:20], "big"))
