"""Walking a log file from batch to batch, without any index.

Opening after a crash, rebuilding an index and checking what a disk returned all step through the
bytes and ask of each batch: is it one, is it whole, does its checksum hold, and does it carry the
offset that comes next? The last question matters as much as the others: a stale batch that
an old, lost truncation brought back is sound in itself.

Zero bytes (a length that outlived its data) are no batch: the format number of a batch is 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from crc32c import crc32c

from drmq.model import Offset
from drmq.records import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, Buffer, read_header
from drmq.storage.files import Files

CHUNK_BYTES = 1 << 20
_CRC_START = 21
_PREFIX = Struct(">qi")
_MAGIC_AT = 16


class BadBatch(Exception):
    """The bytes at `position` are not the batch that should begin there with `offset`."""

    def __init__(self, position: int, offset: Offset, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.offset = offset
        self.problem = problem


def walk(
    files: Files, handle: int, position: int, end: int, offset: Offset, *, verify: bool = True
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position`, where `offset` begins, up to `end`.

    Raises `BadBatch` at the first that is not as it should be. Without `verify` the records are not
    looked at, and not even read where batches are large.
    """
    chunk_bytes = CHUNK_BYTES if verify else CHUNK_BYTES // 64
    chunk: memoryview = memoryview(b"")
    chunk_start = position
    while position < end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk = memoryview(files.read(handle, min(chunk_bytes, end - position), position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_SIZE:
                raise BadBatch(position, offset, "the file ends within a batch header")
        header = read_header(chunk, at)
        problem = _problem(header, offset, end - position)
        if problem:
            raise BadBatch(position, offset, problem)
        if verify:
            size = header.length + LENGTH_OVERHEAD
            if at + size > len(chunk):
                chunk = memoryview(files.read(handle, max(size, min(chunk_bytes, end - position)), position))
                chunk_start, at = position, 0
                if len(chunk) < size:
                    raise BadBatch(position, offset, "the file ends within a batch")
            if crc32c(chunk[at + _CRC_START : at + size]) != header.crc:
                raise BadBatch(position, offset, "the checksum does not match the batch")
        yield position, header
        position += header.length + LENGTH_OVERHEAD
        offset = header.next_offset


def _problem(header: BatchHeader, offset: Offset, bytes_left: int) -> str | None:
    """Why this header cannot be that of the batch that begins with `offset`."""
    if header.magic != MAGIC or header.length < HEADER_SIZE - LENGTH_OVERHEAD or header.last_offset_delta < 0:
        return "no record batch begins here"
    if header.size > bytes_left:
        return f"the batch says it has {header.size} bytes, but the file has only {bytes_left} more"
    if header.base_offset != offset:
        return f"the batch begins with offset {header.base_offset}"
    return None


def check(data: Buffer, position: int, offset: Offset) -> None:
    """Verify bytes that were read from `position`: sound batches without a gap, the first containing `offset`.

    The gap matters because the base offset lies outside the checksum.
    """
    view = memoryview(data)
    at, end = 0, len(view)
    expected = Offset(min(offset, _PREFIX.unpack_from(view)[0])) if end >= HEADER_SIZE else offset
    while at < end:
        if end - at < HEADER_SIZE:
            raise BadBatch(position + at, offset, "the data ends within a batch header")
        header = read_header(view, at)
        problem = _problem(header, expected, end - at)
        if problem:
            raise BadBatch(position + at, offset, problem)
        after = at + header.length + LENGTH_OVERHEAD
        if crc32c(view[at + _CRC_START : after]) != header.crc:
            raise BadBatch(position + at, offset, "the checksum does not match the batch")
        if at == 0 and header.next_offset <= offset:
            raise BadBatch(position, offset, f"the batch ends with offset {header.next_offset - 1}")
        at, offset, expected = after, header.next_offset, header.next_offset


def find_batch(data: bytes, offset: Offset) -> int | None:
    """Where in `data` a sound batch with a base offset beyond `offset` begins, wherever that is.

    Asked of the bytes behind a bad batch: a torn write leaves nothing sound there, so a sound
    batch is worth keeping for a person to look at.
    """
    magic_at = data.find(MAGIC, _MAGIC_AT)
    while magic_at >= 0:
        start = magic_at - _MAGIC_AT
        if start + HEADER_SIZE > len(data):
            return None
        base, length = _PREFIX.unpack_from(data, start)
        end = start + length + LENGTH_OVERHEAD
        if (
            offset < base < offset + (1 << 40)
            and start + HEADER_SIZE <= end <= len(data)
            and crc32c(memoryview(data)[start + _CRC_START : end]) == read_header(data, start).crc
        ):
            return start
        magic_at = data.find(MAGIC, magic_at + 1)
    return None
