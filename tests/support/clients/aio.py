"""aiokafka: asyncio, and only the old, non-flexible versions of the protocol."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import BrokerResponseError

from support.clients.base import (
    RECORD_SIZE_BYTES_MAX,
    SESSION_TIMEOUT_MS,
    Acks,
    Client,
    Codec,
    Delivery,
    KafkaFailure,
    Received,
    Record,
)
from support.clients.kafka_python import received
from support.clients.threaded import ThreadedMember
from support.polling import PATIENCE_S, Deadline

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class AiokafkaClient(Client):
    name = "aiokafka"
    assignors = tuple(_ASSIGNORS)

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Delivery]:
        async def run() -> list[Delivery]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                max_request_size=RECORD_SIZE_BYTES_MAX,
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                await asyncio.wait_for(producer.flush(), PATIENCE_S)
                answers = await asyncio.gather(*futures)
            except BrokerResponseError as error:
                raise KafkaFailure(error.errno, str(error)) from error
            finally:
                await producer.stop()
            if acks == "0":
                return [Delivery(-1, None) for _ in records]
            return [Delivery(answer.partition, answer.offset) for answer in answers]

        return asyncio.run(run())

    def consume(
        self,
        topic: str,
        count: int,
        *,
        partitions: Sequence[int] = (0,),
        offset: int | Literal["earliest", "latest"] = "earliest",
        reset: Literal["earliest", "latest"] = "earliest",
        read_committed: bool = False,
        partition_fetch_bytes_max: int = 1024 * 1024,
        fetch_bytes_min: int = 1,
        fetch_wait_ms_max: int = 500,
        timeout_s: float = PATIENCE_S,
    ) -> list[Received]:
        async def run() -> list[Received]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset=reset,
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                max_partition_fetch_bytes=partition_fetch_bytes_max,
                fetch_min_bytes=fetch_bytes_min,
                fetch_max_wait_ms=fetch_wait_ms_max,
            )
            await consumer.start()
            try:
                assigned = [TopicPartition(topic, partition) for partition in partitions]
                consumer.assign(assigned)
                if offset == "earliest":
                    await consumer.seek_to_beginning(*assigned)
                elif offset == "latest":
                    await consumer.seek_to_end(*assigned)
                else:
                    for partition in assigned:
                        consumer.seek(partition, offset)
                records: list[Received] = []
                deadline = Deadline(timeout_s)
                while len(records) < count and not deadline.passed():
                    for batch in (await consumer.getmany(timeout_ms=200)).values():
                        records.extend(received(record) for record in batch)
                return records
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        assignor: str = "range",
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        metadata_age_ms_max: int = 300_000,
    ) -> "AiokafkaMember":
        settings = {
            "bootstrap_servers": self.bootstrap,
            "group_id": group,
            "group_instance_id": instance_id,
            "partition_assignment_strategy": [_ASSIGNORS[assignor]],
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": 300,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 200,
            "metadata_max_age_ms": metadata_age_ms_max,
            "fetch_max_wait_ms": 100,
        }
        member = AiokafkaMember(settings, topics)
        member.start()
        return member


class AiokafkaMember(ThreadedMember):
    def __init__(self, settings: dict[str, Any], topics: Sequence[str]) -> None:
        super().__init__(f"aiokafka member of {settings['group_id']}")
        self._settings = settings
        self._topics = list(topics)

    def _run(self) -> None:
        asyncio.run(self._poll())

    async def _poll(self) -> None:
        consumer = AIOKafkaConsumer(**self._settings)
        listener = _Listener(self)
        patterns = [topic for topic in self._topics if topic.startswith("^")]
        if patterns:
            consumer.subscribe(pattern="|".join(patterns), listener=listener)
        else:
            consumer.subscribe(topics=self._topics, listener=listener)
        try:
            await consumer.start()
            while not self._stopping.is_set():
                for batch in (await consumer.getmany(timeout_ms=50)).values():
                    self._read(received(record) for record in batch)
        except BrokerResponseError as error:
            raise KafkaFailure(error.errno, str(error)) from error
        finally:
            await consumer.stop()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AiokafkaMember) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._member._own([(partition.topic, partition.partition) for partition in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._member._disown([(partition.topic, partition.partition) for partition in revoked])
