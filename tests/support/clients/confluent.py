"""confluent-kafka: librdkafka in the process."""

import uuid
from collections.abc import Sequence
from typing import Any, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

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


def received(message: Any) -> Received:
    """Our value of a message of confluent-kafka."""
    kind, timestamp_ms = message.timestamp()
    types: dict[int, Literal["create", "append"]] = {
        TIMESTAMP_CREATE_TIME: "create",
        TIMESTAMP_LOG_APPEND_TIME: "append",
    }
    return Received(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        timestamp_ms,
        types.get(kind, "unknown"),
    )


class ConfluentClient(Client):
    name = "confluent-kafka"
    assignors = ("range", "roundrobin", "cooperative-sticky")

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
    ) -> list[Delivery]:
        answers: dict[int, Delivery | KafkaError] = {}

        def note(index: int) -> Any:
            def on_delivery(error: KafkaError | None, message: Message) -> None:
                offset = message.offset()
                known = offset if offset is not None and offset >= 0 and acks != "0" else None
                answers[index] = error or Delivery(message.partition() or 0, known)

            return on_delivery

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": RECORD_SIZE_BYTES_MAX,
                "linger.ms": 5,
            }
        )
        for index, record in enumerate(records):
            optional: dict[str, Any] = {}
            if record.partition is not None:
                optional["partition"] = record.partition
            if record.timestamp_ms is not None:
                optional["timestamp"] = record.timestamp_ms
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers) or None,
                on_delivery=note(index),
                **optional,
            )
        left = producer.flush(PATIENCE_S)
        assert left == 0, f"{left} records are neither delivered nor refused"
        deliveries = []
        for index in range(len(records)):
            answer = answers[index]
            if isinstance(answer, KafkaError):
                raise KafkaFailure(answer.code(), str(answer))
            deliveries.append(answer)
        return deliveries

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
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"unused-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "fetch.message.max.bytes": partition_fetch_bytes_max,
                "fetch.min.bytes": fetch_bytes_min,
                "fetch.wait.max.ms": fetch_wait_ms_max,
            }
        )
        if isinstance(offset, int):
            start = offset
        else:
            start = OFFSET_BEGINNING if offset == "earliest" else OFFSET_END
        try:
            consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
            messages: list[Received] = []
            deadline = Deadline(timeout_s)
            while len(messages) < count and not deadline.passed():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    raise KafkaFailure(error.code(), str(error))
                messages.append(received(message))
            return messages
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
    ) -> "ConfluentMember":
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": 300,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": metadata_age_ms_max,
            "fetch.wait.max.ms": 100,
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        member = ConfluentMember(settings, topics, cooperative=assignor == "cooperative-sticky")
        member.start()
        return member


def _failure(error: KafkaError) -> KafkaFailure:
    fenced = error.code() == KafkaError._FATAL and "Static consumer fenced" in str(error)
    return KafkaFailure(KafkaError.FENCED_INSTANCE_ID if fenced else error.code(), str(error))


class ConfluentMember(ThreadedMember):
    def __init__(self, settings: dict[str, Any], topics: Sequence[str], *, cooperative: bool) -> None:
        super().__init__(f"confluent-kafka member of {settings['group.id']}")
        self._settings = settings
        self._topics = list(topics)
        self._cooperative = cooperative

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._stopping.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    self._read([received(message)])
                elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue  # a subscribed topic or pattern that does not exist yet; librdkafka goes on
                else:
                    raise _failure(error)
        except KafkaException as raised:
            raise _failure(raised.args[0]) from raised
        finally:
            consumer.close()

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        named = [(partition.topic, partition.partition) for partition in partitions]
        if self._cooperative:
            consumer.incremental_assign(partitions)
            self._own_more(named)
        else:
            consumer.assign(partitions)
            self._own(named)

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._disown([(partition.topic, partition.partition) for partition in partitions])
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
