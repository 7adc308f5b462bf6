"""The basic types of consensus: terms, indexes, entries, and the state that must survive a crash.

An index is a position in the log, counted from 1; index 0 is the end of the empty log and has term 0. An entry covers
one index or several: an entry with five records covers five, so that indexes and offsets differ only by the internal
entries of Raft. An entry is appended, sent, committed and removed as a whole. A term has at most one leader, and every
entry carries the term of the leader that first wrote it.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NewType, Protocol

from drmq.model import NodeId, value

Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)

NO_TERM = Term(0)
NO_INDEX = LogIndex(0)


class Payload(Protocol):
    """The content of an entry: bytes, or any handle for bytes that knows their number.

    The core never reads it. It only adds up sizes, to keep messages and windows bounded.
    """

    def __len__(self) -> int: ...


class EntryKind(IntEnum):
    """What an entry is for. The numbers are stored and sent, so they never change."""

    PAYLOAD = 0
    NOTHING = 1
    """A new leader's first entry. Without it the leader could not commit entries of earlier terms."""
    CONFIGURATION = 2


@value
class Entry:
    """One entry of the log. If two nodes have the same term at the same index, they have the same entry there."""

    first: LogIndex
    """The first index that the entry covers."""
    index: LogIndex
    """The last index that the entry covers, which also identifies it."""
    term: Term
    kind: EntryKind
    payload: Payload
    size_bytes: int


@value
class HardState:
    """The state that a replica must not lose, or it might vote twice in one term."""

    term: Term = NO_TERM
    vote: NodeId | None = None


@value
class IndexRange:
    """The indexes from `start` up to, but not including, `end`."""

    start: LogIndex
    end: LogIndex

    def __len__(self) -> int:
        return self.end - self.start


class Role(Enum):
    """The current role of a replica."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    """Asking for pre-votes, without changing any node's term."""
    CANDIDATE = "candidate"
    LEADER = "leader"
