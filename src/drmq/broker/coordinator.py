"""The group coordinator's driver: shards of groups, each on a partition of `__consumer_offsets`.

The decisions are all in `drmq.groups`. This module hands requests in, appends the records that
come out, keeps one timer per shard, and holds each answer until the log below it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count

from crc32c import crc32c

from drmq.broker.clock import Clock
from drmq.broker.machine import MachineLog
from drmq.groups import GroupOptions, GroupRequest, GroupResponse, GroupShard, Step, record_to_bytes
from drmq.model import ApiError, ErrorCode

Respond = Callable[[GroupResponse | ErrorCode], None]
"""Takes the answer, or the code of a failure to make it durable."""


class ShardDriver:
    """One shard, its log and its timer."""

    def __init__(self, shard: GroupShard, log: MachineLog, clock: Clock, tickets: Iterable[int]) -> None:
        self.shard = shard
        self.log = log
        self._clock = clock
        self._tickets = iter(tickets)
        self._waiting: dict[int, Respond] = {}
        self._timer: asyncio.TimerHandle | None = None

    def handle(self, request: GroupRequest, respond: Respond) -> int:
        """Hand a request in; the ticket under which its answer will come."""
        ticket = next(self._tickets)
        if self.log.partition.failure is not None:
            respond(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return ticket
        self._waiting[ticket] = respond
        self._carry_out(self.shard.handle(ticket, request, self._clock.monotonic_ms(), self._clock.wall_ms()))
        return ticket

    def on_disconnect(self, tickets: Iterable[int]) -> None:
        gone = [ticket for ticket in tickets if self._waiting.pop(ticket, None) is not None]
        if gone:
            self._carry_out(self.shard.on_disconnect(gone, self._clock.monotonic_ms(), self._clock.wall_ms()))

    def expire_offsets(self) -> None:
        self._carry_out(self.shard.expire_offsets(self._clock.wall_ms()))

    def forget_topics(self, topics: Iterable[str]) -> None:
        self._carry_out(self.shard.forget_topics(set(topics)))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._carry_out(self.shard.resign())

    def restart(self, shard: GroupShard, now_ms: int) -> None:
        """Go on with a shard that was loaded anew, after the log lost what it had not written."""
        self.stop()
        shard.become_leader(now_ms)
        self.shard = shard
        self._set_timer()

    def _carry_out(self, step: Step) -> None:
        if step.records:
            try:
                self.log.append((record_to_bytes(record) for record in step.records), self._clock.wall_ms())
            except ApiError:
                self._refuse()
                return
            for record in step.records:
                self.shard.replay(record)
        if step.answers:
            self.log.when_durable(lambda error: self._answer(step, error))
        self._set_timer()

    def _answer(self, step: Step, error: ErrorCode) -> None:
        for ticket, response in step.answers:
            respond = self._waiting.pop(ticket, None)
            if respond is not None:
                # The log below an answer could not be made durable: the client must not hear it.
                respond(response if error is ErrorCode.NONE else ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _refuse(self) -> None:
        """The log takes no records: nothing that was just decided is true. `restart` follows."""
        waiting, self._waiting = self._waiting, {}
        for respond in waiting.values():
            respond(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.shard.next_deadline()
        if deadline is not None:
            delay_s = max(0, deadline - self._clock.monotonic_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._carry_out(self.shard.on_deadline(self._clock.monotonic_ms(), self._clock.wall_ms()))


class GroupCoordinator:
    """All shards, and which group belongs to which."""

    def __init__(self, options: GroupOptions, clock: Clock) -> None:
        self.options = options
        self.shards: list[ShardDriver] = []
        self._clock = clock
        self._tickets = count()

    def add_shard(self, shard: GroupShard, log: MachineLog) -> None:
        """Begin to lead a shard whose log has been replayed."""
        shard.become_leader(self._clock.monotonic_ms())
        self.shards.append(ShardDriver(shard, log, self._clock, self._tickets))

    def shard_of(self, group_id: str) -> ShardDriver:
        # The upper half of the checksum: names that differ in a digit at their end share its lowest bits.
        return self.shards[(crc32c(group_id.encode()) >> 16) % len(self.shards)]

    def handle(self, group_id: str, request: GroupRequest, respond: Respond) -> tuple[ShardDriver, int]:
        shard = self.shard_of(group_id)
        return shard, shard.handle(request, respond)

    def forget_topics(self, topics: Iterable[str]) -> None:
        names = set(topics)
        for shard in self.shards:
            shard.forget_topics(names)

    def expire_offsets(self) -> None:
        for shard in self.shards:
            shard.expire_offsets()

    def stop(self) -> None:
        for shard in self.shards:
            shard.stop()
