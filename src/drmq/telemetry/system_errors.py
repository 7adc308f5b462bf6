"""Errors of system calls in words, for log lines."""

from __future__ import annotations

import os
import re

_NUMBER = re.compile(r"\[Errno -?\d+\] ")
_ASYNCIO = "Connect call failed"
"""The event loop of the standard library says this, and the address, whatever the reason is."""


def in_words(error: BaseException) -> str:
    """What the system says about an error and its file, without the number of the error. Other errors as they are."""
    if not isinstance(error, OSError):
        return str(error)
    reason = error.strerror or _NUMBER.sub("", str(error)) or type(error).__name__
    if reason.startswith(_ASYNCIO) and error.errno:
        reason = os.strerror(error.errno)
    return reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"
