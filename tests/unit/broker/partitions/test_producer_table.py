"""The producers' table: a retry gets its old offset, a gap is refused, and neither passes for the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.broker.partitions.producer_table import BATCHES_KEPT, PRODUCERS_MAX, ProducerTable
from drmq.model import ApiError, ErrorCode, ProducerId
from support.batches import a_header

LAST_SEQUENCE = 2**31 - 1


def table(*batches: tuple[int, int], epoch: int = 0, producer_id: int = 7) -> ProducerTable:
    """A table that has seen these batches, given as (sequence, count), at dense offsets from 100 on."""
    made, offset = ProducerTable(), 100
    for sequence, count in batches:
        made.apply(a_header(producer_id, epoch, sequence, count=count, base_offset=offset), seen_ms=0)
        offset += count
    return made


def verdict(
    made: ProducerTable, sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 7
) -> int | ErrorCode | None:
    """The offset of the batch that is repeated, None for a new one, or the code of the refusal."""
    try:
        found = made.find_repeat(a_header(producer_id, epoch, sequence, count=count))
    except ApiError as error:
        return error.code
    return None if found is None else found.base_offset


def test_a_batch_that_follows_is_new() -> None:
    assert verdict(table((0, 10)), 10) is None


def test_each_of_the_last_five_is_recognised() -> None:
    made = table(*((number, 1) for number in range(8)))
    assert [verdict(made, number) for number in range(3, 8)] == [103, 104, 105, 106, 107]
    assert BATCHES_KEPT == 5


def test_what_was_before_them_is_a_duplicate_without_an_offset() -> None:
    made = table(*((number, 1) for number in range(8)))
    assert verdict(made, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_gap_is_refused() -> None:
    assert verdict(table((0, 10)), 11) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_cut_differently_is_no_repeat() -> None:
    made = table((0, 10), (10, 10))
    assert verdict(made, 10, count=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(made, 15, count=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert verdict(ProducerTable(), 500) is None


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    made = table((0, 10), epoch=3)
    assert verdict(made, 0, epoch=4) is None
    assert verdict(made, 10, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(made, 10, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    made.apply(a_header(7, 4, 0, base_offset=200), seen_ms=0)
    assert verdict(made, 0, epoch=4) == 200
    assert verdict(made, 0, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_go_on_with_zero_after_the_largest() -> None:
    made = table((LAST_SEQUENCE - 4, 5))
    assert verdict(made, 0) is None
    made = table((LAST_SEQUENCE - 4, 10))
    assert verdict(made, LAST_SEQUENCE - 4, count=10) == 100
    assert verdict(made, 5) is None


def test_around_the_largest_sequence_a_gap_is_no_duplicate() -> None:
    """A client takes "duplicate" for success: a gap called so would be a record lost in silence."""
    made = table((LAST_SEQUENCE - 4, 10))
    assert verdict(made, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(made, LAST_SEQUENCE - 5) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    made = table(*((number, 1) for number in range(8)))
    assert verdict(made, LAST_SEQUENCE) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_batches_without_a_producer_are_not_remembered() -> None:
    made = ProducerTable()
    made.apply(a_header(-1, -1, -1), seen_ms=0)
    assert len(made) == 0


def test_the_idle_are_forgotten_by_the_brokers_clock() -> None:
    made = ProducerTable()
    made.apply(a_header(1, 0, 0), seen_ms=1_000)
    made.apply(a_header(2, 0, 0), seen_ms=2_000)
    made.apply(a_header(1, 0, 1), seen_ms=3_000)
    assert made.forget_idle(2_500) == 1
    assert verdict(made, 5, producer_id=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(made, 5, producer_id=2) is None


def test_beyond_the_limit_the_longest_silent_one_is_forgotten() -> None:
    made, header = ProducerTable(), a_header(0, 0, 0)
    for producer_id in range(PRODUCERS_MAX):
        made.apply(header._replace(producer_id=ProducerId(producer_id)), seen_ms=0)
    made.apply(a_header(0, 0, 1), seen_ms=0)
    made.apply(a_header(PRODUCERS_MAX, 0, 0), seen_ms=0)
    assert len(made) == PRODUCERS_MAX
    assert verdict(made, 9, producer_id=0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(made, 9, producer_id=1) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 4)), max_size=40))
def test_a_snapshot_says_the_same_as_the_table(batches: list[tuple[int, int, int]]) -> None:
    """After any history the table and its copy give the same verdicts."""
    made, sequences, offset = ProducerTable(), dict[tuple[int, int], int](), 0
    epochs: dict[int, int] = {}
    for producer_id, epoch, count in batches:
        epoch = epochs[producer_id] = max(epoch, epochs.get(producer_id, 0))
        sequence = sequences.get((producer_id, epoch), 0)
        made.apply(a_header(producer_id, epoch, sequence, count=count, base_offset=offset), seen_ms=offset)
        sequences[producer_id, epoch] = sequence + count
        offset += count
    copy = ProducerTable.from_bytes(made.to_bytes())
    assert copy.to_bytes() == made.to_bytes()
    for producer_id in range(5):
        for epoch in range(4):
            for sequence in range(12):
                for count in (1, 3):
                    assert verdict(copy, sequence, count, epoch, producer_id) == verdict(
                        made, sequence, count, epoch, producer_id
                    )


@pytest.mark.parametrize("kept", [0, 1])
def test_forgetting_does_not_harm_the_snapshot(kept: int) -> None:
    made = ProducerTable()
    for producer_id in range(3):
        made.apply(a_header(producer_id, 0, 0), seen_ms=producer_id)
    made.forget_idle(3 - kept)
    assert len(ProducerTable.from_bytes(made.to_bytes())) == kept
