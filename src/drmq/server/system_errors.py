"""Failures of system calls in words, with what to do about them."""

from __future__ import annotations

import errno
import os


def os_error_text(error: OSError) -> str:
    """What failed, why and what next, as sentences."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"A system call failed: {reason}."
    what = f"{os.fsdecode(error.filename)} cannot be used: {reason}."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        what = f"{os.fsdecode(error.filename)} cannot be used: Not a directory."
        return f"{what} Part of the path is a file. Choose another directory."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{what} Choose another path, or change its permissions."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what} Free space on its disk, or choose a path on another disk."
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{what} Raise the limit of open files (`ulimit -n`)."
    return f"{what} Check the path, or choose another one."
