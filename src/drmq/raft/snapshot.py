"""Snapshots on their way: what describes one, and how far its sender and its receiver are.

A follower that needs entries which its leader no longer has gets the leader's snapshot instead. The core
moves no files. It decides what is asked for, and in which order:

    leader                                  follower
    offers: a chunk without bytes      ->   tells how much of this snapshot it has
    asks its driver for a chunk        <-
    sends it                           ->   has its driver save it beside the live state
                                       <-   tells how much it has, once that is durable
    ... and so on, one chunk at a time, until the last one is marked `done`
                                            has its driver check the whole
                                            replaces log and state in one step of the `Ready` stream
                                       <-   AppendAccepted: goes on from there as after any append

An answer is the only sign of life that counts: a follower that is being sent to may be long dead. An
answer that does not come is asked for again by a new offer, so a lost chunk costs one chunk. What has been
received belongs to one snapshot of one sender, because two nodes need not write the same state as the same
bytes; a newer snapshot starts over.
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
    """The entry that a snapshot reaches up to."""

    index: LogIndex
    term: Term


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """What stands in for the log up to `index`: its last entry's term, its configuration, its state."""

    index: LogIndex
    term: Term
    configuration: Configuration
    data: bytes = b""
    """Anything the driver needs beside the state, such as the next offset. Small: it travels with every
    chunk."""

    @property
    def snapshot_id(self) -> SnapshotId:
        """Which snapshot this is."""
        return SnapshotId(self.index, self.term)


class Stage(Enum):
    """What the sender of a snapshot waits for."""

    OFFERED = "offered"
    """The receiver, to say how much it has."""
    WANTED = "wanted"
    """The driver, to bring the next chunk."""
    SENT = "sent"
    """The receiver, to say that it has the chunk."""
    COMPLETE = "complete"
    """The receiver, to install what it has."""


@dataclass(slots=True)
class SnapshotSending:
    """How far the transfer to one follower is. Owned by the leader's progress for that follower."""

    meta: SnapshotMeta
    asked_tick: int
    stage: Stage = Stage.OFFERED
    received: int = 0
    size_bytes: int | None = None
    """Known once the last chunk has been sent."""

    def on_answer(self, received: int, tick: int) -> bool:
        """The receiver has `received` bytes; True if it is time to fetch the next chunk.

        An answer that tells nothing new, such as a duplicate, is no reason to send a chunk again: were it,
        every duplicate would start a second stream of chunks.
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
        """Whether the receiver owes an answer for too long. A driver that reads slowly is no reason to ask."""
        return self.stage is not Stage.WANTED and tick - self.asked_tick >= ticks_max

    def offer_again(self, tick: int) -> None:
        """Nothing was heard for too long."""
        self.stage = Stage.OFFERED
        self.asked_tick = tick


@dataclass(slots=True)
class SnapshotReceiving:
    """How far the transfer from a leader is. A driver that kept the bytes over a restart hands this in."""

    sender: NodeId
    meta: SnapshotMeta
    received: int = 0
    complete: bool = False
    term: Term = NO_TERM
    """The term in which the last chunk came."""


class ChunkWanted(NamedTuple):
    """Read this part of that snapshot and hand it to `send_snapshot_chunk`."""

    target: NodeId
    meta: SnapshotMeta
    offset: int
    size_bytes_max: int


class ChunkToSave(NamedTuple):
    """Write these bytes beside the live state. Offset 0 begins a new file; `done` ends it: check the whole
    and report to `on_snapshot_received`. What reaches no further than the commit index is of no use any more.
    """

    sender: NodeId
    meta: SnapshotMeta
    offset: int
    data: bytes | bytearray | memoryview
    done: bool
