"""Consumer groups: members, committed offsets and lag."""

from __future__ import annotations

from msgspec import Struct

from drmq.client import Admin, Bounds, ClientError
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.positions import resolve
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import (
    Done,
    GroupDetail,
    GroupName,
    GroupPartition,
    GroupRow,
    MemberView,
    Page,
    ResetRequest,
    ResetRow,
)
from drmq.model import ErrorCode, TopicPartition


class GroupParams(Struct, forbid_unknown_fields=True):
    group: GroupName


@endpoint("GET", "/groups", "All groups, with their lag in records.")
async def groups(gateway: Gateway) -> Page[GroupRow]:
    def ask(admin: Admin) -> list[GroupRow]:
        rows = []
        for each in admin.groups.all():
            lag = None
            if each.protocol_type != "share":
                lag = sum(row.lag or 0 for row in _partitions(admin, each.group_id, {}))
            rows.append(GroupRow(each.group_id, each.protocol_type or "consumer", each.state, lag))
        return rows

    return Page(await gateway.admins.run(ask))


@endpoint("GET", "/groups/{group}", "One group: its members, and its position in every partition.")
async def group(gateway: Gateway, params: GroupParams) -> GroupDetail:
    def ask(admin: Admin) -> GroupDetail:
        found = admin.groups.describe(params.group)
        owners = {place: member.member_id for member in found.members for place in member.partitions}
        rows = _partitions(admin, params.group, owners)
        members = [
            MemberView(each.member_id, each.client_id, each.host, [[p.topic, p.partition] for p in each.partitions])
            for each in found.members
        ]
        lag = sum(row.lag or 0 for row in rows)
        return GroupDetail(GroupRow(found.group_id, found.protocol_type or "consumer", found.state, lag), members, rows)

    return await gateway.admins.run(ask)


@endpoint("DELETE", "/groups/{group}", "Delete a group without members, with its committed offsets.")
async def delete_group(gateway: Gateway, params: GroupParams) -> Done:
    await gateway.admins.run(lambda admin: admin.groups.delete(params.group))
    return Done()


@endpoint("POST", "/groups/{group}/reset", "Move a group without members to another position, or show the moves.")
async def reset_group(gateway: Gateway, params: GroupParams, body: ResetRequest) -> Page[ResetRow]:
    def ask(admin: Admin) -> list[ResetRow]:
        if not body.dry_run and _is_active(admin, params.group):
            raise ProblemError(
                409,
                f"group {params.group} has members",
                code="NON_EMPTY_GROUP",
                advice="Stop its consumers first: they would go on at their own positions.",
            )
        committed = {place: entry.offset for place, entry in admin.groups.offsets(params.group).items()}
        topics = body.topics or sorted({place.topic for place in committed})
        if not topics:
            raise ProblemError(400, f"group {params.group} has read nothing yet", advice="Name its topics in `topics`.")
        places = [
            TopicPartition(name, each.index) for name in topics for each in admin.topics.describe(name).partitions
        ]
        bounds = admin.topics.bounds(places)
        wanted = resolve(admin, body.to, places, bounds)
        # An offset that does not exist would make the consumers begin anywhere.
        wanted = {place: min(max(at, bounds[place].start), bounds[place].end) for place, at in wanted.items()}
        if not body.dry_run:
            admin.groups.commit(params.group, wanted)
        return [ResetRow(place.topic, place.partition, committed.get(place), at) for place, at in wanted.items()]

    return Page(await gateway.admins.run(ask))


def _is_active(admin: Admin, group_id: str) -> bool:
    try:
        return admin.groups.describe(group_id).is_active
    except ClientError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False  # to commit its first offsets creates it
        raise


def _partitions(admin: Admin, group_id: str, owners: dict[TopicPartition, str]) -> list[GroupPartition]:
    committed = admin.groups.offsets(group_id)
    places = sorted({*committed, *owners})
    try:
        bounds: dict[TopicPartition, Bounds] = admin.topics.bounds(places) if places else {}
    except ClientError:
        bounds = {}  # a topic was deleted, or has no leader
    rows = []
    for place in places:
        offset = committed[place].offset if place in committed else None
        end = bounds[place].end if place in bounds else None
        lag = max(0, end - offset) if end is not None and offset is not None else None
        rows.append(GroupPartition(place.topic, place.partition, offset, end, lag, owners.get(place)))
    return rows
