"""Groups: members, positions, lag, settings, and what lease groups have leased."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from drmq.client import Admin, ClientError, Group
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.group_survey import queue_view
from drmq.gateway.group_types import (
    GroupDetail,
    GroupPartition,
    GroupRow,
    LeasesAnswer,
    LeaseView,
    MemberView,
    ResetRequest,
    ResetRow,
)
from drmq.gateway.positions import resolve
from drmq.gateway.problems import ProblemError
from drmq.gateway.routes.cluster import setting_view
from drmq.gateway.types import Done, GroupName, Page, SettingsChange, SettingView
from drmq.model import ErrorCode, TopicPartition


class GroupParams(Struct, forbid_unknown_fields=True):
    group: GroupName


class LeasesParams(Struct, forbid_unknown_fields=True):
    group: GroupName
    topic: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


@endpoint("GET", "/groups", "All groups, with their lag in records and in time, as of the last seconds.")
async def groups(gateway: Gateway) -> Page[GroupRow]:
    return Page((await gateway.groups.get()).rows)


@endpoint("GET", "/groups/{group}", "One group: its members, and its position in every partition.")
async def group(gateway: Gateway, params: GroupParams) -> GroupDetail:
    def ask(admin: Admin) -> GroupDetail:
        found = admin.groups.describe(params.group)
        facts = gateway.group_survey.one(admin, found)
        members = [
            MemberView(each.member_id, each.client_id, each.host, [(p.topic, p.partition) for p in each.partitions])
            for each in found.members
        ]
        return GroupDetail(facts.row, members, facts.partitions)

    return await gateway.admins.run(ask)


@endpoint("DELETE", "/groups/{group}", "Delete a group without members, with its positions.")
async def delete_group(gateway: Gateway, params: GroupParams) -> Done:
    await gateway.admins.run(lambda admin: admin.groups.delete(params.group))
    gateway.groups.forget()
    return Done()


@endpoint("POST", "/groups/{group}/reset", "Move a group without members to another position, or show the moves.")
async def reset_group(gateway: Gateway, params: GroupParams, body: ResetRequest) -> Page[ResetRow]:
    def ask(admin: Admin) -> list[ResetRow]:
        found = _described(admin, params.group)
        if not body.dry_run and found is not None and found.is_active:
            raise ProblemError(
                409,
                f"group {params.group} has members",
                code="NON_EMPTY_GROUP",
                advice="Stop its consumers first: they would go on at their own positions.",
            )
        is_lease = found is not None and found.is_lease
        before = _positions(admin, params.group, is_lease)
        topics = body.topics or sorted({place.topic for place in before})
        if not topics:
            raise ProblemError(400, f"group {params.group} has read nothing yet", advice="Name its topics in `topics`.")
        places = [
            TopicPartition(name, each.index)
            for name in dict.fromkeys(topics)
            for each in admin.topics.describe(name).partitions
        ]
        bounds = admin.topics.bounds(places)
        wanted = resolve(admin, body.to, places, bounds)
        # An offset that does not exist would make the consumers begin anywhere.
        wanted = {place: min(max(at, bounds[place].start), bounds[place].end) for place, at in wanted.items()}
        if not body.dry_run:
            (admin.lease_groups.alter_offsets if is_lease else admin.groups.commit)(params.group, wanted)
        return [ResetRow(place.topic, place.partition, before.get(place), at) for place, at in wanted.items()]

    rows = await gateway.admins.run(ask)
    gateway.groups.forget()
    return Page(rows)


@endpoint("GET", "/groups/{group}/leases", "What a lease group works on: leases, and the state of each partition.")
async def group_leases(gateway: Gateway, params: LeasesParams) -> LeasesAnswer:
    def ask(admin: Admin) -> LeasesAnswer:
        if not admin.groups.describe(params.group).is_lease:
            raise ProblemError(
                409, f"group {params.group} is not a lease group", advice="GET /api/v1/groups/{group} shows its lag."
            )
        topics = None if params.topic is None else [params.topic]
        state = admin.lease_groups.state(params.group, topics, leases_max=params.limit + 1)
        leases = [
            LeaseView(
                queue.place.topic,
                queue.place.partition,
                each.first_offset,
                each.last_offset,
                each.member_id,
                each.attempt,
                each.left_ms,
            )
            for queue in state.queues
            for each in queue.leases
        ]
        partitions: list[GroupPartition] = list(map(queue_view, state.queues))
        return LeasesAnswer(leases[: params.limit], partitions, not state.failures, len(leases) > params.limit)

    return await gateway.admins.run(ask)


@endpoint("GET", "/groups/{group}/settings", "The settings of a lease group, with where each value comes from.")
async def group_settings(gateway: Gateway, params: GroupParams) -> Page[SettingView]:
    found = await gateway.admins.run(lambda admin: admin.configs.of_group(params.group))
    return Page(list(map(setting_view, found)))


@endpoint("PATCH", "/groups/{group}/settings", "Change settings of a lease group, which need not exist yet.")
async def change_group_settings(gateway: Gateway, params: GroupParams, body: SettingsChange) -> Page[SettingView]:
    if not body.set and not body.unset:
        raise ProblemError(400, "nothing is to be changed: `set` and `unset` are empty")

    def ask(admin: Admin) -> list[SettingView]:
        admin.configs.alter_group(params.group, body.set, body.unset)
        return list(map(setting_view, admin.configs.of_group(params.group)))

    return Page(await gateway.admins.run(ask))


def _described(admin: Admin, group_id: str) -> Group | None:
    try:
        return admin.groups.describe(group_id)
    except ClientError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None  # to commit its first offsets creates it
        raise


def _positions(admin: Admin, group_id: str, is_lease: bool) -> Mapping[TopicPartition, int]:
    if is_lease:
        return {queue.place: queue.start_offset for queue in admin.lease_groups.state(group_id).queues}
    return {place: entry.offset for place, entry in admin.groups.offsets(group_id).items()}
