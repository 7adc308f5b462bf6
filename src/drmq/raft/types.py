"""The words of consensus: terms, indexes, entries, and the little that must outlive a crash.

An index is a place in the log, counted from 1; index 0 is the empty log's end and has term 0. An entry takes
one place or several: one with five records of a message log takes five, so that indexes and offsets differ only
by the entries that are Raft's own. It is appended, sent, committed and removed as a whole. A term is a reign: it
has at most one leader, and every entry carries the term of the leader that first wrote it.
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
    """What an entry carries: bytes, or any handle for bytes that knows how many there are.

    The core never looks inside. It only adds up sizes, to keep messages and windows bounded.
    """

    def __len__(self) -> int: ...


class EntryKind(IntEnum):
    """What an entry is for. The numbers are stored and sent, so they never change."""

    PAYLOAD = 0
    NOTHING = 1
    """A new leader's first entry, without which it could commit nothing that it inherited."""
    CONFIGURATION = 2


@value
class Entry:
    """One step of the log. Where two nodes have the same term at the same index, they have the same entry there."""

    first: LogIndex
    """The first index that it covers."""
    index: LogIndex
    """The last index that it covers, and its name."""
    term: Term
    kind: EntryKind
    payload: Payload
    size_bytes: int


@value
class HardState:
    """What a replica must not forget, or it might vote twice in one term."""

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
    """What a replica is at the moment."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    """Asking whether it could win, without disturbing anyone's term."""
    CANDIDATE = "candidate"
    LEADER = "leader"
