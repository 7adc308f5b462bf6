"""Sending messages with confluent-kafka: the part that the blocking and the asyncio producer share.

librdkafka batches, compresses, retries and follows leaders. It reports each delivery by a callback, from a thread that
calls `poll`: the sender has one, which ends with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Literal, TypeAlias, TypedDict

from drmq.client.codecs import CodecName, Encoding, encoder_of
from drmq.client.errors import ClientError, Closed, DeadlineExceeded
from drmq.client.librdkafka import as_client_error, checked_properties, is_c_text, quiet_logger
from drmq.client.messages import SendResult
from drmq.model import ErrorCode
from drmq.telemetry import tracing

HeadersToSend: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]

TIMEOUT_S = 30.0
LINGER_S = 0.002
_POLL_S = 0.1
_FULL_WAIT_S = 0.005
_ANY_PARTITION = -1


class ProducerOptions(TypedDict, total=False):
    """The options of a producer that do not change its type."""

    timeout: float
    linger: float
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    client_id: str
    properties: Mapping[str, Any]


def repeatable(headers: HeadersToSend | None) -> HeadersToSend | None:
    """The same headers, which can be gone through again if the queue of the producer is full at first."""
    return headers if headers is None or isinstance(headers, Mapping) else list(headers)


def _checked(headers: Iterable[Any]) -> list[tuple[str, bytes | str | None]]:
    pairs = list(headers)
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError(f"the header {pair!r} must be a pair of a name and a value, such as ('trace', b'1')")
        if not is_c_text(pair[0]):
            raise ClientError(f"The header {pair[0]!r} cannot be sent: its name is not UTF-8, or has a NUL")
    return pairs


class Sender:
    """A producer and its thread. Its methods may be called from any thread."""

    def __init__(self, bootstrap: str, codec: CodecName | Encoding[Any], options: ProducerOptions) -> None:
        from confluent_kafka import KafkaException, Producer

        self.timeout_s = options.get("timeout", TIMEOUT_S)
        self._encode = encoder_of(codec)
        chosen: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": options.get("client_id", "drmq"),
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "linger.ms": options.get("linger", LINGER_S) * 1000,
            "compression.type": options.get("compression", "none"),
            "message.timeout.ms": max(1, int(self.timeout_s * 1000)),
            "logger": quiet_logger(),
        }
        try:
            self._producer: Any = Producer(checked_properties(chosen | dict(options.get("properties", {}))))
        except KafkaException as error:
            raise ClientError(f"The producer cannot be created: {error.args[0].str()}") from None
        self._is_closed = False
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="drmq-producer", daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stops.is_set():
            self._producer.poll(_POLL_S)

    def offer(
        self,
        topic: str,
        value: Any,
        key: bytes | str | None,
        headers: HeadersToSend | None,
        partition: int | None,
        timestamp: int | None,
    ) -> Future[SendResult] | None:
        """The future result of a message; None if the queue of the producer is full. Raises `ClientError`."""
        result: Future[SendResult] = Future()
        is_taken = self.offer_to(_completes(result, topic), topic, value, key, headers, partition, timestamp)
        return result if is_taken else None

    def offer_to(
        self,
        on_delivery: Callable[[Any, Any], None],
        topic: str,
        value: Any,
        key: bytes | str | None,
        headers: HeadersToSend | None,
        partition: int | None,
        timestamp: int | None,
    ) -> bool:
        """The same, for a callback that gets librdkafka's error and message, on the thread of the producer."""
        if self._is_closed:
            raise Closed("The producer is closed")
        data = self._bytes_of(value)
        optional: dict[str, Any] = {}
        if headers is not None:
            optional["headers"] = _checked(headers.items() if isinstance(headers, Mapping) else headers)
        span = _traced(topic, partition, optional) if tracing.is_loaded() else None
        if timestamp is not None:
            optional["timestamp"] = timestamp
        try:
            self._producer.produce(
                topic,
                data,
                key,
                _ANY_PARTITION if partition is None else partition,
                on_delivery=on_delivery if span is None else _ends(span, on_delivery),
                **optional,
            )
        except BufferError:
            return False
        except ValueError as error:  # text that is not UTF-8, or a topic with a NUL
            if span is not None:
                span.end(str(error))
            raise ClientError(f"A message for topic {topic!r} cannot be sent: {error}") from None
        except Exception as error:
            from confluent_kafka import KafkaException

            if isinstance(error, KafkaException):
                if span is not None:
                    span.end(error.args[0].str())
                raise as_client_error(error.args[0], topic, partition) from None
            raise
        return True

    def _bytes_of(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self._encode is not None:
            return self._encode(value)
        if not isinstance(value, bytes):
            raise TypeError(
                f"the value is {type(value).__name__}, and must be bytes; or choose a codec, as `codec='json'`"
            )
        return value

    def submit(self, *message: Any) -> Future[SendResult]:
        """The same, but waits while the queue is full. Raises `DeadlineExceeded`."""
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            result = self.offer(*message)
            if result is not None:
                return result
            if time.monotonic() > deadline_s:
                raise self.too_late("waiting for room in the queue of the producer", self.timeout_s)
            time.sleep(_FULL_WAIT_S)

    def flush(self, timeout_s: float) -> None:
        """Wait until every message so far is delivered or has failed. Raises `DeadlineExceeded`."""
        if self._is_closed:
            raise Closed("The producer is closed")
        left = self._producer.flush(timeout_s)
        if left:
            raise self.too_late(f"flushing; {left} messages are not confirmed", timeout_s)

    def close(self, timeout_s: float) -> None:
        """Flush, and end the thread. What cannot be delivered in time fails. Raises `DeadlineExceeded`."""
        if self._is_closed:
            return
        self._is_closed = True
        left = self._producer.flush(timeout_s)
        if left:
            self._producer.purge()
        self._stops.set()
        self._thread.join()
        # The failures of what was purged.
        self._producer.poll(0)
        # The threads of librdkafka end with its object.
        del self._producer
        if left:
            raise self.too_late(f"closing; {left} messages may not be delivered", timeout_s)

    def too_late(self, doing: str, timeout_s: float) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"Not done within {timeout_s:g} s while {doing}",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
            advice="Can the cluster be reached, and do its partitions have leaders? `drmq status` says so.",
        )


