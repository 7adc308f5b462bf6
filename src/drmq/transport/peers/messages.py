"""What nodes say to each other beside Raft's own messages: who they are, who leads, and that a group sleeps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from drmq.model import GroupId, MemberId, NodeId, node_of
from drmq.raft import AppendRequest, LogIndex, Message, SnapshotChunk, Term

PROTOCOL_VERSION = 1
NO_LEADER = NodeId(-1)


class ConnectionKind(IntEnum):
    """What a connection carries. Each kind has its own, so that bulk never delays what must arrive in time.

    The numbers are sent, so they never change.
    """

    HEARTBEAT = 0
    """Node heartbeats, news of leaders, and every small message of consensus."""
    APPEND = 1
    """Entries of logs. Also appends without entries: they must not overtake those before them."""
    SNAPSHOT = 2
    REQUEST = 3
    """Requests one way, their answers the other: the only connection that carries meaning both ways."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is: the part of its greeting that is the same for every connection."""

    cluster_id: str | None
    """None: fresh, knows no cluster yet."""
    node_id: NodeId
    incarnation: int
    starts: int
    """How often its data directory has been opened: who shows a lower number than before has an older copy of it."""
    boot_id: bytes
    """Sixteen random bytes, new at every start of the process."""
    peer_host: str
    peer_port: int
    """Where it listens for its peers."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of every connection, both ways: who I am, whom I mean, what this connection is for."""

    protocol_version: int
    cluster_id: str | None
    node_id: NodeId
    incarnation: int
    starts: int
    boot_id: bytes
    peer_host: str
    peer_port: int
    kind: ConnectionKind
    target: NodeId

    @classmethod
    def of(cls, identity: Identity, kind: ConnectionKind, target: NodeId) -> Hello:
        """The greeting of a node to `target`."""
        return cls(
            PROTOCOL_VERSION,
            identity.cluster_id,
            identity.node_id,
            identity.incarnation,
            identity.starts,
            identity.boot_id,
            identity.peer_host,
            identity.peer_port,
            kind,
            target,
        )


@dataclass(frozen=True, slots=True)
class LeaderNotice:
    """Who leads a group, as its leader says: a hint for answering clients, never a reason to vote or to write."""

    group: GroupId
    term: int
    leader: NodeId
    """A node, not a member; `NO_LEADER` if there is none."""
    version: int
    members_in_sync: tuple[NodeId, ...]
    """Members, not nodes: a node that has given up its copy is not in sync because its former self was."""

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        """The nodes that keep up."""
        return tuple(map(node_of, self.members_in_sync))


@dataclass(frozen=True, slots=True)
class Sleep:
    """From a leader: this group is idle and you hold its log up to `last_index`. Rely on my node's heartbeats."""

    sender: MemberId
    target: MemberId
    term: Term
    last_index: LogIndex


@dataclass(frozen=True, slots=True)
class Wake:
    """From a follower that cannot sleep, or from anyone who wants ticks again."""

    sender: MemberId
    target: MemberId
    term: Term


PeerMessage = Message | Sleep | Wake


def kind_of(message: PeerMessage) -> ConnectionKind:
    """The kind of connection that a message travels on."""
    if isinstance(message, AppendRequest):
        return ConnectionKind.APPEND
    if isinstance(message, SnapshotChunk):
        return ConnectionKind.SNAPSHOT
    return ConnectionKind.HEARTBEAT
