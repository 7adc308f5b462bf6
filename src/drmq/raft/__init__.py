"""Consensus for one replica group: a log that a majority agrees on, whatever dies.

The problem
-----------

A few nodes keep copies of one log. Any of them may crash and forget what was not on its disk; messages get
lost, late, doubled and out of order; the network splits, also one way only. Still, what a client was told
is committed must stay, at its place, on every copy. This is Raft (Ongaro and Ousterhout, "In Search of an
Understandable Consensus Algorithm", 2014; Ongaro's thesis of the same year has the parts beyond the paper).

The idea
--------

One node leads, for a *term*. It alone appends; the others copy its log, and what a majority has on disk is
committed. When it falls silent another is elected, and only one whose log holds everything committed can
win. A node votes once per term and remembers it on disk, so a term has one leader.

The core is plain synchronous Python. It knows no clock (the driver calls `tick`), no files and no sockets
(the driver does what a `Ready` says), and no randomness but the generator handed in. So a seed replays a bug.

The interface, for a driver
---------------------------

    node = Node(node_id, reader, random, options, hard_state, commit, applied)

    node.tick()                                  at a steady pace
    node.receive(message)                        from a peer; raises ProtocolError: close that connection
    node.propose(payloads) -> first index        these four raise a Refusal, and then nothing has changed
    node.propose_configuration(voters, learners) -> index
    node.read_index(context)
    node.transfer_leadership(target)
    node.campaign()                              where waiting for a timeout is pointless
    node.on_leader_lost()                        the leader's process is gone: wait for it no longer
    node.on_member_restarted(member)             its process is another one: it must show again what it has
    node.take_ready() -> Ready                   when node.has_ready

    node.on_persisted(number)                    all that Ready `number`, and those before it, had to persist
    node.on_applied(index)
    node.on_entries_read()                       entries that the LogReader did not have at hand are there
    node.give_turn(target)                       answers turns_wanted, whenever the driver likes
    node.send_snapshot_chunk(target, snapshot_id, offset, data, done)      answers chunks_wanted, or:
    node.on_snapshot_unavailable(target, snapshot_id)
    node.on_snapshot_received(sender, snapshot_id, intact)                 answers a chunk saved with `done`

With each `Ready` the driver

1. sends `messages`, now or whenever it likes;
2. makes durable, in this order: `hard_state`, `snapshot`, `truncate_from`, `entries`, `chunks_to_save`. A
   crash may leave any prefix of these steps, and of the entries, behind, but nothing out of order;
3. then, and not before, sends `messages_after_persist` and calls `on_persisted(number)`;
4. fails whoever waits for an entry at or behind `truncate_from`, and tells whoever waits for anything that
   the outcome is open when `leadership` says that this replica leads no longer;
5. applies `committed`, reading the entries from its own log, and calls `on_applied`. It need not wait for
   step 2: what is handed out here is durable from earlier on;
6. gives `turns_wanted` their turns one by one (only where learners take turns, so that copies go no faster than
   they may), fetches `chunks_wanted`, serves `reads_confirmed` once their index is applied, passes `reads_refused` on.

Steps 2 and 3 may take as long as the disk takes. The driver goes on meanwhile: it ticks, receives and takes
further `Ready`s, whose persisting queues up behind, in order. One sync may serve all of them, and one
`on_persisted` with the last number reports them. If persisting fails, the node is over: nothing may be sent
or reported any more, and the process ends or fences this log.

`hard_state` and the log must be handed back at the next start as they were. `commit` may be kept anywhere
and lag behind. A new group starts everywhere with a snapshot at index 0 that holds the same configuration;
a node that joins a group starts with an empty one and waits to be spoken to.

To compact, the driver asks `snapshot_meta(index)`, writes its state with that beside it, and then lets its
log begin later; the core notices by itself.

Always true
-----------

- a term has at most one leader, and a node votes at most once per term, over restarts too;
- equal index and term mean equal entries, and equal everything before them;
- what is committed is in the log of every later leader, and never changes;
- the commit index never falls; it moves only through entries of the leader's own term that a quorum has
  on disk, the leader counting itself only when its own append is reported;
- applied <= commit, and applied <= durable, on every node;
- nothing leaves that a crash could make untrue: votes, acceptance of entries and vote requests wait for
  the disk;
- every queue has a bound, named in `RaftOptions`.

Where things are
----------------

`types`, `configuration` and `messages` are the words; `quorum` the arithmetic; `log` the log with its tail in
memory; `state` what all roles share; `election`, `follower` and `leader` the roles, with `progress`, `proposals`,
`read_index`, `membership`, `transfer` and `snapshot` as the leader's tools; `ready` what comes out; `node` the
door; `memory` a storage for tests.

What is missing, and what it costs
----------------------------------

- Reads are confirmed by the leader only; a follower does not forward them. A client that wants a fresh read
  goes to the leader.
- No leader lease: every confirmed read costs one round of heartbeats, shared by all that wait.
- An idle group still ticks and exchanges heartbeats; that it may sleep is the driver's business.
- A removed node is not told. It keeps asking for pre-votes, which nobody who has a leader hears, until the
  driver stops it because the catalog says so.
- Snapshots travel one chunk at a time, and a damaged one is asked for again without a limit; a driver that
  finds its own snapshot damaged must not offer it.
- A node whose disk lost what it had confirmed is outside the fault model. It must come back under a new id.
- Messages have no byte form here; that is `drmq.transport.peers`'.
- A node that was a member, lost all it had and is added again under the same id grants no vote until it has heard
  of the group's members, but after that it may vote with less than it once confirmed. Give it a new id.
"""

