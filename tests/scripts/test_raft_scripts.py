"""Runs the scenarios in `raft/*.txt` on a small cluster and compares what happens line by line.

A script is a list of blocks. A block is a few commands, `---`, and what they led to. Lines that start
with `#` are prose. `DRMQ_REWRITE_SCRIPTS=1 pytest tests/scripts/test_raft_scripts.py` writes the outcome into
the files; review the difference like code.

Nothing happens by itself: a message waits until it is delivered, and time passes when it is told to. Disks
are immediate unless they are held.

    cluster nodes=3 [spares=2] [OPTION=VALUE]...  voters 1 to 3, and nodes 4 and 5 that belong to nothing yet
    elect N                                 N campaigns and everything is delivered; only the outcome is told
    campaign N                              as if its election timeout had passed
    deliver [TARGET...] [kind=WORD]         what is on its way now, to these or to all; not the answers to it
    settle                                  deliver until nothing is on its way
    beat N [count=N]                        N sends heartbeats, and everything settles
    drop [to=N] [from=N] [kind=WORD]        lose what is on its way; kind is a word of its line
    repeat                                  all that is on its way comes twice
    cut A B | isolate A | heal              messages between them vanish | all of A's | no more
    tick N... [count=N]                     time passes on these nodes, or on `all`
    propose N WORD...                       one payload for each word
    members N voters=1,2 [learners=3]       change the configuration
    read N NAME                             a read that must see everything answered before
    transfer N TARGET                       hand leadership over
    hold N | write N [count=N]              the disk stops | does all it was asked for, or the first of it
    crash N | restart N                     what was not written is lost
    compact N [keep=N]                      snapshot of all that is applied; entries from `keep` on stay
    damage N                                the next snapshot that N has received proves damaged
    show heartbeats                         which are left out otherwise, except where they carry a read
    status [N...] | progress N | log N...

In the outcome `n1@2` is node 1 in term 2, `5@2` is the entry or the log's end at index 5 of term 2, and an
arrow is a message that leaves.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from random import Random

import pytest

from drmq.model import NodeId
from drmq.raft import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    ChunkToSave,
    Configuration,
    Entry,
    EntryKind,
    Heartbeat,
    HeartbeatResponse,
    LogIndex,
    MemoryStorage,
    Message,
    Node,
    PreVoteRequest,
    PreVoteResponse,
    RaftOptions,
    Ready,
    Refusal,
    SnapshotAnswer,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReceiving,
    Term,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    configuration_from_bytes,
)

SCRIPTS = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    """The outcome of a script is the recorded one."""
    recorded = script.read_text()
    outcome = run_script(recorded)
    if os.environ.get("DRMQ_REWRITE_SCRIPTS"):
        script.write_text(outcome)
        return
    assert outcome == recorded


def run_script(text: str) -> str:
    """The script with the outcomes that its commands have now."""
    scene = Scene()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n---")[0].split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        outcome = [line for command in commands for line in scene.run(command)] or ["nothing"]
        blocks.append("\n".join([*lines, *(["---", *outcome] if commands else [])]))
    return "\n\n".join(blocks) + "\n"


class Patient(Random):
    """Draws the longest election timeout, so that nobody campaigns unless told to, or left alone for long."""

    def random(self) -> float:
        return 0.99


class Replica:
    """A node with its disk, which survives it, and its driver."""

    def __init__(self, node_id: NodeId, configuration: Configuration, options: RaftOptions) -> None:
        self.node_id = node_id
        self.options = options
        self.storage = MemoryStorage(SnapshotMeta(LogIndex(0), Term(0), configuration))
        self.state: list[str] = []
        self.snapshot_bytes = b""
        self.partial: tuple[SnapshotReceiving, bytearray] | None = None
        self.held = False
        self.damaged = False
        self.queue: deque[Ready] = deque()
        self.node: Node | None = None
        self.start()

    def start(self) -> None:
        self.state = [word for word in self.snapshot_bytes.decode().split(",") if word]
        self.node = Node(
            self.node_id,
            self.storage,
            Patient(),
            self.options,
            self.storage.hard_state,
            self.storage.commit,
            self.storage.snapshot.index,
            self.partial[0] if self.partial is not None else None,
        )

    @property
    def label(self) -> str:
        return f"n{self.node_id}" if self.node is None else f"n{self.node_id}@{self.node.term}"


class Scene:
    """A cluster, its network, and what is to be told about it."""

    def __init__(self) -> None:
        self.replicas: dict[NodeId, Replica] = {}
        self.flying: list[Message] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.lines: list[str] = []
        self.heartbeats = False

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.lines = []
        try:
            self.act(verb, plain, named)
        except Refusal as refusal:
            self.lines.append(f"{type(refusal).__name__}: {refusal}")
        for replica in self.replicas.values():
            self.collect(replica)
        return self.lines

    def act(self, verb: str, plain: list[str], named: dict[str, str]) -> None:
        match verb:
            case "cluster":
                self.build(named)
            case "elect":
                self.elect(self.replica(plain[0]))
            case "beat":
                for _ in range(int(named.get("count", "1"))):
                    self.tick(plain, self.replica(plain[0]).options.heartbeat_ticks)
                    self.settle()
            case "campaign":
                self.node(plain[0]).campaign()
            case "deliver":
                self.deliver([NodeId(int(word)) for word in plain] or list(self.replicas), named)
            case "settle":
                self.settle()
            case "drop":
                lost = [message for message in self.flying if self.matches(message, named)]
                self.flying = [message for message in self.flying if message not in lost]
                self.lines += [f"lost: {show(message)}" for message in lost if self.is_worth_telling(message)]
            case "repeat":
                self.flying *= 2
            case "cut" | "isolate":
                one = NodeId(int(plain[0]))
                others = [NodeId(int(plain[1]))] if verb == "cut" else list(self.replicas)
                self.cut |= {pair for other in others for pair in ((one, other), (other, one))}
                self.flying = [m for m in self.flying if (m.sender, m.target) not in self.cut]
            case "heal":
                self.cut.clear()
            case "tick":
                self.tick(plain, int(named.get("count", "1")))
            case "propose":
                first = self.node(plain[0]).propose([word.encode() for word in plain[1:]])
                self.lines.append(f"{self.replica(plain[0]).label} proposes {' '.join(plain[1:])} at {first}")
            case "members":
                voters, learners = (
                    [NodeId(int(word)) for word in named.get(name, "").split(",") if word]
                    for name in ("voters", "learners")
                )
                self.node(plain[0]).propose_configuration(voters, learners)
            case "read":
                self.node(plain[0]).read_index(plain[1])
            case "transfer":
                self.node(plain[0]).transfer_leadership(NodeId(int(plain[1])))
            case "hold":
                self.replica(plain[0]).held = True
            case "write":
                self.write_some(self.replica(plain[0]), named.get("count"))
            case "crash":
                self.crash(self.replica(plain[0]))
            case "restart":
                replica = self.replica(plain[0])
                self.crash(replica)
                replica.start()
                state, vote = replica.storage.hard_state, replica.storage.hard_state.vote
                self.lines.append(
                    f"n{replica.node_id}@{state.term} restarts: vote={f'n{vote}' if vote else None} "
                    f"log={replica.storage.last_index}@{replica.storage.term_at(replica.storage.last_index)}"
                )
            case "lose":
                replica = self.replica(plain[0])
                replica.storage.truncate_from(LogIndex(int(named["from"])))
                replica.storage.commit = min(replica.storage.commit, replica.storage.last_index)
            case "notice":
                self.node(plain[0]).on_member_restarted(NodeId(int(plain[1])))
            case "compact":
                self.compact(self.replica(plain[0]), named.get("keep"))
            case "damage":
                self.replica(plain[0]).damaged = True
            case "show":
                self.heartbeats = True
            case "status":
                for replica in self.chosen(plain):
                    self.lines.append(self.show_status(replica))
            case "progress":
                self.show_progress(self.node(plain[0]))
            case "log":
                for replica in self.chosen(plain):
                    first = replica.storage.first_index
                    entries = replica.storage.entries(first, LogIndex(1 << 30), 1 << 30, 1 << 30)
                    self.lines.append(f"n{replica.node_id} from {first}: {' '.join(map(show_entry, entries))}")
            case _:
                raise ValueError(f"unknown command {verb!r}")

    # The cluster

    def build(self, named: dict[str, str]) -> None:
        settings = {name: int(value) for name, value in named.items() if name not in ("nodes", "spares")}
        options = RaftOptions(**{"heartbeat_ticks": 2, "election_timeout_ticks": 6, **settings})
        voters = [NodeId(n + 1) for n in range(int(named["nodes"]))]
        self.replicas.clear()
        self.flying.clear()
        self.cut.clear()
        for node_id in voters:
            self.replicas[node_id] = Replica(node_id, Configuration.of(voters), options)
        for number in range(int(named.get("spares", "0"))):
            node_id = NodeId(len(voters) + number + 1)
            self.replicas[node_id] = Replica(node_id, Configuration(), options)
        self.lines.append(f"voters {' '.join(f'n{n}' for n in voters)}")

    def replica(self, word: str) -> Replica:
        return self.replicas[NodeId(int(word))]

    def node(self, word: str) -> Node:
        node = self.replica(word).node
        assert node is not None, f"node {word} is down"
        return node

    def chosen(self, words: list[str]) -> list[Replica]:
        return [self.replica(word) for word in words] if words else list(self.replicas.values())

    def elect(self, replica: Replica) -> None:
        assert replica.node is not None
        replica.node.campaign()
        self.settle()
        replica.node.tick()
        self.settle()
        self.lines = [f"{replica.label} is {replica.node.role.value}"]

    def write_some(self, replica: Replica, count: str | None) -> None:
        assert replica.node is not None
        if count is None:
            replica.held = False
            return
        for _ in range(int(count)):
            self.write(replica, replica.node, replica.queue.popleft())

    def tick(self, words: list[str], count: int) -> None:
        for _ in range(count):
            for replica in self.chosen([] if words == ["all"] else words):
                if replica.node is not None:
                    replica.node.tick()
                    self.collect(replica)

    def crash(self, replica: Replica) -> None:
        replica.node = None
        replica.queue.clear()
        replica.held = False
        if replica.partial is not None and replica.partial[0].complete:
            replica.partial = None

    def compact(self, replica: Replica, keep: str | None) -> None:
        assert replica.node is not None
        index = replica.node.applied_index
        replica.snapshot_bytes = ",".join(replica.state).encode()
        replica.storage.compact(replica.node.snapshot_meta(index), LogIndex(int(keep or index + 1)))
        self.lines.append(f"{replica.label} compacts up to {index}, keeps from {replica.storage.first_index}")

    # The network

    def deliver(self, targets: list[NodeId], named: dict[str, str]) -> None:
        arriving = [m for m in self.flying if m.target in targets and self.matches(m, named)]
        self.flying = [m for m in self.flying if not (m.target in targets and self.matches(m, named))]
        for message in arriving:
            replica = self.replicas[message.target]
            if replica.node is not None:
                replica.node.receive(message)
                self.collect(replica)

    def settle(self) -> None:
        for _ in range(100):
            for replica in self.replicas.values():
                self.collect(replica)
            if not self.flying:
                return
            self.deliver(list(self.replicas), {})
        raise AssertionError("it never ends")

    def matches(self, message: Message, named: dict[str, str]) -> bool:
        return (
            ("to" not in named or message.target == int(named["to"]))
            and ("from" not in named or message.sender == int(named["from"]))
            and ("kind" not in named or named["kind"] in show(message).split())
        )

    def is_worth_telling(self, message: Message) -> bool:
        return self.heartbeats or not isinstance(message, Heartbeat | HeartbeatResponse) or message.read_round > 0

    def send(self, message: Message) -> None:
        if self.is_worth_telling(message):
            self.lines.append(show(message))
        if (message.sender, message.target) not in self.cut:
            self.flying.append(message)

    # The driver

    def collect(self, replica: Replica) -> None:
        node = replica.node
        if node is None:
            return
        while True:
            while node.has_ready:
                self.take(replica, node, node.take_ready())
            if replica.held or not replica.queue:
                return
            self.write(replica, node, replica.queue.popleft())

    def take(self, replica: Replica, node: Node, ready: Ready) -> None:
        if ready.leadership is not None:
            role, leader = ready.leadership.role, ready.leadership.leader
            follows = f" of n{leader}" if leader is not None and leader != node.node_id else ""
            self.lines.append(f"{replica.label} is {role.value}{follows}")
        if ready.truncate_from is not None:
            self.lines.append(f"{replica.label} drops its entries from {ready.truncate_from}")
        for entry in ready.entries:
            if entry.kind is EntryKind.CONFIGURATION:
                self.lines.append(f"{replica.label} has {show_entry(entry)}")
        for message in ready.messages:
            self.send(message)
        if ready.persists or ready.messages_after_persist:
            replica.queue.append(ready)
        if ready.committed is not None:
            end = ready.committed.end
            entries = replica.storage.entries(ready.committed.start, end, 1 << 30, 1 << 30)
            replica.state += [show_payload(entry) for entry in entries if entry.kind is EntryKind.PAYLOAD]
            self.lines.append(f"{replica.label} applies {' '.join(map(show_entry, entries))}")
            node.on_applied(LogIndex(end - 1))
        for wanted in ready.chunks_wanted:
            meta, offset, size = wanted.meta, wanted.offset, wanted.size_bytes_max
            if replica.storage.snapshot != meta:
                self.lines.append(f"{replica.label} no longer has snapshot {meta.index}@{meta.term}")
                node.on_snapshot_unavailable(wanted.target, meta.snapshot_id)
                continue
            data = replica.snapshot_bytes[offset : offset + size]
            done = offset + size >= len(replica.snapshot_bytes)
            node.send_snapshot_chunk(wanted.target, meta.snapshot_id, offset, data, done)
        for read in ready.reads_confirmed:
            self.lines.append(f"{replica.label} read {read.context} sees up to {read.index}")
        for context in ready.reads_refused:
            self.lines.append(f"{replica.label} read {context} is refused")

    def write(self, replica: Replica, node: Node, ready: Ready) -> None:
        if ready.snapshot is not None:
            assert replica.partial is not None
            replica.snapshot_bytes, replica.partial = bytes(replica.partial[1]), None
            replica.state = [word for word in replica.snapshot_bytes.decode().split(",") if word]
            meta = ready.snapshot
            self.lines.append(
                f"{replica.label} installs snapshot {meta.index}@{meta.term} {show_configuration(meta.configuration)}: "
                f"{replica.snapshot_bytes.decode()}"
            )
        replica.storage.write(ready)
        for chunk in ready.chunks_to_save:
            self.save(replica, chunk)
        for message in ready.messages_after_persist:
            self.send(message)
        node.on_persisted(ready.number)
        if any(chunk.done for chunk in ready.chunks_to_save) and replica.partial is not None:
            receiving = replica.partial[0]
            intact = not replica.damaged
            if not intact:
                replica.partial = None
                replica.damaged = False
                self.lines.append(f"{replica.label} finds the snapshot damaged")
            node.on_snapshot_received(receiving.sender, receiving.meta.snapshot_id, intact)

    def save(self, replica: Replica, chunk: ChunkToSave) -> None:
        data = bytearray() if chunk.offset == 0 or replica.partial is None else replica.partial[1]
        data += chunk.data
        replica.partial = (SnapshotReceiving(chunk.sender, chunk.meta, len(data), chunk.done), data)

    # What is told

    def show_status(self, replica: Replica) -> str:
        node = replica.node
        if node is None:
            return f"n{replica.node_id} is down"
        return (
            f"{replica.label} {node.role.value} last={node.last_index}@{node.term_at(node.last_index)} "
            f"durable={node.durable_index} commit={node.commit_index} applied={node.applied_index} "
            f"{show_configuration(node.configuration)} state={','.join(replica.state)}"
        )

    def show_progress(self, node: Node) -> None:
        for node_id, peer in node.progress().items():
            words = [f"n{node_id} {peer.state.value} match={peer.match}", "voter" if peer.votes else "learner"]
            if peer.caught_up:
                words.append("caught-up")
            if peer.in_flight_messages:
                words.append(f"in-flight={peer.in_flight_messages} ({peer.in_flight_bytes} bytes)")
            if peer.snapshot_received_bytes is not None:
                words.append(f"snapshot-bytes={peer.snapshot_received_bytes}")
            self.lines.append(" ".join(words))


def show_payload(entry: Entry) -> str:
    assert isinstance(entry.payload, bytes)
    return entry.payload.decode()


def show_entry(entry: Entry) -> str:
    match entry.kind:
        case EntryKind.NOTHING:
            content = "-"
        case EntryKind.CONFIGURATION:
            content = show_configuration(configuration_from_bytes(entry.payload))
        case EntryKind.PAYLOAD:
            content = show_payload(entry)
    return f"{entry.index}@{entry.term}:{content}"


def show_configuration(configuration: Configuration) -> str:
    voters, before, learners = (
        "+".join(map(str, sorted(group)))
        for group in (configuration.voters, configuration.voters_before, configuration.learners)
    )
    return (
        "["
        + " ".join(
            word
            for word in (voters, f"before={before}" if before else "", f"learners={learners}" if learners else "")
            if word
        )
        + "]"
    )


def show(message: Message) -> str:
    return f"n{message.sender}@{message.term} -> n{message.target} {show_content(message)}"


def show_content(message: Message) -> str:
    match message:
        case PreVoteRequest():
            return f"pre-vote for term {message.campaign_term}? log={message.last_index}@{message.last_term}"
        case PreVoteResponse():
            return f"pre-vote {'yes' if message.granted else 'no'}"
        case VoteRequest():
            transfer = " in the leader's name" if message.transfer else ""
            return f"vote? log={message.last_index}@{message.last_term}{transfer}"
        case VoteResponse():
            return f"vote {'yes' if message.granted else 'no'}"
        case AppendRequest():
            entries = " ".join(map(show_entry, message.entries)) or "nothing"
            return f"append after {message.previous_index}@{message.previous_term}: {entries} commit={message.commit}"
        case AppendAccepted():
            return f"accepts up to {message.match}"
        case AppendRejected():
            return f"rejects after {message.rejected}, has {message.hint_index}@{message.hint_term}"
        case Heartbeat():
            return f"heartbeat commit={message.commit} read={message.read_round}"
        case HeartbeatResponse():
            return f"is here read={message.read_round}"
        case SnapshotChunk():
            size = f"{len(message.data)} bytes at {message.offset}" if message.data or message.done else "offer"
            return f"snapshot {message.meta.index}@{message.meta.term} {size}{' done' if message.done else ''}"
        case SnapshotAnswer():
            return f"has {message.received} bytes of {message.snapshot_id.index}@{message.snapshot_id.term}"
        case TimeoutNow():
            return "campaign now"
