"""Say a thing once and count the rest: a log that a flood of bad clients cannot flood."""

from __future__ import annotations

import logging
import time

_QUIET_S = 30.0


class RepeatFilter:
    """Logs the first event of a kind at once and then, at most every 30 s, how many followed."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._kinds: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str) -> None:
        """`kind` groups events that count as the same; `message` is the one that gets printed."""
        self._say(logging.WARNING, kind, message)

    def error(self, kind: str, message: str) -> None:
        self._say(logging.ERROR, kind, message)

    def _say(self, level: int, kind: str, message: str) -> None:
        now = time.monotonic()
        since, unsaid = self._kinds.get(kind, (0.0, 0))
        if since and now - since < _QUIET_S:
            self._kinds[kind] = (since, unsaid + 1)
            return
        more = f" (and {unsaid} more of this kind in the last {now - since:.0f} s)" if unsaid else ""
        self._logger.log(level, "%s%s", message, more)
        self._kinds[kind] = (now, 0)

    def close(self) -> None:
        """Say what was counted but not yet said."""
        for kind, (_, unsaid) in self._kinds.items():
            if unsaid:
                self._logger.warning("%s: %d more were not logged one by one", kind, unsaid)
        self._kinds.clear()
