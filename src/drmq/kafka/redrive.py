"""Redrive (12003): dead letters that wait, moving them back, and purging them. An API of DRMQ alone."""

from __future__ import annotations

from drmq.broker.services.redrive.letter_filter import LetterFilter
from drmq.broker.services.redrive.letters import Letter
from drmq.broker.services.redrive.service import Cursor, Found, LettersStatus
from drmq.kafka.context import Context
from drmq.model import ApiError, ErrorCode
from drmq.wire.messages.redrive import (
    RedriveAction,
    RedriveHeader,
    RedriveLetter,
    RedrivePartition,
    RedriveRequest,
    RedriveResponse,
)

LETTERS_MAX = 1_000
"""Letters in one answer."""


async def handle(context: Context, request: RedriveRequest) -> RedriveResponse:
    try:
        return await _carry_out(context, request)
    except ApiError as error:
        return RedriveResponse(error_code=error.code, error_message=error.message)


async def _carry_out(context: Context, request: RedriveRequest) -> RedriveResponse:
    service, caller, topic = context.services.redrives, context.caller, request.topic
    letter_filter = LetterFilter.parse(request.filter)
    cursor = Cursor(max(0, request.from_partition), max(0, request.from_offset))
    found = Found((), 0, None)
    with_letters = False
    match request.action:
        case RedriveAction.STATUS:
            with_letters = request.count_max > 0
        case RedriveAction.START:
            await service.start(caller, topic, letter_filter, request.count_max)
        case RedriveAction.STOP:
            await service.stop_redrive(topic)
        case RedriveAction.PURGE:
            found = await service.purge(caller, topic, letter_filter, cursor)
        case RedriveAction.LIST:
            found = await service.list(caller, topic, letter_filter, cursor, min(request.count_max, LETTERS_MAX))
        case _:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no action {request.action}")
    return _response(await service.status(caller, topic, with_letters=with_letters), found)


def _response(status: LettersStatus, found: Found) -> RedriveResponse:
    letters = found.letters or [letter for letter in (status.oldest, status.newest) if letter is not None]
    response = RedriveResponse(
        purged_count=status.purged,
        matched_count=found.matched,
        partitions=[RedrivePartition(*each) for each in status.partitions],
        letters=[_letter(letter) for letter in letters],
    )
    if found.next is not None:
        response.next_partition, response.next_offset = found.next
    redrive = status.redrive
    if redrive is not None:
        response.number = redrive.number
        response.state = redrive.state
        response.started_ms = redrive.started_ms
        response.ended_ms = redrive.ended_ms or -1
        response.filter = redrive.filter
        response.count_max = redrive.count_max
        response.redriven_count = redrive.redriven
        response.skipped_count = redrive.skipped
        response.failed_count = redrive.failed
        response.reason = redrive.reason
    return response


def _letter(letter: Letter) -> RedriveLetter:
    record = letter.record
    return RedriveLetter(
        partition_index=letter.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=[RedriveHeader(*header) for header in record.headers],
        origin_topic=letter.topic,
        origin_partition=letter.origin_partition,
        origin_offset=letter.origin_offset,
        group_id=letter.group,
        reason=letter.reason,
        attempts=letter.attempts,
        first_failed_ms=letter.first_failed_ms,
        last_failed_ms=letter.last_failed_ms,
        has_record=letter.has_record,
        redrive_count=letter.redrive_count,
    )
