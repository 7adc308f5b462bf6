"""`Ready`: everything that a replica asks its driver to do, in one value."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from drmq.model import NodeId, value
from drmq.raft.configuration import Configuration
from drmq.raft.messages import Message
from drmq.raft.snapshot import ChunkToSave, ChunkWanted, SnapshotMeta
from drmq.raft.types import Entry, HardState, IndexRange, LogIndex, Role, Term


class Cause(Enum):
    """Why a replica became the leader, or stopped being it. The values are words for people."""

    TIMEOUT = "no leader was heard for an election timeout"
    LEADER_DOWN = "the leader's node is down"
    LEADER_RESTARTED = "the leader's node has restarted"
    LEADER_ENDED = "the leader's replica has ended"
    FIRST = "the group is new, and this is its first replica"
    PREFERRED = "the group had no leader after a start, and this is its preferred replica"
    ALONE = "it is the only voter"
    HANDED_OVER = "the leader handed over"
    NO_QUORUM = "it did not hear from a majority"
    NO_VOTE = "it is no longer a voter"
    LATER_TERM = "another node is in a later term"


class Leadership(NamedTuple):
    """A replica's role, its term, and the node that it considers the leader."""

    role: Role
    term: Term
    leader: NodeId | None
    cause: Cause = Cause.TIMEOUT
    """Why this replica last became the leader, or stopped being it."""
    caused_by: NodeId | None = None
    """The node that this replica handed over to, or whose message had a later term."""


@value
class MembersChange:
    """A change of members that is committed, as the leader that committed it knows it."""

    before: Configuration
    after: Configuration
    term: Term
    reason: str
    """What the driver gave as the reason when it began the change; empty if that was on an earlier leader."""


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

    members_changes: tuple[MembersChange, ...]
    """On the leader: changes of members that are now committed, as steps of one change or several."""

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
