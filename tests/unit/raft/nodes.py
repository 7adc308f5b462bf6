"""A single node; the test plays its peers."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from drmq.model import NodeId
from drmq.raft import (
    AppendRequest,
    Configuration,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    MemoryStorage,
    Message,
    Node,
    PreVoteResponse,
    RaftOptions,
    Ready,
    Role,
    SnapshotMeta,
    Term,
    VoteResponse,
)

ME, TWO, THREE, FOUR, FIVE = (NodeId(n) for n in range(1, 6))
OPTIONS = RaftOptions(election_timeout_ticks=10, heartbeat_ticks=2)


def entry(index: int, term: int, payload: bytes = b"x", kind: EntryKind = EntryKind.PAYLOAD) -> Entry:
    return Entry(LogIndex(index), LogIndex(index), Term(term), kind, payload, len(payload))


def entries(terms: Iterable[int], first: int = 1) -> list[Entry]:
    """Entries with these terms, one after the other."""
    return [entry(index, term) for index, term in enumerate(terms, first)]


def storage(voters: int = 3, terms: Iterable[int] = (), term: int | None = None) -> MemoryStorage:
    """A disk with entries of these terms, of a group with so many voters."""
    disk = MemoryStorage(SnapshotMeta(LogIndex(0), Term(0), Configuration.of(range(1, voters + 1))))
    disk.append(entries(terms))
    last = disk.term_at(disk.last_index)
    disk.hard_state = HardState(Term(term if term is not None else last or 0))
    return disk


class Driver:
    """Persists at once and remembers what was sent; the outside world is the test's."""

    def __init__(
        self, disk: MemoryStorage, options: RaftOptions = OPTIONS, seed: int = 0, *, learners_take_turns: bool = False
    ) -> None:
        self.disk = disk
        self.sent: list[Message] = []
        self.readies: list[Ready] = []
        self.node = Node(
            ME,
            disk,
            Random(seed),
            options,
            disk.hard_state,
            disk.commit,
            learners_take_turns=learners_take_turns,
        )

    def work(self) -> Driver:
        """Do all that the node wants."""
        while self.node.has_ready:
            ready = self.node.take_ready()
            self.readies.append(ready)
            self.sent += ready.messages
            self.disk.write(ready)
            self.sent += ready.messages_after_persist
            self.node.on_persisted(ready.number)
            if ready.committed is not None:
                self.node.on_applied(LogIndex(ready.committed.end - 1))
        return self

    def receive(self, *messages: Message) -> list[Message]:
        """What the node sends when it gets these."""
        self.sent.clear()
        for message in messages:
            self.node.receive(message)
            self.work()
        return list(self.sent)

    def tick(self, count: int = 1) -> list[Message]:
        """What the node sends while time passes."""
        self.sent.clear()
        for _ in range(count):
            self.node.tick()
            self.work()
        return list(self.sent)

    def lead(self) -> Driver:
        """Win an election with the votes of two others."""
        self.node.campaign()
        self.work()
        campaign_term = Term(self.node.term + 1)
        for peer in (TWO, THREE):
            self.node.receive(PreVoteResponse(peer, ME, self.node.term, campaign_term, True))
        self.work()
        for peer in (TWO, THREE):
            if self.node.role is Role.CANDIDATE:
                self.node.receive(VoteResponse(peer, ME, self.node.term, True))
        self.work()
        assert self.node.role is Role.LEADER
        return self


def append(
    previous: int, previous_term: int, new: Iterable[Entry] = (), commit: int = 0, term: int = 1
) -> AppendRequest:
    """An append from node 2."""
    return AppendRequest(TWO, ME, Term(term), LogIndex(previous), Term(previous_term), tuple(new), LogIndex(commit))
