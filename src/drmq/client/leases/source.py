"""A partition that a consumer works on: its leader, what is leased from it, and what is to be told to its leader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drmq.client.errors import LeaseLost, LostRun
from drmq.client.leases.batch import (
    ACCEPT,
    GIVE_BACK,
    GROUP_BACKOFF,
    RELEASE,
    RENEW,
    LeasedBatch,
    LeasedOffsets,
    Run,
    Span,
)
from drmq.columnar import Columns, iter_columns
from drmq.records import Buffer, InvalidBatch, iter_batches

if TYPE_CHECKING:
    from drmq.client.leases.buffer import MessageBuffer

DECOMPRESSED_BYTES_MAX = 2**28
_PIECE_BYTES = 2**22
RUNS_MAX = 5_000
"""Runs in one request for one partition. More stay for the next one."""
NO_LEADER = -1

_LEASED_AGAIN = "it was delivered again since"
_REASONS = {
    1: "it was never leased",
    2: "its lease has run out, or it was settled before",
    3: "another consumer holds it",
    4: _LEASED_AGAIN,
}


class Piece(NamedTuple):
    """Some records of an answer, up to `next_offset`; or why they cannot be read."""

    next_offset: int
    columns: Columns | None
    error: InvalidBatch | None = None


def decode_records(records: Buffer, leased: Sequence[LeasedOffsets], bytes_max: int | None = None) -> list[Piece]:
    """The records from the first to the last offset that was leased, or the first ones with about `bytes_max`."""
    start, end = leased[0].first_offset, leased[-1].last_offset + 1
    try:
        return list(_that_fit(_decode(records, start, end, bytes_max), bytes_max))
    except InvalidBatch:
        return list(_that_fit(_decode_by_batch(records, start, end, bytes_max), bytes_max))


def _that_fit(pieces: Iterable[Piece], bytes_max: int | None) -> Iterator[Piece]:
    """At least one, and none after so many bytes."""
    size = 0
    for piece in pieces:
        yield piece
        size += 0 if piece.columns is None else piece.columns.nbytes
        if bytes_max is not None and size >= bytes_max:
            return


def _decode(records: Buffer, start: int, end: int, bytes_max: int | None) -> Iterator[Piece]:
    for columns in iter_columns(
        records,
        start_offset=start,
        end_offset=end,
        decompressed_size_max=DECOMPRESSED_BYTES_MAX,
        include_headers=True,
        bytes_max=_PIECE_BYTES if bytes_max is None else min(bytes_max, _PIECE_BYTES),
    ):
        yield Piece(columns.next_offset, columns)


def _decode_by_batch(records: Buffer, start: int, end: int, bytes_max: int | None) -> Iterator[Piece]:
    """The same, but a batch that cannot be read costs none of its neighbours."""
    view = memoryview(records)
    for position, header in iter_batches(view):
        first, next_offset = max(start, header.base_offset), min(end, header.next_offset)
        if first < next_offset:
            try:
                batch = view[position : position + header.size]
                yield from list(_that_fit(_decode(batch, first, next_offset, bytes_max), bytes_max))
            except InvalidBatch as error:
                yield Piece(next_offset, None, error)


class Source:
    """One partition. Used by the event loop; what touches the states of messages needs the lock of the buffer."""

    def __init__(self, topic: str, topic_id: bytes, partition: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.is_assigned = False
        self.was_asked = False
        """Whether its leader has answered a request for records. From then on the group has a position there."""
        self.retry_at_s = 0.0
        self.request_count = 0
        """Requests for records in flight. What they bring must not be left to nobody."""
        self.batches: list[LeasedBatch] = []
        """Those in which messages are still leased."""
        self._loose: list[Run] = []
        """Offsets without a message for the application."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_in_use(self) -> bool:
        """Whether messages are leased, or may be soon."""
        return bool(self.batches or self._loose or self.request_count)

    @property
    def is_pending(self) -> bool:
        return bool(self._loose) or any(batch.is_pending for batch in self.batches)

    # ---- taking ---------------------------------------------------------------------------------

    def receive(
        self, pieces: Sequence[Piece], leased: Sequence[LeasedOffsets], token: int, buffer: MessageBuffer, now_s: float
    ) -> list[Span]:
        """The messages of an answer. What cannot be read is released, and what is not there given back."""
        spans: list[Span] = []
        at, last = leased[0].first_offset, leased[-1].last_offset
        for next_offset, columns, _ in pieces:
            part = _clipped(leased, at, next_offset - 1)
            at = max(at, next_offset)
            if columns is None:
                self._settle_all(part, RELEASE, token)
                continue
            batch = LeasedBatch(self.topic, self.partition, columns, token, buffer, now_s)
            found, gaps = batch.take_leases(part)
            self._loose += [Run(*gap, ACCEPT, GROUP_BACKOFF, token) for gap in gaps]
            if found:
                self._supersede(found)
                self.batches.append(batch)
                spans += found
        # Accepting what is not here would lose it.
        self._settle_all(_clipped(leased, at, last), GIVE_BACK, token)
        return spans

    def _settle_all(self, leased: Sequence[LeasedOffsets], outcome: int, token: int) -> None:
        self._loose += [Run(run.first_offset, run.last_offset, outcome, GROUP_BACKOFF, token) for run in leased]

    def _supersede(self, found: Sequence[Span]) -> None:
        """What is leased now was not leased any more before, whatever older batches say."""
        for span in found:
            first, last = span.batch.offsets[span.start_row], span.batch.offsets[span.end_row - 1]
            for batch in self.batches:
                if batch.offsets[0] <= last and first <= batch.offsets[-1]:
                    batch.lose_between(first, last, self.lost(first, last, _LEASED_AGAIN))

    def lost(self, first: int, last: int, reason: str) -> LeaseLost:
        return LeaseLost((LostRun(self.topic, self.partition, first, last, reason),))

    # ---- settling -------------------------------------------------------------------------------

    def take_runs(self) -> list[Run]:
        """What is to be told to the leader now, in ascending order. It counts as sent."""
        runs = [*self._loose, *(run for batch in self.batches for run in batch.wanted())]
        runs.sort(key=lambda run: run.first_offset)
        chosen: list[Run] = []
        self._loose = []
        for run in runs:
            # Offsets that were delivered twice may be settled twice, but not by the same request.
            fits = len(chosen) < RUNS_MAX and (not chosen or run.first_offset > chosen[-1].last_offset)
            if fits:
                chosen.append(run)
                if run.batch is not None:
                    run.batch.on_sent(run)
            elif run.batch is None:
                self._loose.append(run)
        for batch in self.batches:
            batch.renews = batch.renews and len(chosen) < len(runs)
        return chosen

    def on_failed(self, runs: Sequence[Run]) -> None:
        """A request failed, and may or may not have been carried out: it is sent again."""
        for run in runs:
            if run.batch is None:
                self._loose.append(run)
            else:
                run.batch.on_failed(run)

    def on_settled(self, runs: Sequence[Run], refused: Sequence[tuple[int, int, int]]) -> list[LostRun]:
        """The answer to a request. Returns what was lost without a caller that waits for it."""
        untold: list[LostRun] = []
        for run in runs:
            if run.batch is None:
                continue
            for first, last, reason in refused:
                start, end = max(first, run.first_offset), min(last, run.last_offset)
                if start <= end:
                    untold += self._lose(run, start, end, _REASONS.get(reason, f"reason {reason}"))
            run.batch.on_confirmed(run)
        self._forget_finished()
        return untold

    def on_refused(self, runs: Sequence[Run], reason: str) -> list[LostRun]:
        """The leader will never settle these."""
        untold = [
            lost
            for run in runs
            if run.batch is not None
            for lost in self._lose(run, run.first_offset, run.last_offset, reason)
        ]
        self._forget_finished()
        return untold

    def _lose(self, run: Run, first: int, last: int, reason: str) -> Iterator[LostRun]:
        assert run.batch is not None
        error = self.lost(first, last, reason)
        # A message whose lease could not be renewed is reported when the application settles it.
        if run.batch.on_lost(run, first, last, error) and run.outcome not in (RENEW, GIVE_BACK):
            yield from error.lost

    def _forget_finished(self) -> None:
        self.batches = [batch for batch in self.batches if batch.is_open]


def _clipped(leased: Sequence[LeasedOffsets], first: int, last: int) -> list[LeasedOffsets]:
    """The parts of runs that are between two offsets, both included."""
    return [
        LeasedOffsets(max(run.first_offset, first), min(run.last_offset, last), run.attempt)
        for run in leased
        if run.first_offset <= last and first <= run.last_offset
    ]
