"""What ends a command from outside: signals and a closed pipe, as exceptions, so that it can leave its group first.

Python raises `KeyboardInterrupt` for SIGINT, and lets SIGTERM and SIGHUP (a closed terminal) kill the process. A
consumer that is killed stays a member of its group until its session times out, and its partitions are not read until
then.
"""

from __future__ import annotations

import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_HELD_S_MAX = 1.0


class Terminated(BaseException):
    """The process was asked to end by SIGTERM or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        """What a shell reports for a process that a signal has ended."""


class Signals:
    """While this is entered, SIGTERM and SIGHUP raise `Terminated`, and SIGINT `KeyboardInterrupt`.

    A second signal kills the process. A signal that the process was started to ignore (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, object] = {}
        self._is_held = False
        self._pending: int | None = None

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            # Only the main thread handles signals.
            return self
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if self._is_held:
            self._pending = number
            # What is held may wait for a reader that does not read.
            signal.signal(signal.SIGALRM, lambda *_: _raise(number))
            signal.setitimer(signal.ITIMER_REAL, _HELD_S_MAX)
        else:
            _raise(number)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let a signal wait until the end of this block, for things that belong together; but not for long."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            if self._pending is not None:
                signal.setitimer(signal.ITIMER_REAL, 0)
        if self._pending is not None:
            _raise(self._pending)


class Ending:
    """While this is entered, SIGTERM and SIGHUP raise `Terminated`. SIGINT is left to the program.

    An event loop swallows what a signal raises in one of its callbacks. While `interrupt` is set, a signal calls it
    instead, and `error` has what is to be raised. A second signal kills the process.
    """

    def __init__(self) -> None:
        self.interrupt: Callable[[], None] | None = None
        self.error: Terminated | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Ending:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.error = Terminated(number)
        if self.interrupt is None:
            raise self.error
        self.interrupt()


def _raise(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise Terminated(number)


class OutputWatch:
    """Notices that the reader of standard output is gone, also while there is nothing to write."""

    def __init__(self) -> None:
        self._poll = select.poll()
        try:
            # No event is asked for: errors and the end of the connection are always reported.
            self._poll.register(sys.stdout.fileno(), 0)
        except (OSError, ValueError):
            # Standard output is not a file of the system, as in a test.
            self._poll = select.poll()

    def check(self) -> None:
        """Raise `BrokenPipeError` if nothing that is written can be read any more."""
        if self._poll.poll(0):
            raise BrokenPipeError
