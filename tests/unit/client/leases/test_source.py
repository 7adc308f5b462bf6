"""What a partition tells its leader: runs of outcomes, each offset at most once, nothing forgotten."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.client.errors import LeaseLost
from drmq.client.leases.batch import (
    ACCEPT,
    ACCEPTED,
    GIVE_BACK,
    GROUP_BACKOFF,
    HELD,
    REJECT,
    REJECTED,
    RELEASE,
    RELEASED,
    RENEW,
    Cells,
    LeasedBatch,
    LeasedOffsets,
)
from drmq.client.leases.source import RUNS_MAX, Source, decode_records
from drmq.columnar import BytesColumn
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch

BUFFER: Any = cast("Any", SimpleNamespace())


def log_of(*offsets: int, codec: Codec = Codec.NONE) -> bytes:
    """One batch with records at these offsets."""
    records = [
        Record(Offset(offset), 1_000 + offset, b"k%d" % offset, b"v%d" % offset, (("h", b"%d" % offset),))
        for offset in offsets
    ]
    return bytes(encode_batch(records, base_offset=Offset(offsets[0]), codec=codec))


class Queue:
    """A partition with leased messages, all of which the application holds."""

    def __init__(self) -> None:
        self.source = Source("orders", bytes(16), 0)

    def lease(self, data: bytes, *runs: tuple[int, int], token: int = 7, attempt: int = 1) -> LeasedBatch | None:
        leased = [LeasedOffsets(first, last, attempt) for first, last in runs]
        spans = self.source.receive(decode_records(data, leased), leased, token, BUFFER, 0.0)
        for span in spans:
            span.batch.states[span.start_row : span.end_row] = b"H" * (span.end_row - span.start_row)
        return spans[0].batch if spans else None

    def runs(self) -> list[tuple[int, int, int, int]]:
        """What is sent now: first and last offset, outcome and delay."""
        self.sent = self.source.take_runs()
        return [(run.first_offset, run.last_offset, run.outcome, run.delay_ms) for run in self.sent]


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_the_headers_of_a_batch_are_unpacked_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy the columns for each record takes seconds for some thousand records, on an event loop of a gateway."""
    unpacked = []

    class Counted(Cells):
        def __init__(self, column: BytesColumn) -> None:
            unpacked.append(column)
            super().__init__(column)

    monkeypatch.setattr("drmq.client.leases.batch.Cells", Counted)
    batch = queue.lease(log_of(*range(100)), (0, 99))
    assert batch is not None
    assert [batch.headers(row) for row in range(100)] == [(("h", b"%d" % row),) for row in range(100)]
    assert len(unpacked) == 2, "names and values"


def settle(batch: LeasedBatch | None, letter: int, *offsets: int) -> None:
    assert batch is not None
    for offset in offsets:
        row = list(batch.offsets).index(offset)
        assert batch.states[row] == HELD
        batch.states[row] = letter


# ---- coalescing --------------------------------------------------------------------------------------


def test_neighbours_with_the_same_outcome_become_one_run(queue: Queue) -> None:
    batch = queue.lease(log_of(*range(10)), (0, 9))
    settle(batch, ACCEPTED, 0, 1, 2, 5)
    settle(batch, RELEASED, 3)
    settle(batch, REJECTED, 4, 9)
    assert queue.runs() == [
        (0, 2, ACCEPT, -1),
        (3, 3, RELEASE, -1),
        (4, 4, REJECT, -1),
        (5, 5, ACCEPT, -1),
        (9, 9, REJECT, -1),
    ]
    assert queue.runs() == []


def test_a_hundred_thousand_acknowledgements_are_one_run(queue: Queue) -> None:
    batch = queue.lease(log_of(*range(60_000)), (0, 59_999))
    assert batch is not None
    batch.states[:] = b"A" * 60_000
    assert queue.runs() == [(0, 59_999, ACCEPT, -1)]