def _traced(topic: str, partition: int | None, optional: dict[str, Any]) -> tracing.Span | None:
    """Begin a span for a record, and put its trace into the headers, unless the caller has put one there."""
    headers = optional.get("headers", ())
    if any(name == tracing.HEADER for name, _ in headers):
        return None
    span = tracing.begin_sending(topic, partition)
    parent = tracing.current() if span is None else span.parent
    if parent is not None:
        optional["headers"] = [*headers, (tracing.HEADER, str(parent).encode())]
    return span


def _ends(span: tracing.Span, on_delivery: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The callback, which also ends the span of its record."""

    def end(error: Any, message: Any) -> None:
        if error is None:
            span.note("messaging.destination.partition.id", str(message.partition()))
            span.note("messaging.kafka.offset", message.offset())
        span.end(None if error is None else error.str())
        on_delivery(error, message)

    return end


def _completes(result: Future[SendResult], topic: str) -> Callable[[Any, Any], None]:
    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failure = delivery_error(error, message, topic)
            if result.set_running_or_notify_cancel():
                result.set_exception(failure)
        elif result.set_running_or_notify_cancel():
            result.set_result(SendResult(topic, message.partition(), message.offset(), message.timestamp()[1]))

    return on_delivery


def delivery_error(error: Any, message: Any, topic: str) -> ClientError:
    """Why a message was not delivered, from what librdkafka reports."""
    partition = message.partition() if message is not None else None
    return as_client_error(error, topic, partition if partition and partition >= 0 else None)
