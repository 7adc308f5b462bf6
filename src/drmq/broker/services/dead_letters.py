"""Dead letters: records that a lease group has given up are copied to the group's dead-letter topic.

The leader of a lease shard does this for the queues of the shard, wherever their data is. For each run of offsets that
is given up it reads the records, appends copies to the group's dead-letter topic (by default `dlq.GROUP`), and tells
the shard once these are committed. Only then are the offsets done. If the node fails in between, the next leader writes
the letters again: a letter may be there twice, and is never missing.

A letter has the key, the value and the headers of its record, and headers of its own that say where it came from, and
why (`letters`). It goes to the partition with the number of its source, modulo the partitions of the dead-letter topic.
A record that cannot be decoded has a letter without key and value, which says so: otherwise it could never leave.

Each queue is worked on by itself, so that a topic that cannot be written holds up nothing but its own letters.

If the topic cannot be written, the records stay where they are, the reason is logged, and the attempt is repeated. So
it is if the topic exists and does not allow dead letters (`errors.deadletterqueue.group.enable`): nobody can fill a
topic of others by rejecting records. Records that are no longer in the log have no letter, nor have those of a group
whose dead letters were switched off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.broker.services.caller import node_caller
from drmq.broker.services.redrive.letters import letter_headers
from drmq.catalog import DEAD_LETTER_CREATES, DEAD_LETTERS_ALLOWED, Topic, cluster_config, takes_dead_letters
from drmq.leases import Bury, DeadRecord, QueueKey
from drmq.model import ApiError, ErrorCode, Offset
from drmq.records import BatchHeader, Codec, InvalidBatch, Record, encode_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

_RUNS_MAX = 64
_LETTERS_MAX = 100
_LETTER_BYTES_MAX = 262_144
"""Letters in one batch, and bytes of their records. At least one."""
_READ_BYTES = 1_048_576
_TIMEOUT_S = 10.0
_PAUSE_S, _PAUSE_MAX_S = 0.5, 30.0
_QUEUES_MAX = 16
"""Queues whose letters are written at a time. Those that wait after a failure do not count."""


_CONFIGS = {DEAD_LETTERS_ALLOWED: "true", "retention.ms": "-1"}
"""Of topics that are created for letters: these wait until they are moved back or purged."""


class Copy(NamedTuple):
    """A record that was given up, and why it could not be copied, if it could not."""

    record: Record
    codec: Codec
    fault: str = ""


class DeadLetters:
    """Writes the dead letters of the lease shards that this node leads. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[tuple[LeaseShardCoordinator, QueueKey], asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_QUEUES_MAX)
        self.written_count = 0
        """Letters that were written, since the start."""

    def look_at(self, shard: LeaseShardCoordinator) -> None:
        """Write what the queues of a shard have given up, where that is not going on already."""
        for key in shard.machine.dying_queues():
            if (shard, key) not in self._tasks and shard.leads:
                task = self._tasks[shard, key] = asyncio.get_running_loop().create_task(self._work(shard, key))
                task.add_done_callback(partial(self._on_done, shard, key))

    def stop(self) -> None:
        """The node stops. The next leaders go on."""
        for task in self._tasks.values():
            task.cancel()

    def _on_done(self, shard: LeaseShardCoordinator, key: QueueKey, task: asyncio.Task[None]) -> None:
        del self._tasks[shard, key]
        if not task.cancelled() and task.exception() is not None:
            log.error("writing dead letters of %r failed on a bug", shard.log.partition, exc_info=task.exception())

    async def _work(self, shard: LeaseShardCoordinator, key: QueueKey) -> None:
        pause_s = _PAUSE_S
        while shard.leads:
            dead = list(shard.machine.dead_records(_RUNS_MAX, key))
            if not dead:
                return
            try:
                async with self._places:
                    for run in dead:
                        await self._bury(shard, run)
            except (ApiError, InvalidBatch) as error:
                if self._is_led_here(shard):
                    self._report(key, error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            else:
                pause_s = _PAUSE_S

    def _is_led_here(self, shard: LeaseShardCoordinator) -> bool:
        return shard.leads

    def _report(self, key: QueueKey, error: Exception) -> None:
        topic = self._broker.metadata.committed_catalog.topics_by_id.get(key.topic_id)
        place = f"{key.topic_id.hex() if topic is None else topic.name}-{key.partition}"
        text = f"dead letters of group {key.group} from {place} are not written"
        name = self._broker.group_settings.dead_letter_topic_of(key.group)
        log.error(
            "%s: %s; the records stay where they are, and it is tried again; check topic %s with `drmq topic describe` "
            "and the settings of the group with `drmq group describe`",
            *(text, error, name),
            extra={"repeat_key": text},
        )

    async def _bury(self, shard: LeaseShardCoordinator, run: DeadRecord) -> None:
        """Write the letters of the first records of a run, and forget these. Raises `ApiError`."""
        topic = self._broker.metadata.committed_catalog.topics_by_id.get(run.key.topic_id)
        name = self._broker.group_settings.dead_letter_topic_of(run.key.group)
        end = run.last + 1
        if name is None:
            log.warning(
                "offsets %d to %d of partition %d are dropped: group %s gave them up, and has no dead-letter topic now",
                *(run.first, run.last, run.key.partition, run.key.group),
            )
        elif topic is None and run.key.topic_id not in self._broker.metadata.committed_catalog.deleted:
            # This node may be behind: only a deletion that it knows of takes records away.
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {run.key.topic_id.hex()} is not known here yet")
        elif topic is not None:
            copies, end = await self._read(topic, run)
            if copies:
                await self._append(topic, name, run, copies)
                self.written_count += len(copies)
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        request = Bury(run.key, ((run.first, end - 1),))
        shard.submit(request, lambda answer: None if done.done() else done.set_result(answer))
        answer = await done
        if isinstance(answer, ApiError):
            raise answer

    async def _read(self, topic: Topic, run: DeadRecord) -> tuple[Sequence[Copy], int]:
        """Some of the records of a run, from its first one, and the offset up to which they are all."""
        broker = self._broker
        router = broker.services.router
        caller = node_caller(broker.node_id)
        try:
            found = await router.read(
                caller, topic.name, run.key.partition, Offset(run.first), _READ_BYTES, timeout_s=_TIMEOUT_S
            )
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # Retention has removed them, up to the start of the log.
            start, _ = await router.bounds(caller, topic.name, run.key.partition, timeout_s=_TIMEOUT_S)
            if start <= run.first:
                raise
            return (), min(start, run.last + 1)
        data, size_max = bytes(found.data), broker.options.decompressed_bytes_max
        async with broker.services.decompressing:
            return await broker.blocking(lambda: copies_of(data, run, size_max))

    async def _append(self, source: Topic, name: str, run: DeadRecord, copies: Sequence[Copy]) -> None:
        broker = self._broker
        topic = await self._topic(name)
        if not broker.group_settings.copies_dead_letters(run.key.group):
            copies = [
                Copy(Record(record.offset, record.timestamp, None, None), Codec.NONE, "its record is not copied")
                for record, _, _ in copies
            ]
        # Not the time of death: the clock of the leader then may have been wrong, and a topic refuses such a time.
        now_ms = broker.clock.wall_ms()
        batch = await broker.blocking(lambda: batch_of(source.name, run, copies, now_ms))
        index = run.key.partition % topic.partition_count
        await broker.services.router.append(node_caller(broker.node_id), name, index, batch, timeout_s=_TIMEOUT_S)

    async def _topic(self, name: str) -> Topic:
        """The dead-letter topic of this name, which is created if necessary. Raises `ApiError`."""
        broker = self._broker
        topic = broker.metadata.committed_catalog.topics.get(name)
        if topic is None:
            if cluster_config(broker.metadata.committed_catalog.broker_configs, DEAD_LETTER_CREATES) != "true":
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name} does not exist, and {DEAD_LETTER_CREATES} is false; create it with "
                    f"{DEAD_LETTERS_ALLOWED}=true",
                )
            caller = node_caller(broker.node_id)
            await broker.services.topic_creation.auto_create(caller, name, _CONFIGS)
            topic = broker.metadata.committed_catalog.topic(name)
        if not takes_dead_letters(topic.configs):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"topic {name} exists and does not allow dead letters; set {DEAD_LETTERS_ALLOWED}=true on it, or give "
                "the group another topic",
            )
        return topic


