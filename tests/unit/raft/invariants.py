"""What must hold after every event of the simulation, whatever went wrong.

A term has one leader; a leader only appends; two entries of the same index and term have the same history; a committed
entry is in the log of every later leader, never changes, and is durable on a quorum; no node votes twice in a term,
crashes included; a commit index never decreases; nothing is applied before it is committed.
"""

from __future__ import annotations

from collections import deque
from zlib import crc32

from drmq.model import NodeId
from drmq.raft import (
    Configuration,
    EntryKind,
    LogIndex,
    MemoryStorage,
    Node,
    Ready,
    Role,
    SnapshotMeta,
    SnapshotReceiving,
    Term,
    configuration_from_bytes,
)


class InvariantBroken(AssertionError):
    """Something that must always hold does not."""


def require(holds: bool, *story: object) -> None:
    if not holds:
        raise InvariantBroken(" ".join(map(str, story)))


def encode_state(applied: int, chain: int) -> bytes:
    body = f"{applied}:{chain:08x}:".encode() + bytes(20)
    return crc32(body).to_bytes(4, "big") + body


def decode_state(data: bytes) -> tuple[int, int] | None:
    if len(data) < 4 or crc32(data[4:]) != int.from_bytes(data[:4], "big"):
        return None
    applied, chain, _ = data[4:].split(b":", 2)
    return int(applied), int(chain, 16)


class Replica:
    """A node with its driver, its disk and its state machine. The disk survives; the rest does not."""

    def __init__(self, node_id: NodeId, configuration: Configuration) -> None:
        self.node_id = node_id
        self.storage = MemoryStorage(SnapshotMeta(LogIndex(0), Term(0), configuration))
        self.snapshot_bytes = encode_state(0, 0)
        self.partial: tuple[SnapshotReceiving, bytearray] | None = None
        self.node: Node | None = None
        self.life = 0
        self.queue: deque[Ready] = deque()
        self.writing = False
        self.chain = 0
        self.applied = 0
        self.to_apply: deque[tuple[int, int]] = deque()
        self.commit_seen = 0
        self.configuration_seen = configuration
        self.reign_seen: Term | None = None
        self.frozen_until = 0


class Invariants:
    """What was seen of a cluster so far, and the checks of what is seen next."""

    def __init__(self) -> None:
        self.replicas: dict[NodeId, Replica] = {}
        self.leaders: dict[Term, NodeId] = {}
        self.votes: dict[tuple[Term, NodeId], NodeId] = {}
        self.entries: dict[tuple[int, Term], tuple[Term, int, bytes]] = {}
        self.joint_entries: set[tuple[int, Term]] = set()
        self.committed: dict[int, Term] = {0: Term(0)}
        self.committed_in: dict[int, Term] = {0: Term(0)}
        self.commit_max = 0
        self.chains: dict[int, int] = {0: 0}
        self.reads: dict[int, int] = {}

    def check_vote(self, term: Term, voter: NodeId, candidate: NodeId) -> None:
        known = self.votes.setdefault((term, voter), candidate)
        require(known == candidate, f"n{voter} votes for n{known} and n{candidate} in term {term}")

    def check_entries(self, replica: Replica, node: Node, ready: Ready) -> None:
        if not ready.entries and ready.truncate_from is None:
            return
        require(
            ready.truncate_from is None or node.role is not Role.LEADER or replica.reign_seen != node.term,
            f"leader append-only: n{node.node_id} truncates at {ready.truncate_from}",
        )
        previous = None
        for entry in ready.entries:
            if previous is None:
                previous = node.term_at(LogIndex(entry.first - 1))
                assert previous is not None
            value = (previous, entry.first, bytes(entry.payload))  # type: ignore[call-overload]
            known = self.entries.setdefault((entry.index, entry.term), value)
            require(known == value, f"log matching: n{node.node_id} has {entry} after {previous}, not {known}")
            previous = entry.term
            if entry.kind is EntryKind.CONFIGURATION and configuration_from_bytes(entry.payload).is_joint:
                self.joint_entries.add((entry.index, entry.term))

    def check_node(self, replica: Replica, node: Node) -> None:
        if node.role is Role.LEADER and replica.reign_seen != node.term:
            self.check_election(replica, node)
        commit = node.commit_index
        require(replica.applied <= commit, "applied before committed", replica.applied, commit)
        if commit != replica.commit_seen:
            require(commit > replica.commit_seen, f"commit falls on n{node.node_id}", commit, replica.commit_seen)
            self.check_commit(replica, node, commit)
            replica.commit_seen = commit
        replica.configuration_seen = node.configuration

    def check_election(self, replica: Replica, node: Node) -> None:
        replica.reign_seen = node.term
        known = self.leaders.setdefault(node.term, node.node_id)
        require(known == node.node_id, f"election safety: n{known} and n{node.node_id} lead term {node.term}")
        for index, term in self.committed.items():
            if self.committed_in[index] >= node.term:
                continue  # Elected late, in a term that is over: it will hear of it.
            here = node.term_at(LogIndex(index))
            covered = index <= replica.storage.snapshot.index
            require(here == term or (here is None and covered), "leader completeness:", node.node_id, index, term)

    def check_commit(self, replica: Replica, node: Node, commit: LogIndex) -> None:
        leads = node.role is Role.LEADER or replica.reign_seen == node.term
        for number in range(replica.commit_seen + 1, commit + 1):
            term = node.term_at(LogIndex(number))
            known = self.committed.get(number)
            if term is None:
                require(known is not None and number <= commit, "a gap in what is committed", number)
            elif known is None and leads:
                self.committed[number] = term
                self.committed_in[number] = node.term
            else:
                require(known == term, f"n{node.node_id} commits {number} of {term}, known is {known}")
        if not leads:
            return
        require(self.committed[commit] == node.term, f"n{node.node_id} commits {commit} of an older term by counting")
        self.commit_max = max(self.commit_max, commit)
        before, now = replica.configuration_seen, node.configuration
        if before.is_joint and now != before:
            # The joint configuration was committed just now, by both majorities, and the new one alone
            # may have decided about what follows it.
            joint = max(n for n in range(commit + 1) if (n, self.committed[n]) in self.joint_entries)
            self.require_durable(node, LogIndex(joint), before)
        if not self.is_durable(commit, before) or now != before:
            self.require_durable(node, commit, now)

    def require_durable(self, node: Node, index: LogIndex, configuration: Configuration) -> None:
        require(
            self.is_durable(index, configuration),
            f"n{node.node_id} commits {index}, which is not durable on a quorum of {configuration}",
        )

    def is_durable(self, index: LogIndex, configuration: Configuration) -> bool:
        term = self.committed[index]
        for voters in (configuration.voters, configuration.voters_before):
            holding = 0
            for voter in voters:
                storage = self.replicas[voter].storage
                holding += index <= storage.snapshot.index or storage.term_at(index) == term
            if voters and holding * 2 <= len(voters):
                return False
        return True
