"""Looking at the records of a topic: newest or oldest first, from any place, with a filter.

A page is found by reading forward in windows of offsets. With the newest first, the windows go backward from the end,
and the records of each are reversed. A cursor has the next offset of every partition, so "next" is always right, also
while records arrive. One call decodes a bounded number of records for a bounded time. If a filter finds little, the
page is short, says how much was scanned, and has a cursor that goes on there.

What a call keeps in memory is limited too, whatever batches decompress to. Of each partition it keeps a piece that
fits into the partition's share, or one record, and reads the rest when it is needed. A page ends when what it shows is
large.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from drmq.client import Admin, Bounds
from drmq.gateway.decoding import first_records
from drmq.gateway.json_filter import compile_conditions
from drmq.gateway.pattern_search import PatternSearch
from drmq.gateway.problems import ProblemError
from drmq.gateway.record_text import describe, shown_size
from drmq.gateway.types import Index, RecordPage, RecordView
from drmq.model import TopicPartition
from drmq.records import InvalidBatch, Record, iter_batches

SCANNED_MAX: Final = 50_000
"""Records that one call decodes."""
SCAN_SECONDS_MAX: Final = 5.0
WINDOW: Final = 500
"""Offsets of one window at most, when the newest come first. The first window is as large as the page."""
FETCH_BYTES: Final = 1_048_576
"""Of one request for records, and of the records that are decoded at a time, if that is within the share."""
KEPT_BYTES: Final = 8 * 1_048_576
"""Of records that one call keeps, shared by its partitions."""
SHARE_BYTES_MIN: Final = 8_192
HELD_BYTES_MAX: Final = 128 * 1_048_576
"""The same, where single records are larger than the share: a page needs the next record of each partition."""
PAGE_BYTES: Final = 8 * 1_048_576
"""A page gets no further record once it shows so much."""
_ROW_BYTES: Final = 128
"""Of memory that a record takes at least."""

Order = Literal["newest", "oldest"]
Matches = Callable[[Record], bool]


class Cursor(msgspec.Struct, forbid_unknown_fields=True):
    """Where to go on: by partition, the next offset (oldest first) or the end of what is left (newest first)."""

    order: Order
    at: dict[Index, Annotated[int, Meta(ge=0, le=2**63 - 1)]]


@dataclass(frozen=True, slots=True)
class Filter:
    """What a record must have. Everything that is given must match."""

    key: str | None = None
    text: str | None = None
    pattern: str | None = None
    header: str | None = None
    json: str | None = None

    @contextmanager
    def open(self) -> Iterator[Matches]:
        """A function that tests a record. It raises `ProblemError` for a bad filter, and so may the function."""
        checks: list[Matches] = []
        if self.key is not None:
            key = self.key.encode()
            checks.append(lambda record: record.key == key)
        if self.text is not None:
            text = self.text.encode()
            checks.append(lambda record: text in (record.value or b"") or text in (record.key or b""))
        if self.header is not None:
            name, _, value = self.header.partition("=")
            wanted = value.encode()
            checks.append(lambda record: any(n == name and (not value or v == wanted) for n, v in record.headers))
        if self.json is not None:
            has_fields = compile_conditions(self.json)
            checks.append(lambda record: has_fields(record.value))
        if self.pattern is None:
            yield lambda record: all(check(record) for check in checks)
            return
        # The last check, because it costs the most.
        with PatternSearch(self.pattern.encode()) as search:
            yield lambda record: all(check(record) for check in checks) and search.is_in(record.value or b"")


def decode_cursor(text: str) -> Cursor:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text.encode()), type=Cursor)
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
        raise ProblemError(400, "this is not a cursor of a page of records") from None


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


class Browser:
    """One call: a page of records of one topic, while it `is_wanted`."""

    def __init__(
        self, admin: Admin, topic: str, matches: Matches, limit: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._admin = admin
        self._topic = topic
        self._matches = matches
        self._limit = limit
        self._is_wanted = is_wanted
        self._deadline = time.monotonic() + SCAN_SECONDS_MAX
        self._share = KEPT_BYTES
        self._held = 0
        """Bytes of records that were read and not looked at yet."""
        self._shown = 0
        self.scanned = 0

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline or not self._is_wanted()

    @property
    def _is_tired(self) -> bool:
        return self.scanned >= SCANNED_MAX or self._is_late

    @property
    def _is_full(self) -> bool:
        return self._shown >= PAGE_BYTES

    def oldest_first(self, starts: Mapping[int, int], bounds: Mapping[TopicPartition, Bounds]) -> RecordPage:
        """Records in the order of their times, from these offsets on."""
        self._share = max(KEPT_BYTES // len(starts), SHARE_BYTES_MIN)
        sources = {
            partition: self._forward(partition, max(start, bounds[self._place(partition)].start))
            for partition, start in starts.items()
        }
        at = dict(starts)
        found: list[RecordView] = []
        # Each partition is in order. The record with the lowest time of all heads comes next.
        heads: list[tuple[int, int, Record]] = []
        for partition, source in sources.items():
            self._push(heads, partition, source)
        while heads:
            _, partition, record = heapq.heappop(heads)
            self._held -= _size(record)
            at[partition] = record.offset + 1
            if self._matches(record):
                found.append(self._show(partition, record))
            if len(found) >= self._limit or self._is_full or self._is_tired:
                break
            self._push(heads, partition, sources[partition])
        ends = {partition: bounds[self._place(partition)].end for partition in starts}
        is_done = all(at[partition] >= end for partition, end in ends.items())
        cursor = None if is_done else encode_cursor(Cursor("oldest", at))
        return RecordPage(found, cursor, self.scanned, len(found), is_done)

    def newest_first(self, ends: Mapping[int, int], bounds: Mapping[TopicPartition, Bounds]) -> RecordPage:
        """Records against the order of their times, below these offsets."""
        self._share = max(KEPT_BYTES // len(ends), SHARE_BYTES_MIN)
        below = {partition: min(end, bounds[self._place(partition)].end) for partition, end in ends.items()}
        starts = {partition: bounds[self._place(partition)].start for partition in ends}
        buffers: dict[int, list[Record]] = {partition: [] for partition in ends}
        """The records of the present window of each partition, the newest at the end."""
        lows = dict(below)
        sizes = dict.fromkeys(ends, min(WINDOW, self._limit))
        found: list[RecordView] = []
        while len(found) < self._limit and not self._is_full and not self._is_tired:
            for partition in ends:
                while not buffers[partition] and lows[partition] > starts[partition] and not self._is_tired:
                    high, size = lows[partition], sizes[partition]
                    low = max(starts[partition], high - size)
                    buffers[partition], lows[partition] = self._window(partition, low, high)
                    # One that was too large is followed by one of what fitted.
                    is_whole = lows[partition] == low
                    sizes[partition] = min(WINDOW, 2 * size) if is_whole else len(buffers[partition])
            heads = [(buffer[-1].timestamp, partition) for partition, buffer in buffers.items() if buffer]
            if not heads:
                break
            _, partition = max(heads)
            record = buffers[partition].pop()
            self._held -= _size(record)
            below[partition] = record.offset
            if self._matches(record):
                found.append(self._show(partition, record))
        for partition in ends:
            if not buffers[partition]:
                below[partition] = min(below[partition], lows[partition])
        is_done = all(below[partition] <= starts[partition] for partition in ends)
        cursor = None if is_done else encode_cursor(Cursor("newest", below))
        return RecordPage(found, cursor, self.scanned, len(found), is_done)

    def _push(self, heads: list[tuple[int, int, Record]], partition: int, source: Iterator[Record]) -> None:
        record = next(source, None)
        if record is not None:
            self._hold(_size(record))
            heapq.heappush(heads, (record.timestamp, partition, record))

    def _show(self, partition: int, record: Record) -> RecordView:
        view = describe(partition, record)
        self._shown += shown_size(view)
        return view

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > HELD_BYTES_MAX:
            raise ProblemError(
                422,
                f"the next records of all partitions have more than {HELD_BYTES_MAX} bytes together",
                advice="Ask for one partition at a time, with the parameter `partition`.",
            )

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _window(self, partition: int, first: int, end: int) -> tuple[list[Record], int]:
        """The last records from `first` to `end` that fit, and the offset from which on all are there."""
        kept: deque[Record] = deque()
        size = 0
        for record in self._forward(partition, first):
            if record.offset >= end:
                break
            kept.append(record)
            size += _size(record)
            while size > self._share and len(kept) > 1:
                dropped = kept.popleft()
                size -= _size(dropped)
                first = dropped.offset + 1
            if self._is_late and end - first > 1:
                # The next call would get no further with this window, so the reader gets the end of it.
                del kept, record
                return self._window(partition, end - 1, end)
        self._hold(size)
        return list(kept), first

    def _forward(self, partition: int, offset: int) -> Iterator[Record]:
        """All records from an offset on, fetched as they are needed."""
        while True:
            before = offset
            records, offset = self._read(partition, before)
            while records:
                self.scanned += 1
                yield records.popleft()
            if offset == before:
                return

    def _read(self, partition: int, offset: int) -> tuple[deque[Record], int]:
        """Some records from an offset on, and where to go on. The bytes of their batches are not kept."""
        size_max = min(FETCH_BYTES, self._share)
        data = self._admin.records.batches(self._place(partition), offset, size_max)
        found: deque[Record] = deque()
        size = 0
        try:
            for position, header in iter_batches(data):
                batch = data[position : position + header.size]
                while offset < header.next_offset and not header.is_control:
                    left = size_max - size
                    if left <= 0:
                        return found, offset
                    records, offset = first_records(batch, offset, rows_max=-(-left // _ROW_BYTES), bytes_max=left)
                    size += sum(map(_size, records))
                    found += records
                offset = max(offset, header.next_offset)
        except InvalidBatch as error:
            if not found:
                raise ProblemError(422, f"a batch cannot be decoded: {error}") from None
        return found, offset


def _size(record: Record) -> int:
    """About the memory that a record takes."""
    headers = sum(len(name) + len(content or b"") + _ROW_BYTES for name, content in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _ROW_BYTES
