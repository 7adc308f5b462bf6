"""How the handlers of group APIs ask the coordinator: hand in at once, translate the answer when it comes.

A request changes its group in the order in which it arrives, so it is handed to the shard before
anything else happens; only the answer is waited for. An answer is what the shard said, or an
`ErrorCode` where what it said could not be made durable. If it is there already, the handler's
caller gets it without a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from drmq.broker import GroupShardCoordinator, Shard
from drmq.groups import GroupRequest, GroupResponse
from drmq.kafka.context import Context
from drmq.model import ErrorCode

G = TypeVar("G", bound=GroupResponse)
R = TypeVar("R")


def ask(
    context: Context,
    group_id: str,
    request: GroupRequest,
    answered_by: type[G],
    translate: Callable[[G | ErrorCode], R],
    *,
    may_wait: bool = False,
) -> R | asyncio.Future[R]:
    """Ask the shard of one group. `may_wait`: the answer may take as long as a rebalance."""
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def respond(answer: GroupResponse | ErrorCode) -> None:
        if future.done():
            return
        try:
            assert isinstance(answer, (answered_by, ErrorCode)), answer
            future.set_result(translate(answer))
        except Exception as error:  # noqa: BLE001  # it is this request's, not that of all who wait for the same disk
            future.set_exception(error)

    shard = context.broker.groups.shard_of(group_id)
    ticket = shard.submit(request, respond)
    if future.done():
        return future.result()
    if may_wait and isinstance(shard, GroupShardCoordinator):
        context.park(shard, ticket)
    return future


def ask_all(
    questions: Sequence[tuple[Shard, GroupRequest]],
    answered_by: type[G],
    merge: Callable[[list[G | ErrorCode]], R],
) -> R | asyncio.Future[R]:
    """Ask several shards and answer once all have, with their answers in the order of the questions."""
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    answers: dict[int, G | ErrorCode] = {}

    def respond_to(index: int) -> Callable[[GroupResponse | ErrorCode], None]:
        def respond(answer: GroupResponse | ErrorCode) -> None:
            assert isinstance(answer, (answered_by, ErrorCode)), answer
            answers[index] = answer
            if len(answers) == len(questions) and not future.done():
                future.set_result(merge([answers[each] for each in range(len(questions))]))

        return respond

    if not questions:
        return merge([])
    for index, (shard, request) in enumerate(questions):
        shard.submit(request, respond_to(index))
    return future.result() if future.done() else future


def by_shard(context: Context, group_ids: Iterable[str]) -> dict[Shard, list[str]]:
    """The groups that each shard answers for, each group once."""
    found: dict[Shard, list[str]] = {}
    for group_id in dict.fromkeys(group_ids):
        found.setdefault(context.broker.groups.shard_of(group_id), []).append(group_id)
    return found
