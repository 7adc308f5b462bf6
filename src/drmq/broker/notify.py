"""Calls many callbacks, of which one may fail because of a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def notify_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls, even if some of them fail; then raise the first exception, if there was one."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
