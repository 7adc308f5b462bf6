"""kafka-python: the protocol in pure Python."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import BrokerResponseError

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
from support.clients.threaded import ThreadedMember
from support.polling import PATIENCE_S, Deadline

_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

_TIMESTAMP_TYPES: dict[int, Literal["create", "append"]] = {0: "create", 1: "append"}


def received(record: Any) -> Received:
    """Our value of a record of kafka-python or aiokafka, which share the shape."""
    return Received(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
        record.timestamp,
        _TIMESTAMP_TYPES.get(record.timestamp_type, "unknown"),
    )


class KafkaPythonClient(Client):
    name = "kafka-python"
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
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            max_request_size=RECORD_SIZE_BYTES_MAX,
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(PATIENCE_S)
            answers = [future.get(PATIENCE_S) for future in futures]
        except BrokerResponseError as error:
            raise KafkaFailure(error.errno, str(error)) from error
        finally:
            producer.close(timeout=PATIENCE_S)
        return [
            Delivery(answer.partition, answer.offset if acks != "0" and answer.offset >= 0 else None)
            for answer in answers
        ]

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
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            max_partition_fetch_bytes=partition_fetch_bytes_max,
            fetch_min_bytes=fetch_bytes_min,
            fetch_max_wait_ms=fetch_wait_ms_max,
        )
        try:
            assigned = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            if offset == "earliest":
                consumer.seek_to_beginning(*assigned)
            elif offset == "latest":
                consumer.seek_to_end(*assigned)
            else:
                for partition in assigned:
                    consumer.seek(partition, offset)
            records: list[Received] = []
            deadline = Deadline(timeout_s)
            while len(records) < count and not deadline.passed():
                for batch in consumer.poll(timeout_ms=200).values():
                    records.extend(received(record) for record in batch)
            return records
        finally:
            consumer.close()

    def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        assignor: str = "range",
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        metadata_age_ms_max: int = 300_000,
    ) -> "KafkaPythonMember":
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
        member = KafkaPythonMember(settings, topics, cooperative=assignor == "cooperative-sticky")
        member.start()
        return member


class KafkaPythonMember(ThreadedMember):
    def __init__(self, settings: dict[str, Any], topics: Sequence[str], *, cooperative: bool) -> None:
        super().__init__(f"kafka-python member of {settings['group_id']}")
        self._settings = settings
        self._topics = list(topics)
        self._listener = _Listener(self, cooperative=cooperative)

    def _run(self) -> None:
        consumer = KafkaConsumer(**self._settings)
        try:
            patterns = [topic for topic in self._topics if topic.startswith("^")]
            if patterns:
                consumer.subscribe(pattern=re.compile("|".join(patterns)), listener=self._listener)
            else:
                consumer.subscribe(topics=self._topics, listener=self._listener)
            while not self._stopping.is_set():
                # A join that is cut off by the end of a short poll is forgotten between its two halves: the member
                # has joined, never syncs, and polls for ever without partitions.
                for batch in consumer.poll(timeout_ms=5_000).values():
                    self._read(received(record) for record in batch)
        except BrokerResponseError as error:
            raise KafkaFailure(error.errno, str(error)) from error
        finally:
            consumer.close(timeout_ms=30_000)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: KafkaPythonMember, *, cooperative: bool) -> None:
        self._member = member
        self._cooperative = cooperative

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        named = [(partition.topic, partition.partition) for partition in assigned]
        if self._cooperative:
            self._member._own_more(named)
        else:
            self._member._own(named)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._member._disown([(partition.topic, partition.partition) for partition in revoked])

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self.on_partitions_revoked(lost)
