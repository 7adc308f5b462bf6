"""How a process divides the files that it may open: among logs, clients, and everything else.

A process without free descriptors accepts no connection, not even from its operator, opens no file, and cannot even
import a module. So no part may use up the descriptors of another:

- *logs* open files when they use them, and close those that were not used for long (`storage.file_pool`);
- *clients* beyond their part are closed at once, as beyond `connections_max`;
- the rest is kept back for listeners, peers, the journal, snapshots that are written, and threads that read.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from drmq.model import DrmqError

OPEN_FILES_MIN = 256
"""A node that may open fewer files does not start."""
KEPT_BACK = 128
"""For everything that is not counted: listeners, the journal, pipes, directories that are synced, log files."""
PEERS_MAX = 1_000
"""Connections that other nodes may open (`transport.peers`)."""
LOGS_MAX = 65_536
"""More open files than this gain nothing, and each needs about a kilobyte of the kernel's memory."""


class TooFewFiles(DrmqError):
    """The process may open too few files to run a node."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """How many files each part of a node may have open."""

    logs: int
    connections: int


def divided(open_files: int) -> FileLimits:
    """The parts of `open_files`. Raises `TooFewFiles`."""
    if open_files < OPEN_FILES_MIN:
        raise TooFewFiles(
            f"this process may open {open_files} files, and a node needs at least {OPEN_FILES_MIN}; raise the limit "
            "(`ulimit -n`, or LimitNOFILE in a systemd unit)"
        )
    logs = min((open_files - KEPT_BACK) * 3 // 8, LOGS_MAX)
    peers = min((open_files - KEPT_BACK) // 8, PEERS_MAX)
    return FileLimits(logs, open_files - KEPT_BACK - logs - peers)


def file_limits() -> FileLimits:
    """The parts of this process. Raises `TooFewFiles`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return divided(1 << 30 if soft == resource.RLIM_INFINITY else soft)


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum that the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or (soft != resource.RLIM_INFINITY and hard == resource.RLIM_INFINITY):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
