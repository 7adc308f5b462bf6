"""LeaseFetch (12001): lease records of a lease group, and settle leased ones on the way. An API of DRMQ alone.

The settlements of a request are carried out first: what a member settles makes room for what it takes next. What is
wrong in one partition concerns that partition alone. If the connection closes while the request waits, nothing is
leased for it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from drmq.broker.services.leases import Place, Taken
from drmq.broker.services.reads import MISDIRECTED
from drmq.kafka.concurrently import concurrently
from drmq.kafka.context import Context
from drmq.kafka.share_acknowledgements import check_member
from drmq.leases import Failed, Failure, Outcome, Refusal, Refused, Settlement
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.wire.messages.lease_fetch import (
    LeaseDelivery,
    LeaseFetchRequest,
    LeaseFetchRequestPartition,
    LeaseFetchResponse,
    LeaseFetchResponsePartition,
    LeaseFetchResponseTopic,
    LeaseLeader,
    LeaseRefusal,
    LeaseSettlement,
)

RECORDS_MAX = 100_000
WAIT_MS_MAX = 300_000
DELAY_MS_MAX = 43_200_000
"""Twelve hours. A record that waits takes memory, and retention may remove it from its log meanwhile."""
_OUTCOMES = {1: Outcome.ACCEPT, 2: Outcome.RELEASE, 3: Outcome.REJECT, 4: Outcome.RENEW, 5: Outcome.GIVE_BACK}
_REASONS = {
    Refusal.NEVER_LEASED: 1,
    Refusal.NOT_LEASED: 2,
    Refusal.LEASED_TO_ANOTHER: 3,
    Refusal.STALE_TOKEN: 4,
}
Parts = dict[Place, LeaseFetchRequestPartition]
Answers = dict[Place, LeaseFetchResponsePartition]


def handle(context: Context, request: LeaseFetchRequest) -> asyncio.Future[LeaseFetchResponse]:
    task = asyncio.ensure_future(_serve(context, request))
    context.park(task)
    return task


async def _serve(context: Context, request: LeaseFetchRequest) -> LeaseFetchResponse:
    service = context.services.leases
    try:
        group, member = check_member(service, request.group_id, request.member_id)
        _check_limits(request)
        parts = _parts(request)
    except ApiError as error:
        return LeaseFetchResponse(error_code=error.code, error_message=error.message)
    answers = {place: LeaseFetchResponsePartition(part.partition_index) for place, part in parts.items()}
    settling = [place for place, part in parts.items() if part.settlements]
    await concurrently(_settle_part(context, group, member, place, parts[place], answers[place]) for place in settling)
    taking = [place for place, part in parts.items() if part.takes]
    room = context.room(min(request.max_bytes, context.broker.options.fetch_bytes_max))
    if taking and request.max_records and room:
        wait_ms = 0 if settling else request.max_wait_ms
        taken = await service.take(group, member, taking, request.max_records, room, wait_ms)
        _add_taken(answers, taken)
    for place, answer in answers.items():
        if answer.error_code in MISDIRECTED or answer.settle_error_code in MISDIRECTED:
            leader = context.services.cluster.leader_elsewhere(*place)
            answer.current_leader = LeaseLeader(*leader) if leader is not None else LeaseLeader(-1, -1)
    topics: dict[TopicId, LeaseFetchResponseTopic] = {}
    for place, answer in answers.items():
        topics.setdefault(place.topic_id, LeaseFetchResponseTopic(place.topic_id)).partitions.append(answer)
    duration_ms = context.broker.leases.options_of(group).duration_ms
    return LeaseFetchResponse(lease_ms=duration_ms, topics=list(topics.values()))


def _check_limits(request: LeaseFetchRequest) -> None:
    for name, value, most in (
        ("max_records", request.max_records, RECORDS_MAX),
        ("max_wait_ms", request.max_wait_ms, WAIT_MS_MAX),
    ):
        if not 0 <= value <= most:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is {value}; it must be from 0 to {most}")
    if request.max_bytes < (1 if request.max_records else 0):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"max_bytes is {request.max_bytes}; it must be at least 1")


def _parts(request: LeaseFetchRequest) -> Parts:
    parts: Parts = {}
    for topic in request.topics:
        for part in topic.partitions:
            place = Place(TopicId(topic.topic_id), part.partition_index)
            if place in parts:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"partition {place.partition} of a topic is named twice")
            parts[place] = part
    return parts


# ---- settling --------------------------------------------------------------------------------------


async def _settle_part(
    context: Context,
    group: str,
    member: str,
    place: Place,
    part: LeaseFetchRequestPartition,
    answer: LeaseFetchResponsePartition,
) -> None:
    try:
        settlements = _settlements(part.settlements)
        result = await context.services.leases.settle(group, member, place, settlements)
        if isinstance(result, Failed) and result.failure is not Failure.NOT_STARTED:
            raise ApiError(ErrorCode.INVALID_REQUEST, result.failure.value)
    except ApiError as error:
        answer.settle_error_code = error.code
        answer.settle_error_message = error.message
        return
    if isinstance(result, Failed):
        # No record of this partition was ever leased to the group, or its queue was removed since.
        refused: Iterable[Refused] = [Refused(each.first, each.last, Refusal.NEVER_LEASED) for each in settlements]
    else:
        refused = result.refused
    answer.refusals = [LeaseRefusal(first, last, _REASONS[refusal]) for first, last, refusal in refused]


def _settlements(asked: list[LeaseSettlement]) -> list[Settlement]:
    """The settlements in the order of their offsets. Raises `ApiError`."""
    found: list[Settlement] = []
    for each in sorted(asked, key=lambda one: one.first_offset):
        first, last = each.first_offset, each.last_offset
        if not 0 <= first <= last:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} are not a run of offsets")
        if found and first <= found[-1].last:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"offset {first} is settled twice in one request")
        outcome = _OUTCOMES.get(each.outcome)
        if outcome is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{each.outcome} is not an outcome: 1 to {len(_OUTCOMES)} are")
        if not -1 <= each.delay_ms <= DELAY_MS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"a delay of {each.delay_ms} ms: it must be from 0 to {DELAY_MS_MAX}, or -1 for the group's backoff",
            )
        if each.token < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{each.token} is not a token")
        found.append(Settlement(first, last, outcome, None if each.delay_ms < 0 else each.delay_ms, each.token))
    return found


# ---- taking ----------------------------------------------------------------------------------------


def _add_taken(answers: Answers, taken: Iterable[Taken]) -> None:
    for got in taken:
        answer = answers[got.place]
        answer.error_code = got.error
        answer.error_message = got.message
        answer.token = got.token
        answer.lease_ms = got.duration_ms
        answer.records = got.records
        answer.deliveries = [LeaseDelivery(*delivery) for delivery in got.deliveries]
