"""The log: its tail in memory, what is durable of it, and the limits of what may be done to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.raft import Configuration, Entry, LogIndex, SnapshotMeta, Term
from drmq.raft.log import RaftLog

from .nodes import entries, entry, storage


def log_of(terms: list[int], commit: int = 0) -> RaftLog:
    return RaftLog(storage(terms=terms), LogIndex(commit), LogIndex(0))


def hand_out(log: RaftLog, number: int) -> None:
    log.take_unpersisted()
    log.on_handed_out(number, None, None)


def test_an_index_is_given_out_once() -> None:
    """Appending continues at the end and nowhere else."""
    log = log_of([1, 1])
    for wrong in (1, 2, 4):
        with pytest.raises(AssertionError):
            log.append(entry(wrong, 2))
    log.append(entry(3, 2))
    assert (log.last_index, log.last_term) == (3, 2)


def test_terms_do_not_fall() -> None:
    """An entry of an earlier term cannot follow one of a later."""
    with pytest.raises(AssertionError):
        log_of([2]).append(entry(2, 1))


def test_durable_follows_the_reports() -> None:
    """What was handed out in several batches becomes durable batch by batch; one report may cover many."""
    log = log_of([1])
    for number, index in enumerate((2, 3, 4), 1):
        log.append(entry(index, 1))
        hand_out(log, number)
    log.on_persisted(1)
    assert log.durable_index == 2
    log.on_persisted(3)
    assert log.durable_index == 4


def test_report_of_a_replaced_batch_makes_nothing_durable() -> None:
    """Batch 1 wrote an entry that batch 2 replaces: the report of batch 1 is not about the replacement."""
    log = log_of([1])
    log.append(entry(2, 1))
    hand_out(log, 1)
    log.truncate_from(LogIndex(2))
    log.append(entry(2, 2))
    hand_out(log, 2)
    log.on_persisted(1)
    assert log.durable_index == 1
    log.on_persisted(2)
    assert log.durable_index == 2


def test_truncated_twice_between_batches() -> None:
    """The driver receives the lowest truncated index."""
    log = log_of([1, 1, 1, 1])
    log.truncate_from(LogIndex(4))
    log.append(entry(4, 2))
    log.truncate_from(LogIndex(3))
    log.append(entry(3, 3))
    truncated_from, new = log.take_unpersisted()
    assert (truncated_from, [(e.index, e.term) for e in new]) == (3, [(3, 3)])


def test_truncated_behind_what_storage_never_got() -> None:
    """Two leaders' entries arrived between two batches: storage is cut where the entries that it gets now begin."""
    log = log_of([1, 1])
    log.append(entry(3, 1))
    log.append(entry(4, 1))
    log.truncate_from(LogIndex(4))
    log.append(entry(4, 2))
    truncated_from, new = log.take_unpersisted()
    assert (truncated_from, [(e.index, e.term) for e in new]) == (3, [(3, 1), (4, 2)])


def test_nothing_committed_is_truncated() -> None:
    """A promise to a client is not broken; the node stops instead."""
    with pytest.raises(AssertionError):
        log_of([1, 1], commit=2).truncate_from(LogIndex(2))


def test_applied_only_what_is_durable_here() -> None:
    """A commit may run ahead of the own disk; what is handed out to apply does not."""
    log = log_of([1])
    log.append(entry(2, 1))
    hand_out(log, 1)
    log.commit_to(LogIndex(2))
    committed = log.take_committed()
    assert committed is not None
    assert (committed.start, committed.end) == (1, 2)
    log.on_persisted(1)
    committed = log.take_committed()
    assert committed is not None
    assert (committed.start, committed.end) == (2, 3)
    assert log.take_committed() is None


