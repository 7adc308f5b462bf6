"""The surroundings of a redrive in a broker: its shard, the letters, and their origins, wherever these are led."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.broker.services.caller import Caller, node_caller
from drmq.broker.services.lease_shards import resolve
from drmq.broker.services.redrive.letter_pages import PAGE_BYTES, READ_TIMEOUT_S
from drmq.broker.services.redrive.letters import Letter
from drmq.broker.services.redrive.run import Page, ShardLost, Unmovable, redriven_batch
from drmq.leases import LeaseRequest, LeaseResponse, Origin, SavedBatch
from drmq.leases.letters import Letters
from drmq.model import ApiError, ErrorCode, Offset, TopicId
from drmq.model.names import check_not_internal
from drmq.records import iter_batches

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

_APPEND_TIMEOUT_S: Final = 10.0
_SHARD_PAUSE_S: Final = 0.5
_LOOK_BYTES: Final = 4 * PAGE_BYTES


class BrokerWorld:
    """The surroundings of a redrive in a broker. Implements `run.World`."""

    def __init__(self, broker: Broker, shard: LeaseShardCoordinator, topic_id: TopicId, caller: Caller) -> None:
        self._broker = broker
        self._shard = shard
        self._topic_id = topic_id
        self._caller = caller
        """The client for which letters are moved: it must be allowed to write to their origins."""
        self._self = node_caller(broker.node_id)

    def letters(self) -> Letters:
        letters = self._shard.machine.redrives.topics.get(self._topic_id)
        if letters is None or not self._shard.leads:
            raise ShardLost
        return letters

    async def ask(self, request: LeaseRequest) -> LeaseResponse:
        while self._shard.leads:
            future: asyncio.Future[LeaseResponse] = asyncio.get_running_loop().create_future()
            self._shard.submit(request, partial(resolve, future))
            try:
                return await future
            except ApiError:
                await asyncio.sleep(_SHARD_PAUSE_S)
        raise ShardLost

    async def read(self, partition: int, offset: int) -> Page:
        return await self._broker.services.letter_pages.read(self._self, self._name(self._topic_id), partition, offset)

    def origin_of(self, letter: Letter) -> Origin:
        topic = self._broker.metadata.committed_catalog.topics.get(letter.topic)
        if topic is None:
            raise Unmovable(f"topic {letter.topic} does not exist")
        if letter.topic_id is not None and letter.topic_id != topic.topic_id:
            raise Unmovable(f"topic {letter.topic} was deleted and created again since")
        if not 0 <= letter.origin_partition < topic.partition_count:
            raise Unmovable(f"topic {letter.topic} has no partition {letter.origin_partition}")
        try:
            check_not_internal(letter.topic)
        except ApiError as error:
            raise Unmovable(error.message) from None
        return Origin(topic.topic_id, letter.origin_partition)

    def _name(self, topic_id: TopicId) -> str:
        return self._broker.metadata.committed_catalog.topic_by_id(topic_id).name

    async def end_of(self, origin: Origin) -> int:
        _, end = await self._broker.services.router.bounds(
            self._self, self._name(origin.topic_id), origin.partition, timeout_s=READ_TIMEOUT_S
        )
        return end

    async def has_batch(self, batch: SavedBatch, producer_id: int) -> bool:
        router = self._broker.services.router
        name, index = self._name(batch.origin.topic_id), batch.origin.partition
        start, end = await router.bounds(self._self, name, index, timeout_s=READ_TIMEOUT_S)
        offset = max(start, batch.from_offset)
        while offset < end:
            found = await router.read(self._self, name, index, Offset(offset), _LOOK_BYTES, timeout_s=READ_TIMEOUT_S)
            before = offset
            for _, header in iter_batches(bytes(found.data)):
                numbers = (header.producer_id, header.producer_epoch, header.base_sequence)
                if numbers == (producer_id, batch.epoch, batch.sequence):
                    return True
                offset = max(offset, header.next_offset)
            if offset == before:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{name}-{index} has nothing at offset {offset} yet")
        return False

    async def append(self, batch: SavedBatch, producer_id: int, letters: Sequence[Letter]) -> int:
        data = await self._broker.blocking(lambda: redriven_batch(batch, producer_id, letters))
        name = self._name(batch.origin.topic_id)
        services = self._broker.services
        base_offset = await services.router.append(
            self._caller, name, batch.origin.partition, data, timeout_s=_APPEND_TIMEOUT_S
        )
        services.redrives.redriven_count += len(letters)
        return base_offset

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
