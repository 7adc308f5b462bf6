"""`drmq consume`: prints records from any position in a topic.

Without a group, the command reads partitions by itself, from the position given with `--from` to the end at the time it
started. With a group, it joins the group like any other consumer, and commits what it has printed: what was handed to
the system, not what is still in a buffer. However it ends (Ctrl-C, SIGTERM, SIGHUP, a closed pipe), it leaves the
group.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from drmq.server.cli.completion import group_names, topic_names
from drmq.server.cli.consume_leases import LeaseReader
from drmq.server.cli.endings import OutputWatch, Signals
from drmq.server.cli.options import INT32_MAX, ClusterChoice, bootstrap_option, check_names
from drmq.server.cli.output import plural
from drmq.server.cli.positions import POSITION_HELP, TIME_HELP, Position, parse_position, resolve
from drmq.server.cli.record_text import FORMAT_HELP, ReadRecord, compile_format, to_json

if TYPE_CHECKING:
    from drmq.client import Admin
    from drmq.model import TopicPartition

_COMMIT_EVERY_S = 1.0
_POLL_S = 0.2
_POLL_RECORDS = 1000


def _format(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    try:
        return compile_format(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--from",
    "positions",
    multiple=True,
    type=parse_position,
    metavar="POSITION",
    help=f"Where to start: {POSITION_HELP} (may be repeated). TIME is {TIME_HELP}.  [default: begin]",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--until-end", is_flag=True, help="Stop at the end of the topic. This is the default.")
@click.option("-F", "--follow", is_flag=True, help="Wait for more records at the end, until Ctrl-C.")
@click.option(
    "-p",
    "--partition",
    "only",
    multiple=True,
    type=click.IntRange(0, INT32_MAX),
    help="Read only this partition; may be repeated.",
)
@click.option(
    "-g",
    "--group",
    shell_complete=group_names,
    callback=check_names,
    help="Read as a member of this group, and commit offsets.",
)
@click.option(
    "--lease",
    is_flag=True,
    help="With --group: lease records, and acknowledge each after it was printed (share group).",
)
@click.option("-f", "--format", "render", callback=_format, metavar="FORMAT", help=f"{FORMAT_HELP}.  [default: %v\\n]")
@click.option(
    "-o",
    "form",
    type=click.Choice(["text", "json", "jsonl"]),
    default="text",
    show_default=True,
    help="Output format; json and jsonl print one object per line.",
)
@bootstrap_option
def consume(
    topic: str,
    positions: tuple[Position, ...],
    count: int | None,
    until_end: bool,
    follow: bool,
    only: tuple[int, ...],
    group: str | None,
    lease: bool,
    render: Callable[[ReadRecord], bytes] | None,
    form: str,
    cluster: ClusterChoice,
) -> None:
    """Print records.

    \b
      drmq consume orders                          all records up to the current end
      drmq consume orders -F --from end            new records, until Ctrl-C
      drmq consume orders -f '%p %o %k %v\\n' -n 10
      drmq consume orders -g billing --lease       what no other worker of the group has leased
    """
    from drmq.client import ClientError

    context = click.get_current_context()
    if follow and until_end:
        raise click.UsageError("--follow and --until-end cannot be combined.", context)
    if render is not None and form != "text":
        raise click.UsageError("--format and -o json cannot be combined.", context)
    if group == "":
        raise click.UsageError("--group needs the name of a group.", context)
    if lease and group is None:
        raise click.UsageError("--lease needs a group: give one with --group.", context)
    if group is not None and (only or any(position.kind not in ("begin", "end") for position in positions)):
        raise click.UsageError(
            "With --group, the group determines the position: --from must be `begin` or `end` and applies only to a "
            "group that has no position yet, and --partition is not allowed. `drmq group reset` moves a group.",
            context,
        )
    printer = render or (_json_line if form != "text" else compile_format("%v\\n"))
    with cluster.admin() as admin:
        starts, ends = _bounds(admin, topic, positions, only)
    with Signals() as signals:
        reader: _Reader | LeaseReader
        if lease:
            assert group is not None
            reader = LeaseReader(cluster, topic, starts, group, _lease_start(positions))
        else:
            reader = _Reader(cluster, topic, starts, ends, group, "latest" if _from_end(positions) else "earliest")
        try:
            reader.run(printer, count, follow, signals)
        except BaseException as error:
            # The first error is the one that is reported; a failed commit is only mentioned.
            try:
                reader.close()
            except ClientError as second:
                click.echo(f"Not {'given back' if lease else 'committed'}: {second}", err=True)
            if isinstance(error, KeyboardInterrupt):
                click.echo(f"{plural(reader.printed, 'record')}.", err=True)
            raise
        reader.close()


def _lease_start(positions: tuple[Position, ...]) -> Literal["earliest", "latest"] | None:
    """Where a new lease group begins; None for its own setting."""
    if not positions:
        return None
    return "latest" if _from_end(positions) else "earliest"


def _from_end(positions: tuple[Position, ...]) -> bool:
    return any(position.kind == "end" for position in positions)


def _json_line(record: ReadRecord) -> bytes:
    return to_json(record).encode() + b"\n"


def _bounds(
    admin: Admin, topic: str, positions: tuple[Position, ...], only: tuple[int, ...]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The start position in each chosen partition, and its current end."""
    from drmq.client import LATEST
    from drmq.client.topics import topic_refusal
    from drmq.model import ErrorCode, TopicPartition

    places = [TopicPartition(topic, partition.index) for partition in admin.topics.describe(topic).partitions]
    for index in only:
        if TopicPartition(topic, index) not in places:
            raise topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, partition=index)
    if only:
        places = [place for place in places if place.partition in only]
    starts = resolve(admin, places, positions or (Position("begin"),))
    ends = {place: found.offset for place, found in admin.topics.offsets(dict.fromkeys(starts, LATEST)).items()}
    return starts, ends


