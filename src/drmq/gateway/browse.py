"""Looking at the records of a topic: newest or oldest first, from any place, with a filter.

A page is found by reading forward in windows of offsets. With the newest first, the windows go backward from the end,
and the records of each are reversed. A cursor has the next offset of every partition, so "next" is always right, also
while records arrive. One call decodes a bounded number of records for a bounded time. If a filter finds little, the
page is short, says how much was scanned, and has a cursor that goes on there.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from drmq.client import Admin, Bounds
from drmq.gateway.json_filter import compile_conditions
from drmq.gateway.pattern_search import PatternSearch
from drmq.gateway.problems import ProblemError
from drmq.gateway.record_text import describe
from drmq.gateway.types import Index, RecordPage, RecordView
from drmq.model import TopicPartition
from drmq.records import InvalidBatch, Record, iter_batches, iter_records

SCANNED_MAX: Final = 50_000
"""Records that one call decodes."""
SCAN_SECONDS_MAX: Final = 5.0
WINDOW: Final = 500
"""Offsets of one window at most, when the newest come first. The first window is as large as the page."""
FETCH_BYTES: Final = 1_048_576
DECOMPRESSED_BYTES_MAX: Final = 64 * 1_048_576

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
    """One call: a page of records of one topic."""

    def __init__(self, admin: Admin, topic: str, matches: Matches, limit: int) -> None:
        self._admin = admin
        self._topic = topic
        self._matches = matches
        self._limit = limit
        self._deadline = time.monotonic() + SCAN_SECONDS_MAX
        self.scanned = 0

    @property
    def _is_tired(self) -> bool:
        return self.scanned >= SCANNED_MAX or time.monotonic() > self._deadline

    def oldest_first(self, starts: Mapping[int, int], bounds: Mapping[TopicPartition, Bounds]) -> RecordPage:
        """Records in the order of their times, from these offsets on."""
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
        while heads and len(found) < self._limit:
            _, partition, record = heapq.heappop(heads)
            at[partition] = record.offset + 1
            if self._matches(record):
                found.append(describe(partition, record))
            if self._is_tired:
                break
            self._push(heads, partition, sources[partition])
        ends = {partition: bounds[self._place(partition)].end for partition in starts}
        is_done = all(at[partition] >= end for partition, end in ends.items())
        cursor = None if is_done else encode_cursor(Cursor("oldest", at))
        return RecordPage(found, cursor, self.scanned, len(found), is_done)

    def newest_first(self, ends: Mapping[int, int], bounds: Mapping[TopicPartition, Bounds]) -> RecordPage:
        """Records against the order of their times, below these offsets."""
        below = {partition: min(end, bounds[self._place(partition)].end) for partition, end in ends.items()}
        starts = {partition: bounds[self._place(partition)].start for partition in ends}
        buffers: dict[int, list[Record]] = {partition: [] for partition in ends}
        """The records of the present window of each partition, the newest at the end."""
        lows = dict(below)
        sizes = dict.fromkeys(ends, min(WINDOW, self._limit))
        found: list[RecordView] = []
        while len(found) < self._limit and not self._is_tired:
            for partition in ends:
                while not buffers[partition] and lows[partition] > starts[partition] and not self._is_tired:
                    high, lows[partition] = lows[partition], max(starts[partition], lows[partition] - sizes[partition])
                    sizes[partition] = min(WINDOW, 2 * sizes[partition])
                    buffers[partition] = self._window(partition, lows[partition], high)
            heads = [(buffer[-1].timestamp, partition) for partition, buffer in buffers.items() if buffer]
            if not heads:
                break
            _, partition = max(heads)
            record = buffers[partition].pop()
            below[partition] = record.offset
            if self._matches(record):
                found.append(describe(partition, record))
        for partition in ends:
            if not buffers[partition]:
                below[partition] = min(below[partition], lows[partition])
        is_done = all(below[partition] <= starts[partition] for partition in ends)
        cursor = None if is_done else encode_cursor(Cursor("newest", below))
        return RecordPage(found, cursor, self.scanned, len(found), is_done)

    def _push(self, heads: list[tuple[int, int, Record]], partition: int, source: Iterator[Record]) -> None:
        record = next(source, None)
        if record is not None:
            heapq.heappush(heads, (record.timestamp, partition, record))

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition)

    def _window(self, partition: int, first: int, end: int) -> list[Record]:
        """The records with offsets from `first` to `end`."""
        records: list[Record] = []
        for record in self._forward(partition, first):
            if record.offset >= end:
                break
            records.append(record)
        return records

    def _forward(self, partition: int, offset: int) -> Iterator[Record]:
        """All records from an offset on, fetched as they are needed."""
        while True:
            data = self._admin.records.batches(self._place(partition), offset, FETCH_BYTES)
            before = offset
            for position, header in iter_batches(data):
                batch = data[position : position + header.size]
                if not header.is_control:
                    for record in _decoded(batch):
                        if record.offset >= offset:
                            self.scanned += 1
                            yield record
                offset = max(offset, header.next_offset)
            if offset == before:
                return


def _decoded(batch: bytes | bytearray | memoryview) -> Sequence[Record] | Iterator[Record]:
    try:
        return list(iter_records(batch, decompressed_size_max=DECOMPRESSED_BYTES_MAX))
    except InvalidBatch as error:
        raise ProblemError(422, f"a batch cannot be decoded: {error}") from None
