"""Messages that were leased together, as columns, with one byte of state for each.

A consumer that handles a hundred thousand messages a second cannot afford an object with its own bookkeeping for each.
The records of an answer stay in the columns of the decoder, and what happened to each is a letter in one `bytearray`:

    P   prefetched: leased, and not handed to the application yet
    H   held: the application works on it
    A R J G   the application (or the client) wants to accept, release, reject it, or give it back
    a r j g   the same, and a request with that is on its way
    1 2 3 4   the broker has confirmed that it is accepted, released, rejected, given back
    L   lost: the lease has ended
    .   the record was in the same batch of the log, but was not leased

So a message is settled by writing one letter, runs of messages with the same outcome are found by a regular expression,
and a request that failed is taken back by writing the capital letters again.

The application settles from any thread. Letters are read and written under the lock of the buffer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from drmq.columnar import BytesColumn, Columns, HeadersColumn

if TYPE_CHECKING:
    from drmq.client.leases.buffer import MessageBuffer

PREFETCHED, HELD = b"PH"
ACCEPTED, RELEASED, REJECTED, GIVEN_BACK = b"ARJG"
LOST, NOT_LEASED = b"L."
DONE = b"1234"
"""In the order of `WANTED`."""

WANTED = b"ARJG"
TO_WANTED = bytes.maketrans(b"arjg" + DONE, 2 * WANTED)
"""From any letter of a message that is settled to that of its outcome."""

ACCEPT, RELEASE, REJECT, RENEW, GIVE_BACK = 1, 2, 3, 4, 5
"""The outcomes of LeaseFetch."""
_OUTCOMES = {ACCEPTED: ACCEPT, RELEASED: RELEASE, REJECTED: REJECT, GIVEN_BACK: GIVE_BACK, HELD: RENEW}
GROUP_BACKOFF = -1
"""As the delay of a release: the backoff of the group decides."""

_RUNS_WANTED = re.compile(rb"A+|R+|J+|G+")
_RUNS_WANTED_OR_HELD = re.compile(rb"A+|R+|J+|G+|H+")
_OPEN = re.compile(rb"[PHARJGarjg]")
_PENDING = re.compile(rb"[ARJGarjg]")
_LETTERS_NOT_SENT = b"PHARJG"
_WANTED_TO_SENT = bytes.maketrans(b"ARJG", b"arjg")
_SENT_TO_WANTED = bytes.maketrans(b"arjg", b"ARJG")
_SENT_TO_DONE = bytes.maketrans(b"arjg", DONE)
_PREFETCHED_TO_GIVE_BACK = bytes.maketrans(b"P", b"G")
_PREFETCHED_AND_HELD_TO_GIVE_BACK = bytes.maketrans(b"PH", b"GG")


class Waiter(Protocol):
    """A future of asyncio or of `concurrent.futures`."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class LeasedOffsets(NamedTuple):
    """A run of offsets that was leased, both ends included, with the number of its delivery."""

    first_offset: int
    last_offset: int
    attempt: int


class Run(NamedTuple):
    """Offsets of one delivery with one outcome, both ends included. `batch` is None if they have no records."""

    first_offset: int
    last_offset: int
    outcome: int
    delay_ms: int
    token: int
    batch: LeasedBatch | None = None
    start_row: int = 0
    end_row: int = 0


class Span(NamedTuple):
    """Rows of a batch with the same attempt, in the order in which the application gets them."""

    batch: LeasedBatch
    start_row: int
    end_row: int
    attempt: int


class Cells:
    """The values of a column, as bytes or None."""

    __slots__ = ("_data", "_ends", "_validity")

    def __init__(self, column: BytesColumn) -> None:
        # Copied once: to cut pieces out of bytes is several times faster than out of a memoryview.
        self._data = bytes(column.data)
        self._ends = column.offsets.cast("B").cast("i").tolist()
        self._validity = None if column.validity is None else bytes(column.validity)

    def __getitem__(self, row: int) -> bytes | None:
        if self._validity is not None and not self._validity[row >> 3] >> (row & 7) & 1:
            return None
        return self._data[self._ends[row] : self._ends[row + 1]]


