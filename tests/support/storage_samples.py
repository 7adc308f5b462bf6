"""Batches and logs for the tests of storage."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import pack_into

from crc32c import crc32c

from drmq.model import LeaderEpoch, Offset
from drmq.records import BatchHeader, Buffer, iter_batches, read_header
from drmq.records.header import HEADER
from drmq.storage import Log

Batch = tuple[BatchHeader, bytes]


def batch(offset: int, count: int = 1, size: int = 40, timestamp: int = 1000, epoch: int = 0, seed: int = 0) -> Batch:
    """A valid batch of `count` records whose records are random bytes."""
    body = random.Random(f"{seed}/{offset}").randbytes(size)
    fields = (offset, 49 + size, epoch, 2, 0, 0, count - 1, timestamp, timestamp, -1, -1, -1, count)
    data = bytearray(HEADER.pack(*fields) + body)
    pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return read_header(data), bytes(data)


def row(
    offset: int,
    batch_count: int,
    *,
    count: int = 1,
    size: int = 40,
    timestamp: int = 1000,
    epoch: int = 0,
    seed: int = 0,
) -> list[Batch]:
    """Batches one after the other, one millisecond apart."""
    return [
        batch(offset + number * count, count, size, timestamp + number, epoch, seed) for number in range(batch_count)
    ]


def append(log: Log, batch_count: int, *, flush: bool = True, **options: int) -> list[Batch]:
    """Append a row of batches at the end of a log."""
    batches = row(log.end_offset, batch_count, **options)
    log.append(batches)
    if flush:
        log.flush()
    return batches


def joined(batches: Sequence[tuple[BatchHeader, Buffer]]) -> bytes:
    """The bytes of batches, one after the other."""
    return b"".join(bytes(data) for _, data in batches)


def read_all(log: Log, max_bytes: int = 1 << 20, start: int | None = None, cached_only: bool = False) -> bytes:
    """Everything that can be read, call by call."""
    parts = []
    offset, end = Offset(log.start_offset if start is None else start), log.flushed_offset
    while offset < end:
        data = log.read(offset, max_bytes, end, cached_only)
        assert data, (offset, end)
        parts.append(bytes(data))
        for _, header in iter_batches(data):
            offset = header.next_offset
    return b"".join(parts)


def epoch(number: int) -> LeaderEpoch:
    return LeaderEpoch(number)


def apply_retention(
    log: Log, now_ms: int, retention_ms: int = -1, retention_bytes: int = -1, keep_from: Offset | None = None
) -> int:
    """Remove what is too old or too much; how many segments that were."""
    start = log.retention_start(now_ms, retention_ms, retention_bytes, keep_from)
    if log.start_offset < start == log.end_offset:
        log.roll()  # as `drop_prefix` would: there is always one
    before = log.segment_count
    log.drop_prefix(start)
    return before - log.segment_count
