"""Consensus for one replica group: a log that a majority agrees on, even if nodes fail.

The problem
-----------

A few nodes keep replicas of one log. Any of them may crash and lose what was not on its disk. Messages can be lost,
delayed, duplicated and reordered, and the network can split, also in one direction only. Even so, an entry that was
reported to a client as committed must stay at its index on every replica. The algorithm is Raft (Ongaro and Ousterhout,
"In Search of an Understandable Consensus Algorithm", 2014; Ongaro's thesis of the same year has the parts beyond the
paper).

The idea
--------

One node is the leader for a *term*. Only the leader appends; the others copy its log, and an entry that a majority has
on disk is committed. When the leader stops sending messages, another node is elected. Only a node whose log holds every
committed entry can win. A node votes once per term and keeps its vote on disk, so a term has at most one leader.

The core is plain synchronous Python. It has no clock (the driver calls `tick`), no files and no sockets (the driver
does what a `Ready` says), and no randomness except the generator that it is given. So a seed reproduces a bug.

The interface, for a driver
---------------------------

    node = Node(node_id, reader, random, options, hard_state, commit, applied)

    node.tick(patience, may_campaign)            at a steady pace
    node.receive(message)                        from a peer; raises ProtocolError: close that connection
    node.propose(payloads) -> first index        these four raise a Refusal, and then nothing has changed
    node.propose_configuration(voters, learners, reason) -> index
    node.read_index(context)
    node.transfer_leadership(target)
    node.campaign(cause)                         when there is no reason to wait for a timeout
    node.on_leader_lost(rank, cause)             the leader's process is gone: do not wait for it
    node.on_member_lost(member, ticks)           a member's node is gone
    node.on_voter_returned(rank)                 a voter's node is back: do not wait after failed campaigns
    node.on_member_restarted(member)             a member has a new process: verify again what it holds
    node.take_ready() -> Ready                   when node.has_ready

    node.on_persisted(number)                    Ready `number` and all before it are durable
    node.on_applied(index)
    node.on_entries_read()                       entries that the LogReader did not have in memory are there now
    node.give_turn(target)                       answers turns_wanted, whenever the driver likes
    node.send_snapshot_chunk(target, snapshot_id, offset, data, done)      answers chunks_wanted, or:
    node.on_snapshot_unavailable(target, snapshot_id)
    node.on_snapshot_received(sender, snapshot_id, intact)                 answers a chunk saved with `done`

With each `Ready` the driver

1. sends `messages`, at once or later;
2. makes durable, in this order: `hard_state`, `snapshot`, `truncate_from`, `entries`, `chunks_to_save`. A
   crash may leave any prefix of these steps, and of the entries, but nothing out of order;
3. then, and not before, sends `messages_after_persist` and calls `on_persisted(number)`;
4. fails the requests that wait for an entry at or after `truncate_from`; and when `leadership` says that this
   replica is no longer the leader, reports to every waiting request that its outcome is unknown;
5. applies `committed`, reading the entries from its own log, and calls `on_applied`. It need not wait for
   step 2: these entries became durable earlier;
6. grants `turns_wanted` one by one (only if learners take turns, which limits the rate of catch-up), reads
   `chunks_wanted`, serves `reads_confirmed` once their index is applied, and fails `reads_refused`.

Steps 2 and 3 may take as long as the disk takes. Meanwhile the driver continues: it ticks, receives and takes further
`Ready`s, whose persisting is queued in order. One sync may serve all of them, and one `on_persisted` with the last
number reports them. If persisting fails, this node must stop: nothing may be sent or reported any more, and the driver
ends the process or fences this log.

At the next start, `hard_state` and the log must be passed in unchanged. `commit` may be stored anywhere and may be out
of date. In a new group, every node starts with a snapshot at index 0 that holds the same configuration. A node that
joins an existing group starts with an empty configuration and waits for messages.

To compact, the driver calls `snapshot_meta(index)`, writes its state together with that, and then removes the front of
its log. The core notices this without being called.

Always true
-----------

- a term has at most one leader, and a node votes at most once per term, restarts included;
- if two logs have the same term at the same index, they are equal up to that index;
- a committed entry is in the log of every later leader, and never changes;
- the commit index never decreases; it advances only through entries of the leader's own term that a quorum has
  on disk, and the leader counts itself only when its own append is reported;
- applied <= commit, and applied <= durable, on every node;
- no message is sent that a crash could make untrue: votes, acceptance of entries and vote requests wait for
  the disk;
- every queue has a limit, named in `RaftOptions`.

Where things are
----------------

`types`, `configuration` and `messages` define the data; `quorum` counts votes and majorities; `log` is the log with its
tail in memory; `state` is what all roles share; `election`, `follower` and `leader` are the roles, and `progress`,
`proposals`, `read_index`, `membership`, `transfer` and `snapshot` are parts of the leader; `ready` is the output;
`node` is the interface; `memory` is a storage for tests.

What is missing, and what it costs
----------------------------------

- Reads are confirmed by the leader only; a follower does not forward them. A client that needs a fresh read
  must ask the leader.
- There is no leader lease: every confirmed read costs one round of heartbeats, shared by all waiting reads.
- An idle group still ticks and exchanges heartbeats; the driver decides whether an idle group is quiesced.
- A removed node is not notified. It keeps asking for pre-votes, which nodes that have a leader ignore, until the
  driver stops it because the catalog says so.
- Snapshots are sent one chunk at a time, and a damaged one is requested again without a limit. A driver that
  finds its own snapshot damaged must not offer it.
- A node whose disk lost data that it had confirmed is outside the fault model. It must return under a new id.
- The encoding of messages is not here but in `drmq.transport.peers`.
- A node that was a member, lost all its data and is added again under the same id grants no vote until it knows
  the group's members. After that it may vote although its log holds less than it once confirmed. Give it a new id.
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
from drmq.raft.ready import Cause, Leadership, MembersChange, ReadConfirmed, Ready
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
    "Cause",
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
    "MembersChange",
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
