"""The Raft groups: who leads, in which term, how far each replica is."""

from __future__ import annotations

from msgspec import Struct

from drmq.client import Admin, Quorum
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.types import Index, Limit, Name, Page, RaftGroup, ReplicaView
from drmq.model import TopicPartition


class RaftParams(Struct, forbid_unknown_fields=True):
    topic: str | None = None
    limit: Limit = 200
    cursor: Index = 0


class RaftGroupParams(Struct, forbid_unknown_fields=True):
    topic: Name
    partition: Index


@endpoint("GET", "/raft", "The Raft groups of all partitions, with the distance of each replica.")
async def raft_groups(gateway: Gateway, params: RaftParams) -> Page[RaftGroup]:
    def ask(admin: Admin) -> Page[RaftGroup]:
        topics = [each for each in admin.topics.all() if params.topic in (None, each.name)]
        places = [(topic.name, each) for topic in topics for each in topic.partitions]
        shown = places[params.cursor : params.cursor + params.limit]
        quorums = admin.replicas.quorums([TopicPartition(name, each.index) for name, each in shown])
        rows = []
        for name, each in shown:
            quorum = quorums.get(TopicPartition(name, each.index))
            in_sync = list(each.in_sync)
            rows.append(
                RaftGroup(name, each.index, each.leader, each.leader_epoch, -1, in_sync, [])
                if quorum is None
                else _group(name, each.index, quorum, in_sync)
            )
        following = params.cursor + params.limit
        return Page(rows, str(following) if following < len(places) else None)

    return await gateway.admins.run(ask)


@endpoint("GET", "/raft/{topic}/{partition}", "The Raft group of one partition.")
async def raft_group(gateway: Gateway, params: RaftGroupParams) -> RaftGroup:
    def ask(admin: Admin) -> RaftGroup:
        place = TopicPartition(params.topic, params.partition)
        quorum = admin.replicas.quorum(place)
        found = [each for each in admin.topics.describe(params.topic).partitions if each.index == params.partition]
        return _group(params.topic, params.partition, quorum, list(found[0].in_sync) if found else [])

    return await gateway.admins.run(ask)


def _group(topic: str, partition: int, quorum: Quorum, in_sync: list[int]) -> RaftGroup:
    replicas = []
    for each in quorum.voters:
        role = "leader" if each.node_id == quorum.leader_id else "voter"
        replicas.append(ReplicaView(each.node_id, role, each.log_end_offset, each.lag, each.last_caught_up_ms))  # type: ignore[arg-type]
    for each in quorum.observers:
        replicas.append(ReplicaView(each.node_id, "observer", each.log_end_offset, each.lag, each.last_caught_up_ms))
    return RaftGroup(topic, partition, quorum.leader_id, quorum.leader_epoch, quorum.high_watermark, in_sync, replicas)
