"""SIGTERM ends a `with` block as Ctrl-C does.

By default SIGTERM kills a process on the spot. What a consumer holds then stays leased until the leases run out, and
nobody works on it meanwhile. So while a consumer is in a `with` block, SIGTERM raises `SystemExit`, and the block is
left in the usual way. This is done only in the main thread, and only if the program has not set a handler itself.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_EXIT_CODE = 128 + signal.SIGTERM
"""What a shell reports for a process that SIGTERM has ended."""


class Termination:
    """One `with` block."""

    def __init__(self) -> None:
        self._is_set = False

    def begin(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
            self._is_set = True

    def end(self) -> None:
        if self._is_set and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._is_set = False

    @staticmethod
    def _on_signal(number: int, frame: FrameType | None) -> None:
        # A second one kills: closing may take a while.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(_EXIT_CODE)
