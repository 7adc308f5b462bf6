"""Reads leased records from the log of their partition: as few bytes as batches allow.

A member may lease a few records of a batch of thousands. Whole batches would then send, and the member would decode,
many times what was leased. So where less than half of an uncompressed batch is wanted, it is cut: a batch of its own is
made of the records between the first and the last one that are wanted. The batch that was cut last in a partition is
kept in memory, with the positions of its records, because its other records are asked for next.

Compressed batches are sent whole, and a batch may hold records that were not leased. Members skip those.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drmq.broker.partitions.partition import Partition
from drmq.leases import Delivery
from drmq.model import GroupId, Offset
from drmq.records import HEADER_SIZE, BatchHeader, Buffer, Codec, InvalidBatch, cut_batch, iter_batches
from drmq.storage import LogCorrupt, OffsetOutOfRange, StorageError

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

_KEPT_BYTES_MAX = 16_777_216
"""Batches that are kept, of all partitions together."""
_CUT_BYTES_MIN = 2_048
"""A smaller batch is sent whole: to cut it would cost more than it saves."""


class Found(NamedTuple):
    """The records of some deliveries."""

    records: Sequence[Buffer]
    """Batches."""
    size: int
    read: tuple[Delivery, ...]
    """What is in the batches."""
    unread: tuple[Delivery, ...]
    """What did not fit, or could not be read."""


class CutBatch:
    """A batch of which records are cut out."""

    def __init__(self, batch: Buffer, header: BatchHeader) -> None:
        self.batch = memoryview(batch)
        self.header = header
        self._starts = array("I", (HEADER_SIZE,))
        """The position of each record up to the furthest that was cut out, and that of the next one."""

    def cut(self, first: int, last: int) -> Buffer:
        """A batch of the records with these offsets. The whole one if it is not what its header says."""
        begin, end = first - self.header.base_offset, last - self.header.base_offset
        if not self._find(end + 1):
            return self.batch
        return cut_batch(self.batch, self._starts[begin], self._starts[end + 1], end - begin + 1, end)

    def _find(self, number: int) -> bool:
        """Find where the records up to `number` begin."""
        starts, batch = self._starts, self.batch
        position, size = starts[-1], len(batch)
        while len(starts) <= number:
            # The length of a record, in zigzag base-128.
            length = shift = 0
            while True:
                if position >= size:
                    return False
                byte = batch[position]
                position += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            position += length >> 1
            if length & 1 or position > size:
                return False
            starts.append(position)
        return True


class LeasedRecords:
    """Reads the records of deliveries. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: OrderedDict[GroupId, CutBatch] = OrderedDict()
        """The batch that was cut last, by partition; the one that was not used for longest is first."""
        self._kept_bytes = 0

    def read(
        self, partition: Partition, deliveries: Sequence[Delivery], bytes_max: int
    ) -> Found | asyncio.Future[Found]:
        """The records of these deliveries, in ascending order: at least one batch, then as many as fit."""
        found = self._read(partition, deliveries, bytes_max, cached_only=True)
        if found is None:
            return asyncio.ensure_future(self._read_from_disk(partition, deliveries, bytes_max))
        return found

    async def _read_from_disk(self, partition: Partition, deliveries: Sequence[Delivery], bytes_max: int) -> Found:
        blocking = self._broker.blocking

        def read() -> Found:
            found = self._read(partition, deliveries, bytes_max, cached_only=False)
            assert found is not None, partition
            return found

        return await self._broker.services.reads.from_disk.run("", lambda: blocking(read))

    def _read(
        self, partition: Partition, deliveries: Sequence[Delivery], bytes_max: int, *, cached_only: bool
    ) -> Found | None:
        """May run on any thread. None if the data is not in the page cache."""
        wanted = _Wanted(deliveries, bytes_max)
        try:
            while wanted.has_room() and partition.may_read and not partition.is_closed:
                if wanted.at < partition.start_offset:
                    break  # It was deleted.
                # What is kept belongs to the event loop.
                kept = self._kept.get(partition.group) if cached_only else None
                if kept is not None and kept.header.base_offset <= wanted.at < kept.header.next_offset:
                    self._add(wanted, kept.batch, kept.header, 0, kept)
                    self._kept.move_to_end(partition.group)
                    continue
                up_to = min(partition.high_watermark, wanted.last + 1)
                data = partition.log.read(Offset(wanted.at), wanted.room, Offset(up_to), cached_only)
                if data is None:
                    return None
                at = wanted.at
                view = memoryview(data)
                for position, header in iter_batches(view):
                    if not wanted.has_room() or header.base_offset > wanted.last:
                        break
                    cut = self._add(wanted, view[position : position + header.size], header, len(data))
                    if cut is not None and cached_only:
                        self._keep(partition.group, cut)
                if wanted.has_room() and wanted.at == at:
                    break
        except LogCorrupt as error:
            self._broker.services.reads.on_storage_error(partition, error)
        except (OffsetOutOfRange, StorageError, InvalidBatch):
            # The records, or the topic, are gone.
            pass
        return wanted.found()

    def _add(
        self, wanted: _Wanted, batch: Buffer, header: BatchHeader, read_size: int, kept: CutBatch | None = None
    ) -> CutBatch | None:
        """Add what is wanted of a batch. Returns the batch if it was cut."""
        first, last = wanted.take(header.base_offset, header.next_offset - 1)
        if first > last:
            return None
        if (
            2 * (last - first + 1) >= header.record_count
            or header.codec != Codec.NONE
            or len(batch) < _CUT_BYTES_MIN
            or header.record_count != header.last_offset_delta + 1
        ):
            wanted.add(batch)
            return None
        cut = kept
        if cut is None:
            # A view keeps all that was read.
            cut = CutBatch(batch if read_size < 2 * len(batch) else bytes(batch), header)
        wanted.add(cut.cut(first, last))
        return cut

    def _keep(self, group: GroupId, cut: CutBatch) -> None:
        before = self._kept.pop(group, None)
        self._kept[group] = cut
        self._kept_bytes += len(cut.batch) - (0 if before is None else len(before.batch))
        while self._kept_bytes > _KEPT_BYTES_MAX:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.batch)


