"""A cluster of real `Node`s on a fake network and fake disks, driven by one seed.

    python tests/unit/raft/simulation.py 17            # one seed, with what happened in it
    python tests/unit/raft/simulation.py 0 5000        # many, with a summary

Everything that can go wrong outside the core goes wrong here: messages are lost, delayed, duplicated and reordered;
links are cut, also in one direction; disks are slow, and a crash loses everything that was not reported durable, or all
but a prefix of it; nodes are suspended and resumed; nodes restart, members change, logs are compacted, leaders are
asked to transfer leadership. After every event the `invariants` are checked. At the end everything is healed, and the
cluster must agree and work again.
"""

from __future__ import annotations

import sys
import time as real_time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NamedTuple
from zlib import crc32

# For those who run this file by itself: the tests are not installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

from drmq.model import NodeId
from drmq.raft import (
    AppendAccepted,
    AppendRequest,
    ChunkToSave,
    ChunkWanted,
    Configuration,
    Entry,
    HardState,
    LogIndex,
    Message,
    Node,
    RaftOptions,
    Ready,
    Refusal,
    Role,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReceiving,
    Term,
    VoteRequest,
    VoteResponse,
)
from unit.raft.invariants import Invariants, Replica, decode_state, encode_state, require

TICK = 10
"""Virtual milliseconds between two ticks, more or less: every node's clock has its own pace."""


PROMISES = (VoteResponse, VoteRequest, AppendAccepted)
"""Messages that say something about the sender's disk. A crash just after one shows whether it was true."""


class Profile(NamedTuple):
    """How rough the world is. Drawn from the seed."""

    voters: int
    spares: int
    loss: float
    duplication: float
    delay_max: int
    disk_delay_max: int
    crash_every: int
    cut_every: int
    client_every: int
    change_every: int
    compact_every: int
    transfer_every: int
    pause_every: int
    crash_after_promise: float
    duration: int

    @classmethod
    def draw(cls, random: Random) -> Profile:
        rough = random.random() < 0.7
        return cls(
            voters=random.choice((1, 2, 3, 3, 3, 3, 4, 5)),
            spares=random.choice((0, 0, 1, 2)),
            loss=random.choice((0.0, 0.05, 0.2)) if rough else 0.0,
            duplication=random.choice((0.0, 0.1, 0.3)),
            delay_max=random.choice((2, 10, 40)) if rough else 2,
            disk_delay_max=random.choice((1, 10, 60)),
            crash_every=random.choice((80, 200, 1000)),
            cut_every=random.choice((80, 200, 1000)),
            client_every=random.choice((3, 10, 20)),
            change_every=random.choice((40, 150, 1000)),
            compact_every=random.choice((30, 100, 1000)),
            transfer_every=random.choice((60, 300)),
            pause_every=random.choice((100, 500)),
            crash_after_promise=random.choice((0.0, 0.02)),
            duration=1000,
        )


