"""Processes of local nodes: which ones belong to us, what state they are in, and how to stop them.

The process id in a file may belong to another program by now, or to a node of the directory that this one was copied
from. No process is signalled unless it is a DRMQ server on exactly this data directory: one that holds the lock of the
directory, wherever the directory was when the process was started. A process that holds no such lock yet, or whose
files cannot be inspected, is recognised by the path in its command line. A process that has exited and has not been
reaped yet has no command line, so it counts as gone.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

EXIT_REMOVED = 3
"""Exit code of `drmq server` if the cluster has removed the node, so that it cannot start again with its data."""
LOG_TAIL_LINES = 20
_LOG_TAIL_BYTES = 8192
_OPTION = "--data-dir"
_POLL_S = 0.05
_FILES_SEARCHED = 64
"""A node takes the lock before it opens its logs, so the lock is among its first files."""


def spawn_server(arguments: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start `drmq server` in the background and append its output to a file."""
    with log_path.open("ab") as log:
        # A new session: Ctrl-C in the terminal that ran `drmq up` must not stop the node.
        return subprocess.Popen(
            [sys.executable, "-m", "drmq", "server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            close_fds=True,
        )


def process_is_ours(pid: int, data_dir: Path) -> bool:
    """Whether this process is alive and is a DRMQ server on this data directory. A zombie process is not."""
    if "drmq" not in " ".join(_command_line(pid)[:4]):
        return False
    holds_lock = _holds_lock(pid, data_dir)
    return process_names(pid, data_dir) if holds_lock is None else holds_lock


def process_names(pid: int, data_dir: Path) -> bool:
    """Whether the command line of a process has the path of this data directory, or another path that leads there."""
    arguments = _command_line(pid)
    if len(arguments) == 1:
        # From `ps`, which does not separate the arguments.
        return re.search(rf"(?<=\s){re.escape(str(data_dir))}(?=\s|$)", arguments[0]) is not None
    if str(data_dir) in arguments:
        return True
    named = process_data_dir(pid)
    try:
        return named is not None and named.samefile(data_dir)
    except OSError:
        return False


def process_data_dir(pid: int) -> Path | None:
    """The data directory in the command line of a process."""
    arguments = _command_line(pid)
    if _OPTION not in arguments[:-1]:
        return None
    return Path(arguments[arguments.index(_OPTION) + 1])


def _holds_lock(pid: int, data_dir: Path) -> bool | None:
    """Whether the process has the lock file of this data directory open; None if it has none open, or that is unknown.

    Paths do not tell: after `mv a b; cp -r b a`, the command line of the node that now runs in `b` names `a`.
    """
    try:
        entries = sorted(islice(os.scandir(f"/proc/{pid}/fd"), _FILES_SEARCHED), key=lambda entry: int(entry.name))
        own = (data_dir / "lock").stat()
    except OSError:
        return None
    found: bool | None = None
    for entry in entries:
        try:
            if os.path.basename(os.readlink(entry.path)) != "lock":
                continue
            if os.path.samestat(own, os.stat(entry.path)):
                return True
        except OSError:
            continue
        found = False
    return found


def process_is_paused(pid: int) -> bool:
    """Whether a process was stopped by SIGSTOP and has not received SIGCONT."""
    found = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip().startswith(("T", "t"))


def end_process(pid: int, data_dir: Path, deadline: float, *, kill: bool = False) -> bool:
    """Terminate one of our processes, or kill it. Returns whether it ended before `deadline` (of `time.monotonic`)."""
    signal_ours(pid, data_dir, signal.SIGKILL if kill else signal.SIGTERM)
    if not kill:
        # A paused process handles SIGTERM only after SIGCONT.
        signal_ours(pid, data_dir, signal.SIGCONT)
    return wait_until_gone(pid, data_dir, deadline)


def signal_ours(pid: int, data_dir: Path, number: signal.Signals) -> bool:
    """Send a signal if the process is ours. Returns whether it was."""
    if not process_is_ours(pid, data_dir):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int, data_dir: Path, deadline: float) -> bool:
    while process_is_ours(pid, data_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def log_tail(path: Path, start: int = 0) -> str:
    """The last lines of a node's log after position `start`, under a heading with the path of the file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:]
    except OSError:
        return f"The log {path} cannot be read."
    return "\n".join([f"The end of {path}:", *(f"  {line}" for line in lines)])


def _command_line(pid: int) -> list[str]:
    """The arguments of a process, or without /proc all of them as one; empty if there is no such process."""
    if Path("/proc/self/cmdline").exists():
        try:
            content = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return os.fsdecode(content).split("\0")[:-1]
    found = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return [found.stdout.strip()] if found.stdout.strip() else []
