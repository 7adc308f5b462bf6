"""Which segments are too old or exceed the size limit: one rule for logs on disk and in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from drmq.model import Offset


class Aging(Protocol):
    """The properties of a segment that the rule uses."""

    @property
    def end_offset(self) -> Offset: ...

    @property
    def size_bytes(self) -> int: ...

    def newest_ms(self) -> int:
        """The time of the newest record or, if no record has a time, of the last write."""


def start_to_keep(
    segments: Iterable[Aging],
    active: Aging,
    start: Offset,
    keep_from: Offset,
    surplus_bytes: int,
    now_ms: int,
    retention_ms: int,
) -> Offset:
    """The offset at which a log that begins at `start` may begin, oldest segments first, at most `keep_from`.

    A segment is too old if its newest record is older than `retention_ms`, unless that is negative. It exceeds the size
    limit if it fits into `surplus_bytes`; this never applies to the active segment.
    """
    for segment in segments:
        if segment.end_offset > keep_from or segment.size_bytes == 0:
            break
        is_old = retention_ms >= 0 and now_ms - segment.newest_ms() > retention_ms
        is_surplus = segment.size_bytes <= surplus_bytes and segment is not active
        if not (is_old or is_surplus):
            break
        surplus_bytes -= segment.size_bytes
        start = segment.end_offset
    return start
