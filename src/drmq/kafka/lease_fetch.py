"""LeaseFetch (12001): lease records of a lease group, and settle leased ones on the way. An API of DRMQ alone.

The settlements of a request are carried out first: what a member settles makes room for what it takes next. What is
wrong in one partition concerns that partition alone. If the connection closes while the request waits, nothing is
leased for it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import cast

from drmq.broker.services.lease_calls import Part, PartResult, Place
from drmq.broker.services.pending import Pending
from drmq.broker.services.reads import MISDIRECTED
from drmq.kafka.context import Context
from drmq.kafka.share_acknowledgements import check_member
from drmq.leases import Outcome, Refusal, Settlement
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.wire import Buffer, Pieces
from drmq.wire.messages.lease_fetch import (
    LeaseDelivery,
    LeaseFetchRequest,
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
    Refusal.NO_RENEWAL: 5,
}
_RELEASE = 2
_FIRST = attrgetter("first_offset")
_new = tuple.__new__


def handle(context: Context, request: LeaseFetchRequest) -> LeaseFetchResponse | Pending[LeaseFetchResponse]:
    service = context.services.leases
    try:
        group, member = check_member(service, request.group_id, request.member_id)
        _check_limits(request)
        parts, refused = _parts(request)
    except ApiError as error:
        return LeaseFetchResponse(error_code=error.code, error_message=error.message)
    count_max = room = wait_ms = 0
    if request.max_records:
        room = context.room(min(request.max_bytes, context.broker.options.fetch_bytes_max))
        count_max = request.max_records if room else 0
        wait_ms = 0 if refused or any(part.settlements for part in parts) else request.max_wait_ms
    return service.call(
        group,
        member,
        context.client_host,
        parts,
        count_max,
        room,
        wait_ms,
        lambda results: _response(context, group, results, refused),
    )


def _check_limits(request: LeaseFetchRequest) -> None:
    if not 0 <= request.max_records <= RECORDS_MAX:
        raise _outside("max_records", request.max_records, RECORDS_MAX)
    if not 0 <= request.max_wait_ms <= WAIT_MS_MAX:
        raise _outside("max_wait_ms", request.max_wait_ms, WAIT_MS_MAX)
    if request.max_bytes < (1 if request.max_records else 0):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"max_bytes is {request.max_bytes}; it must be at least 1")


def _outside(name: str, value: int, most: int) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"{name} is {value}; it must be from 0 to {most}")


def _parts(request: LeaseFetchRequest) -> tuple[list[Part], dict[Place, ApiError]]:
    """What is asked of each partition, and the partitions whose settlements are malformed."""
    parts: dict[Place, Part] = {}
    refused: dict[Place, ApiError] = {}
    for topic in request.topics:
        for part in topic.partitions:
            place = Place(TopicId(topic.topic_id), part.partition_index)
            if place in parts:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"partition {place.partition} of a topic is named twice")
            settlements: Sequence[Settlement] = ()
            if part.settlements:
                try:
                    settlements = _settlements(part.settlements)
                except ApiError as error:
                    refused[place] = error
            parts[place] = Part(place, settlements, bool(part.takes))
    return list(parts.values()), refused


def _settlements(asked: list[LeaseSettlement]) -> list[Settlement]:
    """The settlements in the order of their offsets. Raises `ApiError`.

    Runs that follow each other and are settled alike are made one, except for releases: each of these gets a backoff
    of its own, so that records that failed together do not return together.
    """
    found: list[Settlement] = []
    end = code = -1
    token = 0
    for each in asked if len(asked) == 1 else sorted(asked, key=_FIRST):
        first, last = each.first_offset, each.last_offset
        if first == end + 1 and first <= last and each.outcome == code and each.token == token and code != _RELEASE:
            end = last
            found[-1] = _new(Settlement, (found[-1][0], last, found[-1][2], None, token))
            continue
        outcome, delay_ms, token = _OUTCOMES.get(each.outcome), each.delay_ms, each.token
        if not 0 <= first <= last:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"offsets {first} to {last} are not a run of offsets")
        if first <= end:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"offset {first} is settled twice in one request")
        if outcome is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{each.outcome} is not an outcome: 1 to {len(_OUTCOMES)} are")
        if not -1 <= delay_ms <= DELAY_MS_MAX:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"a delay of {delay_ms} ms: it must be from 0 to {DELAY_MS_MAX}, or -1 for the group's backoff",
            )
        if token < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{token} is not a token")
        found.append(Settlement(first, last, outcome, None if delay_ms < 0 else delay_ms, token))
        end, code = last, each.outcome
    return found


def _response(
    context: Context, group: str, results: Sequence[PartResult], refused: dict[Place, ApiError]
) -> LeaseFetchResponse:
    topics: dict[TopicId, LeaseFetchResponseTopic] = {}
    for result in results:
        place = result.place
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = topics[place.topic_id] = LeaseFetchResponseTopic(place.topic_id)
        topic.partitions.append(_partition(context, result, refused.get(place)))
    duration_ms = context.broker.leases.options_of(group).duration_ms
    return LeaseFetchResponse(lease_ms=duration_ms, topics=list(topics.values()))


def _partition(context: Context, result: PartResult, refused: ApiError | None) -> LeaseFetchResponsePartition:
    answer = LeaseFetchResponsePartition(result.place.partition)
    settle_error, error = refused or result.settle_error, result.error
    if settle_error is not None:
        answer.settle_error_code = settle_error.code
        answer.settle_error_message = settle_error.message
    if error is not None:
        answer.error_code = error.code
        answer.error_message = error.message
    if answer.error_code in MISDIRECTED or answer.settle_error_code in MISDIRECTED:
        leader = context.services.cluster.leader_elsewhere(*result.place)
        answer.current_leader = LeaseLeader(*leader) if leader is not None else LeaseLeader(-1, -1)
    if result.refused:
        answer.refusals = [LeaseRefusal(first, last, _REASONS[refusal]) for first, last, refusal in result.refused]
    if result.deliveries:
        answer.token = result.token
        answer.lease_ms = result.duration_ms
        answer.records = cast("Buffer", Pieces(result.records))
        answer.deliveries = [LeaseDelivery(*delivery) for delivery in result.deliveries]
    return answer
