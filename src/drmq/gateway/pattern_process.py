"""Compares values with a regular expression. `pattern_search` runs this file as a process of its own.

Input: a length in four bytes and the expression, then for each value a length and the value. Output: the byte 1 for an
expression that can be used, then 1 or 0 for each value; or 0 and the reason why the expression cannot be used.

It imports the standard library only, so that it starts within a few hundredths of a second.
"""

from __future__ import annotations

import re
import resource
import struct
import sys
from typing import BinaryIO

LENGTH = struct.Struct(">I")
CPU_SECONDS_MAX = 6
"""More than a whole search may take, so only a value that takes long by itself can need it."""
MEMORY_BYTES_MAX = 1024 * 1048576


def main() -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    expression = _read(given)
    if expression is None:
        return 0
    try:
        search = re.compile(expression).search
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answers.write(b"\0" + (str(error) or type(error).__name__).encode())
        answers.flush()
        return 0
    answers.write(b"\1")
    answers.flush()
    while (value := _read(given)) is not None:
        answers.write(b"\0" if search(value) is None else b"\1")
        answers.flush()
    return 0


def _read(given: BinaryIO) -> bytes | None:
    head = given.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    content = given.read(length)
    return content if len(content) == length else None


if __name__ == "__main__":
    sys.exit(main())
