"""The shell in a pipe: a command on each line, plain output, and an exit code that tells of failures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from drmq.model import DrmqError
from drmq.server.cli.hints import with_bootstrap
from drmq.server.shell.commands import Exit
from drmq.server.shell.grammar import parse

if TYPE_CHECKING:
    from drmq.server.shell.replies import Reply
    from drmq.server.shell.session import Session


def run_script(session: Session, lines: Iterable[bytes], show: Callable[[Reply], None], *, keep_going: bool) -> bool:
    """Carry out the commands of a pipe. Returns whether all of them succeeded.

    The first that fails ends the script, unless `keep_going`. Errors are printed with the number of their line.
    """
    is_fine = True
    for number, line in enumerate(lines, 1):
        try:
            # What is not UTF-8 is refused by the grammar, as any other line that cannot be used.
            command = parse(line.decode(errors="surrogateescape"))
            if isinstance(command, Exit):
                break
            if command is not None:
                with closing(session.execute(command)) as replies:
                    for reply in replies:
                        show(reply)
                # The next command may wait for long, and what was printed must not wait with it.
                sys.stdout.flush()
        except DrmqError as error:
            sys.stdout.flush()
            print(f"error: line {number}: {with_bootstrap(str(error))}", file=sys.stderr, flush=True)
            is_fine = False
            if not keep_going:
                break
    return is_fine
