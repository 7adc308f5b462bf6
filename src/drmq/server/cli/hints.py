"""Commands that a message suggests: they ask the cluster that the command itself asked.

Without the `-b` of the failed command, a suggestion such as `drmq topic ls` would ask the cluster at `DRMQ_BOOTSTRAP`
or `localhost:9092`, and mislead. Messages do not know about `-b`, and need not: it is added where they are printed.
"""

from __future__ import annotations

import re

_HINT = re.compile(r"`(drmq (?:cluster|consume|debug|dlq|group|offsets|produce|raft|shell|status|topic)\b[^`]*)`")

_explicit: list[str] = []
"""The address that was given with `-b`, if any."""


def asked(bootstrap: str | None) -> None:
    """Note the address that a command was given with `-b`, or that there is none."""
    _explicit[:] = [bootstrap] if bootstrap else []


def with_bootstrap(text: str) -> str:
    """The text, in which each suggested command has the `-b` of this one."""
    if not _explicit:
        return text
    return _HINT.sub(lambda hint: hint[0] if " -b " in hint[1] else f"`{hint[1]} -b {_explicit[0]}`", text)