def test_delays_part_a_run(queue: Queue) -> None:
    batch = queue.lease(log_of(*range(5)), (0, 4))
    assert batch is not None
    batch.delays.update({1: 500, 2: 500, 4: 0})
    settle(batch, RELEASED, 0, 1, 2, 3, 4)
    assert queue.runs() == [(0, 0, RELEASE, -1), (1, 2, RELEASE, 500), (3, 3, RELEASE, -1), (4, 4, RELEASE, 0)]


def test_runs_of_several_batches_are_sent_in_order(queue: Queue) -> None:
    """Batches may interleave: what was released is leased again, later and alone."""
    data = log_of(*range(10))
    odd = queue.lease(data, (1, 1), (3, 3), token=1)
    even = queue.lease(data, (0, 0), (2, 2), token=2)
    settle(odd, ACCEPTED, 1, 3)
    settle(even, ACCEPTED, 0, 2)
    assert [run[0] for run in queue.runs()] == [0, 1, 2, 3]
    assert [run.token for run in queue.sent] == [2, 1, 2, 1]


def test_a_request_has_a_limited_number_of_runs_and_the_rest_follows(queue: Queue) -> None:
    count = 2 * RUNS_MAX + 100
    batch = queue.lease(log_of(*range(count)), (0, count - 1))
    assert batch is not None
    batch.states[:] = b"AR" * (count // 2)
    sizes = []
    while runs := queue.runs():
        sizes.append(len(runs))
        queue.source.on_settled(queue.sent, [])
    assert sizes == [RUNS_MAX, RUNS_MAX, 100]
    assert not queue.source.batches


# ---- what was leased ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_were_not_leased_are_skipped(queue: Queue, codec: Codec) -> None:
    batch = queue.lease(log_of(*range(10), codec=codec), (2, 3), (7, 7))
    assert batch is not None
    assert batch.states == b"HH...H"
    assert [batch.value(row) for row in (0, 1, 5)] == [b"v2", b"v3", b"v7"]
    assert (batch.key(5), batch.timestamp_ms(5), batch.headers(5)) == (b"k7", 1_007, (("h", b"7"),))


def test_offsets_without_a_record_are_accepted_at_once_and_never_released(queue: Queue) -> None:
    """Compaction removes records. Nobody could settle what nobody gets."""
    batch = queue.lease(log_of(0, 1, 5, 6), (0, 6))
    assert queue.runs() == [(2, 4, ACCEPT, -1)]
    settle(batch, RELEASED, 0, 1, 5, 6)
    assert queue.runs() == [(0, 1, RELEASE, -1), (5, 6, RELEASE, -1)]


def test_offsets_whose_records_did_not_arrive_are_given_back(queue: Queue) -> None:
    """To accept them as gaps would lose them."""
    whole = log_of(0, 1) + log_of(2, 3)
    queue.lease(whole[:-1], (0, 3))
    assert queue.runs() == [(2, 3, GIVE_BACK, GROUP_BACKOFF)]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_records_beyond_a_limit_of_bytes_are_not_decoded_and_given_back(queue: Queue, is_damaged: bool) -> None:
    """A few kilobytes may decompress to more than a reader has room for. It gets at least one record."""
    large = [Record(Offset(offset), 0, None, bytes(1_000_000)) for offset in range(10)]
    data = encode_batch(large, base_offset=Offset(0), codec=Codec.GZIP)
    bad = bytearray(log_of(10))
    bad[-1] ^= 1
    leased = [LeasedOffsets(0, 10, 1)]
    pieces = decode_records(data + (bad if is_damaged else b""), leased, 2_500_000)
    assert [piece.next_offset for piece in pieces] == [2, 4]
    spans = queue.source.receive(pieces, leased, 7, BUFFER, 0.0)
    assert sum(span.end_row - span.start_row for span in spans) == 4
    assert [run[:3] for run in queue.runs()] == [(4, 10, GIVE_BACK)]
    assert len(decode_records(data, leased, 1)) == 1


def test_a_batch_that_cannot_be_read_is_released_and_costs_none_of_its_neighbours(queue: Queue) -> None:
    """So it counts as failed, and ends in the dead letters."""
    bad = bytearray(log_of(2, 3))
    bad[-1] ^= 1
    assert queue.lease(log_of(0, 1) + bytes(bad) + log_of(4, 5), (1, 4)) is not None
    assert queue.runs() == [(2, 3, RELEASE, GROUP_BACKOFF)]
    assert [bytes(batch.states) for batch in queue.source.batches] == [b"H", b"H"]


# ---- answers -----------------------------------------------------------------------------------------


def test_what_was_sent_is_done_when_the_broker_says_so(queue: Queue) -> None:
    batch = queue.lease(log_of(0, 1), (0, 1))
    settle(batch, ACCEPTED, 0)
    queue.runs()
    assert queue.source.is_pending
    assert queue.source.on_settled(queue.sent, []) == []
    assert batch is not None
    assert batch.states == b"1H"
    settle(batch, ACCEPTED, 1)
    queue.runs()
    queue.source.on_settled(queue.sent, [])
    assert not queue.source.batches


def test_a_request_that_failed_is_sent_again_with_what_came_meanwhile(queue: Queue) -> None:
    batch = queue.lease(log_of(*range(4)), (0, 3))
    settle(batch, ACCEPTED, 0, 1)
    queue.runs()
    settle(batch, ACCEPTED, 2)
    queue.source.on_failed(queue.sent)
    assert queue.runs() == [(0, 2, ACCEPT, -1)]


def test_a_refusal_concerns_its_offsets_alone(queue: Queue) -> None:
    batch = queue.lease(log_of(*range(6)), (0, 5))
    assert batch is not None
    waiter: Future[None] = Future()
    batch.waiters[2] = waiter
    settle(batch, ACCEPTED, 0, 1, 2, 3, 4, 5)
    queue.runs()
    lost = queue.source.on_settled(queue.sent, [(2, 3, 4)])
    assert batch.states == b"11LL11"
    assert [(run.first_offset, run.last_offset) for run in lost] == [(2, 3)]
    with pytest.raises(LeaseLost, match="delivered again since"):
        waiter.result(0)


def test_a_caller_that_waits_is_told_and_nobody_else(queue: Queue) -> None:
    batch = queue.lease(log_of(0, 1), (0, 1))
    assert batch is not None
    told, untold = Future[None](), Future[None]()
    batch.waiters.update({0: told, 1: untold})
    settle(batch, ACCEPTED, 0)
    queue.runs()
    queue.source.on_settled(queue.sent, [])
    assert told.done()
    assert not untold.done()
    settle(batch, ACCEPTED, 1)
    queue.runs()
    assert queue.source.on_settled(queue.sent, [(1, 1, 2)]) == []
    assert isinstance(untold.exception(0), LeaseLost)


# ---- renewal -----------------------------------------------------------------------------------------


def test_only_what_is_held_is_renewed(queue: Queue) -> None:
    batch = queue.lease(log_of(*range(5)), (0, 4))
    assert batch is not None
    settle(batch, ACCEPTED, 1)
    batch.renews = True
    assert queue.runs() == [(0, 0, RENEW, -1), (1, 1, ACCEPT, -1), (2, 4, RENEW, -1)]
    queue.source.on_settled(queue.sent, [])
    assert batch.states == b"H1HHH"
    assert queue.runs() == []


def test_a_renewal_that_failed_is_repeated(queue: Queue) -> None:
    batch = queue.lease(log_of(0), (0, 0))
    assert batch is not None
    batch.renews = True
    queue.runs()
    queue.source.on_failed(queue.sent)
    assert queue.runs() == [(0, 0, RENEW, -1)]


def test_a_renewal_that_is_refused_loses_what_is_still_held(queue: Queue) -> None:
    """What was acknowledged while the renewal was on its way gets its own answer."""
    batch = queue.lease(log_of(0, 1), (0, 1))
    assert batch is not None
    batch.renews = True
    queue.runs()
    renewal = queue.sent
    settle(batch, ACCEPTED, 1)
    assert queue.source.on_settled(renewal, [(0, 1, 2)]) == []
    assert batch.states == b"LA"


# ---- delivered again ---------------------------------------------------------------------------------


def test_a_new_delivery_ends_the_old_one(queue: Queue) -> None:
    """Otherwise one request could settle an offset twice, and the broker would refuse all of it."""
    data = log_of(*range(4))
    old = queue.lease(data, (0, 3), token=1)
    assert old is not None
    settle(old, ACCEPTED, 2)
    waiter: Future[None] = Future()
    old.waiters[2] = waiter
    new = queue.lease(data, (1, 2), token=2, attempt=2)
    assert old.states == b"HLLH"
    assert isinstance(waiter.exception(0), LeaseLost)
    settle(new, ACCEPTED, 1, 2)
    assert queue.runs() == [(1, 2, ACCEPT, -1)]
    assert queue.sent[0].token == 2


def test_a_release_may_be_answered_after_its_message_was_delivered_again(queue: Queue) -> None:
    """The two answers come over different connections."""
    data = log_of(0)
    old = queue.lease(data, (0, 0), token=1)
    assert old is not None
    waiter: Future[None] = Future()
    old.waiters[0] = waiter
    settle(old, RELEASED, 0)
    queue.runs()
    released = queue.sent
    new = queue.lease(data, (0, 0), token=2, attempt=2)
    queue.source.on_settled(released, [])
    assert waiter.result(0) is None
    settle(new, ACCEPTED, 0)
    assert queue.runs() == [(0, 0, ACCEPT, -1)]


def test_one_request_never_settles_an_offset_twice(queue: Queue) -> None:
    data = log_of(0)
    old = queue.lease(data, (0, 0), token=1)
    settle(old, RELEASED, 0)
    queue.runs()
    released = queue.sent
    new = queue.lease(data, (0, 0), token=2)
    queue.source.on_failed(released)
    settle(new, ACCEPTED, 0)
    assert len(queue.runs()) == 1
    queue.source.on_settled(queue.sent, [])
    assert len(queue.runs()) == 1


# ---- any history -------------------------------------------------------------------------------------


@given(
    leased=st.lists(st.integers(0, 30), min_size=1, unique=True),
    missing=st.sets(st.integers(0, 30)),
    letters=st.lists(st.sampled_from("ARJG"), min_size=31, max_size=31),
    fails=st.booleans(),
)
def test_every_leased_offset_is_settled_exactly_once(
    leased: list[int], missing: set[int], letters: list[str], fails: bool
) -> None:
    """Whatever was leased, whatever the log lacks, and whatever the application says."""
    queue = Queue()
    present = sorted(set(range(32)) - missing)
    runs = [(offset, offset) for offset in sorted(leased)]
    batch = queue.lease(log_of(*present), *runs)
    if batch is not None:
        for row, offset in enumerate(batch.offsets):
            if batch.states[row] == HELD:
                batch.states[row] = ord(letters[offset])
    queue.runs()
    if fails:
        queue.source.on_failed(queue.sent)
        queue.runs()
    settled = [offset for run in queue.sent for offset in range(run.first_offset, run.last_offset + 1)]
    assert settled == sorted(leased)
    outcomes = {"A": ACCEPT, "R": RELEASE, "J": REJECT, "G": GIVE_BACK}
    for run in queue.sent:
        for offset in range(run.first_offset, run.last_offset + 1):
            # What the log lacks after its last record is not known to be a gap.
            is_gap = offset in missing and offset < 31
            assert run.outcome == (ACCEPT if is_gap else outcomes[letters[offset]]), offset
