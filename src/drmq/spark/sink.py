"""Writes a DataFrame to topics, at least once.

Each task passes its rows to librdkafka with acks=all and idempotence, and ends when every record is acknowledged. Spark
repeats a failed task, and a micro-batch whose end was not logged: its records are then written twice. No record is ever
missing. Exactly-once writing needs transactions, and will be a second kind of writer: the commit message has room for
what a driver needs to decide.

The columns are those of Spark's Kafka sink: `value`, and optionally `key`, `headers`, `topic` and `partition`. Other
columns are ignored, so that a DataFrame that was read can be written unchanged.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from drmq.model.names import is_topic_name
from drmq.spark.errors import OptionsError, WriteFailed, user_facing
from drmq.spark.options import WriteOptions

CHUNK_ROWS = 2_000
CHUNK_BYTES_MAX = 4 << 20
"""What is converted from Arrow to Python objects, and passed to librdkafka, at once. A single row may be larger."""

OUTSTANDING_ROWS_MAX = 100_000
OUTSTANDING_BYTES_MAX = 32 << 20
"""Unacknowledged records in librdkafka: enough for full batches, and little memory compared to a worker."""

_QUEUE_KBYTES_MAX = 1 << 20
_TEXT_OR_BYTES = ("string", "binary")
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass
class Written(WriterCommitMessage):
    """What a task has written."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: appends to topics."""

    def __init__(self, options: WriteOptions, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise OptionsError(['A topic cannot be overwritten. Use `.mode("append")`, or delete the topic first.'])
        self._columns = check_columns(schema, options)
        self._options = options

    @user_facing
    def write(self, iterator: Iterator[Any]) -> Written:
        return write_all(iterator, self._columns, self._options)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: appends each micro-batch. Complete mode appends the whole result each time."""

    def __init__(self, options: WriteOptions, schema: Any) -> None:
        self._columns = check_columns(schema, options)
        self._options = options

    @user_facing
    def write(self, iterator: Iterator[Any]) -> Written:
        return write_all(iterator, self._columns, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: every task has waited for its acknowledgements."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: records cannot be removed again."""


def check_columns(schema: Any, options: WriteOptions) -> tuple[str, ...]:
    """The columns of the DataFrame that are written. Raises `OptionsError`."""
    types = {field.name: field.dataType.simpleString() for field in schema}
    problems = []
    if "value" not in types:
        problems.append(
            f"The DataFrame has no column `value`, only {', '.join(types)}. Add one, for example with "
            '`df.selectExpr("to_json(struct(*)) AS value")`.'
        )
    if options.topic is None and "topic" not in types:
        problems.append("There is no topic to write to. Set the option `topic`, or add a column `topic`.")
    allowed = {
        "key": _TEXT_OR_BYTES,
        "value": _TEXT_OR_BYTES,
        "topic": ("string",),
        "partition": ("int",),
        "headers": (_HEADERS,),
    }
    wanted = [name for name in allowed if name in types]
    if options.topic is not None and "topic" in wanted:
        wanted.remove("topic")
    if not options.include_headers and "headers" in wanted:
        wanted.remove("headers")
    for name in wanted:
        if types[name] not in allowed[name]:
            remedy = f"`cast({name} AS {allowed[name][0]})`"
            if types[name].startswith(("struct", "map", "array")) and name in ("key", "value"):
                remedy = f"`to_json({name})`"
            problems.append(
                f"Column `{name}` is {types[name]}, but must be {' or '.join(allowed[name])}. Convert it with {remedy}."
            )
    if problems:
        raise OptionsError(problems)
    return tuple(wanted)


def write_all(batches: Iterator[Any], columns: Sequence[str], options: WriteOptions) -> Written:
    """Send every row and wait until all are acknowledged. Raises `WriteFailed`."""
    sender = _sender(options)
    try:
        return Written(sender.send(batches, columns, options.topic))
    except BaseException:
        # The records that it still holds belong to a failed attempt.
        _senders.clear()
        sender.discard()
        raise


def _silence_ms_max(timeout_s: float) -> int:
    """How long a broker may leave a request unanswered: a quarter of the timeout, between a second and a minute."""
    return min(60_000, max(1_000, int(timeout_s * 250)))


_senders: dict[tuple[object, ...], _Sender] = {}
"""By process and settings: a worker runs many micro-batches, and a new producer for each would request metadata and a
producer id each time."""


def _sender(options: WriteOptions) -> _Sender:
    key = (os.getpid(), options.bootstrap, options.client_id, options.timeout_s, *sorted(options.settings.items()))
    if key not in _senders:
        _senders.clear()
        _senders[key] = _Sender(options)
    return _senders[key]


class _Sender:
    """A producer with a bounded queue that is notified of failures only. Owned by one thread."""

    def __init__(self, options: WriteOptions) -> None:
        from confluent_kafka import KafkaException, Producer

        self._timeout_s = options.timeout_s
        self._bootstrap = options.bootstrap
        self._failures: list[str] = []
        self._first_advice = ""
        self._outstanding: deque[tuple[int, int]] = deque()
        """Rows and bytes of the chunks that were sent last, oldest first."""
        settings: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "compression.type": "lz4",
            "message.timeout.ms": int(options.timeout_s * 1000),
            # A frozen or partitioned leader must leave time to send to its successor. librdkafka's default of a minute
            # is as long as the whole delivery may take.
            "socket.timeout.ms": _silence_ms_max(options.timeout_s),
            # As in Kafka's own clients; librdkafka's default uses another hash of the key.
            "partitioner": "murmur2_random",
            **options.settings,
            "bootstrap.servers": options.bootstrap,
            "client.id": options.client_id,
            "queue.buffering.max.messages": 2 * OUTSTANDING_ROWS_MAX,
            "queue.buffering.max.kbytes": _QUEUE_KBYTES_MAX,
            # A Python callback for each record would cost more than sending it.
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
            "logger": _silent_logger(),
        }
        try:
            self._producer = Producer(settings)
        except (KafkaException, TypeError, ValueError, AttributeError) as error:
            # Settings that must be functions or mappings in Python are strings here, and fail in many ways.
            raise OptionsError(
                [f"librdkafka rejects a setting `kafka.*`: {_text(error)}. Correct it, or leave it out."]
            ) from None

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            topic, partition = message.topic(), message.partition()
            self._failures.append(f"{_place(topic, partition)}: {error.str()} ({error.name()})")
            self._first_advice = self._first_advice or _advice(error.code(), topic, partition, self._bootstrap)

    def send(self, batches: Iterator[Any], columns: Sequence[str], topic: str | None) -> int:
        """Send all rows. Returns the number of records, all acknowledged."""
        self._failures.clear()
        self._first_advice = ""
        count = 0
        for batch in batches:
            for chunk in _chunks(batch):
                self._make_room(chunk.num_rows, chunk.nbytes)
                self._send_chunk(chunk, columns, topic)
                count += chunk.num_rows
        left = self._producer.flush(self._timeout_s + 5)
        self._outstanding.clear()
        if left:
            self._failures.append(f"{left} records without a response")
        self._check()
        return count

    def discard(self) -> None:
        """Drop records that are not sent yet."""
        self._producer.purge()
        self._producer.flush(1)

    def _check(self) -> None:
        if self._failures:
            raise WriteFailed(
                f"{len(self._failures)} records were not written within {self._timeout_s:g} s; the first: "
                f"{self._failures[0]}. {self._first_advice or _advice(None, '', None, self._bootstrap)}"
            )

    def _make_room(self, rows: int, size: int) -> None:
        """Wait until the queue has room for another chunk."""
        deadline = time.monotonic() + self._timeout_s + 5
        while True:
            self._producer.poll(0)
            self._check()
            held = len(self._producer)
            while self._outstanding and sum(rows for rows, _ in self._outstanding) - self._outstanding[0][0] >= held:
                self._outstanding.popleft()
            held_bytes = sum(size for _, size in self._outstanding)
            if held + rows <= OUTSTANDING_ROWS_MAX and (held_bytes + size <= OUTSTANDING_BYTES_MAX or held == 0):
                self._outstanding.append((rows, size))
                return
            if time.monotonic() > deadline:
                self._failures.append("the producer's queue stays full")
            self._producer.poll(0.01)

    def _send_chunk(self, chunk: Any, columns: Sequence[str], topic: str | None) -> None:
        found: Mapping[str, list[Any]] = {name: chunk.column(name).to_pylist() for name in columns}
        topics = found.get("topic")
        for partition in found.get("partition", ()):
            if partition is not None and partition < 0:
                raise WriteFailed(
                    f"A row has {partition} in the column `partition`. Use null to choose the partition by key, or a "
                    "number from 0."
                )
        for headers in found.get("headers", ()):
            if headers and any(header is None or header["key"] is None for header in headers):
                raise WriteFailed(
                    "A row has a header without a name in the column `headers`, which Kafka does not allow. Give it a "
                    "name, or leave it out."
                )
            if headers and any("\0" in header["key"] for header in headers):
                raise WriteFailed(
                    "A row has a NUL in the name of a header in the column `headers`. librdkafka would cut the name "
                    "off there. Remove it."
                )
        if topics is not None and None in topics:
            raise WriteFailed(
                "A row has a null in the column `topic`, and the option `topic` is not set, so there is no topic to "
                "write it to. Filter out such rows, or set the option."
            )
        self._send_rows(found, chunk.num_rows, topic)

    def _send_rows(self, found: Mapping[str, list[Any]], count: int, topic: str | None) -> None:
        # Not `produce_batch`: it is not faster, does not support headers, and ignores the partition of a record.
        nothing = [None] * count
        rows = zip(
            found.get("topic", nothing),
            found["value"],
            found.get("key", nothing),
            found.get("partition", nothing),
            found.get("headers", nothing),
            strict=True,
        )
        from confluent_kafka import KafkaException

        produce = self._producer.produce
        for row_topic, value, key, partition, headers in rows:
            where = topic or row_topic
            try:
                produce(
                    where,
                    value,
                    key,
                    partition=-1 if partition is None else partition,
                    headers=[(header["key"], header["value"]) for header in headers] if headers else None,
                )
            except KafkaException as error:
                code = error.args[0].code() if error.args and hasattr(error.args[0], "code") else None
                raise WriteFailed(
                    f"A record for {_place(where, partition)} was refused: {_text(error)}. "
                    + _advice(code, where, partition, self._bootstrap)
                ) from None


