"""Progress on standard error, only on a terminal and only if the work takes more than a moment."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

_PATIENCE_S = 0.5


class Progress:
    """Counts towards a total, or without one. Shows nothing in a pipe and nothing for short work."""

    def __init__(self, what: str, total: int | None, *, is_bytes: bool = False) -> None:
        self._what = what
        self._total = total
        self._is_bytes = is_bytes
        self._done = 0
        self._started_at = time.monotonic()
        self._shown_at = 0.0
        self._bar: _Bar | None = None
        self._wanted = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.show(self._done)
            self._bar.stop()

    def advance(self, amount: int) -> None:
        """Add to the amount done. Cheap enough to be called for each record."""
        self._done += amount
        if not self._wanted:
            return
        now = time.monotonic()
        if now - self._shown_at < 0.1 or now - self._started_at < _PATIENCE_S:
            return
        self._shown_at = now
        if self._bar is None:
            self._bar = _Bar(self._what, self._total, self._is_bytes)
        self._bar.show(self._done)


class _Bar:
    """The bar itself. rich is imported with the first one."""

    def __init__(self, what: str, total: int | None, is_bytes: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as RichProgress

        columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
        columns += [DownloadColumn(), TransferSpeedColumn()] if is_bytes else [MofNCompleteColumn()]
        columns.append(TimeRemainingColumn())
        self._progress = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(what, total=total)
        self._progress.start()

    def show(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def stop(self) -> None:
        self._progress.stop()


class StatusLine:
    """One line of progress on standard error that is overwritten with each update. Shows nothing in a pipe."""

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty()
        self._started_at = time.monotonic()
        self._shown = ""

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")

    def show(self, text: str) -> None:
        """Replace the line with this text."""
        if self._wanted and text != self._shown and time.monotonic() - self._started_at >= _PATIENCE_S:
            self._write(text)
            self._shown = text

    def _write(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()