class _Wanted:
    """What is still to be read, and what was."""

    def __init__(self, deliveries: Sequence[Delivery], bytes_max: int) -> None:
        self._deliveries = deliveries
        self._index = 0
        self.at = deliveries[0].first
        """The next offset to read."""
        self._bytes_max = bytes_max
        self._size = 0
        self._parts: list[Buffer] = []

    def has_room(self) -> bool:
        """Whether something is left to read, and there is room for it."""
        return self._index < len(self._deliveries) and (self._size < self._bytes_max or not self._parts)

    @property
    def room(self) -> int:
        return max(1, self._bytes_max - self._size)

    @property
    def last(self) -> int:
        """The last offset of the present delivery."""
        return self._deliveries[self._index].last

    def take(self, base: int, last: int) -> tuple[int, int]:
        """The first and the last offset that are wanted of a batch from `base` to `last`; what follows is next."""
        if last < self.at:
            return 0, -1
        first = max(self.at, base)
        end = first - 1
        while self._index < len(self._deliveries):
            delivery = self._deliveries[self._index]
            if delivery.first > last:
                break
            end = min(delivery.last, last)
            if delivery.last > last:
                self.at = last + 1
                return first, end
            self._index += 1
            self.at = self._deliveries[self._index].first if self._index < len(self._deliveries) else delivery.last + 1
        return first, end

    def add(self, part: Buffer) -> None:
        self._parts.append(part)
        self._size += len(part)

    def found(self) -> Found:
        index, deliveries = self._index, self._deliveries
        if index == len(deliveries):
            return Found(self._parts, self._size, tuple(deliveries), ())
        current = deliveries[index]
        read, unread = list(deliveries[:index]), list(deliveries[index:])
        if current.first < self.at:
            read.append(current._replace(last=self.at - 1))
            unread[0] = current._replace(first=self.at)
        return Found(self._parts, self._size, tuple(read), tuple(unread))
