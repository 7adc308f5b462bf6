"""Reading dead letters from their topic, whichever node leads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drmq.broker.services.caller import Caller
from drmq.broker.services.redrive.letters import Letter, NotALetter, read_letter
from drmq.broker.services.redrive.run import Page
from drmq.model import ApiError, ErrorCode, Offset
from drmq.records import Codec, InvalidBatch, iter_batches, iter_records

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

PAGE_BYTES: Final = 1_048_576
READ_TIMEOUT_S: Final = 10.0


async def read_page(broker: Broker, caller: Caller, topic: str, partition: int, offset: int) -> Page:
    """The letters from an offset on. If the log begins later, there are none, up to its start. Raises `ApiError`."""
    router = broker.services.router
    try:
        found = await router.read(caller, topic, partition, Offset(offset), PAGE_BYTES, timeout_s=READ_TIMEOUT_S)
    except ApiError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        start, _ = await router.bounds(caller, topic, partition, timeout_s=READ_TIMEOUT_S)
        if start <= offset:
            raise
        return Page((), start)
    data, size_max = bytes(found.data), broker.options.decompressed_bytes_max
    page = await broker.blocking(lambda: page_of(data, partition, offset, size_max))
    if page.next_offset <= offset:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{partition} has nothing at offset {offset} yet")
    return page


def page_of(data: bytes, partition: int, offset: int, size_max: int) -> Page:
    """The letters in these batches, from an offset on."""
    letters: list[Letter] = []
    strangers: list[int] = []
    end = offset
    for position, header in iter_batches(data):
        end = max(end, header.next_offset)
        if header.is_control:
            continue
        try:
            for record in iter_records(data[position : position + header.size], decompressed_size_max=size_max):
                if record.offset < offset:
                    continue
                try:
                    letters.append(read_letter(partition, record, Codec(header.codec)))
                except NotALetter:
                    strangers.append(record.offset)
        except InvalidBatch:
            # No broker wrote this. What was read of it is taken back, so that each offset is in one of the lists.
            letters = [letter for letter in letters if letter.offset < header.base_offset]
            strangers = [each for each in strangers if each < header.base_offset]
            strangers += range(max(offset, header.base_offset), header.next_offset)
    return Page(letters, end, strangers)