class _Reader:
    """A consumer, alone or in a group, that detects when it has reached the end."""

    def __init__(
        self,
        cluster: ClusterChoice,
        topic: str,
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
        group: str | None,
        reset: str,
    ) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Place

        from drmq.server.cli.kafka_client import open_client

        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._in_group = group is not None
        self._moved_at = time.monotonic()
        """When something was last received: a record, an end of partition, an assignment."""
        self._ends = {place.partition: offset for place, offset in ends.items()}
        self._next = {} if self._in_group else {place.partition: offset for place, offset in starts.items()}
        """The next offset of each partition, as far as it is known."""
        self._waiting: set[int] = set()
        """Partitions that have not been read up to their end yet."""
        self._has_assignment = not self._in_group
        self._committed_at = time.monotonic()
        self._is_closing = False
        self.printed = 0
        self._consumer: Any = open_client(
            Consumer,
            cluster,
            {
                "group.id": group or "drmq-cli",
                # Also how long librdkafka waits on close for a lost broker: Ctrl-C must not take a minute.
                "session.timeout.ms": 6000,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": reset,
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
            },
        )
        if self._in_group:
            self._consumer.subscribe(
                [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        else:
            self._waiting = {p.partition for p, start in starts.items() if start < ends[p]}
            self._consumer.assign([Place(topic, p.partition, start) for p, start in starts.items()])

    def _on_assign(self, _consumer: Any, partitions: list[Any]) -> None:
        self._has_assignment = True
        self._moved_at = time.monotonic()
        self._waiting |= {place.partition for place in partitions}

    def _on_revoke(self, _consumer: Any, partitions: list[Any]) -> None:
        self._forget(partitions)
        if not self._is_closing:
            self._commit(wait=True)

    def _on_lost(self, _consumer: Any, partitions: list[Any]) -> None:
        """The session timed out, for example while the process was stopped: it is too late to commit.

        librdkafka joins again and continues from what was committed.
        """
        self._forget(partitions)

    def _forget(self, partitions: list[Any]) -> None:
        # Until the next assignment it is not known what is left to read.
        self._has_assignment = False
        self._moved_at = time.monotonic()
        self._waiting -= {place.partition for place in partitions}
        for place in partitions:
            self._next.pop(place.partition, None)

    def run(self, render: Callable[[ReadRecord], bytes], count: int | None, follow: bool, signals: Signals) -> None:
        """Print until `count` records are printed or, unless `follow`, the end is reached."""
        watch = OutputWatch()
        while follow or not self._has_assignment or self._waiting:
            room = _POLL_RECORDS if count is None else min(_POLL_RECORDS, count - self.printed)
            messages: list[Any] = self._consumer.consume(room, timeout=_POLL_S)
            watch.check()
            self._notice_silence(bool(messages), follow)
            # A signal between printing and noting what was printed would make the next consumer print it again.
            with signals.held():
                self._print(messages, render, follow)
            if count is not None and self.printed >= count:
                return
            self._commit(wait=False)

    def _print(self, messages: list[Any], render: Callable[[ReadRecord], bytes], follow: bool) -> None:
        out = sys.stdout.buffer
        last: dict[int, Any] = {}
        try:
            for message in messages:
                if message.error() is not None:
                    self._on_error(message)
                    continue
                self._next[message.partition()] = message.offset() + 1
                if not follow and not self._in_group and message.offset() >= self._ends[message.partition()]:
                    # Written after this command started; a topic that is written continuously has no other end.
                    self._waiting.discard(message.partition())
                    continue
                out.write(render(_record(message)))
                self.printed += 1
                last[message.partition()] = message
                if not self._in_group and message.offset() + 1 >= self._ends[message.partition()]:
                    self._waiting.discard(message.partition())
        finally:
            # If the reader of a pipe is gone, this raises, and what it has not received is not committed.
            out.flush()
            if self._in_group:
                for message in last.values():
                    self._consumer.store_offsets(message)

    def _notice_silence(self, moved: bool, follow: bool) -> None:
        """If nothing was received for long, find out why: librdkafka retries forever without reporting it.

        With `--follow`, a lost broker is waited for; a partition that cannot be read is an error even then.
        """
        from drmq.client import Unreachable

        now = time.monotonic()
        if moved:
            self._moved_at = now
        elif now - self._moved_at > self._cluster.timeout_s:
            try:
                self._explain_silence(follow)
            except Unreachable:
                if not follow:
                    raise
            self._moved_at = time.monotonic()

    def _explain_silence(self, follow: bool) -> None:
        """Raise the reason why nothing is received; return if there is none and `follow` may keep waiting."""
        from drmq.client import DeadlineExceeded
        from drmq.model import ErrorCode, TopicPartition

        with self._cluster.admin() as admin:
            positions = self._positions(admin)
            for place, error in sorted(admin.probes.reads(positions).items()):
                if error.code is not ErrorCode.LEADER_NOT_AVAILABLE or not follow:
                    error.message += f", at offset {positions[place]}"
                    raise error
        if follow:
            return
        silence = f"within {self._cluster.timeout_s:g} s (--timeout)"
        if not self._has_assignment:
            raise DeadlineExceeded(
                f"Group `{self._group}` assigned no partitions to this consumer {silence}",
                code=ErrorCode.REBALANCE_IN_PROGRESS,
                advice="The group waits for its other members, perhaps for one that died. "
                f"`drmq group describe {self._group}` lists them; a longer --timeout waits for them.",
            )
        place = TopicPartition(self._topic, min(self._waiting))
        raise DeadlineExceeded(
            f"No records were received from partition {place.partition} of topic `{self._topic}` {silence}",
            code=ErrorCode.REQUEST_TIMED_OUT,
            advice="Check the broker with `drmq status`, or use a longer --timeout.",
        )

    def _positions(self, admin: Admin) -> dict[TopicPartition, int]:
        """The next offset of each partition that has not reached its end; the start of those not read yet."""
        from drmq.model import TopicPartition

        partitions = set(self._next) | self._waiting
        starts = admin.topics.bounds([TopicPartition(self._topic, p) for p in partitions if p not in self._next])
        found = {place: bounds.start for place, bounds in starts.items()}
        if starts and self._group is not None:
            committed = admin.groups.offsets(self._group)
            found |= {place: committed[place].offset for place in starts if place in committed}
        return found | {TopicPartition(self._topic, p): offset for p, offset in self._next.items()}

    def _on_error(self, message: Any) -> None:
        from confluent_kafka import KafkaError

        from drmq.server.cli.kafka_client import as_client_error

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._waiting.discard(message.partition())
        elif error.fatal() or error.code() > 0 or error.name() == "_ALL_BROKERS_DOWN":
            raise as_client_error(error, self._topic)

    def _commit(self, *, wait: bool) -> None:
        """Commit what was printed: periodically in the background, and with `wait` before returning."""
        from confluent_kafka import KafkaError, KafkaException

        if not self._in_group or (not wait and time.monotonic() - self._committed_at < _COMMIT_EVERY_S):
            return
        self._committed_at = time.monotonic()
        try:
            if wait:
                self._consumer.commit(asynchronous=False)
            else:
                self._consumer.commit(asynchronous=True)
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError._NO_OFFSET:
                from drmq.server.cli.kafka_client import as_client_error

                raise as_client_error(problem.args[0], self._topic) from None

    def close(self) -> None:
        """Leave the group after a last commit. Raises `ClientError` if that is not possible."""
        try:
            if self._in_group:
                # Without a broker, librdkafka would keep retrying the commit for most of a minute.
                with self._cluster.admin() as admin:
                    admin.describe_cluster()
                self._commit(wait=True)
        finally:
            self._is_closing = True
            self._consumer.close()


def _record(message: Any) -> ReadRecord:
    kind, timestamp = message.timestamp()
    headers = [(name, value) for name, value in message.headers() or []]
    return ReadRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp if kind else -1,
        message.key(),
        message.value(),
        headers,
    )