def test_reading_crosses_from_disk_to_memory() -> None:
    """Entries come from storage as far as it has them, then from the tail; a size limit lets one through."""
    log = log_of([1, 1])
    for index in (3, 4, 5):
        log.append(entry(index, 2, bytes(10)))
    assert [e.index for e in log.entries(LogIndex(1), 100, 100)] == [1, 2]
    assert [e.index for e in log.entries(LogIndex(3), 100, 100)] == [3, 4, 5]
    assert [e.index for e in log.entries(LogIndex(3), 20, 100)] == [3, 4]
    assert [e.index for e in log.entries(LogIndex(3), 1, 100)] == [3]
    assert [e.index for e in log.entries(LogIndex(3), 100, 2)] == [3, 4]
    assert list(log.entries(LogIndex(6), 100, 100)) == []


def test_restore_starts_over() -> None:
    """After a snapshot the log is empty, the snapshot's term is known, and older reports have no effect."""
    log = log_of([1, 1], commit=1)
    log.append(entry(3, 1))
    hand_out(log, 1)
    meta = SnapshotMeta(LogIndex(7), Term(2), Configuration())
    log.restore(meta)
    assert (log.first_index, log.last_index, log.last_term, log.commit_index) == (8, 7, 2, 7)
    assert (log.term_at(LogIndex(7)), log.term_at(LogIndex(2))) == (2, None)
    log.on_persisted(1)
    assert log.durable_index == 1
    assert log.take_committed() is None
    log.append(entry(8, 2))


@given(
    st.lists(st.integers(1, 5), max_size=12).map(sorted),
    st.integers(0, 15),
    st.integers(0, 6),
    st.integers(0, 12),
)
def test_last_at_most_agrees_with_a_search_from_the_end(terms: list[int], index: int, term: int, drop: int) -> None:
    """The binary search finds what going back one by one would."""
    disk = storage(terms=terms)
    snapshot = LogIndex(min(drop, len(terms)))
    snapshot_term = disk.term_at(snapshot)
    assert snapshot_term is not None
    disk.compact(SnapshotMeta(snapshot, snapshot_term, Configuration()), LogIndex(snapshot + 1))
    log = RaftLog(disk, snapshot, snapshot)
    expected = LogIndex(min(index, len(terms)))
    while (here := log.term_at(expected)) is not None and here > term:
        expected = LogIndex(expected - 1)
    assert log.last_at_most(LogIndex(index), Term(term)) == expected


@given(st.data())
def test_log_agrees_with_a_list(data: st.DataObject) -> None:
    """Random appends, truncations and reports: the log equals a plain list, and durable means on the disk."""
    disk = storage()
    log = RaftLog(disk, LogIndex(0), LogIndex(0))
    model: list[int] = []
    waiting: list[tuple[int, LogIndex | None, tuple[Entry, ...]]] = []
    term = 1
    number = 0
    for _ in range(data.draw(st.integers(0, 25))):
        match data.draw(st.sampled_from(["append", "truncate", "take", "report"])):
            case "append":
                term += data.draw(st.integers(0, 1))
                log.append(entry(len(model) + 1, term))
                model.append(term)
            case "truncate" if model:
                start = data.draw(st.integers(1, len(model)))
                log.truncate_from(LogIndex(start))
                del model[start - 1 :]
                term += 1
            case "take":
                number += 1
                truncated_from, new = log.take_unpersisted()
                log.on_handed_out(number, None, None)
                waiting.append((number, truncated_from, new))
            case "report" if waiting:
                done, truncated_from, new = waiting.pop(0)
                if truncated_from is not None:
                    disk.truncate_from(truncated_from)
                disk.append(new)
                log.on_persisted(done)
        assert [log.term_at(LogIndex(i + 1)) for i in range(len(model))] == model
        assert log.last_index == len(model)
        assert all(disk.term_at(LogIndex(i)) == log.term_at(LogIndex(i)) for i in range(log.durable_index + 1))


def test_entries_of_a_helper() -> None:
    """The test's own helper numbers entries from the index it is given."""
    assert [(e.index, e.term) for e in entries([3, 4], 7)] == [(7, 3), (8, 4)]