class World(Invariants):
    """Network, disks, clients and the checks, on one virtual clock."""

    def __init__(self, seed: int, loud: bool = False) -> None:
        super().__init__()
        self.random = Random(seed)
        self.profile = Profile.draw(self.random)
        self.loud = loud
        self.now = 0
        self.sequence = 0
        self.events: list[tuple[int, int, str, Callable[[], None]]] = []
        self.hash = blake2b(digest_size=8)
        self.counts: Counter[str] = Counter()
        self.options = RaftOptions(
            election_timeout_ticks=5,
            heartbeat_ticks=1,
            append_bytes_max=12,
            append_entries_max=self.random.choice((1, 3, 8)),
            in_flight_messages_max=self.random.choice((1, 3, 3)),
            in_flight_bytes_max=24,
            uncommitted_bytes_max=100,
            snapshot_chunk_bytes_max=self.random.choice((8, 16, 64)),
            snapshot_resend_ticks=3,
            transfer_ticks_max=6,
            promotion_lag_max=3,
        )
        self.learners_take_turns = seed % 2 == 1
        self.blocked: set[tuple[NodeId, NodeId]] = set()
        self.healed = False
        voters = [NodeId(n + 1) for n in range(self.profile.voters)]
        spares = [NodeId(len(voters) + n + 1) for n in range(self.profile.spares)]
        self.replicas = {n: Replica(n, Configuration.of(voters)) for n in voters}
        self.replicas |= {n: Replica(n, Configuration()) for n in spares}
        self.paces = {n: self.random.choice((TICK - 1, TICK, TICK + 2)) for n in self.replicas}
        self.proposed = 0
        self.last_proposal: tuple[Term, LogIndex] | None = None
        for replica in self.replicas.values():
            self.start(replica)
            self.tick_later(replica)
        for name, every, event in (
            ("crash", self.profile.crash_every, self.crash_someone),
            ("cut", self.profile.cut_every, self.cut_something),
            ("client", self.profile.client_every, self.use_cluster),
            ("change", self.profile.change_every, self.change_members),
            ("compact", self.profile.compact_every, self.compact_someone),
            ("transfer", self.profile.transfer_every, self.transfer),
            ("pause", self.profile.pause_every, self.pause_someone),
        ):
            self.repeat(name, every, event)

    # The clock

    def later(self, delay: int, name: str, event: Callable[[], None]) -> None:
        self.sequence += 1
        heappush(self.events, (self.now + max(delay, 0), self.sequence, name, event))

    def at_node(self, delay: int, name: str, replica: Replica, event: Callable[[], None]) -> None:
        """An event at a node; a suspended node handles it when it resumes."""

        def meet() -> None:
            if replica.frozen_until > self.now:
                self.later(replica.frozen_until - self.now, name, meet)
            else:
                event()

        self.later(delay, name, meet)

    def repeat(self, name: str, every: int, event: Callable[[], None]) -> None:
        def again() -> None:
            if not self.healed:
                event()
                self.repeat(name, every, event)

        self.later(1 + int(self.random.expovariate(1 / every)), name, again)

    def step(self) -> None:
        self.now, _, name, event = heappop(self.events)
        self.counts[name] += 1
        self.hash.update(f"{self.now}{name}".encode())
        event()

    def run(self) -> None:
        while self.now < self.profile.duration:
            self.step()
        self.heal()
        # Ten ticks for each entry that may be missing somewhere are plenty, if they go one by one.
        deadline = self.now + 100 * TICK * (self.options.election_timeout_ticks + self.commit_max // 10)
        check_at = self.now
        while not (self.now >= check_at and self.is_settled()):
            require(self.now < deadline, "liveness: no agreement after healing;", self.describe())
            check_at = max(check_at, self.now + TICK) if self.now >= check_at else check_at
            self.step()
        self.hash.update(self.describe().encode())

    def say(self, *words: object) -> None:
        if self.loud:
            print(f"{self.now:6}", *words)

    def describe(self) -> str:
        return "; ".join(
            f"n{r.node_id}: down"
            if r.node is None
            else f"n{r.node_id}: {r.node.role.value} term={r.node.term} leader={r.node.leader_id} "
            f"last={r.node.last_index} durable={r.node.durable_index} commit={r.node.commit_index} "
            f"applied={r.applied} voters={sorted(r.node.configuration.voters)} "
            f"before={sorted(r.node.configuration.voters_before)} learners={sorted(r.node.configuration.learners)}"
            for r in self.replicas.values()
        )

    # Nodes

    def start(self, replica: Replica) -> None:
        state = decode_state(replica.snapshot_bytes)
        assert state is not None
        replica.applied, replica.chain = state
        replica.life += 1
        replica.node = Node(
            replica.node_id,
            replica.storage,
            Random(self.random.getrandbits(32)),
            self.options,
            replica.storage.hard_state,
            replica.storage.commit,
            LogIndex(replica.applied),
            replica.partial[0] if replica.partial else None,
            learners_take_turns=self.learners_take_turns,
        )
        replica.commit_seen = replica.node.commit_index
        replica.configuration_seen = replica.node.configuration
        replica.reign_seen = None
        self.say(f"n{replica.node_id} starts", replica.storage.hard_state, f"last={replica.storage.last_index}")
        self.settle(replica)

    def crash(self, replica: Replica) -> None:
        """Lose everything but the disk, and of what was on its way there all but a prefix."""
        steps = [step for ready in replica.queue for step in self.steps(replica, ready)]
        survived = self.random.randint(0, len(steps)) if self.random.random() < 0.5 else 0
        for step in steps[:survived]:
            step()
        self.say(f"n{replica.node_id} crashes; {survived} of {len(steps)} steps survive")
        replica.node = None
        replica.life += 1
        replica.queue.clear()
        replica.to_apply.clear()
        replica.writing = False
        if replica.partial is not None and (replica.partial[0].complete or self.random.random() < 0.3):
            replica.partial = None

    def tick_later(self, replica: Replica) -> None:
        def tick() -> None:
            self.tick_later(replica)
            if replica.node is not None and replica.frozen_until <= self.now:
                replica.node.tick()
                self.settle(replica)

        self.later(self.paces[replica.node_id] + self.random.randint(-2, 2), "tick", tick)

    def settle(self, replica: Replica) -> None:
        """Do what the node wants, until it wants nothing, and check what must hold."""
        node = replica.node
        assert node is not None
        self.check_node(replica, node)
        while node.has_ready:
            ready = node.take_ready()
            self.check_entries(replica, node, ready)
            for message in ready.messages:
                self.send(message)
            if ready.persists or ready.messages_after_persist:
                replica.queue.append(ready)
                self.write_later(replica)
            if ready.committed is not None:
                replica.to_apply.append((ready.committed.start, ready.committed.end))
                self.apply_later(replica)
            for learner in ready.turns_wanted:
                self.give_turn_later(replica, learner)
            for wanted in ready.chunks_wanted:
                self.bring_chunk_later(replica, wanted)
            for read in ready.reads_confirmed:
                asked_at = self.reads.pop(read.context)  # type: ignore[call-overload]
                self.counts["read confirmed"] += 1
                require(read.index >= asked_at, f"stale read: {read} does not cover {asked_at}")
            if ready.leadership is not None:
                self.say(f"n{node.node_id}", *ready.leadership)
                if ready.leadership.role is Role.LEADER:
                    self.counts["elections won"] += 1

    # Disks

    def steps(self, replica: Replica, ready: Ready) -> Iterator[Callable[[], None]]:
        """The steps of writing a `Ready`, in order; a crash may come after any of them."""
        storage = replica.storage

        def hard_state(state: HardState) -> None:
            storage.hard_state = state

        def truncate(start: LogIndex) -> None:
            storage.truncate_from(start)

        if ready.hard_state is not None:
            yield lambda state=ready.hard_state: hard_state(state)  # type: ignore[misc]
        if ready.snapshot is not None:
            yield lambda meta=ready.snapshot: self.install(replica, meta)  # type: ignore[misc]
        if ready.truncate_from is not None:
            yield lambda start=ready.truncate_from: truncate(start)  # type: ignore[misc]
        for entry in ready.entries:
            yield lambda entry=entry: storage.append([entry])  # type: ignore[misc]
        for chunk in ready.chunks_to_save:
            yield lambda chunk=chunk: self.save_chunk(replica, chunk)  # type: ignore[misc]

    def write_later(self, replica: Replica) -> None:
        if replica.writing:
            return
        replica.writing = True
        life = replica.life

        def write() -> None:
            node = replica.node
            if replica.life != life or node is None:
                return
            replica.writing = False
            done: list[ChunkToSave] = []
            last = None
            for _ in range(self.random.randint(1, len(replica.queue))):
                last = replica.queue.popleft()
                for step in self.steps(replica, last):
                    step()
                replica.storage.commit = max(replica.storage.commit, min(last.commit, replica.storage.last_index))
                if last.snapshot is not None:
                    self.switch_state(replica)
                for message in last.messages_after_persist:
                    self.send(message)
                done += [chunk for chunk in last.chunks_to_save if chunk.done]
            if replica.queue:
                self.write_later(replica)
            assert last is not None
            node.on_persisted(last.number)
            for chunk in done:
                self.check_received_later(replica, chunk)
            self.settle(replica)

        delay = self.random.randint(0, 1 if self.healed else self.profile.disk_delay_max)
        self.at_node(delay, "disk", replica, write)

    def install(self, replica: Replica, meta: SnapshotMeta) -> None:
        assert replica.partial is not None, "installing a snapshot that was never received"
        receiving, data = replica.partial
        require(receiving.meta == meta, "installing", meta, "but received", receiving.meta)
        replica.snapshot_bytes = bytes(data)
        state = decode_state(replica.snapshot_bytes)
        require(state is not None and state[0] == meta.index, "a broken or half snapshot is installed", meta, data)
        replica.storage.install(meta)
        replica.partial = None

    def switch_state(self, replica: Replica) -> None:
        state = decode_state(replica.snapshot_bytes)
        assert state is not None
        replica.applied, replica.chain = state
        replica.to_apply.clear()
        require(self.chains[replica.applied] == replica.chain, "a snapshot with another history", state)

    def save_chunk(self, replica: Replica, chunk: ChunkToSave) -> None:
        partial = replica.partial
        if chunk.offset == 0 or partial is None or partial[0].meta != chunk.meta or partial[0].sender != chunk.sender:
            partial = (SnapshotReceiving(chunk.sender, chunk.meta), bytearray())
        receiving, data = partial
        require(chunk.offset == len(data), "a chunk leaves a hole:", chunk, len(data))
        data += chunk.data
        replica.partial = (
            SnapshotReceiving(chunk.sender, chunk.meta, len(data), chunk.done, receiving.term),
            data,
        )

    def check_received_later(self, replica: Replica, chunk: ChunkToSave) -> None:
        life = replica.life

        def check() -> None:
            if replica.node is None or replica.life != life or replica.partial is None:
                return
            receiving, data = replica.partial
            if receiving.meta != chunk.meta or receiving.sender != chunk.sender or not receiving.complete:
                return
            intact = decode_state(bytes(data)) is not None
            if not intact:
                replica.partial = None
            self.counts["snapshots received"] += 1
            replica.node.on_snapshot_received(chunk.sender, chunk.meta.snapshot_id, intact)
            self.settle(replica)

        self.at_node(self.random.randint(0, 10), "verify", replica, check)

    def bring_chunk_later(self, replica: Replica, wanted: ChunkWanted) -> None:
        life = replica.life

        def bring() -> None:
            node = replica.node
            if node is None or replica.life != life:
                return
            target, meta, offset, size = wanted
            if replica.storage.snapshot != meta:
                node.on_snapshot_unavailable(target, meta.snapshot_id)
            else:
                data = replica.snapshot_bytes[offset : offset + size]
                done = offset + size >= len(replica.snapshot_bytes)
                node.send_snapshot_chunk(target, meta.snapshot_id, offset, data, done)
            self.settle(replica)

        self.at_node(self.random.randint(0, 10), "chunk", replica, bring)

    def give_turn_later(self, replica: Replica, learner: NodeId) -> None:
        life = replica.life

        def give() -> None:
            if replica.node is not None and replica.life == life:
                self.counts["turns given"] += 1
                replica.node.give_turn(learner)
                self.settle(replica)

        self.at_node(self.random.randint(0, 40), "turn", replica, give)

    def apply_later(self, replica: Replica) -> None:
        life = replica.life

        def apply() -> None:
            node = replica.node
            if node is None or replica.life != life or not replica.to_apply:
                return
            start, end = replica.to_apply.popleft()
            require(start == replica.applied + 1, "applied out of order:", start, replica.applied)
            for entry in replica.storage.entries(LogIndex(start), LogIndex(end), 1 << 30, 1 << 30):
                self.apply(replica, entry)
            require(replica.applied == end - 1, "entries to apply are not on disk", start, end, replica.applied)
            node.on_applied(LogIndex(replica.applied))
            self.check_node(replica, node)

        self.at_node(self.random.choice((0, 0, 0, 15)), "apply", replica, apply)

    def apply(self, replica: Replica, entry: Entry) -> None:
        require(entry.first == replica.applied + 1, "applied a part of an entry:", entry, replica.applied)
        replica.applied = entry.index
        replica.chain = crc32(f"{replica.chain}{entry.index}{entry.term}{entry.payload!r}".encode())
        known = self.chains.setdefault(entry.index, replica.chain)
        require(known == replica.chain, f"state machine safety: n{replica.node_id} applied another", entry)

    # Network

    def send(self, message: Message) -> None:
        if type(message) is VoteResponse and message.granted:
            self.check_vote(message.term, message.sender, message.target)
        elif type(message) is VoteRequest:
            self.check_vote(message.term, message.sender, message.sender)
        random, profile = self.random, self.profile
        copies = 1
        if not self.healed:
            if (message.sender, message.target) in self.blocked or random.random() < profile.loss:
                return
            copies += random.random() < profile.duplication
        for _ in range(copies):
            delay_max = 2 if self.healed else profile.delay_max
            if not self.healed and random.random() < 0.02:
                delay_max *= 20
            target = self.replicas[message.target]
            name = type(message).__name__
            self.at_node(random.randint(1, delay_max), name, target, lambda: self.deliver(message))
        if not self.healed and type(message) in PROMISES and random.random() < profile.crash_after_promise:
            self.later(random.randint(0, 3), "crash after promise", lambda: self.crash_and_restart(message.sender))

    def deliver(self, message: Message) -> None:
        replica = self.replicas[message.target]
        if replica.node is None or (not self.healed and (message.sender, message.target) in self.blocked):
            return
        if type(message) is SnapshotChunk and not self.healed and message.data and self.random.random() < 0.05:
            flipped = bytes([message.data[0] ^ 1]) + bytes(message.data[1:])
            message = SnapshotChunk(
                message.sender, message.target, message.term, message.meta, message.offset, flipped, message.done
            )
        commit = replica.node.commit_index
        replica.node.receive(message)
        if type(message) is AppendRequest:
            reach = message.entries[-1].index if message.entries else message.previous_index
            require(replica.node.commit_index <= max(commit, reach), "committed further than the message", message)
        self.settle(replica)

    # Faults and clients

    def someone(self) -> Replica:
        return self.random.choice(list(self.replicas.values()))

    def a_leader(self) -> Replica | None:
        leaders = [
            r
            for r in self.replicas.values()
            if r.node is not None and r.node.role is Role.LEADER and r.frozen_until <= self.now
        ]
        return self.random.choice(leaders) if leaders else None

    def crash_someone(self) -> None:
        replica = self.someone()
        if self.random.random() < 0.3:
            replica = self.a_leader() or replica
        if replica.node is not None:
            self.crash(replica)
            self.later(self.random.choice((1, 30, 150)), "restart", lambda: self.restart(replica))

    def crash_and_restart(self, node_id: NodeId) -> None:
        replica = self.replicas[node_id]
        if replica.node is not None and not self.healed:
            self.crash(replica)
            self.later(1, "restart", lambda: self.restart(replica))

    def pause_someone(self) -> None:
        replica = self.a_leader() or self.someone()
        duration = self.random.choice((20, 60, 150))
        replica.frozen_until = self.now + duration
        self.say(f"n{replica.node_id} freezes for {duration}")
        # Some take it for gone, or for another process, and are wrong.
        for other in self.replicas.values():
            if other.node is not None and self.random.random() < 0.5:
                other.node.on_leader_lost()
                self.settle(other)
        self.tell_of_restart(replica)
        # Whoever asked it meanwhile is answered first thing.
        self.later(duration, "read", lambda: self.read(replica))

    def restart(self, replica: Replica) -> None:
        if replica.node is None:
            self.start(replica)
            self.tell_of_restart(replica)

    def tell_of_restart(self, replica: Replica) -> None:
        """Some notice that it is another process than before."""
        for other in self.replicas.values():
            if other is not replica and other.node is not None and self.random.random() < 0.5:
                self.counts["restarts seen"] += other.node.role is Role.LEADER
                other.node.on_member_restarted(replica.node_id)
                self.settle(other)

    def cut_something(self) -> None:
        ids = list(self.replicas)
        self.blocked.clear()
        kind = self.random.choice(("heal", "split", "isolate", "one way", "deaf", "mute"))
        if kind == "split":
            side = {n for n in ids if self.random.random() < 0.5}
            self.blocked = {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        elif kind != "heal":
            replica = self.a_leader() if self.random.random() < 0.5 else None
            one = (replica or self.someone()).node_id
            if kind in ("isolate", "deaf"):
                self.blocked |= {(other, one) for other in ids}
            if kind in ("isolate", "mute"):
                self.blocked |= {(one, other) for other in ids}
            if kind == "one way":
                self.blocked.add((one, self.random.choice(ids)))
        self.say("network:", kind, sorted(self.blocked))

    def read(self, replica: Replica) -> None:
        if replica.node is None or replica.node.role is not Role.LEADER or replica.frozen_until > self.now:
            return
        self.proposed += 1
        replica.node.read_index(self.proposed)
        self.reads[self.proposed] = self.commit_max
        self.settle(replica)

    def use_cluster(self) -> None:
        replica = self.a_leader()
        if replica is None or replica.node is None:
            return
        try:
            if self.random.random() < 0.25:
                self.read(replica)
            else:
                payloads = []
                for _ in range(self.random.randint(1, 4)):
                    self.proposed += 1
                    payloads.append(b"%d" % self.proposed + bytes(self.random.choice((0, 0, 3, 15))))
                spans = [self.random.choice((1, 1, 1, 2, 5)) for _ in payloads]
                replica.node.propose(payloads, spans)
                self.counts["proposed"] += len(payloads)
        except Refusal as refusal:
            self.counts[f"refused {type(refusal).__name__}"] += 1
        self.settle(replica)

    def change_members(self) -> None:
        replica = self.a_leader()
        if replica is None or replica.node is None:
            return
        random, configuration = self.random, replica.node.configuration
        pool = sorted(self.replicas)
        if random.random() < 0.5:
            voters = set(configuration.voters)
            learners = set(configuration.learners) | {random.choice(pool)}
            learners -= voters
        else:
            fit = sorted(configuration.voters | configuration.learners)
            voters = set(random.sample(fit, random.randint(1, len(fit))))
            learners = {n for n in pool if n not in voters and random.random() < 0.5}
        try:
            replica.node.propose_configuration(voters, learners)
            self.say(f"n{replica.node_id} changes to voters={sorted(voters)} learners={sorted(learners)}")
            self.counts["changes"] += 1
        except Refusal as refusal:
            self.counts[f"refused {type(refusal).__name__}"] += 1
        self.settle(replica)

    def compact_someone(self) -> None:
        replica = self.someone()
        node = replica.node
        if node is None or replica.applied <= replica.storage.snapshot.index:
            return
        index = LogIndex(replica.applied)
        if node.applied_index != index or node.term_at(index) is None:
            return
        replica.snapshot_bytes = encode_state(replica.applied, replica.chain)
        before = LogIndex(self.random.choice((replica.storage.first_index - 1, index - 2, index - 1, index, index)))
        keep_from = LogIndex(replica.storage.end_at_most(before) + 1)
        replica.storage.compact(node.snapshot_meta(index), keep_from)
        self.counts["compactions"] += 1

    def transfer(self) -> None:
        replica = self.a_leader()
        if replica is None or replica.node is None:
            return
        try:
            replica.node.transfer_leadership(self.someone().node_id)
            self.counts["transfers"] += 1
        except Refusal as refusal:
            self.counts[f"refused {type(refusal).__name__}"] += 1
        self.settle(replica)

    def heal(self) -> None:
        self.say("healed")
        self.healed = True
        self.blocked.clear()
        for replica in self.replicas.values():
            replica.frozen_until = min(replica.frozen_until, self.now)
            self.restart(replica)

    def is_settled(self) -> bool:
        """Whether there is one working leader, a new entry of it is everywhere, and all states are equal."""
        replica = self.a_leader()
        if replica is None or replica.node is None or not replica.node.knows_commit:
            return False
        leader = replica.node
        if leader.change_in_progress or leader.transfer_target is not None:
            return False
        if self.last_proposal is None or leader.term_at(self.last_proposal[1]) != self.last_proposal[0]:
            try:
                self.last_proposal = (leader.term, leader.propose([b"last"]))
            except Refusal as refusal:
                self.counts[f"refused {type(refusal).__name__}"] += 1
            self.settle(replica)
            return False
        for node_id in leader.configuration.members:
            member = self.replicas[node_id]
            if member.applied != leader.last_index or member.chain != replica.chain:
                return False
        return leader.commit_index == leader.last_index


class Outcome(NamedTuple):
    """What a seed led to."""

    hash: str
    counts: Counter[str]


def run_seed(seed: int, loud: bool = False) -> Outcome:
    """Run one world from beginning to end. Raises if something does not hold."""
    world = World(seed, loud)
    try:
        world.run()
    except Exception as error:
        error.add_note(f"replay: python tests/unit/raft/simulation.py {seed}")
        raise
    return Outcome(world.hash.hexdigest(), world.counts)


def main() -> None:
    first, end = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None
    if end is None:
        print(*sorted(run_seed(first, loud=True).counts.items()), sep="\n")
        return
    totals: Counter[str] = Counter()
    failed = []
    started = real_time.monotonic()
    for seed in range(first, end):
        try:
            totals += run_seed(seed).counts
        except Exception as error:  # noqa: BLE001 (every failure is a finding)
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(*sorted(totals.items()), sep="\n")
    print(f"{end - first} seeds, {len(failed)} failed {failed[:20]}, {real_time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
