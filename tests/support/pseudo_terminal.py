"""A process at a terminal, as a person sees it: text without its control sequences, and keys."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from support.polling import PATIENCE_S

UP, TAB, ENTER, CTRL_C, CTRL_D = "\x1b[A", "\t", "\r", "\x03", "\x04"
_ROWS, _COLUMNS = 40, 200
_WHERE_IS_THE_CURSOR = b"\x1b[6n"
"""A question that terminals answer. Without an answer, there is no toolbar."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b.|[\x00\x08]")


class PseudoTerminal:
    """Runs a command in a terminal of its own. Leaving kills what is left of it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        known = {**environment, "TERM": "xterm"}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=known,
            start_new_session=True,
            # The terminal of the process, so that Ctrl-C reaches it as a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._raw = ""
        self._seen = 0
        """How much of the output was matched by `expect`."""

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    @property
    def output(self) -> str:
        """All output so far, as text."""
        return _CONTROL.sub("", self._raw)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, text: str) -> str:
        """Wait until a text is printed, after what was expected before. Returns what came before it."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.output.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not printed, but: {self.output[self._seen :]!r}"
            assert self._read() or text in self.output[self._seen :], (text, self.output[self._seen :])
        before = self.output[self._seen : found]
        self._seen = found + len(text)
        return before

    def type_until(self, keys: str, text: str) -> None:
        """Type keys again and again until a text is printed: the process may not be ready for them yet."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output[self._seen :]:
            assert time.monotonic() < deadline, f"{text!r} was not printed, but: {self.output[self._seen :]!r}"
            self.type(keys)
            for _ in range(5):
                assert self._read(), self.output[self._seen :]
        self.expect(text)

    def end(self) -> int:
        """Wait until the process ends, and return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, self.output[self._seen :]
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Take what has been printed. False once nothing more can come."""
        if not select.select([self._master], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError as error:
            # How Linux reports that the other side is closed.
            if error.errno != errno.EIO:
                raise
            data = b""
        for _ in range(data.count(_WHERE_IS_THE_CURSOR)):
            os.write(self._master, b"\x1b[1;1R")
        self._raw += data.decode(errors="replace")
        return bool(data)