def _chunks(batch: Any) -> Iterator[Any]:
    """The rows of a batch in order, in pieces that are limited in rows and bytes; larger pieces are halved."""
    if batch.num_rows > CHUNK_ROWS:
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            yield from _chunks(batch.slice(start, CHUNK_ROWS))
    elif batch.num_rows > 1 and batch.nbytes > CHUNK_BYTES_MAX:
        middle = batch.num_rows // 2
        yield from _chunks(batch.slice(0, middle))
        yield from _chunks(batch.slice(middle))
    elif batch.num_rows:
        yield batch


def _advice(code: int | None, topic: str, partition: int | None, bootstrap: str) -> str:
    """What to do about a record that was not written, by the code of librdkafka's error."""
    from confluent_kafka import KafkaError

    if code == KafkaError._UNKNOWN_PARTITION and partition is not None:
        return (
            f"`drmq topic describe {topic}` lists its partitions. Use null in the column `partition` to choose the "
            "partition by key."
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return (
            "To allow larger records, raise `kafka.message.max.bytes` (1000000 if it is not set) and the setting "
            "`max.message.bytes` of the topic."
        )
    # For a bad name librdkafka reports the broker's refusal or, if that arrived while `produce` ran, an unknown topic.
    if code == KafkaError.TOPIC_EXCEPTION or (code == KafkaError._UNKNOWN_TOPIC and not is_topic_name(topic)):
        return "Topic names consist of letters, digits, `.`, `_` and `-`."
    return (
        f"Is there a broker at {bootstrap}, and does the topic exist? Check with `drmq status` and `drmq topic ls`, "
        "or use a longer `timeoutMs`. Spark retries the task, so records may be written twice."
    )


def _place(topic: str, partition: int | None) -> str:
    return f"`{topic}`" if partition is None or partition < 0 else f"partition {partition} of `{topic}`"


def _text(error: Any) -> str:
    """The message of librdkafka's error, which may be wrapped in an exception."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return f"{inner.str()} ({inner.name()})" if hasattr(inner, "str") else str(inner)


def _silent_logger() -> Any:
    """librdkafka logs lost connections to standard error, which is Spark's log; we report failed records instead."""
    import logging

    logger = logging.getLogger("drmq.spark.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
