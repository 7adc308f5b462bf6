"""Wall clocks that are wrong: a library, loaded before the C library, that adds what a file says.

The monotonic clock stays as it is: on a real machine, setting the time does not move it either. Needs a C compiler;
`try_clock` finds out, and tests the tool itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.fault_tools import Tool
from support.networks import Unavailable
from support.polling import PATIENCE_S

_SOURCE = Path(__file__).with_name("clock_shift.c")
_SHIFT_BYTES = 8


class ShiftedClock:
    """The wall clock of one process, as it sees it. `environment` goes to that process."""

    def __init__(self, directory: Path, name: str) -> None:
        self._file = directory / f"{name}.shift"
        self._library = build_library(directory)
        self.set(0)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._file)}

    def set(self, shift_s: float) -> None:
        """Let the clock be so many seconds ahead of the true time, from now on."""
        # In place: the process has this very file mapped.
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(int(shift_s * 1e9).to_bytes(_SHIFT_BYTES, sys.byteorder, signed=True))


def build_library(directory: Path) -> Path:
    """Compile the library into a directory, once; raises `Unavailable`."""
    library = directory / "clock_shift.so"
    if library.exists():
        return library
    if shutil.which("cc") is None:
        raise Unavailable("there is no C compiler `cc` (Debian package gcc)")
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"the clock library cannot be compiled: {done.stderr.strip()[-300:]}")
    return library


_WATCH = (
    "import sys, time\n"
    "before = time.monotonic(), time.time()\n"
    "print('ready', flush=True)\n"
    "sys.stdin.readline()\n"
    "print(time.monotonic() - before[0], time.time() - before[1])\n"
)


def try_clock() -> Tool:
    """Whether clocks can be set here: the wall clock of a running process must jump, and no other clock."""
    name = "wall clocks of single processes"
    with tempfile.TemporaryDirectory() as directory:
        try:
            clock = ShiftedClock(Path(directory), "probe")
        except Unavailable as reason:
            return Tool(name, False, str(reason))
        process = subprocess.Popen(
            [sys.executable, "-c", _WATCH],
            env=dict(clock.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        clock.set(-3_600)
        said, _ = process.communicate("\n", timeout=PATIENCE_S)
    try:
        monotonic_s, wall_s = map(float, said.split())
    except ValueError:
        return Tool(name, False, "the process with the library does not run")
    works = abs(wall_s - monotonic_s + 3_600) < 1 and monotonic_s >= 0
    return Tool(name, works, f"set an hour back: it went by {wall_s:.0f} s, the monotonic clock by {monotonic_s:.1f} s")
