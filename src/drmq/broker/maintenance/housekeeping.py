"""Housekeeping: what is too old goes, and snapshots keep starts and newcomers quick.

Nothing goes before what it amounted to has been written down. A log that is to begin later gets a new *base* first:
the place, the members and the producers at its new start, on disk; then consensus hears that the log begins
there; then the ledger says so; and only then are files removed. A crash at any step leaves a log that begins
where its ledger says, or earlier.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

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
from drmq.model import ApiError, Offset
from drmq.raft import SnapshotMeta
from drmq.storage import StorageError

log = logging.getLogger("drmq.broker")

_TIME = "time"
_TIME_NOTED_EVERY_MS = 600_000

PRODUCERS_SNAPSHOT_AFTER_BYTES = 64 * 1024 * 1024
"""Log since the last snapshot of the producers' table that makes a new one worth its write."""


class Maintenance:
    """Retention, trims and snapshots of this node's partitions. Lives on the event loop."""

    def __init__(self, table: PartitionTable, options: BrokerOptions, clock: Clock, notes: Snapshots) -> None:
        self._table = table
        self._options = options
        self._clock = clock
        self.expiry = ExpiryClock(clock)
        """The time by which records, offsets and producers expire."""
        # Before anything is noted, both begin at one moment: a producer that is seen after the clock was set back must
        # not look as if it had been silent for that long, once the clock is right again.
        table.believed_ms = clock.wall_ms()
        self._notes = notes
        self._noted_ms = 0
        self._saved: dict[Partition, tuple[int, int]] = {}
        """Per partition, bytes written and offset reached when its producers were last saved."""
        self._trims: dict[asyncio.Task[None], None] = {}
        self._starting: dict[Partition, asyncio.Lock] = {}
        """Who moves the start of a log does so alone: what another has written down is not to be removed."""

    def load(self) -> None:
        """Remember what time it was before this start. Blocks; used before anything expires."""
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
        """One round of retention and snapshots over all partitions."""
        now_ms = self._table.believed_ms = self.expiry.now_ms()
        if self.expiry.doubt is not None:
            log.warning("%s", self.expiry.doubt, extra={"repeat_key": "the clock is in doubt"})
        try:
            await self._note_time(now_ms)
        except (StorageError, OSError) as error:
            log.warning("the time is not noted: %s", error)
        for partition in self._table:
            if partition.failure is not None or isinstance(partition.state, MachineState):
                continue
            try:
                await self._retain(partition, now_ms)
                partition.producers.forget_idle(now_ms - self._options.producer_expiry_ms)
                await self.save_producers(partition)
            except (StorageError, OSError) as error:
                # Its topic was deleted in the meantime, or its disk fails: the others must not wait for it.
                log.warning("maintenance of %r failed: %s", partition, error)
        for machine in machines:
            if machine.wants_snapshot:
                await self.save_machine(machine)
        for gone in [partition for partition in self._saved if partition.is_closed]:
            del self._saved[gone]
        for gone in [partition for partition in self._starting if partition.is_closed]:
            del self._starting[gone]

    async def stop(self) -> None:
        for task in self._trims:
            task.cancel()
        await asyncio.gather(*self._trims, return_exceptions=True)

    # ---- the log's start ------------------------------------------------------------------------

    async def _retain(self, partition: Partition, now_ms: int) -> None:
        config, kept, keep_from = partition.config, partition.log, partition.high_watermark

        def find_start() -> Offset:
            kept.maybe_roll(now_ms)
            return kept.retention_start(now_ms, config.retention_ms, config.retention_bytes, keep_from)

        start = await self._table.on_writer(partition, find_start)
        if start > kept.start_offset and await self.drop_before(partition, start):
            log.info("retention: %r starts at %d now", partition, kept.start_offset)

    def on_trimmed(self, partition: Partition) -> None:
        """Records were deleted on request: free what can be freed, in the background."""
        task = asyncio.ensure_future(self._trim(partition))
        self._trims[task] = None
        task.add_done_callback(self._trims.pop)

    async def _trim(self, partition: Partition) -> None:
        offset, kept = partition.trimmed_to, partition.log
        if not isinstance(partition.state, MessageState) or offset <= kept.start_offset:
            return

        def batch_start() -> Offset:
            # A batch goes as a whole, so the log begins with the one that holds the first record that stays.
            for header, _ in kept.headers(offset, Offset(offset + 1)):
                return header.base_offset
            return offset

        try:
            start = offset if offset >= kept.end_offset else await self._table.in_pool(batch_start)
            await self.drop_before(partition, start)
        except (StorageError, OSError) as error:
            log.warning("%r: deleted records are still on the disk: %s", partition, error)

    async def drop_before(self, partition: Partition, start: Offset) -> bool:
        """Let a partition's log begin at `start`, a batch boundary that is committed; False if not now."""
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
            """Whether it has begun anew, or a leader's snapshot takes its place, in the meantime."""
            return replica.node is not node or replica.entries is not entries or entries.base != known

        def producers_at_start() -> bytes:
            stored = state.snapshots.load_latest(BASE_SNAPSHOT, not_after=before)
            table = ProducerTable() if stored is None else ProducerTable.from_bytes(unpack_snapshot(stored.payload)[1])
            now_ms = self._table.seen_ms()
            for header, _ in kept.headers(before, start):
                table.apply(header, now_ms)
            return table.to_bytes()

        def save_base() -> bool:
            # On the writer thread, where installations happen: the ledger names the base that is in use now.
            if replica.ledger.base != used:
                return False
            # A crash may have come between this and the ledger: such a base is in nobody's use. Two are kept, and
            # the one that is in use must be among them.
            state.snapshots.remove_after(BASE_SNAPSHOT, before)
            state.snapshots.save(BASE_SNAPSHOT, start, payload)
            return True

        try:
            payload = pack_snapshot(meta, await self._table.in_pool(producers_at_start))
        except (StorageError, OSError):
            if is_replaced():
                return False  # what was read is gone, and is not needed
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
        """Save the producers' table if enough was written since the last time, so that a start stays quick."""
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
            # On the writer thread, so after the batches that the table speaks of, unless their append failed.
            if partition.log.end_offset != offset:
                return False
            # Flushed first: a crash that took those batches would make this snapshot void.
            partition.log.flush()
            snapshots.save(PRODUCERS_SNAPSHOT, offset, payload)
            return True

        if await self._table.on_writer(partition, save):
            self._saved[partition] = (written, offset)

    async def save_machine(self, machine: MachineLog) -> None:
        """Snapshot a state machine, and drop what the older of its two snapshots covers."""
        try:
            await self._save_machine(machine)
        except (StorageError, OSError) as error:
            log.warning("no snapshot of %r: %s", machine.partition, error)

    async def _save_machine(self, machine: MachineLog) -> None:
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
            # A leader's machine is ahead of what is committed, a busy one always. What it was counts once that is, too.
            try:
                await durable(partial(partition.when_durable, offset), f"what a snapshot of {partition!r} tells")
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
                return None  # a leader's snapshot has taken the place of all this
            state.snapshots.save(STATE_SNAPSHOT, offset, payload)
            # The log is kept from the older of the two snapshots on: should the newer one be damaged,
            # the older one and the log still amount to everything.
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
        machine.on_snapshot_saved()
