"""The Raft groups: who leads, in which term, how far each replica is."""

from __future__ import annotations

from msgspec import Struct

from drmq.client import Admin
from drmq.client.leadership import check_can_move, find_partition, hand_over
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.raft_groups import group_view, list_groups
from drmq.gateway.types import Index, Limit, Name, Page, RaftGroup, TransferAnswer, TransferRequest
from drmq.model import TopicPartition

_TRANSFER_S = 10.0


class RaftParams(Struct, forbid_unknown_fields=True):
    topic: str | None = None
    limit: Limit = 200
    cursor: Index = 0


class RaftGroupParams(Struct, forbid_unknown_fields=True):
    topic: Name
    partition: Index


@endpoint("GET", "/raft", "The Raft groups of all partitions, with the distance of each replica.")
async def raft_groups(gateway: Gateway, params: RaftParams) -> Page[RaftGroup]:
    return await gateway.admins.run(lambda admin: list_groups(admin, params.topic, params.cursor, params.limit))


@endpoint("GET", "/raft/{topic}/{partition}", "The Raft group of one partition.")
async def raft_group(gateway: Gateway, params: RaftGroupParams) -> RaftGroup:
    def ask(admin: Admin) -> RaftGroup:
        place = TopicPartition(params.topic, params.partition)
        quorum = admin.replicas.quorum(place)
        found = [each for each in admin.topics.describe(params.topic).partitions if each.index == params.partition]
        return group_view(params.topic, params.partition, quorum, list(found[0].in_sync) if found else [])

    return await gateway.admins.run(ask)


@endpoint("POST", "/raft/{topic}/{partition}/transfer", "Move the leadership of a partition to another replica.")
async def transfer(gateway: Gateway, params: RaftGroupParams, body: TransferRequest) -> TransferAnswer:
    def ask(admin: Admin) -> TransferAnswer:
        place = TopicPartition(params.topic, params.partition)
        check_can_move(place)
        before = find_partition(admin, place)
        to = before.replicas[0] if body.to is None else body.to
        after = hand_over(admin, place, before, to, _TRANSFER_S)
        return TransferAnswer(*place, to, after.leader_epoch, before.leader != to, before.leader)

    return await gateway.admins.run(ask)