def copies_of(data: bytes, run: DeadRecord, size_max: int) -> tuple[Sequence[Copy], int]:
    """The records of the run that are in these batches. An offset without a record is skipped."""
    copies: list[Copy] = []
    size = 0
    end = run.first
    for position, header in iter_batches(data):
        if header.base_offset > run.last:
            break
        for copy in _decoded(data[position : position + header.size], header, run, size_max):
            record = copy.record
            if not run.first <= record.offset <= run.last:
                continue
            size += len(record.value or b"") + len(record.key or b"")
            if copies and (len(copies) >= _LETTERS_MAX or size > _LETTER_BYTES_MAX):
                return copies, end
            copies.append(copy)
            end = record.offset + 1
        end = max(end, min(run.last + 1, header.next_offset))
    return copies, max(end, run.first + 1)


def _decoded(batch: bytes, header: BatchHeader, run: DeadRecord, size_max: int) -> Iterator[Copy]:
    """The records of a batch; records without content if it cannot be decoded."""
    codec = Codec(header.codec)
    offset = header.base_offset
    try:
        for record in iter_records(batch, decompressed_size_max=size_max):
            yield Copy(record, codec)
            offset = Offset(record.offset + 1)
    except InvalidBatch as error:
        fault = f"its record cannot be read: {error}"
        for each in range(max(offset, run.first), min(run.last + 1, header.next_offset)):
            yield Copy(Record(Offset(each), header.base_timestamp, None, None), Codec.NONE, fault)


def batch_of(source: str, run: DeadRecord, copies: Sequence[Copy], now_ms: int) -> bytes:
    """The letters of some records, compressed as the first of these was."""
    letters = [
        Record(Offset(index), now_ms, record.key, record.value, letter_headers(source, run, record, fault))
        for index, (record, _, fault) in enumerate(copies)
    ]
    return bytes(encode_batch(letters, codec=copies[0].codec))
