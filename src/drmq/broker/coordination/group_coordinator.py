"""The group coordinator's driver: shards of groups, each on a partition of `__consumer_offsets`.

The decisions are all in `drmq.groups`. This module hands requests in, appends the records that
come out, keeps one timer per shard, and holds each answer until the log below it is committed.

A shard is led where its partition is led. Every replica replays its records, so that another can take over at
once; what is not in the records (who is connected, whose heartbeat is due) goes with the leader, and members are
given their full time anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from itertools import count
from random import Random

from crc32c import crc32c

from drmq.broker.clock import Clock
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.partitions.derived_state import Draft, KeyValue, MachineState
from drmq.broker.partitions.partition import Partition
from drmq.groups import (
    DescribeGroupsRequest,
    GroupOptions,
    GroupRequest,
    GroupResponse,
    GroupShard,
    ListGroupsRequest,
    OffsetCommitted,
    OffsetFetchRequest,
    Step,
    record_from_bytes,
    record_to_bytes,
)
from drmq.model import ApiError, ErrorCode, TopicId

log = logging.getLogger("drmq.broker")

_FORGOTTEN_AT_ONCE = 5_000
"""Deletions in one batch. The key of each has the group's id in it: with the longest ids they are half of what a batch
may be."""

_REFUSALS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

_READS = (OffsetFetchRequest, DescribeGroupsRequest, ListGroupsRequest)

Respond = Callable[[GroupResponse | ErrorCode], None]
"""Takes the answer, or the code of a failure to make it durable."""


class AbsentShard:
    """In place of a shard that is on other nodes, or nowhere yet: says so."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def handle(self, request: GroupRequest, respond: Respond) -> int:
        respond(self._code)
        return -1


class ShardDraft:
    """A shard that is being made from a snapshot, beside the one that is in use. Implements `states.Draft`."""

    def __init__(self, shard: GroupShard) -> None:
        self.shard = shard

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.shard.replay(record_from_bytes(key, value))


