"""`drmq produce`: sends records from a file or from standard input, one per line.

A record that is too large is reported and left out; the others are sent. The broker decides what is too large, by the
topic's `max.message.bytes`: librdkafka's own limit is raised, and its batches are kept below the topic's limit, so that
a record is never refused because of its neighbours. Any other failure ends the command.

Keys choose the partition as they do in Kafka's own clients (murmur2), not by librdkafka's default (CRC-32). The same
key is then in the same partition, whichever client sends it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from drmq.model import ErrorCode
from drmq.server.cli.completion import topic_names
from drmq.server.cli.endings import Signals, Terminated
from drmq.server.cli.options import INT32_MAX, ClusterChoice, bootstrap_option, key_values, output_option
from drmq.server.cli.output import Column, Output, plural, size_text
from drmq.server.cli.record_text import BadRecord, NewRecord, from_json, from_text, unescape

if TYPE_CHECKING:
    from drmq.client import Admin, ClientError, LogDir
    from drmq.model import TopicPartition
    from drmq.server.cli.progress import Progress


_DELIVERY_TIMEOUT_S_MIN = 30.0
"""The timeout of a record also runs while it is queued in the client behind a hundred thousand others."""

_BATCH_BYTES = 1_000_000
"""librdkafka's default size of a batch."""

_TOO_LARGE = (int(ErrorCode.MESSAGE_TOO_LARGE), int(ErrorCode.RECORD_LIST_TOO_LARGE))
_REFUSED_SHOWN = 10

_PROBES = 5
_PROBE_PAUSE_S = 0.1
"""On a full disk, a partition accepts some appends between failing ones, so a single probe is not enough."""
_OF_A_FULL_DISK = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LEADER_NOT_AVAILABLE)


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "-v", "--value", "values", multiple=True, help="Send this value instead of reading lines; may be repeated."
)
@click.option("-K", "separator", metavar="SEPARATOR", help="The text before SEPARATOR in each line is the key.")
@click.option("--key", help="Key of every record.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record; may be repeated."
)
@click.option("-p", "--partition", type=click.IntRange(0, INT32_MAX), help="Partition of every record.  [by key]")
@click.option(
    "--input",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help='text: lines are values. json: lines are objects with "value", "key", "headers", "partition", "timestamp_ms".',
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression codec.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Acknowledgement to wait for: a majority of replicas, the leader, or none.",
)
@bootstrap_option
@output_option
def produce(
    topic: str,
    file: Path | None,
    values: tuple[str, ...],
    separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    form: str,
    compression: str,
    acks: str,
    cluster: ClusterChoice,
    output: Output,
) -> None:
    """Send records from a file or from standard input.

    Exits when all records are acknowledged, and prints their partitions and offsets. A key chooses the same partition
    as in Kafka's own clients. A record that is too large for the topic is reported and left out. Exit code 1 if a
    record cannot be sent, or if there is no acknowledgement within --timeout.

    \b
      printf 'alice:coffee\\nbob:tea\\n' | drmq produce orders -K :
      drmq produce orders records.jsonl --input json
    """
    if values and file is not None:
        raise click.UsageError("Give a file or --value, not both.", click.get_current_context())
    if separator is not None and (form == "json" or key is not None):
        raise click.UsageError("-K cannot be combined with --input json or --key.", click.get_current_context())
    try:
        key_separator = unescape(separator) if separator is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-K") from None
    fixed = NewRecord(
        os.fsencode(key) if key is not None else None,
        None,
        [(name, os.fsencode(value)) for name, value in key_values(headers, "--header").items()],
        partition,
    )
    with cluster.admin() as admin:
        # Asked first, because it fails at once and with a reason, where librdkafka would retry for minutes.
        admin.describe_cluster()
        size_max = _size_max(admin, topic)
    from drmq.server.cli.progress import Progress

    total = file.stat().st_size if file is not None else None
    with _lines(file, values) as lines, Progress(f"{topic}", total, is_bytes=True) as progress, Signals():
        sender = _Sender(cluster, topic, compression, acks, size_max, "Value" if values else "Line")
        try:
            for number, line in enumerate(lines, start=1):
                try:
                    record = from_json(line.decode()) if form == "json" else from_text(line, key_separator)
                except (BadRecord, UnicodeDecodeError) as error:
                    sender.flush(progress)
                    raise click.ClickException(
                        f"Line {number} is not a valid record: {error}. "
                        f"Records sent before it: {sender.acknowledged:,}."
                    ) from None
                sender.send(record, fixed, number)
                progress.advance(len(line) + 1)
        except (KeyboardInterrupt, Terminated):
            # What was read is sent, also after `tail -f file | drmq produce` and Ctrl-C; a second signal kills.
            sender.flush(progress)
            click.echo(f"Sent {plural(sender.acknowledged, 'record')} to `{topic}`.", err=True)
            raise
        sender.flush(progress)
    _report(sender, topic, output)
    if sender.refused:
        raise click.exceptions.Exit(1)


