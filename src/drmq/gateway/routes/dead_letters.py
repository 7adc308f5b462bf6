"""Dead letters: what waits in dead-letter topics, moving it back, and purging it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from drmq.client import Admin
from drmq.client.dead_letters import DeadLetterStatus
from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.group_types import (
    Count,
    DeadLetterTopic,
    LetterFilter,
    LetterView,
    PurgeAnswer,
    PurgeRequest,
    RedriveAnswer,
    RedriveRequest,
    Text,
)
from drmq.gateway.letters import letter_view, redrive_view
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import Index, Limit, Name, Page

_SECONDS_MAX = 5.0
"""How long one call looks for letters that match."""


class LettersParams(Struct, forbid_unknown_fields=True):
    """The filter is that of `LetterFilter`, as far as a query can hold it."""

    topic: Name
    limit: Limit = 50
    cursor: Annotated[str, Meta(pattern=r"^\d{1,10}\.\d{1,19}$")] | None = None
    group: Text | None = None
    origin_topic: Text | None = None
    origin_partition: Index | None = None
    key: Text | None = None
    value_contains: Text | None = None
    reason: Text | None = None
    header: Text | None = None
    """`name=value`."""
    attempts_min: Count | None = None
    redrives_max: Count | None = None
    failed_since_ms: Count | None = None
    failed_until_ms: Count | None = None


class LetterTopicParams(Struct, forbid_unknown_fields=True):
    topic: Name


@endpoint("GET", "/dead-letters", "The topics that take dead letters, and what waits in them.")
async def dead_letter_topics(gateway: Gateway) -> Page[DeadLetterTopic]:
    return Page(await gateway.dead_letters.get())


@endpoint("GET", "/dead-letters/{topic}", "Dead letters that wait in a topic, the first ones first, with a filter.")
async def dead_letters(gateway: Gateway, params: LettersParams) -> Page[LetterView]:
    wanted = _query_filter(params)
    partition, _, offset = (params.cursor or "0.0").partition(".")
    start = int(partition), int(offset)
    if start[0] >= 2**31 or start[1] >= 2**63:
        raise ProblemError(400, "this is not a cursor of a page of dead letters")

    def ask(admin: Admin) -> Page[LetterView]:
        found = admin.dead_letters.page(params.topic, wanted, params.limit, start, within_s=_SECONDS_MAX)
        following = None if found.next is None else f"{found.next[0]}.{found.next[1]}"
        return Page(list(map(letter_view, found.letters)), following)

    return await gateway.admins.run(ask)


@endpoint("POST", "/dead-letters/{topic}/redrive", "Begin to move dead letters back to where they came from.")
async def redrive(gateway: Gateway, params: LetterTopicParams, body: RedriveRequest) -> RedriveAnswer:
    wanted = _filter(body.filter)

    def ask(admin: Admin) -> RedriveAnswer:
        if body.dry_run:
            status = admin.dead_letters.status(params.topic)
            matching = admin.dead_letters.count(params.topic, wanted) if wanted else status.waiting
            return _answer(status, min(matching, body.max) if body.max else matching)
        return _answer(admin.dead_letters.redrive(params.topic, wanted, count_max=body.max))

    found = await gateway.admins.run(ask)
    gateway.dead_letters.forget()
    return found


@endpoint("GET", "/dead-letters/{topic}/redrive", "How far the redrive of a topic is, or how the last one went.")
async def redrive_status(gateway: Gateway, params: LetterTopicParams) -> RedriveAnswer:
    return _answer(await gateway.admins.run(lambda admin: admin.dead_letters.status(params.topic)))


@endpoint(
    "DELETE", "/dead-letters/{topic}/redrive", "Stop the redrive of a topic. What is under way is finished first."
)
async def stop_redrive(gateway: Gateway, params: LetterTopicParams) -> RedriveAnswer:
    found = _answer(await gateway.admins.run(lambda admin: admin.dead_letters.stop(params.topic)))
    gateway.dead_letters.forget()
    return found


@endpoint("POST", "/dead-letters/{topic}/purge", "Give up dead letters for good: all of them, or those that match.")
async def purge(gateway: Gateway, params: LetterTopicParams, body: PurgeRequest) -> PurgeAnswer:
    wanted = _filter(body.filter)

    def ask(admin: Admin) -> PurgeAnswer:
        if body.dry_run:
            return PurgeAnswer(params.topic, 0, admin.dead_letters.purgeable(params.topic, wanted))
        return PurgeAnswer(params.topic, admin.dead_letters.purge(params.topic, wanted))

    answer = await gateway.admins.run(ask)
    gateway.dead_letters.forget()
    gateway.groups.forget()
    return answer


def _answer(status: DeadLetterStatus, matching: int | None = None) -> RedriveAnswer:
    return RedriveAnswer(status.topic, status.waiting, redrive_view(status.redrive), matching)


def _filter(wanted: LetterFilter) -> dict[str, Any] | None:
    found: dict[str, Any] = msgspec.to_builtins(wanted)
    return found or None


def _query_filter(params: LettersParams) -> dict[str, Any] | None:
    header = None
    if params.header is not None:
        name, equals, value = params.header.partition("=")
        if not equals:
            raise ProblemError(400, f"a header is given as name=value, not {params.header!r}")
        header = {name: value}
    return _filter(
        LetterFilter(
            params.group,
            params.origin_topic,
            params.origin_partition,
            params.key,
            params.value_contains,
            params.reason,
            header,
            params.attempts_min,
            params.redrives_max,
            params.failed_since_ms,
            params.failed_until_ms,
        )
    )
