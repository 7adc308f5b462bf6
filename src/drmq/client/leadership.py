"""Moving the leadership of a partition to a chosen replica.

Kafka's protocol can only elect the first replica of a partition. So the chosen one becomes the first, and is elected.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from drmq.client.errors import ClientError
from drmq.client.topics import Partition, topic_refusal
from drmq.model import ErrorCode, TopicPartition
from drmq.model.names import CLUSTER_METADATA

if TYPE_CHECKING:
    from drmq.client.admin import Admin

_POLL_S = 0.05


def find_partition(admin: Admin, place: TopicPartition) -> Partition:
    """The partition as the metadata describes it. Raises `ClientError`."""
    for partition in admin.topics.describe(place.topic).partitions:
        if partition.index == place.partition:
            return partition
    raise topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, place.topic, partition=place.partition)


def check_can_move(place: TopicPartition) -> None:
    """Raise `ClientError` for the metadata, whose leader cannot be chosen."""
    if place.topic == CLUSTER_METADATA:
        raise ClientError(
            "The leadership of the metadata cannot be moved to a chosen node: its voters elect the leader, and Kafka's "
            "protocol has no request for it",
            advice="A node that is stopped cleanly hands it over (`drmq node stop ID`, or SIGTERM); "
            "`drmq raft describe __cluster_metadata 0` shows the new leader.",
        )


def hand_over(admin: Admin, place: TopicPartition, before: Partition, node_id: int, timeout_s: float) -> Partition:
    """Make a replica the first one, then elect it. Returns the partition when it leads. Raises `ClientError`.

    A replica on a node that is up is waited for: those of a new topic, or of one whose leader has just changed, are
    in sync a moment later.
    """
    deadline_s = time.monotonic() + timeout_s
    found = before
    while not _can_lead(place, found, node_id, may_wait=time.monotonic() < deadline_s):
        time.sleep(_POLL_S)
        found = find_partition(admin, place)
    wanted = [node_id, *(other for other in found.replicas if other != node_id)]
    if tuple(wanted) != found.replicas:
        for error in admin.replicas.reassign({place: wanted}, may_change_factor=False).values():
            raise error
    while True:
        found = find_partition(admin, place)
        if found.leader == node_id:
            return found
        # Repeated, because the first request may arrive before all nodes know the new order.
        refused = admin.replicas.elect([place]).refused.get(place)
        if time.monotonic() > deadline_s:
            raise refused or ClientError(
                f"Node {node_id} has not become the leader of {place} yet",
                retriable=True,
                advice=f"`drmq raft describe {place.topic} {place.partition}` shows the current leader.",
            )
        time.sleep(_POLL_S)


def _can_lead(place: TopicPartition, partition: Partition, node_id: int, *, may_wait: bool) -> bool:
    """Whether a replica is in sync. Raises `ClientError` if it will not be soon, or must not be waited for."""
    if node_id not in partition.replicas:
        replicas = ", ".join(map(str, partition.replicas))
        raise ClientError(f"Node {node_id} has no replica of {place}; its replicas are on nodes {replicas}")
    if node_id in partition.in_sync:
        return True
    if may_wait and node_id not in partition.offline:
        return False
    raise ClientError(
        f"Node {node_id} is not in sync with {place}, so records would be lost if it became the leader",
        retriable=True,
        advice=f"`drmq raft describe {place.topic} {place.partition}` shows its progress.",
    )
