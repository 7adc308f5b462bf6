"""Snapshot transfer: the description of a snapshot, and how far its sender and its receiver are.

A follower that needs entries which its leader no longer has gets the leader's snapshot instead. The core moves no
files. It decides what is requested, and in which order:

    leader                                  follower
    offers: a chunk without bytes      ->   reports how much of this snapshot it has
    asks its driver for a chunk        <-
    sends it                           ->   has its driver save it beside the live state
                                       <-   reports how much it has, once that is durable
    ... and so on, one chunk at a time, until the last one is marked `done`
                                            has its driver check the whole
                                            replaces log and state in one step of the `Ready` stream
                                       <-   AppendAccepted: continues from there as after any append

Only an answer shows that the receiver is alive; that chunks are sent to it shows nothing. If an answer is missing, a
new offer asks for it, so a lost chunk costs one chunk. Received bytes belong to one snapshot of one sender, because two
nodes need not encode the same state as the same bytes; a newer snapshot starts from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from drmq.model import NodeId
from drmq.raft.configuration import Configuration
from drmq.raft.types import NO_TERM, LogIndex, Term


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """The last entry that a snapshot covers."""

    index: LogIndex
    term: Term


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """Replaces the log up to `index`: the term of its last entry, its configuration, and its state."""

    index: LogIndex
    term: Term
    configuration: Configuration
    data: bytes = b""
    """Anything that the driver needs in addition to the state, such as the next offset. Small: it is sent with every
    chunk."""

    @property
    def snapshot_id(self) -> SnapshotId:
        """The id of this snapshot."""
        return SnapshotId(self.index, self.term)


class Stage(Enum):
    """What the sender of a snapshot is waiting for."""

    OFFERED = "offered"
    """For the receiver to report how much it has."""
    WANTED = "wanted"
    """For the driver to bring the next chunk."""
    SENT = "sent"
    """For the receiver to confirm the chunk."""
    COMPLETE = "complete"
    """For the receiver to install the snapshot."""


@dataclass(slots=True)
class SnapshotSending:
    """How far the transfer to one follower is. Owned by the leader's `Progress` for that follower."""

    meta: SnapshotMeta
    asked_tick: int
    stage: Stage = Stage.OFFERED
    received: int = 0
    size_bytes: int | None = None
    """Known once the last chunk has been sent."""

    def on_answer(self, received: int, tick: int) -> bool:
        """The receiver has `received` bytes. Returns True if the next chunk must be read.

        An answer with no new information, such as a duplicate, must not cause a chunk to be sent again. Otherwise every
        duplicate would start a second stream of chunks.
        """
        if self.stage is Stage.WANTED or (self.stage is Stage.SENT and received <= self.received):
            return False
        self.received = received
        self.asked_tick = tick
        if received == self.size_bytes:
            self.stage = Stage.COMPLETE
            return False
        self.stage = Stage.WANTED
        return True

    def is_overdue(self, tick: int, ticks_max: int) -> bool:
        """Whether the receiver's answer is overdue. A driver that reads slowly does not count."""
        return self.stage is not Stage.WANTED and tick - self.asked_tick >= ticks_max

    def offer_again(self, tick: int) -> None:
        """Offer the snapshot again, because no answer came for too long."""
        self.stage = Stage.OFFERED
        self.asked_tick = tick


@dataclass(slots=True)
class SnapshotReceiving:
    """How far the transfer from a leader is. A driver that kept the bytes over a restart passes this in."""

    sender: NodeId
    meta: SnapshotMeta
    received: int = 0
    complete: bool = False
    term: Term = NO_TERM
    """The term in which the last chunk came."""


class ChunkWanted(NamedTuple):
    """A request to read this part of that snapshot and pass it to `send_snapshot_chunk`."""

    target: NodeId
    meta: SnapshotMeta
    offset: int
    size_bytes_max: int


class ChunkToSave(NamedTuple):
    """A request to write these bytes beside the live state.

    Offset 0 begins a new file; `done` ends it: check the whole file and report to `on_snapshot_received`. A snapshot
    that does not reach beyond the commit index is no longer needed.
    """

    sender: NodeId
    meta: SnapshotMeta
    offset: int
    data: bytes | bytearray | memoryview
    done: bool
