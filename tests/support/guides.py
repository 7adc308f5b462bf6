"""What a reader of a page would type and see: the blocks of a Markdown page, and a terminal that runs them.

A block of `console` has commands after `$ ` and the output that follows each. A block of `sh` has only commands, and
one of `python` is a program, or a file of tests. A command with the comment `until Ctrl-C` is interrupted after a
while. HTML comments directly before a block, which a reader does not see, say what else matters for it:

    <!-- not run: REASON -->          a block that no test can run
    <!-- first: COMMANDS -->          what the page presumes, run before the block
    <!-- input: TEXT -->              what the reader types when a command asks
    <!-- until: TEXT -->              each command runs until it prints this, and is then interrupted
    <!-- in any order -->             the lines of each output
    <!-- with gateways -->            nodes that are started have their gateways, which the other blocks do without
"""

from __future__ import annotations

import difflib
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

from support.own_network import __file__ as own_network

PATIENCE_S = 120.0
"""For one command."""
DIFFERENCE_LINES_MAX = 60
INTERRUPTED_AFTER_S = 2
TIMED_OUT = 124
"""The exit status of `timeout`, if it had to interrupt the command."""
NOT_RUN, FIRST, INPUT, UNTIL, ANY_ORDER = "not run", "first", "input", "until", "in any order"
GATEWAYS = "with gateways"
OPTIONS = (NOT_RUN, FIRST, INPUT, UNTIL, ANY_ORDER, GATEWAYS)
LANGUAGES = ("console", "sh", "python")

