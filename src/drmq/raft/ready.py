"""`Ready`: everything a replica wants from the world, in one value."""

from __future__ import annotations

from typing import NamedTuple

from drmq.model import NodeId, value
from drmq.raft.messages import Message
from drmq.raft.snapshot import ChunkToSave, ChunkWanted, SnapshotMeta
from drmq.raft.types import Entry, HardState, IndexRange, LogIndex, Role, Term


class Leadership(NamedTuple):
    """What a replica is, in which term, and whom it takes for the leader."""

    role: Role
    term: Term
    leader: NodeId | None


@value
class ReadConfirmed:
    """A read may be served once everything up to `index` is applied."""

    context: object
    index: LogIndex


@value
class Ready:
    """One batch of work for the driver. The package's essay says in which order it is done."""

    number: int
    """Counts up. `on_persisted(number)` reports this one and all before it."""

    messages: tuple[Message, ...]
    """May be sent at once."""

    hard_state: HardState | None
    """To make durable, first."""

    snapshot: SnapshotMeta | None
    """To switch to: the log and the state become this snapshot, the one that was received, in one step."""

    truncate_from: LogIndex | None
    """To remove from the log: this entry and all behind it. Whoever waits for one of them to be committed
    waits in vain."""

    entries: tuple[Entry, ...]
    """To append to the log, after truncating."""

    chunks_to_save: tuple[ChunkToSave, ...]
    """Parts of a snapshot to keep beside the live state."""

    messages_after_persist: tuple[Message, ...]
    """May be sent once this `Ready` and all before it are durable, not earlier."""

    committed: IndexRange | None
    """To apply, in order: committed, and durable here. Never handed out twice in one life."""

    commit: LogIndex
    """How far the log is committed. Kept anywhere, without hurry, it saves time after a restart."""

    chunks_wanted: tuple[ChunkWanted, ...]
    """Parts of a snapshot to read and hand back."""

    turns_wanted: tuple[NodeId, ...]
    """Learners that entries could be sent to, each when `Node.give_turn` says so. Empty unless they take turns."""

    reads_confirmed: tuple[ReadConfirmed, ...]
    reads_refused: tuple[object, ...]
    """Contexts of reads that will not be confirmed: this replica leads no longer. Ask the new leader."""

    leadership: Leadership | None
    """Set when it changed."""

    @property
    def persists(self) -> bool:
        """Whether there is anything to make durable."""
        return bool(self.hard_state or self.entries or self.chunks_to_save or self.snapshot or self.truncate_from)
