"""Record batches to columns, the plain way: one Python object per record.

This stands in for the decoder proper, behind the same door: `iter_columns` walks the batches of a
Fetch answer and yields pieces of bounded size, `arrow.record_batch` makes a pyarrow batch of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from drmq.records import Buffer, decode_batch, iter_batches

IMPLEMENTATION = "pure"


@dataclass(slots=True)
class Columns:
    """A piece: plain lists, all of the same length, and where reading goes on."""

    next_offset: int
    offset_list: list[int] = field(default_factory=list)
    timestamp_list: list[int] = field(default_factory=list)
    timestamp_type_list: list[int] = field(default_factory=list)
    key_list: list[bytes | None] = field(default_factory=list)
    value_list: list[bytes | None] = field(default_factory=list)
    headers_list: list[list[tuple[str, bytes | None]] | None] | None = None

    @property
    def row_count(self) -> int:
        return len(self.offset_list)


def iter_columns(
    data: Buffer,
    *,
    start_offset: int,
    end_offset: int,
    decompressed_size_max: int,
    include_headers: bool = False,
    want_key: bool = True,
    want_value: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    rows_max: int = 65_536,
    bytes_max: int = 16 * 2**20,
) -> Iterator[Columns]:
    """The records with `start_offset <= offset < end_offset`, in pieces; the last may be empty."""
    piece = Columns(start_offset, headers_list=[] if include_headers else None)
    size = 0
    for position, header in iter_batches(data):
        if header.base_offset >= end_offset:
            piece.next_offset = end_offset
            break
        past = header.base_offset + header.last_offset_delta + 1
        if past <= start_offset or header.is_control:
            piece.next_offset = min(end_offset, max(piece.next_offset, past))
            continue
        batch = memoryview(data)[position : position + header.size]
        for record in decode_batch(batch, decompressed_size_max=decompressed_size_max):
            if not start_offset <= record.offset < end_offset:
                continue
            if piece.row_count >= rows_max or size >= bytes_max:
                piece.next_offset = record.offset
                yield piece
                piece, size = Columns(record.offset, headers_list=[] if include_headers else None), 0
            piece.offset_list.append(record.offset)
            piece.timestamp_list.append(record.timestamp * 1000)
            piece.timestamp_type_list.append(int(header.is_log_append_time))
            piece.key_list.append(record.key if want_key else None)
            piece.value_list.append(record.value if want_value else None)
            if piece.headers_list is not None:
                piece.headers_list.append(list(record.headers) or None)
            size += len(record.key or b"") + len(record.value or b"")
        piece.next_offset = min(end_offset, past)
        if past >= end_offset:
            break
    yield piece
