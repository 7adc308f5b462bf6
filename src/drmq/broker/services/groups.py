"""Requests to the coordinators of groups on this node: submit at once, translate the answer when it arrives.

A request changes its group in the order in which it arrives, so it is submitted to the shard before anything else
happens; only the answer is waited for. The answer is the shard's response, or an `ErrorCode` if that response could not
be made durable. If the answer is available at once, the caller gets it without a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from drmq.broker.coordination.consumer_groups import ConsumerGroups, GroupShardCoordinator, Shard
from drmq.broker.replication.group_host import GroupHost
from drmq.groups import GroupRequest, GroupResponse
from drmq.model import ErrorCode, NodeId
from drmq.model.names import CONSUMER_OFFSETS

G = TypeVar("G", bound=GroupResponse)
R = TypeVar("R")


class ParkedRequest(NamedTuple):
    """A request whose answer may take as long as a rebalance."""

    shard: GroupShardCoordinator
    ticket: int

    def cancel(self) -> None:
        """Notify the shard that the client has disconnected and its answer is no longer needed."""
        self.shard.on_disconnect([self.ticket])


OnParked = Callable[[ParkedRequest], None]


class GroupService:
    """Sends requests about groups to the shards that coordinate them."""

    def __init__(self, coordinator: ConsumerGroups, host: GroupHost, node_id: NodeId) -> None:
        self._coordinator = coordinator
        self._host = host
        self._node_id = node_id

    def coordinator_of(self, group_id: str) -> tuple[str, int]:
        """The internal topic and the partition on which a group is coordinated."""
        return CONSUMER_OFFSETS, self._coordinator.index_of(group_id)

    def ask(
        self,
        group_id: str,
        request: GroupRequest,
        answered_by: type[G],
        translate: Callable[[G | ErrorCode], R],
        on_parked: OnParked | None = None,
    ) -> R | asyncio.Future[R]:
        """Ask the shard of one group. `on_parked` is called if the answer is not available at once."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def respond(answer: GroupResponse | ErrorCode) -> None:
            if future.done():
                return
            try:
                assert isinstance(answer, (answered_by, ErrorCode)), answer
                future.set_result(translate(answer))
            except Exception as error:  # noqa: BLE001  # fails this request only, not all that wait for the same sync
                future.set_exception(error)

        shard = self._coordinator.shard_of(group_id)
        ticket = shard.submit(request, respond)
        if future.done():
            return future.result()
        if on_parked is not None and isinstance(shard, GroupShardCoordinator):
            on_parked(ParkedRequest(shard, ticket))
        return future

    def ask_each(
        self,
        questions: Sequence[tuple[str, GroupRequest]],
        answered_by: type[G],
        merge: Callable[[list[G | ErrorCode]], R],
    ) -> R | asyncio.Future[R]:
        """Ask the shards of several groups, each with its own question; merge the answers in the same order."""
        shards = [(self._coordinator.shard_of(group_id), request) for group_id, request in questions]
        return _ask_shards(shards, answered_by, merge)

    def ask_together(
        self,
        group_ids: Iterable[str],
        question: Callable[[tuple[str, ...]], GroupRequest],
        answered_by: type[G],
        merge: Callable[[list[tuple[list[str], G | ErrorCode]]], R],
    ) -> R | asyncio.Future[R]:
        """Ask each shard once about all of its groups. Duplicate groups are ignored."""
        shards: dict[Shard, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            shards.setdefault(self._coordinator.shard_of(group_id), []).append(group_id)
        questions = [(shard, question(tuple(named))) for shard, named in shards.items()]
        return _ask_shards(
            questions, answered_by, lambda answers: merge(list(zip(shards.values(), answers, strict=True)))
        )

    def ask_all(
        self, question: GroupRequest, answered_by: type[G], merge: Callable[[list[G | ErrorCode]], R]
    ) -> R | asyncio.Future[R]:
        """Ask every shard for which no other node answers."""
        return _ask_shards([(shard, question) for shard in self._own_shards()], answered_by, merge)

    def _own_shards(self) -> list[GroupShardCoordinator]:
        """The shards that this node leads, and those without a known leader or whose last known leader is this node.

        The latter cannot answer, for example because this node's disk has failed. They are included so that the
        result has their error instead of being silently incomplete.
        """
        leaders, node_id = self._host.leaders, self._node_id
        return [
            shard
            for shard in self._coordinator.shards.values()
            if shard.log.leads or (found := leaders.get(shard.log.partition.group)) is None or found.leader == node_id
        ]


def _ask_shards(
    questions: Sequence[tuple[Shard, GroupRequest]],
    answered_by: type[G],
    merge: Callable[[list[G | ErrorCode]], R],
) -> R | asyncio.Future[R]:
    """Ask several shards, and merge their answers, in the order of the questions, once all have answered."""
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    answers: dict[int, G | ErrorCode] = {}

    def respond_to(index: int) -> Callable[[GroupResponse | ErrorCode], None]:
        def respond(answer: GroupResponse | ErrorCode) -> None:
            if not isinstance(answer, (answered_by, ErrorCode)):
                if not future.done():
                    future.set_exception(AssertionError(answer))
                return
            answers[index] = answer
            if len(answers) == len(questions) and not future.done():
                future.set_result(merge([answers[each] for each in range(len(questions))]))

        return respond

    if not questions:
        return merge([])
    for index, (shard, request) in enumerate(questions):
        shard.submit(request, respond_to(index))
    return future.result() if future.done() else future
