"""Regular expressions of clients, which may take for ever.

An expression such as `(a+)+$` takes years on a value of fifty characters, and Python runs nothing else in the process
meanwhile: one request would stop the gateway. So a process of its own does the search, with a limit of the processor
time that it may use. The limit does not count the time in which other processes run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from drmq.gateway.pattern_process import LENGTH
from drmq.gateway.problems import ProblemError

_PROGRAM = Path(__file__).with_name("pattern_process.py")


class PatternSearch:
    """A process that searches values for one expression. It blocks, and ends with the `with` statement."""

    def __init__(self, expression: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            if not self._ask(expression):
                assert self._process.stdout is not None
                reason = self._process.stdout.read().decode(errors="replace")
                raise ProblemError(400, f"the pattern is not a regular expression: {reason}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def is_in(self, value: bytes) -> bool:
        """Whether the expression is found in a value. Raises `ProblemError` if that takes too long."""
        return self._ask(value)

    def close(self) -> None:
        self._process.kill()
        with self._process:  # closes the pipes and waits for the end
            pass

    def _ask(self, content: bytes) -> bool:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(LENGTH.pack(len(content)))
            process.stdin.write(content)
            process.stdin.flush()
            answer = process.stdout.read(1)
        except BrokenPipeError:
            answer = b""
        if not answer:
            raise ProblemError(
                400,
                "the pattern takes too long, or too much memory, to be compared with a record",
                advice="Use a simpler one, without a repetition inside a repetition such as `(a+)+`.",
            )
        return answer == b"\1"
