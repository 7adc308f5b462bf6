"""`Ready`: everything that a replica asks its driver to do, in one value."""

from __future__ import annotations

from typing import NamedTuple

from drmq.model import NodeId, value
from drmq.raft.messages import Message
from drmq.raft.snapshot import ChunkToSave, ChunkWanted, SnapshotMeta
from drmq.raft.types import Entry, HardState, IndexRange, LogIndex, Role, Term


class Leadership(NamedTuple):
    """A replica's role, its term, and the node that it considers the leader."""

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
    """One batch of work for the driver. The package docstring says in which order it is done."""

    number: int
    """Increases by one. `on_persisted(number)` reports this `Ready` and all before it."""

    messages: tuple[Message, ...]
    """May be sent at once."""

    hard_state: HardState | None
    """To make durable before everything else."""

    snapshot: SnapshotMeta | None
    """To install: log and state are replaced by this snapshot, which was received before, in one step."""

    truncate_from: LogIndex | None
    """To remove from the log: this entry and all after it. They will not be committed, so requests that wait for
    them must fail."""

    entries: tuple[Entry, ...]
    """To append to the log, after truncating."""

    chunks_to_save: tuple[ChunkToSave, ...]
    """Parts of a snapshot to save beside the live state."""

    messages_after_persist: tuple[Message, ...]
    """May be sent once this `Ready` and all before it are durable, not earlier."""

    committed: IndexRange | None
    """To apply, in order: committed, and durable on this node. Never handed out twice by one `Node` object."""

    commit: LogIndex
    """The commit index. Storing it is optional and not urgent; it saves time after a restart."""

    chunks_wanted: tuple[ChunkWanted, ...]
    """Parts of a snapshot to read and pass to `Node.send_snapshot_chunk`."""

    turns_wanted: tuple[NodeId, ...]
    """Learners that entries could be sent to, each after `Node.give_turn`. Empty unless learners take turns."""

    reads_confirmed: tuple[ReadConfirmed, ...]
    reads_refused: tuple[object, ...]
    """Contexts of reads that will not be confirmed, because this replica is no longer the leader. Retry at the new
    one."""

    leadership: Leadership | None
    """Set if it changed."""

    @property
    def persists(self) -> bool:
        """Whether there is anything to make durable."""
        return bool(self.hard_state or self.entries or self.chunks_to_save or self.snapshot or self.truncate_from)
