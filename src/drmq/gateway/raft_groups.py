"""Raft groups as the API shows them."""

from __future__ import annotations

from drmq.client import Admin, Quorum
from drmq.gateway.types import Page, RaftGroup, ReplicaView
from drmq.model import TopicPartition


def list_groups(admin: Admin, topic: str | None, start: int, count_max: int) -> Page[RaftGroup]:
    """Groups of a topic, or of all, from a position in the list on. Each leader is asked once."""
    topics = [each for each in admin.topics.all() if topic in (None, each.name)]
    places = [(found.name, each) for found in topics for each in found.partitions]
    shown = places[start : start + count_max]
    quorums = admin.replicas.quorums([TopicPartition(name, each.index) for name, each in shown])
    rows = []
    for name, each in shown:
        quorum = quorums.get(TopicPartition(name, each.index))
        in_sync = list(each.in_sync)
        rows.append(
            RaftGroup(name, each.index, each.leader, each.leader_epoch, -1, in_sync, [])
            if quorum is None
            else group_view(name, each.index, quorum, in_sync)
        )
    following = start + count_max
    return Page(rows, str(following) if following < len(places) else None)


def group_view(topic: str, partition: int, quorum: Quorum, in_sync: list[int]) -> RaftGroup:
    """One group, as its leader reports it."""
    replicas = []
    for each in quorum.voters:
        role = "leader" if each.node_id == quorum.leader_id else "voter"
        replicas.append(ReplicaView(each.node_id, role, each.log_end_offset, each.lag, each.last_caught_up_ms))  # type: ignore[arg-type]
    for each in quorum.observers:
        replicas.append(ReplicaView(each.node_id, "observer", each.log_end_offset, each.lag, each.last_caught_up_ms))
    return RaftGroup(topic, partition, quorum.leader_id, quorum.leader_epoch, quorum.high_watermark, in_sync, replicas)