class HeaderCells:
    """The headers of records."""

    __slots__ = ("_contents", "_ends", "_names")

    def __init__(self, column: HeadersColumn) -> None:
        self._ends = column.offsets.cast("B").cast("i").tolist() if column.count else None
        self._names, self._contents = Cells(column.keys), Cells(column.values)

    def __getitem__(self, row: int) -> tuple[tuple[str, bytes | None], ...]:
        if self._ends is None:
            return ()
        return tuple(
            (str(self._names[at] or b"", "utf-8"), self._contents[at])
            for at in range(self._ends[row], self._ends[row + 1])
        )


class LeasedBatch:
    """The messages of one partition in one answer."""

    __slots__ = (
        "_headers",
        "_keys",
        "_values",
        "buffer",
        "columns",
        "delays",
        "has_gaps",
        "offsets",
        "partition",
        "received_s",
        "renew_at_s",
        "renew_waiters",
        "renews",
        "states",
        "token",
        "topic",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Columns,
        token: int,
        buffer: MessageBuffer,
        now_s: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.columns = columns
        self.token = token
        self.received_s = self.renew_at_s = now_s
        self.buffer = buffer
        self.offsets = columns.offsets.cast("B").cast("q")
        self.states = bytearray(b"." * columns.row_count)
        self.has_gaps = False
        """Whether two neighbouring rows may have offsets that are not neighbours."""
        self.delays: dict[int, int] = {}
        """By row, in milliseconds, for releases that do not use the backoff of the group."""
        self.waiters: dict[int, Waiter] = {}
        self.renew_waiters: dict[int, Waiter] = {}
        self.renews = False
        """Whether the leases of held messages are to be renewed with the next request."""
        self._values: Cells | None = None
        self._keys: Cells | None = None
        self._headers: HeaderCells | None = None

    # ---- contents -------------------------------------------------------------------------------

    def value(self, row: int) -> bytes | None:
        cells = self._values
        if cells is None:
            assert self.columns.value is not None
            cells = self._values = Cells(self.columns.value)
        return cells[row]

    def key(self, row: int) -> bytes | None:
        cells = self._keys
        if cells is None:
            assert self.columns.key is not None
            cells = self._keys = Cells(self.columns.key)
        return cells[row]

    def timestamp_ms(self, row: int) -> int:
        found: int = self.columns.timestamps.cast("B").cast("q")[row] // 1000
        return found

    def headers(self, row: int) -> tuple[tuple[str, bytes | None], ...]:
        cells = self._headers
        if cells is None:
            assert self.columns.headers is not None
            cells = self._headers = HeaderCells(self.columns.headers)
        return cells[row]

    # ---- leases ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether any message is still leased, as far as is known."""
        return _OPEN.search(self.states) is not None

    @property
    def is_pending(self) -> bool:
        """Whether the outcome of any message is not confirmed yet."""
        return _PENDING.search(self.states) is not None

    def take_leases(self, leased: Sequence[LeasedOffsets]) -> tuple[list[Span], list[tuple[int, int]]]:
        """Mark the rows that were leased. Returns them, and the leased offsets without a record.

        Such offsets are gaps in the log: markers of transactions, and what compaction has removed.
        """
        offsets, count = self.offsets, self.columns.row_count
        spans: list[Span] = []
        gaps: list[tuple[int, int]] = []
        for first, last, attempt in leased:
            start = bisect_left(offsets, first)
            end = bisect_left(offsets, last + 1, start)
            if end > start:
                self.states[start:end] = b"P" * (end - start)
                spans.append(Span(self, start, end, attempt))
            if end - start != last - first + 1:
                gaps += _gaps(offsets[start:end], first, last)
        if count:
            self.has_gaps = offsets[count - 1] - offsets[0] + 1 != count
        return spans, gaps

    def wanted(self) -> Iterator[Run]:
        """The runs that are to be sent now."""
        pattern = _RUNS_WANTED_OR_HELD if self.renews else _RUNS_WANTED
        for match in pattern.finditer(bytes(self.states)):
            start, end = match.span()
            letter = match[0][0]
            for piece_start, piece_end in self._pieces(start, end):
                if letter == RELEASED and self.delays:
                    yield from self._by_delay(piece_start, piece_end)
                else:
                    yield self._run(piece_start, piece_end, _OUTCOMES[letter], GROUP_BACKOFF)

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Rows from `start` to `end`, cut where offsets are missing."""
        offsets = self.offsets
        if not self.has_gaps or offsets[end - 1] - offsets[start] == end - 1 - start:
            yield start, end
            return
        first = start
        for row in range(start + 1, end):
            if offsets[row] != offsets[row - 1] + 1:
                yield first, row
                first = row
        yield first, end

    def _by_delay(self, start: int, end: int) -> Iterator[Run]:
        first, delay = start, self.delays.get(start, GROUP_BACKOFF)
        for row in range(start + 1, end):
            other = self.delays.get(row, GROUP_BACKOFF)
            if other != delay:
                yield self._run(first, row, RELEASE, delay)
                first, delay = row, other
        yield self._run(first, end, RELEASE, delay)

    def _run(self, start: int, end: int, outcome: int, delay_ms: int) -> Run:
        return Run(self.offsets[start], self.offsets[end - 1], outcome, delay_ms, self.token, self, start, end)

    # ---- what happens to a run ------------------------------------------------------------------

    def on_sent(self, run: Run) -> None:
        if run.outcome != RENEW:
            self._change(run, _WANTED_TO_SENT)

    def on_failed(self, run: Run) -> None:
        """The request may or may not have been carried out: it is sent again."""
        if run.outcome == RENEW:
            self.renews = True
        else:
            self._change(run, _SENT_TO_WANTED)

    def on_confirmed(self, run: Run) -> None:
        if run.outcome != RENEW:
            self._change(run, _SENT_TO_DONE)
        self._wake(run)

    def on_lost(self, run: Run, first: int, last: int, error: BaseException) -> bool:
        """A part of a run was refused. Returns whether no caller waited for any of it, and is to learn of it later."""
        start = max(run.start_row, bisect_left(self.offsets, first))
        end = min(run.end_row, bisect_left(self.offsets, last + 1))
        untold = False
        waiters = self.renew_waiters if run.outcome == RENEW else self.waiters
        for row in range(start, end):
            if run.outcome == RENEW and self.states[row] != HELD:
                # It was settled while the renewal was on its way: that answer is the one that counts.
                continue
            self.states[row] = LOST
            waiter = waiters.pop(row, None)
            if waiter is None:
                untold = True
            elif not waiter.done():
                waiter.set_exception(error)
        return untold

    def _change(self, run: Run, table: bytes) -> None:
        rows = slice(run.start_row, run.end_row)
        self.states[rows] = self.states[rows].translate(table)

    def _wake(self, run: Run) -> None:
        """Wake the callers that wait for a run, but for those of rows that are lost."""
        waiters = self.renew_waiters if run.outcome == RENEW else self.waiters
        for row in [row for row in waiters if run.start_row <= row < run.end_row]:
            waiter = waiters.pop(row)
            if not waiter.done():
                waiter.set_result(None)

    def give_back(self, *, held_too: bool = False) -> bool:
        """Want to give back what the application has not got, or also what it holds. Returns whether there is any."""
        before = bytes(self.states)
        after = before.translate(_PREFETCHED_AND_HELD_TO_GIVE_BACK if held_too else _PREFETCHED_TO_GIVE_BACK)
        self.states[:] = after
        return after != before

    def lose_between(self, first: int, last: int, error: BaseException) -> None:
        """These offsets were leased again, so the lease that this batch has of them has ended.

        But for what is on its way: a release may have been carried out, and its answer is still to come.
        """
        start = bisect_left(self.offsets, first)
        for row in range(start, bisect_left(self.offsets, last + 1, start)):
            if self.states[row] in _LETTERS_NOT_SENT:
                self.states[row] = LOST
                for waiters in (self.waiters, self.renew_waiters):
                    waiter = waiters.pop(row, None)
                    if waiter is not None and not waiter.done():
                        waiter.set_exception(error)


def _gaps(offsets: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The runs from `first` to `last` that are not in `offsets`."""
    expected = first
    for offset in offsets:
        if offset > expected:
            yield expected, offset - 1
        expected = offset + 1
    if expected <= last:
        yield expected, last
