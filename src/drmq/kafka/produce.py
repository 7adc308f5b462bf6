"""Produce (0): append batches and answer with their offsets, once they are as safe as the producer requested.

The hot path. A request costs its parsing, a checksum per batch and a few Python objects; records are not decoded. Its
batches are appended as soon as it arrives, so the batches of a connection keep their order. The answer is sent by a
callback when the writer thread reports: there is no task and no thread per request.

Special rules: a request with acks=0 gets no answer, and an error closes the connection, because that is the only way to
signal an error to such a client. Versions 0 to 2 are advertised because old versions of librdkafka compress only if
they are; if a client sends one, it is refused in the layout of that version. Which codecs are supported depends on the
version: zstd exists from v7 on.

A batch for a topic that requires another codec is appended later (`services.recompression`). Its result is filled in
then, and the answer waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from drmq.broker import Appended, Broker, Partition
from drmq.broker.services.appends import ACKS_ALL, ACKS_LEADER, ACKS_NONE, Appends
from drmq.broker.services.gate import Permission
from drmq.broker.services.reads import MISDIRECTED
from drmq.kafka.exchange import Exchange
from drmq.kafka.leader_hints import is_being_elected, with_hints
from drmq.kafka.permissions import RULES
from drmq.kafka.retired_produce import refuse
from drmq.model import ApiError, ErrorCode
from drmq.records import Codec
from drmq.telemetry.tracing import Span
from drmq.transport import Pause
from drmq.wire import ApiKey, ProtocolError, RequestHeader
from drmq.wire.produce import ProduceData, ProducePartition, ProduceResult, read_produce, write_produce_response
from drmq.wire.topics import Topic

if TYPE_CHECKING:
    from drmq.transport import Answer, Connection

_VERSION_MAX = 13
_VERSION_MIN = 3
_ZSTD_FROM = 7
_HINTS_FROM = 10
_ELECTION_AWAITED_MS = 200
_ATTRIBUTES_LOW_BYTE = 22
_CODEC_MASK = 0x07
_RULE = RULES[ApiKey.PRODUCE]


class PendingProduce:
    """One request whose batches have been appended and are not yet safe."""

    __slots__ = (
        "_answer",
        "_broker",
        "_correlation_id",
        "_is_misdirected",
        "_left",
        "_results",
        "_throttle_ms",
        "_version",
    )

    def __init__(self, broker: Broker, answer: Answer, exchange: Exchange, results: list[ProduceResult]) -> None:
        self._broker = broker
        self._answer = answer
        self._version = exchange.header.api_version
        self._correlation_id = exchange.header.correlation_id
        self._throttle_ms = exchange.throttle_ms
        self._results = results
        self._left = 1
        """Batches whose outcome is not known yet, plus one while the request itself is being carried out."""
        self._is_misdirected = False
        """Whether another node leads one of the partitions."""

    def wait_for(self, appends: Appends, partition: Partition, appended: Appended, index: int, acks: int) -> None:
        self._left += 1
        appends.when_safe(partition, appended, acks, lambda error: self.done(index, error))

    def recompress(self, appends: Appends, partition: Partition, entry: ProducePartition, acks: int, by: str) -> None:
        """Have a batch recompressed and appended, for the client at the address `by`."""
        topic, number, records = entry
        assert records is not None
        index = len(self._results)

        def placed(outcome: Appended | ApiError) -> None:
            if isinstance(outcome, ApiError):
                self._results[index] = ProduceResult(topic, number, outcome.code, error_message=outcome.message)
                self.note(outcome.code)
                self.finish_one()
            else:
                self._results[index] = ProduceResult(
                    topic, number, 0, outcome.base_offset, outcome.append_time_ms, partition.start_offset
                )
                appends.when_safe(partition, outcome, acks, lambda error: self.done(index, error))

        appends.recompress(partition, records, acks, by, placed)
        self._left += 1
        self._results.append(ProduceResult(topic, number, ErrorCode.NONE))

    def done(self, index: int, error: ErrorCode) -> None:
        """Note that one batch is safe, or has failed for good; after the last batch, send the answer."""
        if error is not ErrorCode.NONE:
            failed = self._results[index]
            self._results[index] = ProduceResult(failed.topic, failed.partition, error)
            self.note(error)
        self.finish_one()

    def note(self, error: ErrorCode) -> None:
        """Note that one of the results has this error."""
        if error in MISDIRECTED and self._version >= _HINTS_FROM:
            self._is_misdirected = True

    def finish_one(self) -> None:
        self._left -= 1
        if self._left:
            return
        if self._is_misdirected:
            self._redirect(self._broker.clock.monotonic_ms() + _ELECTION_AWAITED_MS)
        else:
            self._answer.send(
                (
                    write_produce_response(
                        self._version, self._correlation_id, self._results, throttle_time_ms=self._throttle_ms
                    ),
                )
            )

    def _redirect(self, until_ms: int) -> None:
        """Send the answer with leader hints, once a running election has ended or at `until_ms`.

        While an election is running there is no leader to name. An answer without one would make the client retry on
        this node, with a longer backoff each time, although most elections end within moments.
        """
        broker, cluster = self._broker, self._broker.services.cluster
        left_ms = until_ms - broker.clock.monotonic_ms()
        if left_ms > 0 and is_being_elected(cluster, self._results):
            broker.host.call_at_news(left_ms / 1000, lambda: self._redirect(until_ms))
            return
        results, endpoints = with_hints(cluster, self._results)
        answer = write_produce_response(
            self._version,
            self._correlation_id,
            results,
            throttle_time_ms=self._throttle_ms,
            node_endpoints=endpoints,
        )
        self._answer.send((answer,))


def parse(frame: memoryview, header: RequestHeader) -> ProduceData | None:
    """Parse the batches and their partitions; None for a retired version, which is always refused."""
    version = header.api_version
    if version < _VERSION_MIN:
        return None
    if version > _VERSION_MAX:
        raise ProtocolError(f"Produce v{version} is not supported, only v{_VERSION_MIN} to v{_VERSION_MAX}")
    return read_produce(frame, header.body_position, version)


def needs(exchange: Exchange) -> Iterable[Permission]:
    """The permissions that a request needs: to write to each of its topics."""
    data: ProduceData | None = exchange.request
    return () if data is None else _RULE.needs(exchange.server.broker.services.cluster, data)


def handle(exchange: Exchange, refused: frozenset[Permission]) -> None:
    """Carry out a Produce request, and send its answer now or when its batches are safe."""
    server, connection, header = exchange.server, exchange.connection, exchange.header
    assert connection is not None
    data: ProduceData | None = exchange.request
    if data is None:
        refusal = refuse(exchange.frame, header)
        if refusal is not None:
            connection.open_answer().send((refusal,))
        return
    version, appends = header.api_version, server.broker.services.appends
    refused_topics = _refused_topics(exchange, data, refused) if refused else ()
    results: list[ProduceResult] = []
    if data.acks == ACKS_NONE:
        _append_unanswered(exchange, data, refused_topics)
        return
    pending = PendingProduce(server.broker, connection.open_answer(), exchange, results)
    traces = server.traces
    if data.acks not in (ACKS_LEADER, ACKS_ALL):
        for entry in data.partitions:
            results.append(ProduceResult(entry.topic, entry.partition, ErrorCode.INVALID_REQUIRED_ACKS))
    else:
        for index, entry in enumerate(data.partitions):
            spans: Sequence[Span] = ()
            try:
                if refused_topics or version < _ZSTD_FROM:
                    _check(entry, version, refused_topics)
                partition = appends.find(entry.topic, entry.partition)
                if partition.config.compression is not None and appends.must_recompress(partition, entry.records):
                    pending.recompress(appends, partition, entry, data.acks, exchange.caller.address)
                    _slow_down(connection, appends)
                    continue
                if traces is not None:
                    spans = traces.begin(partition, entry.records, f"{connection.peer}/{header.correlation_id}")
                appended = appends.append(partition, entry.records, data.acks)
            except ApiError as error:
                if spans and traces is not None:
                    traces.end(spans, -1, error.code)
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
            if spans and traces is not None:
                appends.when_safe(partition, appended, data.acks, partial(traces.end, spans, appended.base_offset))
            pending.wait_for(appends, partition, appended, index, data.acks)
    pending.finish_one()


def refuse_all(exchange: Exchange, refused: ApiError) -> None:
    """Answer a request that is refused as a whole."""
    connection, header = exchange.connection, exchange.header
    assert connection is not None
    data: ProduceData | None = exchange.request
    if data is None or data.acks == ACKS_NONE:
        connection.close(f"Produce: {refused.code.name}: {refused.message}")
        return
    results = [
        ProduceResult(entry.topic, entry.partition, refused.code, error_message=refused.message)
        for entry in data.partitions
    ]
    connection.open_answer().send((write_produce_response(header.api_version, header.correlation_id, results),))


def _refused_topics(exchange: Exchange, data: ProduceData, refused: frozenset[Permission]) -> set[Topic]:
    cluster = exchange.server.broker.services.cluster
    return {entry.topic for entry in data.partitions if _RULE.each(cluster, entry) in refused}


def _append_unanswered(exchange: Exchange, data: ProduceData, refused: Collection[Topic]) -> None:
    """Append the batches of a request with acks=0."""
    connection, appends = exchange.connection, exchange.server.broker.services.appends
    assert connection is not None
    for entry in data.partitions:
        try:
            _check(entry, exchange.header.api_version, refused)
            partition = appends.find(entry.topic, entry.partition)
            if appends.must_recompress(partition, entry.records):
                assert entry.records is not None
                told = partial(_close_if_refused, connection, entry)
                appends.recompress(partition, entry.records, ACKS_NONE, exchange.caller.address, told)
                _slow_down(connection, appends)
            else:
                appends.append(partition, entry.records, ACKS_NONE)
        except ApiError as refusal:
            _close_if_refused(connection, entry, refusal)
            return


def _close_if_refused(connection: Connection, entry: ProducePartition, outcome: Appended | ApiError) -> None:
    if isinstance(outcome, ApiError):
        connection.close(f"acks=0 to {entry.topic!r}-{entry.partition}: {outcome.code.name}: {outcome.message}")


def _slow_down(connection: Connection, appends: Appends) -> None:
    """Stop reading from a producer while too many bytes wait to be recompressed. Other producers are not affected."""
    if appends.recompression.is_full:
        connection.pause(Pause.RECOMPRESSION)
        appends.recompression.when_room(partial(connection.resume, Pause.RECOMPRESSION))


def _check(entry: ProducePartition, version: int, refused: Collection[Topic]) -> None:
    """Raise `ApiError` for a topic that the client may not write to, and for zstd in a version that has none."""
    topic, _, records = entry
    if refused and topic in refused:
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the client has no permission to write to this topic")
    if version < _ZSTD_FROM and records and _codec(records) == Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")


def _codec(records: memoryview) -> int:
    """The codec in a batch's attributes. The batch has not been validated yet."""
    return records[_ATTRIBUTES_LOW_BYTE] & _CODEC_MASK if len(records) > _ATTRIBUTES_LOW_BYTE else Codec.NONE
