"""The proposals that a leader has accepted and not committed, so that it can refuse further ones in time.

Every entry that waits for a quorum takes memory on the leader and on each follower. If the followers do not keep up,
proposals are refused, and the refusal reaches the client as backpressure.
"""

from __future__ import annotations

from collections import deque

from drmq.raft.errors import TooMuchUncommitted
from drmq.raft.options import RaftOptions
from drmq.raft.types import LogIndex


class UncommittedProposals:
    """Sizes of the uncommitted proposals of one term. Owned by the `Leader`."""

    def __init__(self, options: RaftOptions) -> None:
        self._options = options
        self._waiting: deque[tuple[LogIndex, int]] = deque()
        self.size_bytes = 0

    def check(self, size_bytes: int, count: int) -> None:
        """Raise `TooMuchUncommitted` if these exceed a limit. If nothing is uncommitted, any size is accepted."""
        if not self._waiting:
            return
        options = self._options
        if (
            self.size_bytes + size_bytes > options.uncommitted_bytes_max
            or len(self._waiting) + count > options.uncommitted_entries_max
        ):
            raise TooMuchUncommitted(self.size_bytes, len(self._waiting))

    def add(self, index: LogIndex, size_bytes: int) -> None:
        """Count one more proposal."""
        self._waiting.append((index, size_bytes))
        self.size_bytes += size_bytes

    def on_commit(self, commit: LogIndex) -> None:
        """Stop counting the proposals that are committed."""
        while self._waiting and self._waiting[0][0] <= commit:
            self.size_bytes -= self._waiting.popleft()[1]
