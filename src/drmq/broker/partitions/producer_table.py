"""The last batches of each producer: the table that makes a producer's retry harmless.

An idempotent producer numbers its batches. For each producer the table keeps its epoch and its last five batches with
their offsets (five, because a client has at most that many in flight). A batch that is one of the five is a retry, and
is answered with its original offset; one that follows the last is new; any other would leave a gap or a repeat, and is
refused.

Pure: headers and times in, results out. The table is a function of the log: `apply` over all batch headers rebuilds it.
A snapshot of it carries the offset up to which headers were applied, so that retention may remove the batches that it
was built from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from drmq.model import ApiError, ErrorCode, Offset, UnknownFormat
from drmq.records import BatchHeader

BATCHES_KEPT = 5
PRODUCERS_MAX = 20_000
"""Producers remembered per partition. Beyond this, the producer that has been silent longest is forgotten."""

_SEQUENCE_LIMIT = 2**31

_MARK = Struct(">q")
"""A table of a later version starts with its version, negated. No producer id is negative."""
_PRODUCER = Struct(">qhqB")
_BATCH = Struct(">iiqq")


class UnknownTable(UnknownFormat):
    """A table of producers that a later release wrote."""


class WrittenBatch(NamedTuple):
    """A batch in the log: its sequence numbers (both ends included) and its offsets."""

    first_sequence: int
    last_sequence: int
    base_offset: Offset
    next_offset: Offset


@dataclass(slots=True)
class Producer:
    """What is known about one producer."""

    epoch: int
    last_seen_ms: int
    """By the broker's clock: the timestamps of records come from the client and may be years old."""
    batches: list[WrittenBatch]


class ProducerTable:
    """The producers of one partition, in the order of their last batches."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def by_id(self) -> Mapping[int, Producer]:
        """The producers, to be read only."""
        return self._producers

    def find_repeat(self, header: BatchHeader) -> WrittenBatch | None:
        """The batch in the log that this one repeats, or None if it is new.

        Raises `ApiError` for a batch that is neither. Changes nothing.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            # An unknown producer may begin anywhere: its earlier batches may have expired long ago.
            return None
        if header.producer_epoch != producer.epoch:
            self._check_new_epoch(header, producer)
            return None
        first = header.base_sequence
        last = _advance(first, header.record_count - 1)
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        newest = producer.batches[-1]
        expected = _advance(newest.last_sequence, 1)
        if first == expected:
            return None
        if 0 < (producer.batches[0].first_sequence - first) % _SEQUENCE_LIMIT < _SEQUENCE_LIMIT // 2:
            raise ApiError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: sequence {first} was written long ago",
            )
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}: sequence {first} where {expected} should follow",
        )

    def _check_new_epoch(self, header: BatchHeader, producer: Producer) -> None:
        if header.producer_epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id}: epoch {header.producer_epoch} is fenced by epoch {producer.epoch}",
            )
        if header.base_sequence != 0:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: a new epoch begins at sequence 0, not {header.base_sequence}",
            )

    def apply(self, header: BatchHeader, seen_ms: int) -> None:
        """Record a batch that is in the log; its header carries its offset."""
        if header.producer_id < 0 or header.is_control:
            return
        batch = WrittenBatch(
            header.base_sequence,
            _advance(header.base_sequence, header.record_count - 1),
            header.base_offset,
            header.next_offset,
        )
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            self._producers[header.producer_id] = Producer(header.producer_epoch, seen_ms, [batch])
        else:
            producer.last_seen_ms = max(producer.last_seen_ms, seen_ms)
            producer.batches.append(batch)
            if len(producer.batches) > BATCHES_KEPT:
                del producer.batches[0]
        self._producers.move_to_end(header.producer_id)
        if len(self._producers) > PRODUCERS_MAX:
            self._producers.popitem(last=False)

    def forget_idle(self, older_than_ms: int) -> int:
        """Drop the producers that have been silent since before this time; returns their number."""
        idle = [key for key, producer in self._producers.items() if producer.last_seen_ms < older_than_ms]
        for key in idle:
            del self._producers[key]
        return len(idle)

    def forget_oldest(self, kept_max: int) -> int:
        """Drop the producers that have been silent longest, until `kept_max` are left; returns their number."""
        count = max(0, len(self._producers) - kept_max)
        for _ in range(count):
            self._producers.popitem(last=False)
        return count

    # ---- snapshots ------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        out = bytearray()
        for producer_id, producer in self._producers.items():
            out += _PRODUCER.pack(producer_id, producer.epoch, producer.last_seen_ms, len(producer.batches))
            for batch in producer.batches:
                out += _BATCH.pack(*batch)
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> ProducerTable:
        """The table that `to_bytes` wrote; the snapshot's checksum protects the bytes. Raises `UnknownTable`."""
        table = cls()
        position = 0
        if len(data) >= _MARK.size and (version := -_MARK.unpack_from(data)[0]) > 0:
            raise UnknownTable(
                f"a table of producers of version {version}, and this version of DRMQ knows version 1; "
                "start the version that wrote it"
            )
        while position < len(data):
            producer_id, epoch, last_seen_ms, batch_count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            batches = []
            for _ in range(batch_count):
                batches.append(WrittenBatch._make(_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            table._producers[producer_id] = Producer(epoch, last_seen_ms, batches)
        return table


def _advance(sequence: int, count: int) -> int:
    """Add to a sequence number. Sequence numbers wrap from 2^31 - 1 to 0."""
    return (sequence + count) % _SEQUENCE_LIMIT
