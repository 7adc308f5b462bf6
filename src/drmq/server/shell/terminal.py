"""The shell at a terminal: a prompt with history, completion and a toolbar. The only module with prompt_toolkit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from drmq.model import DrmqError
from drmq.server.cli.hints import with_bootstrap
from drmq.server.shell.commands import Exit
from drmq.server.shell.completion import candidates
from drmq.server.shell.grammar import COMMANDS, parse

if TYPE_CHECKING:
    from drmq.server.cli.endings import Ending
    from drmq.server.shell.completion import Names
    from drmq.server.shell.replies import Reply
    from drmq.server.shell.session import Session

PROMPT = "drmq> "
HELLO = "`help` lists the commands, Tab completes, Ctrl-D leaves."


def run_terminal(session: Session, names: Names, show: Callable[[Reply], None], ending: Ending) -> None:
    """Read commands and carry them out until `exit` or Ctrl-D. Ctrl-C ends a command, or clears the line."""
    prompt: PromptSession[str] = PromptSession(
        history=_history(),
        completer=ShellCompleter(names),
        complete_in_thread=True,
        complete_while_typing=False,
        bottom_toolbar=lambda: f" {session.summary}",
        refresh_interval=1.0,
    )
    print(HELLO)
    while True:
        try:
            line = _read_line(prompt, ending)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            command = parse(line)
            if isinstance(command, Exit):
                return
            if command is not None:
                with closing(session.execute(command)) as replies:
                    for reply in replies:
                        show(reply)
        except KeyboardInterrupt:
            print("Interrupted.")
        except DrmqError as error:
            print(_error(with_bootstrap(str(error))), file=sys.stderr)


def _read_line(prompt: PromptSession[str], ending: Ending) -> str:
    """The next line. Raises what a signal has asked for meanwhile."""

    def leave() -> None:
        if ending.error is not None and prompt.app.is_running:
            prompt.app.exit(exception=ending.error)

    def interrupt() -> None:
        # Called by a signal, somewhere in the event loop. If the loop does not run yet, `leave` runs when it starts.
        if prompt.app.loop is not None:
            prompt.app.loop.call_soon_threadsafe(leave)

    ending.interrupt = interrupt
    try:
        return prompt.prompt(PROMPT, pre_run=leave)
    finally:
        ending.interrupt = None


def _error(text: str) -> str:
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    return f"\x1b[1;31merror:\x1b[0m {text}" if coloured else f"error: {text}"


def history_path() -> Path:
    """Where lines are kept from one shell to the next."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "drmq" / "shell_history"


def _history() -> History:
    """The history in the user's file, which only the user can read; in memory if there can be no such file."""
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


class ShellCompleter(Completer):
    """Offers what `candidates` finds, with the first line of a command's help beside it."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        typed, offered = candidates(document.text_before_cursor, self._names.of)
        is_command = not document.text_before_cursor.strip().removesuffix(typed).strip()
        for word in offered:
            meta: Any = COMMANDS[word].summary if is_command and word in COMMANDS else None
            # With the space, the next word can be typed at once.
            yield Completion(f"{word} ", start_position=-len(typed), display=word, display_meta=meta)
