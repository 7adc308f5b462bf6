"""Incremental fetch sessions: what is remembered, what is told, and what is refused."""

from __future__ import annotations

import pytest

from drmq.kafka.fetch_sessions import FetchSessions
from drmq.model import ApiError, ErrorCode
from drmq.wire.fetch import FetchData, FetchPartition, FetchResult


def asked(
    *partitions: tuple[str, int, int],
    session_id: int = 0,
    epoch: int = 0,
    forgotten: tuple[tuple[str, int], ...] = (),
) -> FetchData:
    """A request for (topic, partition, offset) triples."""
    entries = [FetchPartition(topic, index, -1, offset, -1, -1, 1 << 20) for topic, index, offset in partitions]
    return FetchData(-1, -1, 500, 1, 1 << 20, 0, session_id, epoch, entries, list(forgotten), "")


def told(topic: str, index: int, high_watermark: int, records: bytes = b"", error: int = 0) -> FetchResult:
    return FetchResult(topic, index, error, high_watermark, high_watermark, 0, (records,) if records else ())


def test_a_session_remembers_its_partitions() -> None:
    sessions = FetchSessions(10)
    session, wanted = sessions.open(asked(("a", 0, 5), ("b", 1, 7)), False, 0)
    assert session is not None
    assert [(entry.topic, entry.fetch_offset) for entry in wanted] == [("a", 5), ("b", 7)]
    again, wanted = sessions.open(asked(("a", 0, 9), session_id=session.session_id, epoch=1), False, 1)
    assert again is session
    assert [(entry.topic, entry.fetch_offset) for entry in wanted] == [("a", 9), ("b", 7)]


def test_forgotten_partitions_are_forgotten() -> None:
    sessions = FetchSessions(10)
    session, _ = sessions.open(asked(("a", 0, 0), ("b", 1, 0)), False, 0)
    assert session is not None
    forget = asked(session_id=session.session_id, epoch=1, forgotten=(("a", 0),))
    _, wanted = sessions.open(forget, False, 0)
    assert [entry.topic for entry in wanted] == ["b"]


def test_only_news_is_told() -> None:
    """A partition is in an incremental answer if it has records, an error, or offsets that moved."""
    sessions = FetchSessions(10)
    session, _ = sessions.open(asked(("a", 0, 0), ("b", 0, 0), ("c", 0, 0)), False, 0)
    assert session is not None
    first = [told("a", 0, 5), told("b", 0, 5), told("c", 0, 5)]
    assert session.changed(first) == first
    assert session.changed(first) == []
    moved, records, failed = told("a", 0, 6), told("b", 0, 5, b"x"), told("c", 0, 5, error=3)
    assert session.changed([moved, records, failed]) == [moved, records, failed]
    # After an error the client hears of the partition again, though nothing moved.
    assert session.changed([moved, told("b", 0, 5), told("c", 0, 5)]) == [told("c", 0, 5)]


def test_a_partition_with_records_goes_to_the_end() -> None:
    sessions = FetchSessions(10)
    session, _ = sessions.open(asked(("a", 0, 0), ("b", 0, 0)), False, 0)
    assert session is not None
    session.changed([told("a", 0, 1, b"x"), told("b", 0, 0)])
    _, wanted = sessions.open(asked(session_id=session.session_id, epoch=1), False, 0)
    assert [entry.topic for entry in wanted] == ["b", "a"]


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (12345, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_request_out_of_step_is_refused(session_id: int | None, epoch: int, code: ErrorCode) -> None:
    sessions = FetchSessions(10)
    session, _ = sessions.open(asked(("a", 0, 0)), False, 0)
    assert session is not None
    with pytest.raises(ApiError) as refused:
        sessions.open(asked(session_id=session_id or session.session_id, epoch=epoch), False, 0)
    assert refused.value.code is code


def test_names_and_ids_do_not_mix() -> None:
    sessions = FetchSessions(10)
    session, _ = sessions.open(asked(("a", 0, 0)), False, 0)
    assert session is not None
    with pytest.raises(ApiError) as refused:
        sessions.open(asked(session_id=session.session_id, epoch=1), True, 0)
    assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_final_request_ends_the_session_and_needs_none() -> None:
    sessions = FetchSessions(10)
    session, _ = sessions.open(asked(("a", 0, 0)), False, 0)
    assert session is not None
    none, wanted = sessions.open(asked(("a", 0, 3), session_id=session.session_id, epoch=-1), False, 0)
    assert none is None
    assert len(wanted) == 1
    assert len(sessions) == 0


def test_the_number_of_sessions_is_bounded() -> None:
    """Without a free place a client gets no session; one that is idle for minutes makes room."""
    sessions = FetchSessions(2)
    kept = [sessions.open(asked(("a", 0, 0)), False, 0)[0] for _ in range(2)]
    assert all(kept)
    assert sessions.open(asked(("a", 0, 0)), False, 1_000)[0] is None
    assert sessions.open(asked(("a", 0, 0)), False, 130_000)[0] is not None
    assert len(sessions) == 2


def test_a_full_request_without_partitions_opens_nothing() -> None:
    sessions = FetchSessions(2)
    assert sessions.open(asked(), False, 0) == (None, [])