class ShardDriver:
    """One shard, its log and its timer. Implements `states.Machine`."""

    log: MachineLog
    """Set once the partition exists that this machine lives on."""

    def __init__(
        self,
        new_shard: Callable[[], GroupShard],
        clock: Clock,
        tickets: Iterable[int],
        deleted_topics: Callable[[], Collection[str]],
        deleted_topic_ids: Callable[[], Collection[TopicId]],
    ) -> None:
        self._new_shard = new_shard
        self._deleted_topics = deleted_topics
        self._deleted_topic_ids = deleted_topic_ids
        self.shard = new_shard()
        self._clock = clock
        self._tickets = iter(tickets)
        self._waiting: dict[int, Respond] = {}
        self._timer: asyncio.TimerHandle | None = None

    # ---- the machine ----------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.shard.replay(record_from_bytes(key, value))

    def draft(self) -> ShardDraft:
        return ShardDraft(self._new_shard())

    def become(self, draft: Draft) -> None:
        assert isinstance(draft, ShardDraft), draft
        self.shard = draft.shard

    def snapshot(self) -> Iterable[KeyValue]:
        return (record_to_bytes(record) for record in self.shard.snapshot())

    def on_lead(self) -> None:
        self.shard.become_leader(self._clock.monotonic_ms())
        # Whoever led before may have ended before it forgot them.
        self._forget_topics(self._deleted_topics(), self._deleted_topic_ids())

    def on_follow(self) -> None:
        """Another node coordinates these groups from now on, or soon."""
        self._stop_timer()
        self.shard.resign()
        self._refuse(ErrorCode.NOT_COORDINATOR)

    def on_applied(self) -> None:
        return

    # ---- requests -------------------------------------------------------------------------------

    def handle(self, request: GroupRequest, respond: Respond) -> int:
        """Hand a request in; the ticket under which its answer will come."""
        ticket = next(self._tickets)
        if not self.log.leads:
            failed = self.log.partition.failure is not None
            respond(ErrorCode.COORDINATOR_NOT_AVAILABLE if failed else ErrorCode.NOT_COORDINATOR)
            return ticket
        if isinstance(request, _READS) and not self.log.partition.replica.is_alone:
            # Another node may lead by now, and have answered commits that are not here.
            self.log.partition.confirm_leadership(lambda error: self._read(ticket, request, respond, error))
        else:
            self._handle(ticket, request, respond)
        return ticket

    def _read(self, ticket: int, request: GroupRequest, respond: Respond, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._handle(ticket, request, respond)
        else:
            respond(_REFUSALS.get(error, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _handle(self, ticket: int, request: GroupRequest, respond: Respond) -> None:
        self._waiting[ticket] = respond
        self._carry_out(self.shard.handle(ticket, request, self._clock.monotonic_ms(), self._clock.wall_ms()))

    def on_disconnect(self, tickets: Iterable[int]) -> None:
        gone = [ticket for ticket in tickets if self._waiting.pop(ticket, None) is not None]
        if gone:
            self._carry_out(self.shard.on_disconnect(gone, self._clock.monotonic_ms(), self._clock.wall_ms()))

    def expire_offsets(self, now_ms: int) -> None:
        if self.shard.is_leader:
            self._expire(self.shard.expire_offsets(now_ms))

    def forget_topics(self, names: Collection[str], topic_ids: Collection[TopicId]) -> None:
        if self.shard.is_leader:
            self._forget_topics(names, topic_ids)

    def stop(self) -> None:
        self._stop_timer()
        if self.log.leads:
            self._carry_out(self.shard.resign())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_topics(self, names: Collection[str], topic_ids: Collection[TopicId]) -> None:
        """Some at a time, and the others when these are committed: more than that may not wait for the followers."""
        forgotten = self.shard.forget_topics(names, topic_ids).records
        some = forgotten[:_FORGOTTEN_AT_ONCE]
        if self._carry_out(Step(some)) and len(some) < len(forgotten):
            self.log.when_durable(lambda error: None if error else self.forget_topics(names, topic_ids))

    def _expire(self, step: Step) -> None:
        """In several batches. If the log refuses one, the groups begin again from what is stored, and what has expired
        will have expired the next time too."""
        for start in range(0, len(step.records), _FORGOTTEN_AT_ONCE):
            if not self._carry_out(Step(step.records[start : start + _FORGOTTEN_AT_ONCE])):
                return

    def _carry_out(self, step: Step) -> bool:
        """Whether the log took it; otherwise whoever waits has been told."""
        if step.records:
            try:
                self.log.append(map(record_to_bytes, step.records), self._clock.wall_ms())
            except ApiError as refusal:
                self._on_refused(step, refusal)
                return False
        if step.answers:
            self.log.when_durable(lambda error: self._answer(step, error))
        self._set_timer()
        return True

    def _on_refused(self, step: Step, refusal: ApiError) -> None:
        if refusal.code is ErrorCode.MESSAGE_TOO_LARGE:
            if all(isinstance(record, OffsetCommitted) for record in step.records):
                # No group under way knows of it. Sent again it would be as large, so the client is told why.
                self._answer(step, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                return
            log.error(
                "%s. The groups in it go on from what is stored; their members must be fewer, or tell less",
                refusal,
                extra={"repeat_key": f"too large: {self.log.partition}"},
            )
        self._take_back()

    def _take_back(self) -> None:
        """The log took nothing (the lead is being handed over, or the disk is full): what was decided is not so.

        The groups under way know it already, though, and would tell it to whoever asks next. A generation that no
        log holds, once told, is given out a second time by the next coordinator. So they begin again from what is
        stored, as on a new coordinator, and members ask again.
        """
        self.shard.resign()
        self.shard.become_leader(self._clock.monotonic_ms())
        self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._set_timer()

    def _answer(self, step: Step, error: ErrorCode) -> None:
        for ticket, response in step.answers:
            respond = self._waiting.pop(ticket, None)
            if respond is not None:
                # The log below an answer was not committed: the client must not hear it.
                respond(
                    response if error is ErrorCode.NONE else _REFUSALS.get(error, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                )

    def _refuse(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, {}
        for respond in waiting.values():
            respond(code)

    def _set_timer(self) -> None:
        self._stop_timer()
        deadline = self.shard.next_deadline()
        if deadline is not None:
            delay_s = max(0, deadline - self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self.log.leads:
            return
        self._carry_out(self.shard.on_deadline(self._clock.monotonic_ms(), self._clock.wall_ms()))


Shard = ShardDriver | AbsentShard

_ELSEWHERE = AbsentShard(ErrorCode.NOT_COORDINATOR)
_NOWHERE = AbsentShard(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupCoordinator:
    """The shards on this node, and which group belongs to which."""

    def __init__(self, options: GroupOptions, clock: Clock, random: Random) -> None:
        self.options = options
        self.shards: dict[int, ShardDriver] = {}
        """By partition of `__consumer_offsets`; those led elsewhere are here too, and follow."""
        self.shard_count = 0
        """Partitions of `__consumer_offsets`; 0 while there is none."""
        self.deleted_topics: Callable[[], Collection[str]] = lambda: ()
        """Names of topics that were there and are not any more."""
        self.deleted_topic_ids: Callable[[], Collection[TopicId]] = lambda: ()
        """Ids of topics that were there and are not any more, whatever has their names now."""
        self._clock = clock
        self._random = random
        self._tickets = count()

    def make_shard(self) -> ShardDriver:
        """A machine for a partition of `__consumer_offsets` that is about to be opened."""
        return ShardDriver(
            lambda: GroupShard(self.options, self._new_member_id, self._is_deleted),
            self._clock,
            self._tickets,
            lambda: self.deleted_topics(),
            lambda: self.deleted_topic_ids(),
        )

    def add_shard(self, partition: Partition) -> None:
        """Serve the groups of a partition, as soon as it leads."""
        assert isinstance(partition.state, MachineState)
        assert isinstance(partition.state.machine, ShardDriver)
        partition.state.machine.log = MachineLog(partition)
        self.shards[partition.index] = partition.state.machine

    def remove_shard(self, index: int) -> None:
        self.shards.pop(index, None)

    def index_of(self, group_id: str) -> int:
        """The partition that a group belongs to."""
        # The upper half of the checksum: names that differ in a digit at their end share its lowest bits.
        return (crc32c(group_id.encode()) >> 16) % max(1, self.shard_count)

    def shard_of(self, group_id: str) -> Shard:
        """Where requests about a group go."""
        shard = self.shards.get(self.index_of(group_id)) if self.shard_count else None
        return shard or (_ELSEWHERE if self.shard_count else _NOWHERE)

    def forget_topics(self, names: Iterable[str], topic_ids: Iterable[TopicId] = ()) -> None:
        """Topics were deleted. `names` are for offsets that do not say to which topic of the name they belong."""
        gone_names, gone_ids = set(names), set(topic_ids)
        if gone_names or gone_ids:
            for shard in self.shards.values():
                shard.forget_topics(gone_names, gone_ids)

    def expire_offsets(self, now_ms: int) -> None:
        """Forget what was committed too long ago, by a time that can be believed."""
        for shard in self.shards.values():
            shard.expire_offsets(now_ms)

    def stop(self) -> None:
        for shard in self.shards.values():
            shard.stop()

    def _is_deleted(self, topic_id: TopicId) -> bool:
        return topic_id in self.deleted_topic_ids()

    def _new_member_id(self, client_id: str) -> str:
        return f"{client_id}-{self._random.randbytes(16).hex()}"
