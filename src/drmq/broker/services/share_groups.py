"""Administration of share groups: restart and remove their queues, and remove the queues of groups that are deleted.

The coordinator of a group has its members, and shards that may be on other nodes have its queues. A group is deleted in
three steps: the coordinator marks it (`ShareGroupMetadata.is_deleting`), the queues are removed from all shards, and
the group is gone. The mark is committed first. If the node fails in between, the next coordinator of the group goes on.

Queues are changed only while a group has no members. A member that joins at that moment may see its leases end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from drmq.broker.coordination.consumer_groups import GroupShardCoordinator
from drmq.broker.services.lease_shards import ASK_TIMEOUT_S, LeaseShards
from drmq.broker.services.queue_starts import QueueStarts
from drmq.catalog.group_configs import PARKED_MAX
from drmq.leases import ExpireMember, Failed, QueueKey, RemoveQueues, StartQueue
from drmq.leases.queue import Queue
from drmq.model import ApiError, ErrorCode, TopicId

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

_DELETED_WITHIN_S = 10.0
"""How long the deletion of a group waits for the removal of its queues. It goes on afterwards."""
_PAUSE_S, _PAUSE_MAX_S = 0.2, 10.0


class ShareGroupService:
    """Changes the queues of share groups that this node coordinates. Used on the event loop."""

    def __init__(self, broker: Broker, shards: LeaseShards, starts: QueueStarts) -> None:
        self._broker = broker
        self._shards = shards
        self._starts = starts
        self._removals: dict[str, asyncio.Task[None]] = {}
        """The groups that are being deleted."""

    async def restart(self, group: str, topic_id: TopicId, partition: int, offset: int, caller: str) -> None:
        """Begin a queue again at an offset. Leases that are out are void. Raises `ApiError`.

        `caller` is the address of the client that has asked for it.
        """
        if offset < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{offset} is not an offset; offsets begin at 0")
        await self._starts.begin_topic(group, topic_id, caller)
        key = QueueKey(group, topic_id, partition)
        answer = await self._shards.ask(key, StartQueue(key, offset, restart=True, caller=caller))
        if isinstance(answer, Failed):
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"the queue of group {group}: {answer.failure.value}")

    async def remove_queues(self, group: str, topic_id: TopicId | None = None) -> None:
        """Remove all queues of a group, or those of one topic. Raises `ApiError`; then some may be left."""
        indexes = range(self._broker.leases.partition_count)
        request = RemoveQueues(group, topic_id)
        await asyncio.gather(*(self._shards.ask_shard(index, request, ASK_TIMEOUT_S) for index in indexes))

    # ---- what happens to groups -----------------------------------------------------------------

    def on_member_lost(self, group: str, member: str) -> None:
        """The session of a member has expired: its leases end now, as if they had run out.

        A shard that cannot be told ends them when they do.
        """
        for index in range(self._broker.leases.partition_count):
            try:
                self._shards.shard(index).submit(ExpireMember(group, member), lambda _: None)
            except ApiError:
                continue

    def on_paused(self, queue: Queue) -> None:
        """Nothing new is leased in a queue, because too many of its records have failed."""
        key = queue.key
        topic = self._broker.metadata.committed_catalog.topics_by_id.get(key.topic_id)
        place = f"{key.topic_id.hex() if topic is None else topic.name}-{key.partition}"
        options = self._broker.leases.options_of(key.group)
        if queue.dying.count >= options.dying_max:
            why = f"{queue.dying.count} records wait for their dead letters, and {options.dying_max} may"
            hint = "see why they are not written in the log of this node"
        else:
            why = f"{queue.parked.count} records wait to be retried, and {options.parked_max} may ({PARKED_MAX})"
            hint = "find out why members release so many, or set a higher limit with `drmq group alter`"
        text = f"group {key.group} gets no new records of {place}"
        log.warning("%s: %s; %s", text, why, hint, extra={"repeat_key": text})

    # ---- deletion -------------------------------------------------------------------------------

    def look_at(self, coordinator: GroupShardCoordinator) -> None:
        """Go on with the deletion of groups that a coordinator on this node has marked."""
        for group in coordinator.machine.share_groups_in_deletion():
            if group not in self._removals:
                task = asyncio.get_running_loop().create_task(self._delete(coordinator, group))
                self._removals[group] = task
                task.add_done_callback(lambda _, group=group: self._on_done(group))  # type: ignore[misc]

    async def deleted(self, groups: Collection[str]) -> set[str]:
        """Wait until these groups are gone, if they are being deleted; returns those that are not gone in time."""
        tasks = {group: self._removals[group] for group in groups if group in self._removals}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_DELETED_WITHIN_S)
        return {group for group, task in tasks.items() if not task.done() or task.cancelled()}

    def stop(self) -> None:
        """The node stops. The next coordinators go on."""
        for task in self._removals.values():
            task.cancel()

    def _on_done(self, group: str) -> None:
        task = self._removals.pop(group)
        if not task.cancelled() and task.exception() is not None:
            log.error("the deletion of group %s failed on a bug", group, exc_info=task.exception())

    async def _delete(self, coordinator: GroupShardCoordinator, group: str) -> None:
        pause_s = _PAUSE_S
        while coordinator.leads:
            try:
                await self.remove_queues(group)
                await self._finish(coordinator, group)
            except ApiError as error:
                text = f"the queues of group {group}, which is deleted, are not removed"
                log.warning("%s: %s; trying again", text, error, extra={"repeat_key": text})
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            else:
                return

    async def _finish(self, coordinator: GroupShardCoordinator, group: str) -> None:
        done: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        coordinator.run(
            lambda shard, now_ms, wall_ms: shard.finish_deletion(group),
            lambda error: None if done.done() else done.set_result(error),
        )
        error = await done
        if error is not None:
            raise error
