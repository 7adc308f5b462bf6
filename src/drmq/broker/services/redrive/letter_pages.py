"""Reading dead letters from their topic, whichever node leads it.

A client can ask for letters that fill the memory when they are decompressed. So a page ends after some bytes, also in
the middle of a batch, whose other letters are on the next page; it always has the first record at or after its offset.
A page with compressed batches is read while no other batch of the node is decompressed, and callers take turns.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from drmq.broker.services.caller import Caller
from drmq.broker.services.fair_queue import FairQueue
from drmq.broker.services.redrive.letters import Letter, NotALetter, read_letter
from drmq.broker.services.redrive.run import Page
from drmq.model import ApiError, ErrorCode, Offset
from drmq.records import Codec, InvalidBatch, Record, iter_batches, sized_records

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

PAGE_BYTES: Final = 1_048_576
"""Bytes of batches that are read for a page. At least one batch."""
PLAIN_BYTES_MAX: Final = 8_388_608
"""Bytes that the batches of a page decompress to, and bytes of its letters. At least one batch and one record."""
READ_TIMEOUT_S: Final = 10.0
_PAGES_MAX: Final = 2
"""Pages at once, of one caller one. They share the threads with reads that wait for the disk."""
_LETTER_BYTES: Final = 512
"""What a letter takes besides its content."""
_STRANGER_BYTES: Final = 64


class LetterPages:
    """Reads pages of letters for all callers of a node. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queue = FairQueue(_PAGES_MAX, 1)

    async def read(
        self, caller: Caller, topic: str, partition: int, offset: int, bytes_max: int = PLAIN_BYTES_MAX
    ) -> Page:
        """The letters from an offset on. If the log begins later, there are none, up to its start.

        Raises `ApiError`.
        """
        router = self._broker.services.router
        try:
            found = await router.read(caller, topic, partition, Offset(offset), PAGE_BYTES, timeout_s=READ_TIMEOUT_S)
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            start, _ = await router.bounds(caller, topic, partition, timeout_s=READ_TIMEOUT_S)
            if start <= offset:
                raise
            return Page((), start)
        data = bytes(found.data)
        page = await self._queue.run(caller.address, lambda: self._page(data, partition, offset, bytes_max))
        if page.next_offset <= offset:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{partition} has nothing at offset {offset} yet")
        return page

    async def _page(self, data: bytes, partition: int, offset: int, bytes_max: int) -> Page:
        blocking, size_max = self._broker.blocking, self._broker.options.decompressed_bytes_max
        is_packed = await blocking(lambda: any(header.codec != Codec.NONE for _, header in iter_batches(data)))
        async with self._broker.services.decompressing if is_packed else nullcontext():
            return await blocking(lambda: page_of(data, partition, offset, size_max, bytes_max))


def page_of(data: bytes, partition: int, offset: int, size_max: int, bytes_max: int = PLAIN_BYTES_MAX) -> Page:
    """The letters in these batches, from an offset on, up to about `bytes_max` bytes."""
    letters: list[Letter] = []
    strangers: list[int] = []
    end = offset
    plain_bytes = kept_bytes = 0
    for position, header in iter_batches(data):
        if header.next_offset <= offset or header.is_control:
            end = max(end, header.next_offset)
            continue
        # One that cannot be decompressed may have taken as much time and memory as any other.
        size = 0 if header.codec == Codec.NONE else size_max
        try:
            size, records = sized_records(data[position : position + header.size], decompressed_size_max=size_max)
            for record in records:
                if record.offset < offset:
                    continue
                if kept_bytes >= bytes_max:
                    return Page(letters, record.offset, strangers, plain_bytes + size)
                try:
                    letters.append(read_letter(partition, record, Codec(header.codec)))
                    kept_bytes += _LETTER_BYTES + _size_of(record)
                except NotALetter:
                    strangers.append(record.offset)
                    kept_bytes += _STRANGER_BYTES
        except InvalidBatch:
            # No broker wrote this. What was read of it is taken back, so that each offset is in one of the lists.
            letters = [letter for letter in letters if letter.offset < header.base_offset]
            strangers = [each for each in strangers if each < header.base_offset]
            first = max(offset, header.base_offset)
            room = max(1, (bytes_max - kept_bytes) // _STRANGER_BYTES)
            last = max(first, min(header.next_offset, first + room))
            strangers += range(first, last)
            kept_bytes += _STRANGER_BYTES * (last - first)
            end = last
        else:
            end = header.next_offset
        plain_bytes += size
        if plain_bytes >= bytes_max or kept_bytes >= bytes_max or end < header.next_offset:
            break
    return Page(letters, end, strangers, plain_bytes)


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
