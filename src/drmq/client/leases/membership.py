"""The membership of a consumer in its group: joining, heartbeats, assignments, leaving.

The coordinator tells a member which partitions to work on. It says so when that changes, in its answer to a heartbeat.
A member that the coordinator does not know any more (its session ran out, while the process was suspended for example)
joins again under the same id.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable

from drmq.client.errors import ClientError, refusal
from drmq.client.leases.brokers import REQUEST_TIMEOUT_S, Brokers
from drmq.client.leases.link import Link
from drmq.model import ErrorCode
from drmq.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

log = logging.getLogger("drmq.client")

Assignment = frozenset[tuple[bytes, int]]
"""Topic ids and partitions."""

_JOINS, _LEAVES = 0, -1
_BACKOFF_S, _BACKOFF_S_MAX = 0.1, 2.0
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_IMPATIENT_S = 0.5
"""The time between heartbeats while a topic of the member has no partitions: it may be created at any moment."""


class Membership:
    """One member of a group. Owned by the session, which runs `run` as a task."""

    def __init__(
        self,
        brokers: Brokers,
        group: str,
        *,
        on_alive: Callable[[], None],
        on_assigned: Callable[[Assignment], None],
        on_failed: Callable[[ClientError], None],
        is_complete: Callable[[], bool],
    ) -> None:
        self._brokers = brokers
        self._group = group
        self._on_alive = on_alive
        self._on_assigned = on_assigned
        self._on_failed = on_failed
        self._is_complete = is_complete
        """Whether all topics have partitions."""
        self.member_id = str(uuid.uuid4())
        self._topics: tuple[str, ...] = ()
        self._epoch = _JOINS
        self._join_count = 0
        """How often it was asked to join: an answer to an older request does not count."""
        self._link: Link | None = None
        self._hurry = asyncio.Event()

    @property
    def has_joined(self) -> bool:
        return self._epoch > 0

    def subscribe(self, topics: Iterable[str]) -> None:
        """Change the topics: the coordinator learns of it at once."""
        self._topics = tuple(sorted(topics))
        self.rejoin()

    def rejoin(self) -> None:
        """Join again, which also makes the coordinator send the assignment."""
        self._epoch = _JOINS
        self._join_count += 1
        self._hurry.set()

    async def run(self) -> None:
        """Stay a member until cancelled."""
        backoff_s = _BACKOFF_S
        while True:
            if not self._topics:
                await self._hurry.wait()
            self._hurry.clear()
            try:
                wait_s = await self._beat()
                backoff_s = _BACKOFF_S
            except ClientError as error:
                self._link = None
                if error.code in _UNKNOWN:
                    log.info("group %s does not know this consumer any more: %s", self._group, error)
                    self._epoch = _JOINS
                else:
                    self._on_failed(error)
                wait_s, backoff_s = backoff_s, min(2 * backoff_s, _BACKOFF_S_MAX)
            try:
                async with asyncio.timeout(wait_s):
                    await self._hurry.wait()
            except TimeoutError:
                continue

    async def _beat(self) -> float:
        """One heartbeat. Returns the time until the next one in seconds."""
        is_joining = self._epoch == _JOINS
        joins = self._join_count
        answer = await self._ask(self._epoch, list(self._topics) if is_joining else None)
        if joins == self._join_count:
            self._epoch = answer.member_epoch
        self._on_alive()
        if answer.assignment is not None:
            self._on_assigned(
                frozenset(
                    (topic.topic_id, partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                )
            )
        interval_s = max(answer.heartbeat_interval_ms, 1) / 1000
        return interval_s if self._is_complete() else min(interval_s, _IMPATIENT_S)

    async def _ask(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatResponse:
        if self._link is None or not self._link.is_open:
            self._link = await self._brokers.coordinator(self._group)
        request = ShareGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        answer = await self._link.call(request, ShareGroupHeartbeatResponse, REQUEST_TIMEOUT_S)
        if answer.error_code:
            raise refusal(answer.error_code, f"Group `{self._group}` refuses this consumer", answer.error_message)
        return answer

    async def leave(self, timeout_s: float) -> None:
        """Leave the group, if the coordinator can be reached. Otherwise it notices after the session timeout."""
        if not self.has_joined:
            return
        self._epoch = _LEAVES
        try:
            async with asyncio.timeout(timeout_s):
                await self._ask(_LEAVES, None)
        except (ClientError, TimeoutError) as error:
            log.info("cannot leave group %s: %s", self._group, error)
