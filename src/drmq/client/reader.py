"""Reading at a position of one's own, with confluent-kafka: the part that both twins share.

Partitions are assigned by hand, so there is no group that would move them. Offsets of times and of the end, and
committed offsets, come from DRMQ's own client, whose calls have a deadline. New partitions are looked for now and then,
and are read from their start.
"""

from __future__ import annotations

import time as clock
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, TypeVar

from drmq.client.admin import Admin
from drmq.client.codecs import CodecName, Decoding, decoder_of
from drmq.client.errors import ClientError, Closed
from drmq.client.librdkafka import as_client_error, checked_properties, quiet_logger
from drmq.client.messages import ReadMessage
from drmq.client.topics import EARLIEST, LATEST
from drmq.model import ErrorCode, Offset, TopicPartition

T = TypeVar("T")

Start: TypeAlias = Literal["earliest", "latest"]
Offsets: TypeAlias = int | Mapping[int, int]
Time: TypeAlias = datetime | str | float

_LOOK_S = 5.0
"""How often new partitions are looked for."""
_LOOK_TIMEOUT_S = 1.0
_BY_ITSELF = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_PARTITION_EOF")
"""Errors that librdkafka gets over by itself."""


def time_ms(time: Time) -> int:
    """Milliseconds since 1970 of a datetime, of ISO 8601 text, or of seconds since 1970. Local if it has no zone."""
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        time = time.astimezone(UTC).timestamp()
    return int(time * 1000)


