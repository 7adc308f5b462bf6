"""Requests about dead letters, and their responses, as `transfer` sends them between nodes."""

from __future__ import annotations

from typing import Any, Final

from drmq.leases.redrive_messages import (
    BatchAllowed,
    DescribeLetters,
    EndBatch,
    EndRedrive,
    IntendBatch,
    LettersView,
    NoteProgress,
    Purged,
    PurgeLetters,
    RedriveBegun,
    RedriveDone,
    RedriveRefusal,
    RedriveRefused,
    RedriveView,
    StartRedrive,
    StopRedrive,
)
from drmq.leases.redrive_records import Origin, RedriveState, Runs
from drmq.model import TopicId


def _topic_id(text: str) -> TopicId:
    return TopicId(bytes.fromhex(text))


def _origin(fields: list[Any]) -> Origin:
    topic_id, partition = fields
    return Origin(_topic_id(topic_id), int(partition))


def _runs(rows: list[Any]) -> Runs:
    return tuple((int(first), int(last)) for first, last in rows)


def _by_partition(rows: list[Any]) -> tuple[tuple[int, Runs], ...]:
    return tuple((int(partition), _runs(runs)) for partition, runs in rows)


def _redrive_view(f: list[Any] | None) -> RedriveView | None:
    if f is None:
        return None
    # `RedriveState` is an integer enum, which JSON writes as its number.
    return RedriveView(
        number=int(f[0]),
        state=RedriveState(f[1]),
        started_ms=int(f[2]),
        ended_ms=int(f[3]),
        count_max=int(f[4]),
        filter=str(f[5]),
        redriven=int(f[6]),
        skipped=int(f[7]),
        failed=int(f[8]),
        reason=str(f[9]),
        open_runs=_by_partition(f[10]),
    )


REDRIVE_READERS: Final[dict[str, Any]] = {
    StartRedrive.__name__: lambda f: StartRedrive(
        _topic_id(f[0]), int(f[1]), int(f[2]), str(f[3]), str(f[4]), _runs(f[5])
    ),
    IntendBatch.__name__: lambda f: IntendBatch(
        _topic_id(f[0]), int(f[1]), int(f[2]), _origin(f[3]), int(f[4]), _runs(f[5])
    ),
    EndBatch.__name__: lambda f: EndBatch(_topic_id(f[0]), int(f[1]), _origin(f[2]), bool(f[3]), bool(f[4])),
    NoteProgress.__name__: lambda f: NoteProgress(_topic_id(f[0]), int(f[1]), int(f[2]), int(f[3]), str(f[4])),
    EndRedrive.__name__: lambda f: EndRedrive(_topic_id(f[0]), int(f[1]), int(f[2]), int(f[3]), str(f[4])),
    StopRedrive.__name__: lambda f: StopRedrive(_topic_id(f[0])),
    PurgeLetters.__name__: lambda f: PurgeLetters(_topic_id(f[0]), int(f[1]), _runs(f[2]), int(f[3])),
    DescribeLetters.__name__: lambda f: DescribeLetters(_topic_id(f[0])),
    RedriveRefused.__name__: lambda f: RedriveRefused(RedriveRefusal[f[0]]),
    RedriveBegun.__name__: lambda f: RedriveBegun(int(f[0])),
    BatchAllowed.__name__: lambda f: BatchAllowed(*map(int, f[:4])),
    Purged.__name__: lambda f: Purged(int(f[0])),
    RedriveDone.__name__: lambda f: RedriveDone(),
    LettersView.__name__: lambda f: LettersView(_by_partition(f[0]), int(f[1]), _redrive_view(f[2])),
}
"""By the name of a message: what reads its fields."""
