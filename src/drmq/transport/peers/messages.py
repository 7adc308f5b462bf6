"""The messages between nodes besides those of Raft: greetings, leader notices, and the sleep of idle groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from drmq.model import GroupId, MemberId, NodeId, node_of
from drmq.raft import AppendRequest, LogIndex, Message, SnapshotChunk, Term

PROTOCOL_VERSION = 2
"""The newest version of the peer protocol.

Version 2 added features and the release to greetings, codes to refusals, and the caller to requests for clients.
"""
PROTOCOL_VERSION_MIN = 1
"""The oldest version that is still spoken, with nodes that speak nothing newer."""
NO_LEADER = NodeId(-1)


class ConnectionKind(IntEnum):
    """The kinds of connections. Each kind of traffic has its own, so that bulk data never delays heartbeats.

    The numbers are sent, so they never change.
    """

    HEARTBEAT = 0
    """Node heartbeats, leader notices, and every small message of Raft."""
    APPEND = 1
    """Entries of logs. Also appends without entries: they must not overtake those before them."""
    SNAPSHOT = 2
    REQUEST = 3
    """Requests in one direction, their answers in the other. No other kind is used in both directions."""


class RefusalCode(IntEnum):
    """Why a greeting is not accepted. The numbers are sent, so they never change."""

    UNKNOWN = 0
    """A refusal of a peer of protocol version 1, or a code of a later version."""
    VERSION = 1
    """The two have no version of the protocol in common."""
    WRONG_NODE = 2
    """The greeting is for another node, or from another node than the one that was dialled."""
    SAME_ID = 3
    """Both have the same node id."""
    OTHER_CLUSTER = 4
    TWIN = 5
    """Another process with the same node id is connected."""
    REPLACED = 6
    """The node has been replaced by one with a different data directory."""
    OLDER_COPY = 7
    """The node has an older copy of its data directory."""
    CUT_OFF = 8
    """A test blocks the connections between the two nodes."""
    FEATURES = 9
    """The node does not support a feature level that the cluster has finalized."""


@dataclass(frozen=True, slots=True)
class GreetingRefusal:
    """Why a greeting is rejected: a code for the other node, a sentence for people."""

    code: RefusalCode
    text: str


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports, both ends included."""

    name: str
    level_min: int
    level_max: int


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a node: the part of its greeting that is the same for every connection."""

    cluster_id: str | None
    """None for a fresh node, which has no cluster yet."""
    node_id: NodeId
    incarnation: int
    starts: int
    """How often its data directory has been opened. A node with a lower number than before has an older copy of it."""
    boot_id: bytes
    """Sixteen random bytes, new at every start of the process."""
    peer_host: str
    peer_port: int
    """The port on which it listens for peers."""
    release: str = ""
    """The release of DRMQ that the node runs, for display."""
    features: tuple[FeatureRange, ...] = ()
    protocol_version: int = PROTOCOL_VERSION
    """The newest version that it speaks."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The greeting: the first frame on every connection, in both directions, with sender, target and kind."""

    protocol_version: int
    """In a sent greeting, the newest version that the sender speaks. In a received one, the newest that both speak."""
    cluster_id: str | None
    node_id: NodeId
    incarnation: int
    starts: int
    boot_id: bytes
    peer_host: str
    peer_port: int
    kind: ConnectionKind
    target: NodeId
    release: str = ""
    """Empty from a peer of protocol version 1, which does not send it."""
    features: tuple[FeatureRange, ...] = ()

    @classmethod
    def of(cls, identity: Identity, kind: ConnectionKind, target: NodeId) -> Hello:
        """The greeting of a node to `target`."""
        return cls(
            identity.protocol_version,
            identity.cluster_id,
            identity.node_id,
            identity.incarnation,
            identity.starts,
            identity.boot_id,
            identity.peer_host,
            identity.peer_port,
            kind,
            target,
            identity.release,
            identity.features,
        )


@dataclass(frozen=True, slots=True)
class LeaderNotice:
    """The leader of a group, as announced by that leader. A hint for clients, never a reason to vote or to write."""

    group: GroupId
    term: int
    leader: NodeId
    """A node, not a member; `NO_LEADER` if there is none."""
    version: int
    members_in_sync: tuple[NodeId, ...]
    """Members, not nodes: a node that has replaced its copy is a different member, which must get in sync first."""

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        """The nodes of the members in sync."""
        return tuple(map(node_of, self.members_in_sync))


@dataclass(frozen=True, slots=True)
class Sleep:
    """From a leader: the group is idle, and the target has its log up to `last_index`.

    From now on the target relies on the heartbeats of the leader's node.
    """

    sender: MemberId
    target: MemberId
    term: Term
    last_index: LogIndex


@dataclass(frozen=True, slots=True)
class Wake:
    """From a follower that cannot sleep, or from any member that needs the group's ticks again."""

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
