"""Dead letters: records that a lease group has given up are copied to the group's dead-letter topic.

The leader of a lease shard does this for the queues of the shard, wherever their data is. For each run of offsets that
is given up it reads the records, appends copies to the group's dead-letter topic (by default `dlq.GROUP`), and tells
the shard once these are committed. Only then are the offsets done. If the node fails in between, the next leader writes
the letters again: a letter may be there twice, and is never missing.

A letter has the key, the value and the headers of its record, and headers of its own that say where it came from, and
why (`HEADERS`). It goes to the partition with the number of its source, modulo the partitions of the dead-letter topic.

If the topic cannot be written, the records stay where they are, the reason is logged, and the attempt is repeated. So
it is if the topic exists and does not allow dead letters (`errors.deadletterqueue.group.enable`): nobody can fill a
topic of others by rejecting records. Records that are no longer in the log have no letter, nor have those of a group
whose dead letters were switched off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.broker.services.caller import node_caller
from drmq.catalog import DEAD_LETTER_CREATES, DEAD_LETTERS_ALLOWED, Topic, cluster_config
from drmq.leases import Bury, DeadRecord, Reason
from drmq.model import ApiError, ErrorCode, Offset
from drmq.records import InvalidBatch, Record, encode_batch, iter_batches, iter_records

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

HEADERS: Final = "__dlq.errors."
"""The names of a letter's own headers begin so. Those that Kafka has too have Kafka's names."""
_REASONS = {
    Reason.REJECTED: "it was rejected",
    Reason.ATTEMPTS: "it failed as often as the group allows",
}
_RUNS_MAX = 64
_LETTERS_MAX = 100
_LETTER_BYTES_MAX = 262_144
"""Letters in one batch, and bytes of their records. At least one."""
_READ_BYTES = 1_048_576
_PAUSE_S, _PAUSE_MAX_S = 0.5, 30.0


class DeadLetters:
    """Writes the dead letters of the lease shards that this node leads. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[LeaseShardCoordinator, asyncio.Task[None]] = {}

    def look_at(self, shard: LeaseShardCoordinator) -> None:
        """Write what a shard has given up, unless that is going on already."""
        if shard not in self._tasks and shard.leads and next(shard.machine.dead_records(1), None) is not None:
            task = self._tasks[shard] = asyncio.get_running_loop().create_task(self._work(shard))
            task.add_done_callback(lambda _: self._on_done(shard))

    def stop(self) -> None:
        """The node stops. The next leaders go on."""
        for task in self._tasks.values():
            task.cancel()

    def _on_done(self, shard: LeaseShardCoordinator) -> None:
        task = self._tasks.pop(shard)
        if not task.cancelled() and task.exception() is not None:
            log.error("writing dead letters of %r failed on a bug", shard.log.partition, exc_info=task.exception())

    async def _work(self, shard: LeaseShardCoordinator) -> None:
        pause_s = _PAUSE_S
        while shard.leads:
            dead = list(islice(shard.machine.dead_records(_RUNS_MAX), _RUNS_MAX))
            if not dead:
                return
            failed = False
            for run in dead:
                try:
                    await self._bury(shard, run)
                except (ApiError, InvalidBatch) as error:
                    failed = True
                    text = f"dead letters of group {run.key.group} are not written"
                    log.error("%s: %s; trying again", text, error, extra={"repeat_key": text})
            if failed:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            else:
                pause_s = _PAUSE_S

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
            records, end = await self._read(topic, run)
            if records:
                await self._append(topic, name, run, records)
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        request = Bury(run.key, ((run.first, end - 1),))
        shard.submit(request, lambda answer: None if done.done() else done.set_result(answer))
        answer = await done
        if isinstance(answer, ApiError):
            raise answer

    async def _read(self, topic: Topic, run: DeadRecord) -> tuple[Sequence[Record], int]:
        """Some of the records of a run, from its first one, and the offset up to which they are all."""
        broker = self._broker
        caller = node_caller(broker.node_id)
        try:
            found = await broker.services.router.read(
                caller, topic.name, run.key.partition, Offset(run.first), _READ_BYTES
            )
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return (), run.first + 1
            raise
        data, size_max = bytes(found.data), broker.options.decompressed_bytes_max
        async with broker.services.decompressing:
            return await broker.blocking(lambda: _records_of(data, run, size_max))

    async def _append(self, source: Topic, name: str, run: DeadRecord, records: Sequence[Record]) -> None:
        broker = self._broker
        topic = await self._topic(name)
        if not broker.group_settings.copies_dead_letters(run.key.group):
            records = [Record(record.offset, record.timestamp, None, None, ()) for record in records]
        # Not the time of death: the clock of the leader then may have been wrong, and a topic refuses such a time.
        now_ms = broker.clock.wall_ms()
        letters = [
            Record(Offset(number), now_ms, record.key, record.value, _headers(source.name, run, record))
            for number, record in enumerate(records)
        ]
        index = run.key.partition % topic.partition_count
        await broker.services.router.append(node_caller(broker.node_id), name, index, encode_batch(letters))

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
            await broker.services.topic_creation.auto_create(caller, name, {DEAD_LETTERS_ALLOWED: "true"})
            topic = broker.metadata.committed_catalog.topic(name)
        if topic.configs.get(DEAD_LETTERS_ALLOWED, "").lower() != "true":
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"topic {name} exists and does not allow dead letters; set {DEAD_LETTERS_ALLOWED}=true on it, or give "
                "the group another topic",
            )
        return topic


def _records_of(data: bytes, run: DeadRecord, size_max: int) -> tuple[Sequence[Record], int]:
    """The records of the run that are in these batches. An offset without a record is skipped."""
    records: list[Record] = []
    size = 0
    end = run.first
    for position, header in iter_batches(data):
        if header.base_offset > run.last:
            break
        for record in iter_records(data[position : position + header.size], decompressed_size_max=size_max):
            if not run.first <= record.offset <= run.last:
                continue
            size += len(record.value or b"") + len(record.key or b"")
            if records and (len(records) >= _LETTERS_MAX or size > _LETTER_BYTES_MAX):
                return records, end
            records.append(record)
            end = record.offset + 1
        end = max(end, min(run.last + 1, header.next_offset))
    return records, max(end, run.first + 1)


def _headers(source: str, run: DeadRecord, record: Record) -> tuple[tuple[str, bytes | None], ...]:
    death = run.death
    own = {
        "topic": source,
        "partition": run.key.partition,
        "offset": record.offset,
        "group": run.key.group,
        "delivery.count": death.attempt,
        "message": _REASONS.get(death.reason, death.reason.name),
        "first.failure.ms": death.failed_ms,
        "last.failure.ms": death.ended_ms,
    }
    kept = tuple(header for header in record.headers if not header[0].startswith(HEADERS))
    return kept + tuple((HEADERS + name, str(value).encode()) for name, value in own.items())
