"""Moments as users write them in options."""

from __future__ import annotations

from datetime import UTC, datetime


def time_ms(text: str) -> int:
    """Milliseconds since 1970 of a number of them, or of an ISO 8601 text. Raises `ValueError`."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("allowed is a time in milliseconds since 1970, or like 2026-11-01T12:00:00Z") from None
    # Without a zone a time would mean something else on every machine of a cluster.
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
