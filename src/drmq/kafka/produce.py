"""Produce (0): batches in, offsets out, once they are as safe as the producer asked.

The hot path. A request costs its parse, a checksum per batch and a few Python objects; no record is
looked at. It is carried out the moment it arrives, so batches of one connection keep their order,
and answered by a callback when the writer thread reports: no task, no thread per request.

Odd rules: acks=0 gets no answer at all, and an error there closes the connection, the only way to
tell such a client anything. Versions 0 to 2 are advertised because old librdkafka compresses only
if it sees them, and are refused in their own layout if someone does send one. Unsupported codecs are
per version: zstd exists from v7 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drmq.broker import Appended, Broker, Partition
from drmq.kafka.leader_hints import MISDIRECTED, is_being_elected, with_hints
from drmq.kafka.retired_produce import refuse
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.records import Codec
from drmq.wire import ProtocolError, RequestHeader
from drmq.wire.produce import ProducePartition, ProduceResult, read_produce, write_produce_response

if TYPE_CHECKING:
    from drmq.kafka.server import KafkaServer
    from drmq.transport import Answer, Connection

_VERSION_MAX = 13
_TOPIC_ID_FROM = 13
_ZSTD_FROM = 7
_HINTS_FROM = 10
_ELECTION_AWAITED_MS = 200
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07

_ACKS_NONE, _ACKS_LEADER, _ACKS_ALL = 0, 1, -1


class PendingProduce:
    """One request whose batches are on their way to the disk."""

    __slots__ = ("_answer", "_broker", "_correlation_id", "_is_misdirected", "_left", "_results", "_version")

    def __init__(
        self, broker: Broker, answer: Answer, version: int, correlation_id: int, results: list[ProduceResult]
    ) -> None:
        self._broker = broker
        self._answer = answer
        self._version = version
        self._correlation_id = correlation_id
        self._results = results
        self._left = 1
        """Batches whose fate is open, and one for the request itself while it is being carried out."""
        self._is_misdirected = False
        """Whether another node leads one of the partitions."""

    def wait_for(self, partition: Partition, appended: Appended, index: int, acks: int) -> None:
        self._left += 1
        if acks == _ACKS_ALL:
            partition.when_durable(appended.next_offset, lambda error: self.done(index, error))
        else:
            partition.when_written(appended.next_offset, lambda error: self.done(index, error))

    def done(self, index: int, error: ErrorCode) -> None:
        """One batch is safe, or never will be; after the last one, answer."""
        if error is not ErrorCode.NONE:
            failed = self._results[index]
            self._results[index] = ProduceResult(failed.topic, failed.partition, error)
            self.note(error)
        self.finish_one()

    def note(self, error: ErrorCode) -> None:
        """One of the results is this error."""
        if error in MISDIRECTED and self._version >= _HINTS_FROM:
            self._is_misdirected = True

    def finish_one(self) -> None:
        self._left -= 1
        if self._left:
            return
        if self._is_misdirected:
            self._redirect(self._broker.clock.monotonic_ms() + _ELECTION_AWAITED_MS)
        else:
            self._answer.send((write_produce_response(self._version, self._correlation_id, self._results),))

    def _redirect(self, until_ms: int) -> None:
        """Answer with the leaders' names. A leader that is handing over, or has just gone, is followed by the next
        within moments: a client that is told right away would only come back here, and be slower each time.
        """
        broker = self._broker
        left_ms = until_ms - broker.clock.monotonic_ms()
        if left_ms > 0 and is_being_elected(broker, self._results):
            broker.host.call_at_news(left_ms / 1000, lambda: self._redirect(until_ms))
            return
        results, endpoints = with_hints(broker, self._results)
        answer = write_produce_response(self._version, self._correlation_id, results, node_endpoints=endpoints)
        self._answer.send((answer,))


def handle(server: KafkaServer, connection: Connection, header: RequestHeader, frame: memoryview) -> None:
    """Carry out a Produce request and see to its answer."""
    version = header.api_version
    if version < 3:
        refusal = refuse(frame, header)
        if refusal is not None:
            connection.open_answer().send((refusal,))
        return
    if version > _VERSION_MAX:
        raise ProtocolError(f"Produce v{version} is not served, v3 to v{_VERSION_MAX} are")
    data = read_produce(frame, header.body_position, version)
    results: list[ProduceResult] = []
    if data.acks == _ACKS_NONE:
        for entry in data.partitions:
            try:
                _append(server, entry, version, _ACKS_NONE)
            except ApiError as error:
                connection.close(f"acks=0 to {entry.topic!r}-{entry.partition}: {error.code.name}: {error.message}")
                return
        return
    pending = PendingProduce(server.broker, connection.open_answer(), version, header.correlation_id, results)
    if data.acks not in (_ACKS_LEADER, _ACKS_ALL):
        for entry in data.partitions:
            results.append(ProduceResult(entry.topic, entry.partition, ErrorCode.INVALID_REQUIRED_ACKS))
    else:
        for index, entry in enumerate(data.partitions):
            try:
                partition, appended = _append(server, entry, version, data.acks)
            except ApiError as error:
                results.append(ProduceResult(entry.topic, entry.partition, error.code, error_message=error.message))
                pending.note(error.code)
                continue
            results.append(
                ProduceResult(
                    entry.topic,
                    entry.partition,
                    0,
                    appended.base_offset,
                    appended.append_time_ms,
                    partition.start_offset,
                )
            )
            pending.wait_for(partition, appended, index, data.acks)
    pending.finish_one()


def _append(server: KafkaServer, entry: ProducePartition, version: int, acks: int) -> tuple[Partition, Appended]:
    topic, index, records = entry
    table = server.broker.partitions
    if version >= _TOPIC_ID_FROM:
        partition = table.by_id(TopicId(topic), index)  # type: ignore[arg-type]  # an id from this version on
    else:
        partition = table.by_name(topic, index)  # type: ignore[arg-type]  # a name up to this version
    if not records:
        raise ApiError(ErrorCode.INVALID_RECORD, "there is no batch for this partition")
    if version < _ZSTD_FROM and _codec(records) == Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")
    now_ms = server.broker.clock.wall_ms()
    return partition, partition.append(records, now_ms, wants_written=acks == _ACKS_LEADER, wants_all=acks == _ACKS_ALL)


def _codec(records: memoryview) -> int:
    """The codec in a batch's attributes, before anything has vouched for the batch."""
    return records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK if len(records) > _ATTRIBUTES_LOW_BYTE else Codec.NONE
