"""The walk from batch to batch: decisions that are made once per batch, before a builder reads the records.

A Fetch response contains whole batches as they were stored, so it may begin before the requested offset, end in the
middle of a batch, and contain records that a reader must not see. The headers decide nearly all of this: a batch
outside the range is skipped, control batches and those of aborted transactions are dropped, and only the rest is
decompressed, once each, even if a piece ends in the middle of one.

Aborted transactions are known from two sources. The broker lists the aborted transactions that begin at or before the
returned data, each by its producer and first offset; and the marker that ended a transaction is in the log itself.
Between the two, every transactional batch of that producer is void. So the markers must be read even in batches before
the range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from struct import Struct

from drmq.columnar.columns import INT32_MAX, INT64_MAX, Columns, as_columns
from drmq.columnar.implementation import BUILDER
from drmq.columnar.outcome import Batch, Bounds, Builder, Outcome, Place, describe
from drmq.model import ErrorCode
from drmq.records import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    InvalidBatch,
    batch_is_intact,
    decode_batch,
    decompress,
    iter_batches,
)

ROWS_MAX = 65_536
BYTES_MAX = 4 * 2**20
"""Large enough that the cost per piece is negligible, and small enough that malloc reuses the memory of the last piece.
Memory for larger pieces comes from the kernel each time, and with 1 KB records half of the time goes into page
faults."""

BYTES_MAX_LIMIT = 2**30
"""Half of what 32-bit offsets can address."""

_EXPECTED_STEP = 2**20

_CONTROL_KEY = Struct(">hh")
_ABORT = 0


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
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
    builder: type[Builder] = BUILDER,
) -> Iterator[Columns]:
    """The records of `data` with `start_offset <= offset < end_offset`, piece by piece.

    `data` is what a Fetch response has for one partition; an incomplete batch at its end is left for the next Fetch. A
    piece has at most `rows_max` rows and `bytes_max` bytes of keys, values and headers, but a larger row comes alone.
    There is always a last piece, possibly without rows: its `next_offset`, from `start_offset` to `end_offset`, is
    where to fetch next. If that is `start_offset`, no batch in `data` was complete.

    `aborted` is the list of the Fetch response, as pairs of producer id and first offset; with it, only committed
    records are returned. `decompressed_size_max` is per batch. Raises `InvalidBatch` for bad bytes; the rows since the
    last piece are then lost. `data` must not be changed until the last piece has been returned.
    """
    if not 0 <= start_offset <= end_offset <= INT64_MAX:
        raise ValueError(f"offsets from {start_offset} to {end_offset} are no range of offsets")
    if not 1 <= rows_max < INT32_MAX:
        raise ValueError(f"rows_max={rows_max} is not between 1 and {INT32_MAX - 1}")
    if not 1 <= bytes_max <= BYTES_MAX_LIMIT:
        raise ValueError(f"bytes_max={bytes_max} is not between 1 and {BYTES_MAX_LIMIT}")
    if not 0 <= decompressed_size_max <= INT32_MAX:
        raise ValueError(f"decompressed_size_max={decompressed_size_max} is not between 0 and {INT32_MAX}")
    view = memoryview(data)
    if view.nbytes and (view.format != "B" or view.ndim != 1):
        view = view.cast("B")
    # Exact if nothing is compressed, and a first guess otherwise. Rounded, so that pieces of about the same size
    # request the same amount and reuse the memory of the piece before.
    bytes_expected = min(bytes_max, -(-view.nbytes // _EXPECTED_STEP) * _EXPECTED_STEP)
    bounds = Bounds(start_offset, end_offset, rows_max, bytes_max, bytes_expected)
    walk = _Walk(bounds, _Aborted(aborted) if aborted else None, decompressed_size_max)
    return walk.pieces(view, lambda: builder(want_key, want_value, include_headers))


def decode(
    data: Buffer,
    *,
    start_offset: int,
    end_offset: int,
    decompressed_size_max: int,
    include_headers: bool = False,
    want_key: bool = True,
    want_value: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    rows_max: int = INT32_MAX - 1,
    bytes_max: int = BYTES_MAX_LIMIT,
    builder: type[Builder] = BUILDER,
) -> Columns:
    """The first piece of `iter_columns`, which is nearly always the only one.

    If the limits cut it short, call again with `start_offset` at its `next_offset`, on the same `data` and with the
    same `aborted`, until `next_offset` no longer changes.
    """
    return next(
        iter_columns(
            data,
            start_offset=start_offset,
            end_offset=end_offset,
            decompressed_size_max=decompressed_size_max,
            include_headers=include_headers,
            want_key=want_key,
            want_value=want_value,
            aborted=aborted,
            rows_max=rows_max,
            bytes_max=bytes_max,
            builder=builder,
        )
    )


class _Walk:
    """One pass over one Fetch response; `_next_offset` is how far it has come."""

    def __init__(self, bounds: Bounds, aborted: _Aborted | None, decompressed_size_max: int) -> None:
        self._bounds = bounds
        self._aborted = aborted
        self._decompressed_size_max = decompressed_size_max
        self._next_offset = bounds.start_offset

    def pieces(self, data: memoryview, new_builder: Callable[[], Builder]) -> Iterator[Columns]:
        builder = new_builder()
        reported_offset = None
        for batch, body in self._bodies(data):
            place = Place()
            while True:
                outcome, position, done_count, last_delta, first, second = builder.add(body, place, batch, self._bounds)
                place = Place(position, done_count, last_delta)
                if outcome in (Outcome.FINISHED, Outcome.PAST_END):
                    break
                if outcome != Outcome.FULL:
                    raise _corrupt(batch.base_offset, describe(outcome, batch, place, first, second))
                reported_offset = max(self._next_offset, batch.base_offset + last_delta + 1)
                yield as_columns(builder.finish(), reported_offset)
                builder = new_builder()
            del body  # Before the next one is decompressed, or both would take memory at once.
        if builder.row_count or reported_offset != self._next_offset:
            yield as_columns(builder.finish(), self._next_offset)

    def _bodies(self, data: memoryview) -> Iterator[tuple[Batch, Buffer]]:
        """The uncompressed records of each batch that a reader may see and that overlaps the range.

        When the next one is requested, the last one has been read.
        """
        start_offset, end_offset = self._bounds.start_offset, self._bounds.end_offset
        log_offset = None
        for position, header in iter_batches(data):
            if self._next_offset == end_offset:
                return
            _check_range(header, log_offset)
            log_offset = header.next_offset
            if header.base_offset >= end_offset:
                self._next_offset = end_offset
                return
            if header.next_offset > start_offset or self._aborted is not None:
                batch = data[position : position + header.size]
                try:
                    body = self._open(header, batch)
                except InvalidBatch as error:
                    raise InvalidBatch(error.code, _in_batch(header.base_offset, str(error))) from None
                if body is not None and header.next_offset > start_offset:
                    yield _batch_of(header), body
                del body
            self._next_offset = min(max(self._next_offset, header.next_offset), end_offset)

    def _open(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """The uncompressed records of `batch`, or `None` if a reader must not see them."""
        # Also checked for batches that are dropped: the reason to drop one is in the bytes that the checksum covers.
        if not batch_is_intact(batch):
            raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "its checksum does not match")
        if self._aborted is not None and self._aborted.covers(header, batch):
            return None
        if header.is_control or header.next_offset <= self._bounds.start_offset:
            return None
        return decompress(header.codec, batch[HEADER_SIZE:], self._decompressed_size_max)


class _Aborted:
    """Which producers are in an aborted transaction, at the present position of the walk."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._to_come = deque(sorted((first_offset, producer_id) for producer_id, first_offset in aborted))
        self._producers: set[int] = set()

    def covers(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether this batch, the next one of the walk, belongs to an aborted transaction."""
        if header.producer_id < 0:
            return False
        while self._to_come and self._to_come[0][0] < header.next_offset:
            self._producers.add(self._to_come.popleft()[1])
        if header.producer_id not in self._producers:
            return False
        if header.is_control:
            if _is_abort_marker(batch):
                self._producers.discard(header.producer_id)
            return False
        return header.is_transactional


def _is_abort_marker(batch: memoryview) -> bool:
    # A marker is one record of a dozen bytes, and brokers do not compress it.
    records = decode_batch(batch, decompressed_size_max=0)
    key = records[0].key if records else None
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "a control batch without a type")
    _, kind = _CONTROL_KEY.unpack_from(key)
    return bool(kind == _ABORT)


def _check_range(header: BatchHeader, log_offset: int | None) -> None:
    """Raise for a batch with impossible offsets. The checksum does not cover base offsets, so nothing else would."""
    if header.record_count < 0 or header.last_offset_delta < 0:
        reason = f"it has {header.record_count} records with last offset delta {header.last_offset_delta}"
        raise _corrupt(header.base_offset, reason)
    if header.next_offset > INT64_MAX:
        raise _corrupt(header.base_offset, "its offsets do not fit into 64 bits")
    if log_offset is not None and header.base_offset < log_offset:
        raise _corrupt(header.base_offset, f"the one before it ends at {log_offset}")


def _batch_of(header: BatchHeader) -> Batch:
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    return Batch(
        header.record_count, header.base_offset, header.last_offset_delta, timestamp, header.is_log_append_time
    )


def _in_batch(base_offset: int, reason: str) -> str:
    return f"the batch at offset {base_offset} cannot be read: {reason}"


def _corrupt(base_offset: int, reason: str) -> InvalidBatch:
    return InvalidBatch(ErrorCode.CORRUPT_MESSAGE, _in_batch(base_offset, reason))