def _size_max(admin: Admin, topic: str) -> int | None:
    """The topic's `max.message.bytes`; None if the topic does not exist yet, or the broker does not tell."""
    from drmq.client import ClientError

    try:
        found = {entry.name: entry.value for entry in admin.configs.of_topic(topic)}
        return int(found["max.message.bytes"] or "")
    except (ClientError, KeyError, ValueError):
        return None


@contextmanager
def _lines(file: Path | None, values: tuple[str, ...]) -> Iterator[Iterator[bytes]]:
    """The lines to send, without line ends."""
    if values:
        yield (os.fsencode(value) for value in values)
        return
    if file is not None:
        with file.open("rb") as opened:
            yield _without_ends(opened)
        return
    if sys.stdin.isatty():
        click.echo("Enter one record per line; Ctrl-D ends the input.", err=True)
    yield _without_ends(sys.stdin.buffer)


def _without_ends(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line[:-1] if line.endswith(b"\n") else line


class _Sender:
    """A producer that records where its records were stored, leaves out those that are too large, and stops at any
    other failure."""

    def __init__(
        self, cluster: ClusterChoice, topic: str, compression: str, acks: str, size_max: int | None, unit: str
    ) -> None:
        from confluent_kafka import Producer

        from drmq.server.cli.kafka_client import MESSAGE_BYTES_MAX, open_client

        self._topic = topic
        self._cluster = cluster
        self._size_max = size_max
        self._unit = unit
        """What is counted: `Line` or `Value`."""
        self._moved_at = time.monotonic()
        """When a record was last acknowledged, or when the first one was put into an empty queue."""
        self._stuck: set[int | None] = set()
        given = cluster.properties
        acks = given.get("acks") or given.get("request.required.acks") or acks
        self._producer: Any = open_client(
            Producer,
            cluster,
            {
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": acks in ("all", "-1"),
                "message.timeout.ms": int(max(_DELIVERY_TIMEOUT_S_MIN, cluster.timeout_s) * 1000),
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "message.max.bytes": MESSAGE_BYTES_MAX,
                "batch.size": _BATCH_BYTES if size_max is None else max(1, min(_BATCH_BYTES, size_max)),
            },
        )
        self._failure: tuple[Any, int | None] | None = None
        """The first error, and the partition of its record; None if librdkafka had not chosen one yet."""
        self.acknowledged = 0
        self.refused = 0
        """Records that were too large."""
        self.ranges: dict[int, tuple[int, int, int]] = {}
        """For each partition: the number of records, and the first and last offset (-1 with acks=0)."""

    def send(self, record: NewRecord, fixed: NewRecord, number: int) -> None:
        """Queue the record with this number, or report that it is too large."""
        from confluent_kafka import KafkaError, KafkaException

        from drmq.server.cli.kafka_client import MESSAGE_BYTES_MAX, as_client_error

        partition = record.partition if record.partition is not None else fixed.partition
        options: dict[str, Any] = {} if partition is None else {"partition": partition}
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        if record.headers or fixed.headers:
            options["headers"] = record.headers + fixed.headers
        if not len(self._producer):
            self._moved_at = time.monotonic()
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key if record.key is not None else fixed.key,
                    on_delivery=partial(self._on_delivery, number),
                    **options,
                )
                break
            except BufferError:
                # The client's queue is full: wait for the broker.
                self._producer.poll(0.1)
                self._check()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise as_client_error(error.args[0], self._topic, partition) from None
                limit = self._cluster.properties.get("message.max.bytes", MESSAGE_BYTES_MAX)
                self._refuse(
                    number,
                    len(record.value or b""),
                    f"the client accepts {limit} bytes (message.max.bytes)",
                    "`-X message.max.bytes=N` raises the limit of the client.",
                )
                break
        self._producer.poll(0)
        self._check()

    def _refuse(self, number: int, size: int, limit: str, advice: str) -> None:
        """Report a record that is too large. The first report has the advice, and only some are printed."""
        self.refused += 1
        if self.refused <= _REFUSED_SHOWN:
            advice = f" {advice}" if self.refused == 1 else ""
            click.echo(
                f"error: {self._unit} {number} was not sent: its value has {size:,} bytes, and {limit}.{advice}",
                err=True,
            )

    def _on_delivery(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            if error.code() in _TOO_LARGE:
                allowed = "less" if self._size_max is None else f"{self._size_max} bytes in a batch"
                self._refuse(
                    number,
                    len(message.value() or b""),
                    f"topic `{self._topic}` allows {allowed} (MESSAGE_TOO_LARGE)",
                    f"`drmq topic alter {self._topic} -c max.message.bytes=N` raises the limit.",
                )
                self._moved_at = time.monotonic()
                return
            if error.name() in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
                self._stuck.add(message.partition())
                return
            if self._failure is None:
                self._failure = (error, message.partition())
            return
        self.acknowledged += 1
        self._moved_at = time.monotonic()
        partition, offset = message.partition(), message.offset()
        offset = -1 if offset is None or offset < 0 else offset
        count, first, last = self.ranges.get(partition, (0, offset, offset))
        self.ranges[partition] = (count + 1, min(first, offset), max(last, offset))

    def _check(self) -> None:
        if self._failure is not None:
            from drmq.server.cli.kafka_client import as_client_error

            error, partition = self._failure
            self._give_up()
            raise as_client_error(error, self._topic, None if partition is None or partition < 0 else partition)
        if len(self._producer) and time.monotonic() - self._moved_at > self._cluster.timeout_s:
            self._explain_silence()

    def _give_up(self) -> None:
        """Drop the queued records: they would fail in the same way, one timeout after the other."""
        self._producer.purge()
        self._producer.flush(1.0)

    def _explain_silence(self) -> None:
        """Raise the reason why nothing is acknowledged: librdkafka retries without reporting it."""
        from drmq.client import ClientError, DeadlineExceeded

        try:
            found = self._troubles()
        except ClientError as error:
            self._give_up()
            raise self._counted(error) from None
        self._give_up()
        stuck = sorted(index for index in self._stuck if index is not None and index >= 0)
        for place, trouble in sorted(found.items()):
            if not stuck or place.partition in stuck:
                raise self._counted(trouble)
        where = f"partition {stuck[0]} of topic `{self._topic}`" if stuck else f"topic `{self._topic}`"
        raise self._counted(
            DeadlineExceeded(
                f"No record was acknowledged by {where} within {self._cluster.timeout_s:g} s (--timeout)",
                code=ErrorCode.REQUEST_TIMED_OUT,
                advice="Check the broker with `drmq status`, or use a longer --timeout.",
            )
        )

    def _troubles(self) -> dict[TopicPartition, ClientError]:
        """The partitions of the topic that accept no records, each with the reason."""
        from drmq.client import Refused
        from drmq.model import TopicPartition

        with self._cluster.admin() as admin:
            partitions = admin.topics.describe(self._topic).partitions
            places = [TopicPartition(self._topic, partition.index) for partition in partitions]
            found: dict[TopicPartition, ClientError] = {}
            for _ in range(_PROBES):
                found |= admin.probes.writes(places)
                time.sleep(_PROBE_PAUSE_S)
            try:
                full = {disk.broker_id: disk for disk in admin.log_dirs() if disk.is_nearly_full}
            except Refused:
                full = {}
        for place, partition in zip(places, partitions, strict=True):
            known = found.get(place)
            # After each failed write, a partition with one replica has no leader for a moment.
            hosts = partition.replicas if len(partition.replicas) == 1 else (partition.leader,)
            no_room = next((full[node] for node in hosts if node in full), None)
            if no_room is not None and (known is None or known.code in _OF_A_FULL_DISK):
                found[place] = _no_room(place, no_room)
        return found

    def _counted(self, error: ClientError) -> ClientError:
        """The error, with the number of records that were acknowledged before it."""
        error.advice = f"{error.advice} Acknowledged before: {plural(self.acknowledged, 'record')}.".strip()
        return error

    def flush(self, progress: Progress) -> None:
        """Wait until every record is acknowledged or has failed."""
        while self._producer.flush(0.2):
            progress.advance(0)
            self._check()
        self._check()


def _no_room(place: TopicPartition, disk: LogDir) -> ClientError:
    from drmq.client.topics import topic_refusal

    return topic_refusal(
        ErrorCode.KAFKA_STORAGE_ERROR,
        place.topic,
        f"the disk of broker {disk.broker_id} is full, {size_text(disk.usable_bytes)} left in {disk.path}",
        partition=place.partition,
        doing="be written",
        advice="Free space there, or reduce `retention.ms`; the broker accepts records again as soon as they fit.",
    )


def _report(sender: _Sender, topic: str, output: Output) -> None:
    rows = [
        {"topic": topic, "partition": partition, "records": count, "first_offset": first, "last_offset": last}
        for partition, (count, first, last) in sorted(sender.ranges.items())
    ]
    if not output.is_human:
        output.data(rows)
        return
    if len(rows) == 1 and rows[0]["records"] == 1 and not sender.refused:
        place = f" at offset {rows[0]['first_offset']}" if rows[0]["first_offset"] != -1 else ""
        print(f"Sent 1 record to `{topic}`, partition {rows[0]['partition']}{place}.")
        return
    refused = f" {plural(sender.refused, 'record')} too large." if sender.refused else ""
    print(f"Sent {plural(sender.acknowledged, 'record')} to `{topic}`.{refused}")
    columns = [
        Column("partition", "PARTITION", right=True),
        Column("records", "RECORDS", right=True),
        Column("first_offset", "FIRST", right=True),
        Column("last_offset", "LAST", right=True),
    ]
    if rows:
        output.rows(columns, rows, "")