from drmq.raft.configuration import Configuration, configuration_from_bytes, configuration_to_bytes
from drmq.raft.errors import (
    ChangeInProgress,
    InvalidConfiguration,
    InvalidTransfer,
    NotCaughtUp,
    NotLeader,
    ProtocolError,
    RaftError,
    Refusal,
    TooManyReads,
    TooMuchUncommitted,
    TransferInProgress,
)
from drmq.raft.log import LogReader
from drmq.raft.memory import MemoryStorage
from drmq.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotAnswer,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from drmq.raft.node import Node, PeerProgress
from drmq.raft.options import RaftOptions
from drmq.raft.progress import ProgressState
from drmq.raft.ready import Leadership, ReadConfirmed, Ready
from drmq.raft.snapshot import ChunkToSave, ChunkWanted, SnapshotId, SnapshotMeta, SnapshotReceiving
from drmq.raft.types import (
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryKind,
    HardState,
    IndexRange,
    LogIndex,
    Payload,
    Role,
    Term,
)

__all__ = [
    "NO_INDEX",
    "NO_TERM",
    "AppendAccepted",
    "AppendRejected",
    "AppendRequest",
    "ChangeInProgress",
    "ChunkToSave",
    "ChunkWanted",
    "Configuration",
    "Entry",
    "EntryKind",
    "HardState",
    "Heartbeat",
    "HeartbeatResponse",
    "IndexRange",
    "InvalidConfiguration",
    "InvalidTransfer",
    "Leadership",
    "LogIndex",
    "LogReader",
    "MemoryStorage",
    "Message",
    "Node",
    "NotCaughtUp",
    "NotLeader",
    "Payload",
    "PeerProgress",
    "PreVoteRequest",
    "PreVoteResponse",
    "ProgressState",
    "ProtocolError",
    "RaftError",
    "RaftOptions",
    "ReadConfirmed",
    "Ready",
    "Refusal",
    "Role",
    "SnapshotAnswer",
    "SnapshotChunk",
    "SnapshotId",
    "SnapshotMeta",
    "SnapshotReceiving",
    "Term",
    "TimeoutNow",
    "TooManyReads",
    "TooMuchUncommitted",
    "TransferInProgress",
    "VoteRequest",
    "VoteResponse",
    "configuration_from_bytes",
    "configuration_to_bytes",
]
