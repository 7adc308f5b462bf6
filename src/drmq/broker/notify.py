"""Telling many, of whom one may fail on a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def notify_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make all calls. What the first that failed has raised is raised when the others have been told."""
    first: Exception | None = None
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
