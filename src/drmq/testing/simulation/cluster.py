"""A whole cluster in one process: nodes, links, clients, and final checks after all faults are repaired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from drmq.broker import BrokerOptions
from drmq.broker.coordination import machine_log
from drmq.model import GroupId, NodeId
from drmq.testing.simulation.client import Client
from drmq.testing.simulation.faults import Faults
from drmq.testing.simulation.growth import MembershipChanger
from drmq.testing.simulation.history import History, Place
from drmq.testing.simulation.invariants import Invariants
from drmq.testing.simulation.lease_run import TOPIC as JOBS
from drmq.testing.simulation.lease_run import LeaseRun
from drmq.testing.simulation.links import Links
from drmq.testing.simulation.loop import SimulatedLoop
from drmq.testing.simulation.members import GroupNotes, Member
from drmq.testing.simulation.node import SimulatedNode, rack_of
from drmq.testing.simulation.peers import Switchboard
from drmq.testing.simulation.profile import ANY, Profile
from drmq.testing.simulation.streams import CLIENTS, Stream
from drmq.testing.simulation.topics import TopicRecreator
from drmq.testing.simulation.workload import (
    Committer,
    Consumer,
    EndWatcher,
    NearConsumer,
    Producer,
    Reader,
    Repeater,
    Worker,
    create_topic,
)
from drmq.testing.simulation.world import MS, SECOND, Violation, World
from drmq.transport.peers import PeerMessage

FORMING_US = 60 * SECOND
"""The time limit for a new cluster to serve its first topics."""
RECOVERING_US = 30 * SECOND
"""The time limit for a cluster that is short of processor time, after a stall, until all partitions are led and in
sync."""
HEALING_US = 120 * SECOND
"""The time limit for a healed cluster until everything works again and all replicas are identical."""

_SNAPSHOT_AFTER_BYTES = 6_000
_CHECK_US = 200 * MS


class Cluster:
    """The simulated cluster, its clients and its faults. Implements `client.Connector`."""

    def __init__(
        self, seed: int, node_count: int, on_line: Callable[[str], None] | None = None, kind: str = ANY
    ) -> None:
        self.world = World(seed, on_line)
        self.node_count = node_count
        self.profile = Profile.draw(self.world.random, Random(f"more of {seed}"), kind)
        self.links = Links(self.world)
        self.board = Switchboard(self.world, self.links)
        self.history = History(self.world)
        self.options = BrokerOptions(
            offsets_topic_partitions=2,
            share_state_topic_partitions=2,
            retention_check_interval_ms=3_000,
            leader_balance_interval_ms=15_000,
            auto_create_topics=False,
        )
        self.nodes = [
            SimulatedNode(self.world, self.board, number, node_count, self.options, self.profile.chunk_bytes)
            for number in range(1, node_count + 1)
        ]
        self.node_ids = [int(node.node_id) for node in self.nodes]
        keeps_everything = not self.profile.damages and not self.profile.rots
        self.invariants = Invariants(self.world, self.nodes, keeps_everything=keeps_everything)
        self.faults = Faults(self)
        self.board.watch = self._on_message
        self.loop = SimulatedLoop(self.world, "clients", lambda: None)  # type: ignore[abstract]
        self.workers: list[Worker] = []
        self.places: list[Place] = []
        self.leases = LeaseRun(self) if self.profile.lease_members else None
        if self.leases is not None:
            self.invariants.on_elected = self.leases.disturb
            for node in self.nodes:
                self._prepare_for_leases(node)
        self._stream_count = 0
        self._tasks: list[asyncio.Task[None]] = []

    # ---- nodes ----------------------------------------------------------------------------------

    @property
    def live_nodes(self) -> list[SimulatedNode]:
        """All nodes that belong to the cluster, or are about to join it."""
        return [node for node in self.nodes if not node.is_retired]

    def add_node(self) -> SimulatedNode:
        """Add a machine with an empty disk."""
        number = len(self.nodes) + 1
        node = SimulatedNode(self.world, self.board, number, self.node_count, self.options, self.profile.chunk_bytes)
        self.nodes.append(node)
        self.node_ids.append(number)
        self._prepare_for_leases(node)
        self.invariants.watch(node)
        self.faults.adopt(node)
        return node

    def _prepare_for_leases(self, node: SimulatedNode) -> None:
        if self.leases is not None:
            node.on_built = self.leases.prepare
            node.clock.monotonic_ahead_ms = Random(f"clock of {node.name}").randrange(10**9)

    def on_disturbed(self) -> None:
        """A fault is injected or repaired."""
        if self.leases is not None:
            self.leases.disturb()

    def retire(self, node: SimulatedNode) -> None:
        """A node has been removed from the cluster. Its process exits by itself if it is notified."""
        self.world.say(node.name, "was removed from the cluster")
        node.is_retired = True
        self.node_ids.remove(int(node.node_id))

    # ---- Connector ------------------------------------------------------------------------------

    def connect(self, node: int, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> Stream | None:
        target = self.nodes[node - 1]
        listener = target.listener
        if not target.is_running or listener is None or not listener.is_open:
            return None
        self._stream_count += 1
        stream = Stream(self.world, self.links, self._stream_count, node, listener, on_data, on_lost)
        target.streams[stream] = None
        target.loop.call_soon(stream.accept)
        return stream

    def _on_message(self, target: NodeId, group: GroupId, message: PeerMessage) -> None:
        """A message leaves a node, whether it arrives or not."""
        self.invariants.on_message(target, group, message)
        self.faults.on_message(message)

    # ---- a run ----------------------------------------------------------------------------------

    def run(self, duration_us: int, on_progress: Callable[[int], None] = lambda us: None) -> None:
        """Form the cluster, work under faults, heal, and check the end. Raises `Violation`."""
        with self._watching():
            self._form()
            end_us = self.world.now_us + duration_us
            self.faults.begin()
            if self.leases is not None:
                self.leases.is_on = True
            while self.world.now_us < end_us:
                before_us = self.world.now_us
                self.world.run_until(min(end_us, before_us + SECOND))
                on_progress(self.world.now_us - before_us)
            self.faults.end()
            if self.leases is not None:
                self.leases.is_on = False
            if self.profile.unit_us:
                self._recover()
            self._heal()
            self._check_end()
        self.world.mark(repr(sorted((str(place), len(final)) for place, final in self.history.final.items())))

    def _recover(self) -> None:
        """No node is paused any more, but all are as short of processor time as before: the cluster becomes whole."""
        for node in self.nodes:
            node.resume()
        deadline = self.world.now_us + RECOVERING_US
        while not self.invariants.is_whole():
            if self.world.now_us >= deadline:
                self.world.break_rule("whole-again", f"it is not after a stall; {self.invariants.describe()}")
            self.world.run_until(self.world.now_us + 50 * MS)
            if self.world.broken is not None:
                raise self.world.broken
        self.world.say("world", "the cluster is whole again")

    def _form(self) -> None:
        for node in self.nodes:
            self.world.later(self.world.random.randrange(300 * MS), "start", node.start)
        names = self._topics()
        made = self._on_clients(lambda: self._make_topics(names))
        self._wait(made.done, FORMING_US, "the cluster does not start to serve")
        self._start_workers()
        # There must be load before the first fault, or the run tests nothing.
        self._wait(lambda: all(worker.successes > 2 for worker in self.workers), FORMING_US, "clients cannot work")

    def _topics(self) -> list[tuple[str, int, int, dict[str, str]]]:
        replicas = min(3, self.node_count)
        topics = [
            ("orders", 2, replicas, {"segment.bytes": "8192"}),
            ("audit", 1, replicas, {"min.insync.replicas": str(min(2, replicas))}),
            (
                "short",
                1,
                replicas,
                {"segment.bytes": "4096", "retention.bytes": str(self.profile.short_retention_bytes)},
            ),
        ]
        self.history.short_lived.add("short")
        for name, count, _, _ in topics:
            self.places += [Place(name, index) for index in range(count)]
        if not self.profile.has_others:
            topics, self.places = [], []
        if self.leases is not None:
            topics.append((JOBS, len(self.leases.places), replicas, {"segment.bytes": "8192"}))
        if self.profile.idle_partitions:
            topics.append(("idle", self.profile.idle_partitions, replicas, {}))
        return topics

    async def _make_topics(self, topics: list[tuple[str, int, int, dict[str, str]]]) -> None:
        client = Client(self, "admin", Random(self.world.random.getrandbits(64)))
        for node in self.nodes:
            while not node.is_serving:  # noqa: ASYNC110 - a node starts to serve on another loop
                await asyncio.sleep(0.05)
        for name, partitions, replicas, configs in topics:
            await create_topic(client, name, partitions, replicas, configs)

    def _start_workers(self) -> None:
        """Start the clients."""
        if self.profile.has_others:
            self._add_usual_workers()
        if self.leases is not None:
            self.workers += self.leases.start()
        for worker in self.workers:
            self._tasks.append(self._on_clients(worker.run))

    def _add_usual_workers(self) -> None:
        common = (self.world, self, self.history)
        for index, place in enumerate(self.places):
            self.workers.append(Producer(*common, f"p{index}", place))
            self.workers.append(Consumer(*common, f"c{index}", place))
        self.workers += [
            Producer(*common, "p-again", self.places[0]),
            Producer(*common, "p-plain", self.places[1], idempotent=False),
            Producer(*common, "p-one", self.places[0], acks=1, idempotent=False),
            NearConsumer(*common, "n0", self.places[0], rack_of(2)),
            NearConsumer(*common, "n1", self.places[1], rack_of(3)),
            EndWatcher(*common, "e0", self.places[0]),
            EndWatcher(*common, "e1", self.places[1]),
            Committer(*common, "g0", self.places[0]),
            Committer(*common, "g1", self.places[1]),
            Committer(*common, "g2", self.places[2]),
        ]
        if self.profile.repeats:
            self.workers.append(Repeater(*common, "p-late", self.places[-1]))
        notes = GroupNotes(self.world, self.history, "team")
        self.workers += [
            Member(self.world, self, notes, index, self.places[:3]) for index in range(self.profile.members)
        ]
        if self.profile.topics:
            self.workers.append(TopicRecreator(*common, "passing", min(3, self.node_count)))
        if self.profile.growth:
            self.workers.append(MembershipChanger(self))

    def _on_clients(self, function: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = self.loop.create_task(function())
        task.add_done_callback(self._on_client_done)
        return task

    def _on_client_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.world.break_rule("no-bug", f"a client failed: {error!r}")

    def _wait(self, done: Callable[[], bool], patience_us: int, what: str) -> None:
        deadline = self.world.now_us + patience_us
        while not done():
            if self.world.now_us >= deadline:
                raise self._stuck(what)
            self.world.run_until(self.world.now_us + 50 * MS)

    def _stuck(self, what: str) -> Violation:
        self.world.break_rule("liveness", f"{what}; {self.invariants.describe()}")
        assert self.world.broken is not None
        return self.world.broken

    # ---- the end --------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Repair all faults; then every client must be able to work."""
        self.world.say("world", "everything is healed")
        self.on_disturbed()
        self.links.reset()
        for node in self.nodes:
            if node.is_retired:
                node.kill()
            else:
                self.faults.repair(node)
        for worker in self.workers:
            worker.healed_us = self.world.now_us
        before = [worker.successes for worker in self.workers]
        self._wait(
            lambda: all(worker.successes > count + 3 for worker, count in zip(self.workers, before, strict=True)),
            HEALING_US,
            "after healing, clients still cannot work",
        )
        for worker in self.workers:
            worker.is_stopping = True
        self._wait(
            lambda: all(task.done() for task in self._tasks), HEALING_US, "unfinished work of clients does not complete"
        )
        self._wait(self.invariants.is_settled, HEALING_US, "replicas do not become identical")

    def _check_end(self) -> None:
        places = self.places if self.leases is None else self.places + self.leases.places
        readers: list[Worker] = [Reader(self.world, self, self.history, places)]
        if self.leases is not None and (letters := self.leases.reader()) is not None:
            readers.append(letters)
        tasks = [self._on_clients(reader.run) for reader in readers]
        self._wait(lambda: all(task.done() for task in tasks), HEALING_US, "the records cannot be read at the end")
        # Sessions of stopped members have expired in the meantime, and their coordinator has logged that.
        self._wait(self.invariants.is_settled, HEALING_US, "replicas do not become identical again")
        self.invariants.check_end()
        for worker in self.workers:
            worker.check_end(self.live_nodes)
        if self.leases is not None:
            self.leases.check_end()
        for rule, text in self.history.violations():
            self.world.break_rule(rule, text)
        if self.world.broken is not None:
            raise self.world.broken

    # ---- around a run ---------------------------------------------------------------------------

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Capture what the broker logs, and make snapshots frequent enough to matter."""
        logger = logging.getLogger("drmq")
        handler = _LogCapture(self)
        level, propagates, after_bytes = logger.level, logger.propagate, machine_log.SNAPSHOT_AFTER_BYTES
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if self.world.is_printed else logging.WARNING)
        logger.propagate = False
        machine_log.SNAPSHOT_AFTER_BYTES = _SNAPSHOT_AFTER_BYTES
        try:
            yield
        finally:
            machine_log.SNAPSHOT_AFTER_BYTES = after_bytes
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagates
            for loop in [self.loop, *(node.loop for node in self.nodes if node.is_running)]:
                loop.die()
            logging.disable()
            for loop in self.world.dead_loops:
                loop.bury()
            logging.disable(logging.NOTSET)

    def running_node_name(self) -> str:
        """The name of the node whose event is running."""
        running = asyncio._get_running_loop()
        for node in self.nodes:
            if node.is_running and node.loop is running:
                return node.name
        return "?"


class _LogCapture(logging.Handler):
    """Adds log lines to the story, and treats a logged traceback as a violation."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def emit(self, record: logging.LogRecord) -> None:
        who = self._cluster.running_node_name()
        world = self._cluster.world
        text = record.getMessage()
        world.say(who, f"{record.levelname.lower()}: {text}")
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            frames = []
            trace = error.__traceback__
            while trace is not None:
                frames.append(f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}")
                trace = trace.tb_next
            world.break_rule("no-bug", f"{who}: {text}: {error!r} at {' '.join(frames[-4:])}")


__all__ = ["CLIENTS", "Cluster"]