_PART = re.compile(
    r"^<!-- *(?P<comment>.*?) *-->\n|^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```|^[^\n]*\n",
    re.MULTILINE | re.DOTALL,
)
_VARYING: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"\(pid \d+\)", "(pid N)"),
        (r"\b\d+(\.\d+)? s\b", "N s"),
        (r"\bhash [0-9a-f]{16}\b", "hash H"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
        (r'"(\w+_ms|lease_token|scanned)":\d+', r'"\1":N'),
        (r'"ack_id":"[\w-]{76}"', '"ack_id":"A"'),
        (r'"request_id":"[0-9a-f]{16}"', '"request_id":"R"'),
        (r"\b(formed cluster) [\w-]{22}$", r"\1 C"),
        # What a simulation does changes with the code, and with it how much of everything there is.
        (r"\b\d+ (events|records acknowledged|read|offsets committed)\b", r"N \1"),
        (r"^ +\d+\.\d{6}   node \d  ", "T node N "),
    )
]
"""What is different each time: process ids, durations, hashes, ids, times, and counts of a simulation."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, with the comments before it."""

    page: str
    line: int
    language: str
    text: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command with the output that the page shows. A line that ends in `\\` is continued by the next."""
        found: list[tuple[str, list[str]]] = []
        is_open = False
        for line in self.text.splitlines():
            if is_open:
                found[-1] = (f"{found[-1][0]}\n{line}", [])
            elif self.language == "sh":
                if line.strip():
                    found.append((line, []))
            elif line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
            is_open = bool(found) and found[-1][0].endswith("\\") and not found[-1][1]
        return found


def read_blocks(page: str, text: str) -> Iterator[Block]:
    """The blocks that a reader could type in, in their order. Raises `ValueError` for a comment that means nothing."""
    options: dict[str, str] = {}
    for match in _PART.finditer(text):
        if match["comment"] is not None:
            name, _, value = match["comment"].partition(":")
            if name not in OPTIONS:
                raise ValueError(f"{page}: `{name}` is none of {OPTIONS}")
            options[name] = value.strip()
            continue
        if match["language"] in LANGUAGES:
            line = text.count("\n", 0, match.start()) + 1
            yield Block(page, line, match["language"], match["text"], options)
        elif options:
            raise ValueError(f"{page}: {options} is not directly before a block that can be run")
        options = {}


def comparable(output: str) -> list[str]:
    """The lines of an output without what is different each time."""
    for pattern, replacement in _VARYING:
        output = pattern.sub(replacement, output)
    return [line.rstrip() for line in output.strip("\n").split("\n")]


def difference(shown: Sequence[str], seen: str, *, any_order: bool = False) -> str:
    """What is different about an output, or nothing. A line `...` stands for any number of lines."""
    expected, found = comparable("\n".join(shown)), comparable(seen)
    if any_order:
        expected, found = sorted(expected), sorted(found)
    pattern = "".join("(?:.*\n)*" if line.strip() == "..." else re.escape(f"{line}\n") for line in expected)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in found)):
        return ""
    lines = list(difflib.unified_diff(expected, found, "the page", "the command", lineterm=""))
    return "\n".join(lines[:DIFFERENCE_LINES_MAX])


class CommandFailed(AssertionError):
    """A command that did not do what the page says."""


class Terminal:
    """A shell in an empty directory, with `drmq` on its path, and in a network of its own where there may be one."""

    def __init__(self, directory: Path, *, own_ports: bool) -> None:
        self._mark = uuid.uuid4().hex
        kept = ("HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME")
        self._environment = {name: os.environ[name] for name in kept if name in os.environ}
        self._environment["DRMQ_GATEWAY"] = "false"
        self._environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
        self._environment |= {"GUIDE_RUN": self._mark, "PYTHONDONTWRITEBYTECODE": "1"}
        # pytest removes what earlier runs left in its directory, which may be gigabytes of this very run's neighbours.
        self._environment["PYTEST_DEBUG_TEMPROOT"] = str(directory)
        self.directory = directory
        prefix = [sys.executable, own_network] if own_ports else []
        self._shell = subprocess.Popen(
            [*prefix, "bash", "--norc", "--noprofile"],
            cwd=directory,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run(self, command: str, typed: str = "") -> tuple[int, str]:
        """The exit status and the output of a command; variables and the directory are kept for the next one."""
        self._tell(f"{{ {command}\n}} < <(printf %s {shlex.quote(typed)})\n")
        end = f"END-{self._mark}"
        self._tell(f"printf '\\n%s %d\\n' {end} $?\n")
        output: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise CommandFailed(f"`{command}` does not end. So far: {''.join(output)}") from None
            if line is None:
                raise CommandFailed(f"the shell ended after `{command}`: {''.join(output)}")
            if line.startswith(end):
                # The line break before the mark is ours.
                return int(line.split()[1]), "".join(output).removesuffix("\n")
            output.append(line)

    def run_until(self, commands: Sequence[str], text: str) -> None:
        """Start commands beside each other, wait until each prints a text, interrupt them, and wait for their ends."""
        for number, command in enumerate(commands):
            # Started in the background, a command of a shell ignores SIGINT; a process started by Python does not.
            start = "import signal, os, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            start += "os.execvp('bash', ['bash', '-c', 'exec ' + sys.argv[1]])"
            self.run(f"python3 -c {shlex.quote(start)} {shlex.quote(command)} > out.{number} 2>&1 & pids[{number}]=$!")
        deadline = time.monotonic() + PATIENCE_S
        for number, command in enumerate(commands):
            output = self.directory / f"out.{number}"
            while text not in (output.read_text() if output.exists() else ""):
                if time.monotonic() > deadline:
                    raise CommandFailed(f"`{command}` has not printed {text!r}, but: {output.read_text()}")
                time.sleep(0.05)
        for number, command in enumerate(commands):
            status, said = self.run(f"kill -INT ${{pids[{number}]}}; wait ${{pids[{number}]}}")
            if status not in (0, 128 + signal.SIGINT):
                output = self.directory / f"out.{number}"
                raise CommandFailed(f"`{command}` ended with {status}: {said}{output.read_text()}")
            (self.directory / f"out.{number}").unlink()

    def _tell(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def close(self) -> None:
        """End the shell and everything that was started from it, found by a variable of its environment."""
        self._shell.kill()
        self._shell.wait()
        for process in psutil.process_iter():
            try:
                if process.environ().get("GUIDE_RUN") == self._mark:
                    process.kill()
            except psutil.Error:
                continue
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            if not pipe.closed:
                pipe.close()


def run_block(terminal: Terminal, block: Block) -> None:
    """Do what the reader of a block does. Raises `CommandFailed`."""
    terminal.run(f"export DRMQ_GATEWAY={'true' if GATEWAYS in block.options else 'false'}")
    typed = f"{block.options[INPUT]}\n" if INPUT in block.options else ""
    for command in filter(None, block.options.get(FIRST, "").splitlines()):
        _check(terminal, block, command)
    if UNTIL in block.options:
        terminal.run_until([command for command, _ in block.commands], block.options[UNTIL])
    elif block.language == "python":
        is_test = re.search(r"^def test_", block.text, re.MULTILINE)
        name = f"test_{block.line}.py" if is_test else f"program_{block.line}.py"
        (terminal.directory / name).write_text(block.text)
        _check(terminal, block, f"python3 -m pytest -q -p no:cacheprovider {name}" if is_test else f"python3 {name}")
    else:
        for command, shown in block.commands:
            seen = _check(terminal, block, command, typed)
            if block.language == "console":
                wrong = difference(shown, seen, any_order=ANY_ORDER in block.options)
                if wrong:
                    raise CommandFailed(f"{block}: `{command}` prints something else:\n{wrong}")


def _check(terminal: Terminal, block: Block, command: str, typed: str = "") -> str:
    if re.search(r"# .*until Ctrl-C", command):
        status, seen = terminal.run(f"timeout --signal INT {INTERRUPTED_AFTER_S} {command}", typed)
        if status != TIMED_OUT:
            raise CommandFailed(f"{block}: `{command}` ended by itself with {status}:\n{seen}")
        return seen
    status, seen = terminal.run(command, typed)
    # Reports about health: degraded is no failure of the command.
    reports = re.search(r"\bdrmq (cluster health|status)\b", command)
    if status != 0 and not (reports and status == 1):
        raise CommandFailed(f"{block}: `{command}` ended with {status}:\n{seen}")
    return seen


def missing_tools(blocks: Sequence[Block]) -> list[str]:
    """Programs and packages that a page uses and that are not part of every system."""
    used = [tool for tool in ("kcat", "curl") if any(tool in block.text for block in blocks)]
    missing = [tool for tool in used if not shutil.which(tool)]
    packages = [name for name in ("opentelemetry",) if any(name in block.text for block in blocks)]
    return missing + [name for name in packages if find_spec(name) is None]