class Reader:
    """Topics that are read, and how far. Used by one thread at a time."""

    def __init__(
        self,
        bootstrap: str,
        group: str | None,
        *,
        codec: CodecName | Decoding[Any],
        timeout_s: float,
        client_id: str,
        properties: Mapping[str, Any] | None,
    ) -> None:
        from confluent_kafka import Consumer, KafkaException

        self.group = group
        self.timeout_s = timeout_s
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._decode = decoder_of(codec)
        chosen = {
            "bootstrap.servers": bootstrap,
            # librdkafka wants one, also where nothing is committed.
            "group.id": group or f"drmq-single-{uuid.uuid4()}",
            "client.id": client_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "logger": quiet_logger(),
        }
        try:
            self._consumer: Any = Consumer(checked_properties(chosen | dict(properties or {})))
        except KafkaException as error:
            raise ClientError(f"The consumer cannot be created: {error.args[0].str()}") from None
        self._partitions: dict[str, set[int]] = {}
        """Topics that are read as a whole, with the partitions that are read of them."""
        self._look_at_s = clock.monotonic() + _LOOK_S
        self.is_closed = False

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("The consumer is closed")

    def admin(self, timeout_s: float | None) -> Admin:
        """Calls with this deadline. The caller closes it."""
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        return Admin(self._bootstrap, client_id=self._client_id, timeout_s=wait_s)

    # ---- positions ------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        start: Start | None,
        offset: Offsets | None,
        time: Time | None,
        partitions: Iterable[int] | None,
        timeout_s: float | None,
    ) -> None:
        self.check_open()
        _check_choice(start, offset, time)
        with self.admin(timeout_s) as admin:
            try:
                existing = {partition.index for partition in admin.topics.describe(topic).partitions}
            except ClientError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                existing = set()
            chosen = existing if partitions is None else set(partitions)
            if not chosen <= existing:
                raise ValueError(f"topic {topic!r} has no partition {min(chosen - existing)}")
            positions = self._positions(admin, topic, chosen, start, offset, time)
        if partitions is None:
            self._partitions[topic] = chosen
        self._assign(topic, positions)

    def seek(
        self,
        topic: str,
        start: Start | None,
        offset: Offsets | None,
        time: Time | None,
        partition: int | None,
        timeout_s: float | None,
    ) -> None:
        self.check_open()
        _check_choice(start, offset, time)
        if start is None and offset is None and time is None:
            raise ValueError("no position is given: one of start, offset and time")
        assigned = {part.partition for part in self._consumer.assignment() if part.topic == topic}
        chosen = assigned if partition is None else {partition}
        if not chosen or not chosen <= assigned:
            raise ValueError(f"topic {topic!r} or this partition of it is not read: call `subscribe` first")
        with self.admin(timeout_s) as admin:
            positions = self._positions(admin, topic, chosen, start, offset, time)
        self._assign(topic, positions)

    def _positions(
        self,
        admin: Admin,
        topic: str,
        partitions: set[int],
        start: Start | None,
        offset: Offsets | None,
        time: Time | None,
    ) -> dict[int, int]:
        places = {TopicPartition(topic, index) for index in partitions}
        if not places:
            return {}
        if offset is not None:
            return {index: offset if isinstance(offset, int) else offset.get(index, 0) for index in partitions}
        if time is not None:
            found = admin.topics.offsets(dict.fromkeys(places, time_ms(time)))
            ends = admin.topics.offsets(dict.fromkeys(places, LATEST))
            # After the last record: whatever comes next is later than that.
            return {p.partition: at.offset if at.offset >= 0 else ends[p].offset for p, at in found.items()}
        if start is None and self.group is not None:
            committed = admin.groups.offsets(self.group)
            first = admin.topics.offsets(dict.fromkeys(places, EARLIEST))
            return {p.partition: committed[p].offset if p in committed else first[p].offset for p in places}
        wanted = LATEST if start == "latest" else EARLIEST
        return {p.partition: at.offset for p, at in admin.topics.offsets(dict.fromkeys(places, wanted)).items()}

    def _assign(self, topic: str, positions: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition as Place

        moved = [part for part in self._consumer.assignment() if part.topic == topic and part.partition in positions]
        if moved:
            self._consumer.incremental_unassign(moved)
        if positions:
            self._consumer.incremental_assign([Place(topic, *position) for position in positions.items()])

    def _look_for_partitions(self) -> None:
        from confluent_kafka import KafkaException

        now_s = clock.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_S
        for topic, known in self._partitions.items():
            try:
                described = self._consumer.list_topics(topic, timeout=_LOOK_TIMEOUT_S).topics.get(topic)
            except KafkaException:
                return
            new = set(described.partitions) - known if described is not None and described.error is None else set()
            known |= new
            self._assign(topic, dict.fromkeys(new, 0))

    # ---- reading --------------------------------------------------------------------------------

    def poll(self, count_max: int, timeout_s: float, make: Callable[[Any, Any], T]) -> list[T]:
        self.check_open()
        self._look_for_partitions()
        first = self._consumer.poll(timeout_s)
        found = [] if first is None else [first]
        if first is not None and count_max > 1:
            found += self._consumer.consume(count_max - 1, 0)
        return [make(each, self._decode) for each in found if not self._is_error(each)]

    def _is_error(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.name() not in _BY_ITSELF and not error.retriable():
            raise as_client_error(error, message.topic() or "", message.partition())
        return True

    def commit(self, topic: str, offset: int, partition: int, timeout_s: float | None) -> None:
        self.check_open()
        with self.admin(timeout_s) as admin:
            admin.groups.commit(self._group(), {TopicPartition(topic, partition): Offset(offset)})

    def committed(self, topic: str, partition: int, timeout_s: float | None) -> int | None:
        self.check_open()
        with self.admin(timeout_s) as admin:
            found = admin.groups.offsets(self._group()).get(TopicPartition(topic, partition))
        return None if found is None else found.offset

    def _group(self) -> str:
        if self.group is None:
            raise ValueError("the offset has no group to be kept under: give the consumer a group name")
        return self.group

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._consumer.close()
            # The threads of librdkafka end with its object.
            del self._consumer


def _check_choice(start: Start | None, offset: Offsets | None, time: Time | None) -> None:
    if sum(choice is not None for choice in (start, offset, time)) > 1:
        raise ValueError("start, offset and time exclude each other")
    if start not in (None, "earliest", "latest"):
        raise ValueError(f"start is {start!r}, and must be 'earliest' or 'latest'")


__all__ = ["Offsets", "ReadMessage", "Reader", "Start", "Time", "time_ms"]
