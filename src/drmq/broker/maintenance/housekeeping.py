"""Housekeeping: retention, trims and snapshots, which keep restarts and the catch-up of new replicas fast.

Nothing is removed before the state derived from it is stored. A log that is to start later first gets a new *base*: the
position, the members and the producers at its new start, on disk. Then consensus is notified that the log begins there,
then the ledger records it, and only then are files removed. A crash at any step leaves a log that begins where its
ledger says, or earlier.

A round costs little for partitions that are idle: nothing can be due in an empty one, and one to which nothing was
written since the last look is looked at again only after a small part of the time after which its records expire. A
round over thousands of them is done in slices, between which everything else on the event loop gets its turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from drmq.broker.clock import Clock, ExpiryClock
from drmq.broker.coordination.machine_log import MachineLog
from drmq.broker.durability import durable
from drmq.broker.options import BrokerOptions
from drmq.broker.partitions.derived_state import (
    BASE_SNAPSHOT,
    PRODUCERS_SNAPSHOT,
    STATE_SNAPSHOT,
    MachineState,
    MessageState,
    base_of,
    encode_state,
    pack_snapshot,
    unpack_snapshot,
)
from drmq.broker.partitions.log_store import Snapshots
from drmq.broker.partitions.partition import Partition
from drmq.broker.partitions.partition_table import PartitionTable
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.replication.entry_log import encode_offset
from drmq.broker.replication.sliced_work import SLICE_S
from drmq.catalog import TopicConfig
from drmq.model import ApiError, Offset
from drmq.raft import SnapshotMeta
from drmq.storage import StorageError
from drmq.telemetry.system_errors import in_words

log = logging.getLogger("drmq.broker")

_TIME = "time"
_AHEAD_WARNED_MS = 3_600_000
"""How far the clock has to be ahead for a warning."""
_TIME_NOTED_EVERY_MS = 600_000

PRODUCERS_MAX = 500_000
"""Producers remembered by all partitions of a node. Each takes up to a kilobyte."""

PRODUCERS_SNAPSHOT_AFTER_BYTES = 64 * 1024 * 1024
"""How many bytes must be written after a snapshot of the producer table before a new one is worthwhile."""


_IDLE_LOOKS = 20
"""How often an idle partition is looked at within the time after which its records expire or its segment is sealed."""
_IDLE_LOOK_MS_MAX = 3_600_000


class _Look(NamedTuple):
    """What retention depends on, besides the time."""

    start_offset: Offset
    high_watermark: Offset
    end_offset: Offset
    config: TopicConfig


class Maintenance:
    """Retention, trims and snapshots of this node's partitions. Used on the event loop."""

    def __init__(self, table: PartitionTable, options: BrokerOptions, clock: Clock, notes: Snapshots) -> None:
        self._table = table
        self._options = options
        self._clock = clock
        self.expiry = ExpiryClock(clock)
        """The time that decides when records, offsets and producers expire."""
        # Before any time is noted, both start at the same moment: a producer that is seen after the clock was set back
        # must not look as if it had been silent for that long once the clock is correct again.
        table.believed_ms = clock.wall_ms()
        self._notes = notes
        self._noted_ms = 0
        self._saved: dict[Partition, tuple[int, int]] = {}
        """Per partition: bytes written and offset reached when its producers were last saved."""
        self._trims: dict[asyncio.Task[None], None] = {}
        self._starting: dict[Partition, asyncio.Lock] = {}
        """Only one task at a time moves the start of a log, so that it does not remove what another has just stored."""
        self._looks: dict[Partition, tuple[_Look, int]] = {}
        """How each partition was when retention last found nothing to remove, and when that was."""

    def load(self) -> None:
        """Load the time that was noted before this start. Blocks; called before anything expires."""
        noted = self._notes.load_latest(_TIME)
        if noted is not None:
            self._noted_ms = int.from_bytes(noted.payload, "big")
            self.expiry.resume(self._noted_ms)
            self._table.believed_ms = self._noted_ms

    async def _note_time(self, now_ms: int) -> None:
        if abs(now_ms - self._noted_ms) >= _TIME_NOTED_EVERY_MS:
            self._noted_ms = now_ms
            await self._table.in_pool(lambda: self._notes.save(_TIME, Offset(0), now_ms.to_bytes(8, "big")))

    async def round(self, machines: Iterable[MachineLog]) -> None:
        """Run one round of retention and snapshots over all partitions."""
        now_ms = self._table.believed_ms = self.expiry.now_ms()
        if self.expiry.doubt is not None:
            # A node that was down has not noted the time meanwhile, so a clock that is right is ahead as well.
            level = logging.WARNING if self.expiry.ahead_ms > _AHEAD_WARNED_MS else logging.INFO
            log.log(level, "%s", self.expiry.doubt, extra={"repeat_key": "the clock is in doubt"})
        try:
            await self._note_time(now_ms)
        except (StorageError, OSError) as error:
            log.warning("cannot store the current time: %s", in_words(error))
        loop = asyncio.get_running_loop()
        slice_end = loop.time() + SLICE_S
        for partition in self._table:
            if loop.time() >= slice_end:
                await asyncio.sleep(0)
                slice_end = loop.time() + SLICE_S
            # A partition may have been closed meanwhile. Then it has a failure too.
            if partition.failure is not None or isinstance(partition.state, MachineState):
                continue
            try:
                if self._is_due(partition, now_ms):
                    await self._retain(partition, now_ms)
                if len(partition.producers):
                    partition.producers.forget_idle(now_ms - self._options.producer_expiry_ms)
                await self.save_producers(partition)
            except (StorageError, OSError) as error:
                # Its topic was deleted meanwhile, or its disk failed: the other partitions must not wait for it.
                log.warning("maintenance of %r failed: %s", partition, in_words(error))
        self._limit_producers()
        await self.save_machines(machines)
        tables: tuple[dict[Partition, Any], ...] = (self._saved, self._starting, self._looks)
        for table in tables:
            for gone in [partition for partition in table if partition.is_closed]:
                del table[gone]

    def _limit_producers(self) -> None:
        """Forget producers that have been silent longest, if all partitions together have too many.

        Each partition keeps an equal part, and what others do not use of theirs: a client with a new producer id for
        each batch costs those partitions that it writes to.
        """
        tables = sorted((partition.producers for partition in self._table if len(partition.producers)), key=len)
        left, count = PRODUCERS_MAX, sum(map(len, tables))
        if count <= left:
            return
        for index, table in enumerate(tables):
            table.forget_oldest(left // (len(tables) - index))
            left -= len(table)
        log.warning(
            "%d idle producers are forgotten: partitions of this node have had %d of them, and the limit is %d",
            count - sum(map(len, tables)),
            count,
            PRODUCERS_MAX,
            extra={"repeat_key": "too many producers"},
        )

    async def stop(self) -> None:
        for task in self._trims:
            task.cancel()
        await asyncio.gather(*self._trims, return_exceptions=True)

    # ---- the start of a log ---------------------------------------------------------------------

    def _is_due(self, partition: Partition, now_ms: int) -> bool:
        """Whether retention may find something to remove or to seal in a partition."""
        look = _look(partition)
        if look.start_offset == look.end_offset:
            return False
        known, looked_ms = self._looks.get(partition, (None, 0))
        config = partition.config
        lasts_ms = config.segment_ms if config.retention_ms < 0 else min(config.segment_ms, config.retention_ms)
        # The time may also go back, when a clock that was wrong is corrected.
        return look != known or abs(now_ms - looked_ms) >= min(lasts_ms // _IDLE_LOOKS, _IDLE_LOOK_MS_MAX)

    async def _retain(self, partition: Partition, now_ms: int) -> None:
        config, kept, keep_from = partition.config, partition.log, partition.high_watermark
        look = _look(partition)

        def find_start() -> Offset:
            kept.maybe_roll(now_ms)
            return kept.retention_start(now_ms, config.retention_ms, config.retention_bytes, keep_from)

        start = await self._table.on_writer(partition, find_start)
        if start <= kept.start_offset:
            self._looks[partition] = (look, now_ms)
        elif await self.drop_before(partition, start):
            log.info("retention: %r starts at %d now", partition, kept.start_offset)

    def on_trimmed(self, partition: Partition) -> None:
        """Records were deleted by a request: free the space in the background."""
        task = asyncio.ensure_future(self._trim(partition))
        self._trims[task] = None
        task.add_done_callback(self._trims.pop)

    async def _trim(self, partition: Partition) -> None:
        offset, kept = partition.trimmed_to, partition.log
        if not isinstance(partition.state, MessageState) or offset <= kept.start_offset:
            return

        def batch_start() -> Offset:
            # A batch is removed as a whole, so the log begins with the batch that holds the first remaining record.
            for header, _ in kept.headers(offset, Offset(offset + 1)):
                return header.base_offset
            return offset

        try:
            start = offset if offset >= kept.end_offset else await self._table.in_pool(batch_start)
            await self.drop_before(partition, start)
        except (StorageError, OSError) as error:
            log.warning("%r: deleted records are still on the disk: %s", partition, in_words(error))

    async def drop_before(self, partition: Partition, start: Offset) -> bool:
        """Make a partition's log begin at `start`, a committed batch boundary. False if that is not possible now."""
        async with self._starting.setdefault(partition, asyncio.Lock()):
            return await self._drop_before(partition, start)

    async def _drop_before(self, partition: Partition, start: Offset) -> bool:
        state, replica = partition.state, partition.replica
        node, entries = replica.node, replica.entries
        assert isinstance(state, MessageState)
        if node is None or start <= entries.base.offset:
            return False
        index = entries.last_index_before(start)
        if index > node.applied_index or index <= entries.base.index:
            return False
        meta = node.snapshot_meta(index, encode_offset(start))
        known, used, kept = entries.base, replica.ledger.base, partition.log
        before = Offset(used.offset)

        def is_replaced() -> bool:
            """Whether the replica has restarted meanwhile, or a leader's snapshot replaces it."""
            return replica.node is not node or replica.entries is not entries or entries.base != known

        def producers_at_start() -> bytes:
            stored = state.snapshots.load_latest(BASE_SNAPSHOT, not_after=before)
            table = ProducerTable() if stored is None else ProducerTable.from_bytes(unpack_snapshot(stored.payload)[1])
            now_ms = self._table.seen_ms()
            for header, _ in kept.headers(before, start):
                table.apply(header, now_ms)
            return table.to_bytes()

        def save_base() -> bool:
            # On the writer thread, where installations happen: the ledger names the base that is in use.
            if replica.ledger.base != used:
                return False
            # A crash may have come between this and the ledger: such a base is not in use. Two are kept, and the one in
            # use must be among them.
            state.snapshots.remove_after(BASE_SNAPSHOT, before)
            state.snapshots.save(BASE_SNAPSHOT, start, payload)
            return True

        try:
            payload = pack_snapshot(meta, await self._table.in_pool(producers_at_start))
        except (StorageError, OSError):
            if is_replaced():
                return False  # What was read is gone, and is no longer needed.
            raise
        if not await self._table.on_writer(partition, save_base) or is_replaced():
            return False
        base = base_of(meta)
        entries.on_rebased(base, meta)

        def drop() -> None:
            replica.ledger.rebase(base)
            kept.drop_prefix(start)

        await self._table.on_writer(partition, drop)
        return True

    # ---- snapshots ------------------------------------------------------------------------------

    async def save_producers(self, partition: Partition, *, force: bool = False) -> None:
        """Save the producer table if enough was written since the last time, so that a restart stays fast."""
        state = partition.state
        if not isinstance(state, MessageState) or partition.failure is not None:
            return
        saved_bytes, saved_offset = self._saved.get(partition, (0, -1))
        written, offset = partition.committed_bytes, partition.next_offset
        if not force and written - saved_bytes < PRODUCERS_SNAPSHOT_AFTER_BYTES:
            return
        if saved_offset == offset or (saved_offset < 0 and not len(partition.producers)):
            return
        payload, snapshots = partition.producers.to_bytes(), state.snapshots

        def save() -> bool:
            # On the writer thread, so after the batches that the table describes, unless their append failed.
            if partition.log.end_offset != offset:
                return False
            # Flushed first: a crash that lost those batches would make this snapshot invalid.
            partition.log.flush()
            snapshots.save(PRODUCERS_SNAPSHOT, offset, payload)
            return True

        if await self._table.on_writer(partition, save):
            self._saved[partition] = (written, offset)

    async def save_machines(self, machines: Iterable[MachineLog]) -> None:
        """Save snapshots of the state machines whose logs have grown enough."""
        for machine in machines:
            if machine.wants_snapshot:
                await self.save_machine(machine)

    async def save_machine(self, machine: MachineLog, *, waits: bool = True) -> None:
        """Save a snapshot of a state machine, and drop the log that the older of its two snapshots covers.

        Unless `waits`, there is none if some of the state is not committed: a node that stops commits nothing more.
        """
        machine.is_saving = True
        try:
            await self._save_machine(machine, waits)
        except (StorageError, OSError) as error:
            log.warning("no snapshot of %r: %s", machine.partition, in_words(error))
        finally:
            machine.is_saving = False

    async def _save_machine(self, machine: MachineLog, waits: bool) -> None:
        partition, state = machine.partition, machine.state
        replica = partition.replica
        node, entries = replica.node, replica.entries
        offset = state.applied_offset
        if node is None or partition.failure is not None:
            return
        index = entries.last_index_before(offset)
        if index <= entries.snapshot.index:
            return
        records = state.machine.snapshot()
        body = await self._table.in_pool(lambda: encode_state(records))
        if offset > partition.high_watermark:
            # A leader's machine is ahead of the commit index, on a busy one always. The snapshot is valid once that is
            # committed.
            if not waits:
                return
            try:
                await durable(partial(partition.when_durable, offset), f"the state in a snapshot of {partition!r}")
            except ApiError:
                return
        if replica.node is not node or replica.entries is not entries:
            return
        if not entries.snapshot.index < index <= node.applied_index:
            return
        meta = node.snapshot_meta(index, encode_offset(offset))
        payload = pack_snapshot(meta, body)

        def save() -> SnapshotMeta | None:
            if replica.ledger.base.index > index:
                return None  # A leader's snapshot has replaced all of this.
            state.snapshots.save(STATE_SNAPSHOT, offset, payload)
            # The log is kept from the older of the two snapshots on: if the newer one is damaged, the older one and the
            # log still give the whole state.
            older = state.snapshots.load_latest(STATE_SNAPSHOT, not_after=state.snapshots.offsets(STATE_SNAPSHOT)[0])
            return meta if older is None else unpack_snapshot(older.payload)[0]

        oldest = await self._table.on_writer(partition, save)
        if oldest is None or replica.node is not node or replica.entries is not entries:
            return
        if entries.snapshot.index >= index:
            return
        base = base_of(oldest) if oldest != meta and oldest.index > entries.base.index else entries.base
        entries.on_rebased(base, meta)

        def drop() -> None:
            replica.ledger.rebase(base)
            partition.log.drop_prefix(Offset(base.offset))

        await self._table.on_writer(partition, drop)
        machine.on_snapshot_saved(len(payload))


def _look(partition: Partition) -> _Look:
    kept = partition.log
    return _Look(kept.start_offset, partition.high_watermark, kept.end_offset, partition.config)
