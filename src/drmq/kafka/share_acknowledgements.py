"""Acknowledgements of leased records, as ShareFetch and ShareAcknowledge carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Protocol

from drmq.broker.services.lease_calls import Part, PartResult, Place
from drmq.broker.services.leases import LeaseService
from drmq.leases import Outcome, Settlement
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.model.names import GROUP_ID_BYTES_MAX, REDRIVE_GROUP, is_group_id
from drmq.wire.messages.share_fetch import ShareAcknowledgementBatch

_MEMBER_ID_MAX = 36
_OUTCOMES = {
    0: Outcome.ACCEPT,  # a gap: there is no record at this offset
    1: Outcome.ACCEPT,
    2: Outcome.RELEASE,
    3: Outcome.REJECT,
    4: Outcome.RENEW,
}
_RENEW = 4


class PartitionOfRequest(Protocol):
    partition_index: int
    acknowledgement_batches: list[ShareAcknowledgementBatch]


class TopicOfRequest(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Iterable[PartitionOfRequest]: ...


def check_member(service: LeaseService, group: str | None, member: str | None) -> tuple[str, str]:
    """The ids of a request. Raises `ApiError`."""
    service.shards.check_enabled()
    if group == REDRIVE_GROUP:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"the group id {group} is reserved; choose another one")
    if not group or not is_group_id(group):
        # Queues and sessions are kept under this name.
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"a group id has 1 to {GROUP_ID_BYTES_MAX} bytes of UTF-8")
    if not member or len(member) > _MEMBER_ID_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a member id has 1 to {_MEMBER_ID_MAX} characters")
    return group, member


def places_of(topics: Iterable[TopicOfRequest]) -> dict[Place, list[ShareAcknowledgementBatch]]:
    """The partitions that a request names, with their acknowledgements."""
    return {
        Place(TopicId(topic.topic_id), partition.partition_index): partition.acknowledgement_batches
        for topic in topics
        for partition in topic.partitions
    }


def parts_of(
    named: Mapping[Place, list[ShareAcknowledgementBatch]], taking: Iterable[Place], *, renews: bool
) -> tuple[list[Part], dict[Place, ApiError]]:
    """What is to be settled and taken, and the partitions whose acknowledgements are malformed."""
    refused: dict[Place, ApiError] = {}
    settling: dict[Place, list[Settlement]] = {}
    for place, batches in named.items():
        try:
            if batches:
                settling[place] = [each for batch in batches for each in _settlements(batch, renews)]
        except ApiError as error:
            refused[place] = error
    parts = [Part(place, settling.pop(place, ())) for place in taking]
    parts += [Part(place, settlements, takes=False) for place, settlements in settling.items()]
    return parts, refused


def error_of(result: PartResult) -> ApiError | None:
    """What was wrong with the acknowledgements of a partition, or of some of its offsets."""
    if result.settle_error is not None:
        return result.settle_error
    if not result.refused:
        return None
    first = result.refused[0]
    text = f"offsets {first.first} to {first.last} were not settled: {first.refusal.value}"
    return ApiError(ErrorCode.INVALID_RECORD_STATE, text)


def _settlements(batch: ShareAcknowledgementBatch, renews: bool) -> Iterable[Settlement]:
    """The outcome of each run of offsets with the same type."""
    first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
    if last < first or first < 0 or len(types) not in (1, last - first + 1):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the acknowledgements of offsets {first} to {last} are malformed")
    for type_ in set(types):
        if type_ not in _OUTCOMES or (type_ == _RENEW and not renews):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{type_} is not a type of acknowledgement here")
    if len(types) == 1:
        yield Settlement(first, last, _OUTCOMES[types[0]])
        return
    for type_, run in groupby(types):
        end = first + sum(1 for _ in run)
        yield Settlement(first, end - 1, _OUTCOMES[type_])
        first = end
