"""What this process uses of the machine; 0 where the system does not tell."""

from __future__ import annotations

import os
from contextlib import suppress


def resident_bytes() -> int:
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def descriptor_count() -> int:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd")) - 1
    return 0
