"""Walking a log file from batch to batch, without any index.

Recovery after a crash, rebuilding an index and checking data read from a disk all step through the bytes and check of
each batch: is it a batch, is it complete, does its checksum match, and does it have the next offset? The last check
matters as much as the others: a stale batch that reappeared because a truncation was lost is valid by itself.

Zero bytes (a file size that was stored without its data) are not a batch: the format number of a batch is 2.
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
_CHECKED = Struct(">qi4xbI2xi")
"""Base offset, length, magic, crc and last offset delta: what a check needs of a header."""
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

    Raises `BadBatch` at the first invalid one. Without `verify` the records are not checked, and not even read if
    batches are large.
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
        size = header.length + LENGTH_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE or position + size > end or header.base_offset != offset:
            raise BadBatch(position, offset, _problem(header, end - position))
        if verify:
            if at + size > len(chunk):
                chunk = memoryview(files.read(handle, max(size, min(chunk_bytes, end - position)), position))
                chunk_start, at = position, 0
                if len(chunk) < size:
                    raise BadBatch(position, offset, "the file ends within a batch")
            if crc32c(chunk[at + _CRC_START : at + size]) != header.crc:
                raise BadBatch(position, offset, "the checksum does not match the batch")
        if header.last_offset_delta < 0:
            raise BadBatch(position, offset, "the batch ends before it begins")
        yield position, header
        position += size
        offset = Offset(offset + header.last_offset_delta + 1)


def _problem(header: BatchHeader, bytes_left: int) -> str:
    """Why this header cannot belong to the batch that should begin there."""
    if header.magic != MAGIC or header.size < HEADER_SIZE:
        return "no record batch begins here"
    if header.size > bytes_left:
        return f"the batch says it has {header.size} bytes, but only {bytes_left} are there"
    return f"the batch begins with offset {header.base_offset}"


def check(data: Buffer, position: int, offset: Offset) -> None:
    """Verify bytes that were read from `position`: intact batches without a gap, the first containing `offset`.

    The check for gaps is needed because the base offset is not covered by the checksum.
    """
    view = memoryview(data)
    at, end = 0, len(view)
    unpack = _CHECKED.unpack_from
    expected = Offset(min(offset, _PREFIX.unpack_from(view)[0])) if end >= HEADER_SIZE else offset
    while at < end:
        if end - at < HEADER_SIZE:
            raise BadBatch(position + at, offset, "the data ends within a batch header")
        base, length, magic, crc, last_delta = unpack(view, at)
        after = at + length + LENGTH_OVERHEAD
        if magic != MAGIC or after < at + HEADER_SIZE or after > end or base != expected:
            raise BadBatch(position + at, offset, _problem(read_header(view, at), end - at))
        if crc32c(view[at + _CRC_START : after]) != crc:
            raise BadBatch(position + at, offset, "the checksum does not match the batch")
        expected = Offset(base + last_delta + 1)
        if at == 0 and expected <= offset:
            raise BadBatch(position, offset, f"the batch ends with offset {expected - 1}")
        at, offset = after, expected


def find_batch(data: bytes, offset: Offset) -> int | None:
    """The position in `data` of any intact batch with a base offset beyond `offset`.

    Used on the bytes after a bad batch: a torn write leaves nothing intact there, so an intact batch is kept for an
    operator to examine.
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
