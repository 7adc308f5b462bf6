"""What a lease group has to do, and what is leased: from any node, for the whole group.

The queues of a group are in several shards, and their data is in yet other places. Every shard is asked for its queues
of the group. Then the leaders of the data are asked, each node once, how far its partitions go and how old the first
open record of each queue is. A shard or a node that does not answer costs its own part of the answer, and no other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from struct import error as StructError
from typing import TYPE_CHECKING, Any, NamedTuple

from drmq.broker.cluster.membership import Buffer, Request
from drmq.broker.services.lease_shards import LeaseShards
from drmq.leases import DescribeQueues, QueueList, QueueView
from drmq.model import ApiError, DrmqError, ErrorCode, GroupId, NodeId, Offset, TopicId
from drmq.records import HEADER_SIZE, read_header
from drmq.storage import StorageError

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

_TIMEOUT_S = 3.0
"""How long to wait for a shard, or for a node that leads data. The answer is for people and dashboards."""
UNKNOWN = -1
_LOOKS_PER_TURN = 50
"""Offsets that are looked at before the event loop may do something else."""


class OpenRecords(NamedTuple):
    """What the leader of a partition knows about the open records of a queue."""

    high_watermark: int = UNKNOWN
    oldest_ms: int = UNKNOWN
    """The time of the first record of the batch with the first open record. -1 if no record is open."""


class QueueReport(NamedTuple):
    """A queue of a group as it is now."""

    view: QueueView
    records: OpenRecords

    @property
    def open_count(self) -> int:
        """Records that are not done; -1 if it is not known how far the log goes."""
        view = self.view
        if self.records.high_watermark == UNKNOWN:
            return UNKNOWN
        waiting = view.held_count + view.returned_count + view.parked_count + view.dying_count
        return waiting + max(0, self.records.high_watermark - view.end)


class ShardFailure(NamedTuple):
    """A shard that did not answer, and why."""

    shard: int
    error: ApiError


class LeaseQueries:
    """Describes lease groups. Used on the event loop."""

    def __init__(self, broker: Broker, shards: LeaseShards) -> None:
        self._broker = broker
        self._shards = shards

    async def describe(
        self, group: str, topic_ids: Collection[TopicId] | None, leases_max: int
    ) -> tuple[list[QueueReport], list[ShardFailure]]:
        """The queues of a group, by topic and partition, and the shards that did not answer.

        Up to `leases_max` runs of leased offsets are listed. None for `topic_ids` means all topics.
        """
        indexes = range(self._broker.leases.partition_count)
        request = DescribeQueues(group, leases_max)
        answers = await asyncio.gather(
            *(self._shards.ask_shard(index, request, _TIMEOUT_S) for index in indexes), return_exceptions=True
        )
        views: list[QueueView] = []
        failures: list[ShardFailure] = []
        for index, answer in enumerate(answers):
            if isinstance(answer, ApiError):
                failures.append(ShardFailure(index, answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                assert isinstance(answer, QueueList), answer
                views += [view for view in answer.queues if topic_ids is None or view.key.topic_id in topic_ids]
        views.sort(key=lambda view: view.key)
        left = leases_max
        for number, view in enumerate(views):
            views[number] = view._replace(leases=view.leases[:left])
            left -= len(views[number].leases)
        records = await self.open_records([(view.key.topic_id, view.key.partition, view.start) for view in views])
        return [QueueReport(view, found) for view, found in zip(views, records, strict=True)], failures

    # ---- the data -------------------------------------------------------------------------------

    async def open_records(self, wanted: Sequence[tuple[TopicId, int, int]]) -> list[OpenRecords]:
        """What lies behind each of these offsets. Asks the leaders of the data, each node once."""
        by_node: dict[NodeId, list[int]] = {}
        for number, (topic_id, partition, _) in enumerate(wanted):
            notice = self._broker.host.leaders.get(GroupId(topic_id, partition))
            if notice is not None and self._broker.services.cluster.may_lead(notice):
                by_node.setdefault(notice.leader, []).append(number)
        found = [OpenRecords()] * len(wanted)

        async def ask(node_id: NodeId, numbers: list[int]) -> None:
            answers = await self.ask_node(node_id, [wanted[number] for number in numbers])
            for number, records in zip(numbers, answers, strict=True):
                found[number] = records

        await asyncio.gather(*(ask(node_id, numbers) for node_id, numbers in by_node.items()))
        return found

    async def ask_node(self, node_id: NodeId, wanted: list[tuple[TopicId, int, int]]) -> list[OpenRecords]:
        """Ask a leader about the records from an offset on of each partition. What it does not know is unknown."""
        if node_id == self._broker.node_id:
            return await self._look_at_all(wanted)
        body = json.dumps([(topic_id.hex(), partition, offset) for topic_id, partition, offset in wanted]).encode()
        try:
            answer = await self._broker.membership.ask(
                node_id, Request.OPEN_RECORDS, (body,), _TIMEOUT_S, ErrorCode.LEADER_NOT_AVAILABLE
            )
            found = [OpenRecords(int(mark), int(oldest_ms)) for mark, oldest_ms in json.loads(answer)]
        except (ApiError, ValueError, TypeError):
            found = []
        return found if len(found) == len(wanted) else [OpenRecords()] * len(wanted)

    async def serve(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """Answer another node about partitions that this node leads."""
        try:
            wanted = [(TopicId(bytes.fromhex(id_)), int(index), int(offset)) for id_, index, offset in _rows(payload)]
        except (ValueError, TypeError) as error:
            raise DrmqError(f"a request about open records from another node is malformed: {error!r}") from error
        return (json.dumps(await self._look_at_all(wanted)).encode(),)

    async def _look_at_all(self, wanted: Sequence[tuple[TopicId, int, int]]) -> list[OpenRecords]:
        found = []
        for number, each in enumerate(wanted, 1):
            found.append(await self._look(*each))
            if not number % _LOOKS_PER_TURN:
                await asyncio.sleep(0)
        return found

    async def _look(self, topic_id: TopicId, index: int, offset: int) -> OpenRecords:
        try:
            partition = self._broker.partitions.by_id(topic_id, index)
            partition.check_serving()
        except ApiError:
            return OpenRecords()
        visible, first = partition.high_watermark, Offset(max(offset, partition.start_offset))
        if first >= visible:
            return OpenRecords(visible)
        log = partition.log
        try:
            batch = log.read(first, 1, visible, cached_only=True)
            if batch is None:
                batch = await self._broker.blocking(lambda: log.read(first, 1, visible))
            header = read_header(memoryview(batch or b"")[:HEADER_SIZE])
        except (StorageError, StructError):
            return OpenRecords(visible)
        return OpenRecords(visible, header.max_timestamp if header.is_log_append_time else header.base_timestamp)


def _rows(payload: memoryview) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(bytes(payload))
    return rows
