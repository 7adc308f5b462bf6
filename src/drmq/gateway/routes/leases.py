"""Work by lease, for scripts: poll, and say how it went. Any gateway settles what any other has leased."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from drmq.gateway.caller import Caller, CallerGone
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.group_types import (
    LeasedMessage,
    NackRequest,
    PollAnswer,
    PollRequest,
    SettleAnswer,
    SettledView,
    SettleRequest,
)
from drmq.gateway.leasing import Leased, Outcome, Settle
from drmq.gateway.record_text import shown
from drmq.gateway.types import GroupName, HeaderView

_WHOLE = 2**31


class LeaseGroupParams(Struct, forbid_unknown_fields=True):
    group: GroupName


@endpoint("POST", "/groups/{group}/poll", "Lease messages of topics, as a member of a lease group.")
async def poll(gateway: Gateway, params: LeaseGroupParams, body: PollRequest, caller: Caller) -> PollAnswer:
    found = await caller.run(gateway.leasing.poll(params.group, body.topics, count_max=body.max, wait_ms=body.wait_ms))
    if found and await caller.is_gone():
        await gateway.leasing.give_back(params.group, found)
        raise CallerGone
    return PollAnswer(list(map(_message, found)))


@endpoint("POST", "/groups/{group}/ack", "The work on these messages is done.")
async def ack(gateway: Gateway, params: LeaseGroupParams, body: SettleRequest) -> SettleAnswer:
    return await _settle_each(gateway, params.group, "ack", body.ack_ids)


@endpoint("POST", "/groups/{group}/nack", "The work on these messages has failed: they are delivered again.")
async def nack(gateway: Gateway, params: LeaseGroupParams, body: NackRequest) -> SettleAnswer:
    return await _settle_each(gateway, params.group, "nack", body.ack_ids, body.delay_ms)


@endpoint("POST", "/groups/{group}/extend", "The work on these messages takes longer: their leases begin again.")
async def extend(gateway: Gateway, params: LeaseGroupParams, body: SettleRequest) -> SettleAnswer:
    return await _settle_each(gateway, params.group, "extend", body.ack_ids)


@endpoint("POST", "/groups/{group}/give_back", "Return messages that were not worked on: the delivery does not count.")
async def give_back(gateway: Gateway, params: LeaseGroupParams, body: SettleRequest) -> SettleAnswer:
    return await _settle_each(gateway, params.group, "give_back", body.ack_ids)


@endpoint("POST", "/groups/{group}/reject", "Nobody can work on these messages: they become dead letters.")
async def reject(gateway: Gateway, params: LeaseGroupParams, body: SettleRequest) -> SettleAnswer:
    return await _settle_each(gateway, params.group, "reject", body.ack_ids)


async def _settle_each(
    gateway: Gateway, group: str, outcome: Outcome, ids: Sequence[str], delay_ms: int | None = None
) -> SettleAnswer:
    results = await gateway.leasing.settle(group, [Settle(ack_id, outcome, delay_ms) for ack_id in ids])
    views = [SettledView(each.ack_id, each.ok, each.code, each.reason, each.lease_until_ms) for each in results]
    return SettleAnswer(all(each.ok for each in results), views)


def _message(found: Leased) -> LeasedMessage:
    key, key_format, _ = shown(found.key, _WHOLE)
    value, value_format, _ = shown(found.value, _WHOLE)
    headers = []
    for name, content in found.headers:
        text, form, _ = shown(content, _WHOLE)
        headers.append(HeaderView(name, text, form))
    return LeasedMessage(
        ack_id=found.ack_id,
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        timestamp_ms=found.timestamp_ms,
        key=key,
        value=value,
        headers=headers,
        key_format=key_format,
        value_format=value_format,
        attempt=found.attempt,
        lease_until_ms=found.lease_until_ms,
        lease_token=found.lease_token,
    )
