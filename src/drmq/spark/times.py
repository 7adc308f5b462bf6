"""Times as users write them in options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999, the largest that a text can express. Its microseconds fit an int64."""

_DIGITS_MAX = len(str(_TIME_MS_MAX))


def time_ms(text: str) -> int:
    """A time, written as milliseconds since 1970 or in ISO 8601, in milliseconds. Raises `ValueError`.

    Times before 1970 are rejected: Kafka's timestamps begin there, and negative numbers have special meanings in
    requests.
    """
    if text.isascii() and text.isdigit():
        found = int(text) if len(text) <= _DIGITS_MAX else _TIME_MS_MAX + 1
    else:
        try:
            moment = datetime.fromisoformat(text)
            # Without a zone, a time would have another meaning on every machine of a cluster.
            since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        except ValueError:
            raise ValueError("allowed is a time in milliseconds since 1970, or like 2026-11-01T12:00:00Z") from None
        found = since // timedelta(milliseconds=1)
    if not 0 <= found <= _TIME_MS_MAX:
        raise ValueError("allowed is a time from 1970 to 9999, in milliseconds since 1970 or like 2026-11-01T12:00:00Z")
    return found
