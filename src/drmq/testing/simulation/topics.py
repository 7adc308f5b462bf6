"""A topic that is created, written, read, deleted and created again with the same name, throughout a run.

- **topics-begin-at-0**: a topic begins with offset 0 and continues from there, whatever had its name before;
- **deleted-records-stay-gone**: a topic contains what was written to it and nothing of an earlier topic with its name;
- **deleted-topics-stay-deleted**: a confirmed deletion is permanent, on every node.

Every request identifies the topic by its id: a record that was in flight while its topic was deleted must not get into
the next one. A name would be ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drmq.model import ErrorCode, Offset, ProducerId, TopicId
from drmq.records import Record, decode_batch, encode_batch, iter_batches
from drmq.testing.simulation.client import Connector, Unavailable
from drmq.testing.simulation.history import History
from drmq.testing.simulation.node import SimulatedNode
from drmq.testing.simulation.workload import Worker
from drmq.testing.simulation.world import SECOND, World
from drmq.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from drmq.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from drmq.wire.messages.init_producer_id import InitProducerIdRequest
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic

_CREATE, _DELETE, _METADATA, _PRODUCE, _FETCH, _INIT = 7, 6, 12, 13, 13, 4
_DECOMPRESSED_MAX = 1 << 24
_WRITES_MAX = 6
_BEHIND_US_MAX = 20 * SECOND
"""After all faults are repaired, no node is behind for longer than this."""


class TopicRecreator(Worker):
    """Creates a topic, fills it, deletes it, over and over. No other client uses its name."""

    def __init__(self, world: World, connector: Connector, history: History, name: str, replicas: int) -> None:
        super().__init__(world, connector, history, name)
        self.pause_s = 0.05
        self._replicas = replicas
        self._producer_id = -1
        self._topic_id: TopicId | None = None
        self._in_doubt: TopicId | None = None
        """A topic that a node did not know any more; that node may have been out of date."""
        self._deleted: set[TopicId] = set()
        """Topics whose deletion was confirmed."""
        self._next_offset = 0
        self._writes_left = 0
        self._is_read = False
        self._controller: int | None = None
        """The controller, as far as some node knew."""

    async def work(self) -> None:
        if self._producer_id < 0:
            await self._get_id()
        elif self._topic_id is None:
            await self._create()
        elif self._writes_left:
            await self._write(self._topic_id)
        elif not self._is_read:
            await self._read(self._topic_id)
        else:
            await self._delete(self._topic_id)

    async def _get_id(self) -> None:
        answer = await self.client.ask_any(InitProducerIdRequest(), _INIT, 5.0)
        if self.check_code(answer.error_code, "InitProducerId") is not ErrorCode.NONE:
            raise Unavailable("no producer id")
        self._producer_id = answer.producer_id

    # ---- creating and deleting --------------------------------------------------------------------

    async def _create(self) -> None:
        topic = CreateTopicsRequestTopic(self.name, 1, self._replicas)
        answer = await self._ask_controller(CreateTopicsRequest([topic], 5_000), _CREATE)
        error = self.check_code(answer.topics[0].error_code, f"the creation of {self.name}")
        if error is ErrorCode.NONE:
            self._begin(TopicId(answer.topics[0].topic_id))
        elif error is ErrorCode.TOPIC_ALREADY_EXISTS:
            # An earlier request of ours was executed after all. But other nodes report which topic exists, and they may
            # be out of date.
            topic_id, _ = await self._look_up()
            if topic_id in self._deleted:
                self.world.require(
                    self.healed_us is None or self.world.now_us - self.healed_us < _BEHIND_US_MAX,
                    "deleted-topics-stay-deleted",
                    f"{self.name} {topic_id.hex()} was deleted, but nodes still have it",
                )
                raise Unavailable("some nodes still have the previous topic")
            self._begin(topic_id)
        else:
            raise Unavailable(error.name)

    def _begin(self, topic_id: TopicId) -> None:
        self.world.require(
            topic_id not in self._deleted,
            "deleted-topics-stay-deleted",
            f"{self.name} is created again with id {topic_id.hex()}, which was deleted before",
        )
        self._topic_id = topic_id
        if topic_id != self._in_doubt:
            self._next_offset, self._writes_left, self._is_read = 0, self.random.randint(1, _WRITES_MAX), False
        self._in_doubt = None

    async def _delete(self, topic_id: TopicId) -> None:
        request = DeleteTopicsRequest([DeleteTopicsRequestTopic(topic_id=topic_id)], timeout_ms=5_000)
        answer = await self._ask_controller(request, _DELETE)
        error = self.check_code(answer.responses[0].error_code, f"the deletion of {self.name}")
        if error is ErrorCode.NONE:
            self._deleted.add(topic_id)
            self._topic_id = None
            self.successes += 1
        elif error is ErrorCode.UNKNOWN_TOPIC_ID:
            self._topic_id, self._in_doubt = None, topic_id
        else:
            raise Unavailable(error.name)

    async def _ask_controller(self, request: object, version: int) -> Any:
        """As tools do: send the request to the controller if it is known; any other node forwards it."""
        if self._controller is None:
            return await self.client.ask_any(request, version, 6.0)
        try:
            return await self.client.ask(self._controller, request, version, 6.0)
        except Unavailable:
            self._controller = None
            raise

    async def _look_up(self) -> tuple[TopicId, int]:
        """The topic that has the name now, and its leader, as far as some node knows."""
        request = MetadataRequest([MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False)
        answer = await self.client.ask_any(request, _METADATA)
        self._controller = answer.controller_id if answer.controller_id >= 0 else None
        found = answer.topics[0]
        if found.error_code or not found.partitions or found.partitions[0].leader_id < 0:
            raise Unavailable(f"{self.name} does not exist, or has no leader")
        return TopicId(found.topic_id), int(found.partitions[0].leader_id)

    async def _leader(self, topic_id: TopicId) -> int:
        found, leader = await self._look_up()
        if found != topic_id:
            raise Unavailable(f"a node knows another {self.name}")
        return leader

    # ---- records --------------------------------------------------------------------------------

    def _value(self, topic_id: TopicId, offset: int) -> bytes:
        return f"{self.name}:{topic_id.hex()}:{offset}".encode()

    async def _write(self, topic_id: TopicId) -> None:
        leader = await self._leader(topic_id)
        offset = self._next_offset
        data = encode_batch(
            [Record(Offset(0), self.world.now_us // 1_000 + 1_700_000_000_000, None, self._value(topic_id, offset))],
            producer_id=ProducerId(self._producer_id),
            producer_epoch=0,
            base_sequence=offset,
        )
        topic = ProduceRequestTopic(topic_id=topic_id, partition_data=[ProduceRequestPartition(0, bytes(data))])
        answer = await self.client.ask(leader, ProduceRequest(None, -1, 5_000, [topic]), _PRODUCE, 3.0)
        result = answer.responses[0].partition_responses[0]
        error = self.check_code(result.error_code, f"a batch for {self.name}")
        if error is not ErrorCode.NONE:
            raise Unavailable(error.name)
        self.world.require(
            result.base_offset == offset,
            "topics-begin-at-0",
            f"record {offset} of {self.name}, id {topic_id.hex()}, got offset {result.base_offset}",
        )
        self._next_offset, self._writes_left = offset + 1, self._writes_left - 1

    async def _read(self, topic_id: TopicId) -> None:
        """Read the whole topic; again, if some of it is missing: the node that responds may no longer be the leader."""
        leader = await self._leader(topic_id)
        position = 0
        while position < self._next_offset:
            partition = FetchRequestPartition(0, fetch_offset=position, partition_max_bytes=1 << 20)
            topic = FetchRequestTopic(topic_id=topic_id, partitions=[partition])
            request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])
            answer = await self.client.ask(leader, request, _FETCH)
            if answer.error_code or answer.responses[0].partitions[0].error_code:
                raise Unavailable("the topic cannot be read")
            view = memoryview(answer.responses[0].partitions[0].records or b"")
            if not len(view):
                raise Unavailable("the topic has no more records now")
            for at, header in iter_batches(view):
                for record in decode_batch(view[at : at + header.size], decompressed_size_max=_DECOMPRESSED_MAX):
                    self.world.require(
                        record.value == self._value(topic_id, record.offset),
                        "deleted-records-stay-gone",
                        f"{self.name}, id {topic_id.hex()}, has {record.value!r} at {record.offset}",
                    )
                position = header.next_offset
        self._is_read = True
        self.successes += 1

    # ---- the end --------------------------------------------------------------------------------

    def check_end(self, nodes: Iterable[SimulatedNode]) -> None:
        """After all faults are repaired and the cluster has settled, no node has a deleted topic."""
        for node in nodes:
            known = node.broker.catalog.topics_by_id
            left = [one.hex() for one in self._deleted if one in known or node.broker.partitions.slots(one)]
            self.world.require(
                not left, "deleted-topics-stay-deleted", f"{node.name} has {self.name} {left}, which was deleted"
            )
