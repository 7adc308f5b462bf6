"""One node: the real broker and the real Kafka server, in a simulated process on a simulated machine.

A node is started many times; each time is a *process run*. Only the disk survives from one to the next, and of
the disk only what was synced: a new run opens it as a new process does. `power_cut` loses the rest, `kill`
loses only the process.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from random import Random

from drmq.broker import Broker, BrokerOptions, ClusterOptions, DiskLogs, PeerAddress
from drmq.broker.environment import Environment, Pools
from drmq.broker.partitions.derived_state import INSTALL_SNAPSHOT
from drmq.broker.replication.replica import Replica
from drmq.kafka import KafkaServer
from drmq.model import DrmqError, NodeId
from drmq.storage import DataDirectory, WriterEvents
from drmq.testing.files import UNLIMITED_BYTES, FakeFiles, PowerCut
from drmq.testing.simulation.disk import SimulatedPool, SimulatedWriter
from drmq.testing.simulation.loop import SimulatedLoop
from drmq.testing.simulation.peers import SimulatedPeers, Switchboard
from drmq.testing.simulation.streams import SimulatedServer, Stream
from drmq.testing.simulation.world import MS, SECOND, World
from drmq.transport.peers import Identity, Network, PeerHandler, PeerOptions

DATA_DIRECTORY = "/data"
JOURNAL_BYTES = 64 << 10
"""Small, so that its two files alternate often."""
OPEN_FILES_MAX = 16
"""Small, so that files are closed and opened again."""
CLIENT_PORT = 9_092
PEER_PORT = 10_092
WALL_START_MS = 1_700_000_000_000
_RACK_COUNT = 3
_PROMOTION_LAG_MAX = 20
"""Small, because logs are small: with the default, every new replica would count as caught up from the start."""
_INSTALL_CHANGES = 24
"""About the number of file changes of an installation."""


def rack_of(number: int) -> str:
    """The rack of a node: as many racks as a partition has replicas, so that each replica has its own."""
    return f"rack-{1 + (number - 1) % _RACK_COUNT}"


class Ending(Enum):
    """How a process ended by itself."""

    POWER_CUT = auto()
    STOPPED = auto()
    FAILED = auto()


class NodeClock:
    """Both clocks of one machine. Only the wall clock can be changed while a process runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wall_ahead_ms = 0
        self.monotonic_ahead_ms = 0
        """The monotonic clocks of two machines have nothing to do with each other."""

    def monotonic_ms(self) -> int:
        return self._world.now_us // MS + self.monotonic_ahead_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self._world.now_us // MS + self.wall_ahead_ms


class SimulatedNode:
    """A machine with a disk, on which a broker may run."""

    def __init__(
        self, world: World, board: Switchboard, node_id: int, founders: int, options: BrokerOptions, chunk_bytes: int
    ) -> None:
        self.world = world
        self.node_id = NodeId(node_id)
        self.name = f"node {node_id}"
        self.clock = NodeClock(world)
        self.files = FakeFiles()
        self.run_number = 0
        self.is_running = False
        self.is_serving = False
        """Whether this process run has joined its cluster."""
        self.is_stopping = False
        self.is_retired = False
        """Whether it was removed from its cluster permanently."""
        self.has_broker = False
        """Whether this process run has created its broker."""
        self.fatal_error: str | None = None
        """The error because of which the last process run ended, if it did."""
        self.greets_as_version_1 = False
        """Whether its next process run greets and registers like a release before feature levels."""
        self.disk_us_max = 600
        """The maximum time of a write or a sync."""
        self._unit_us = 0
        self.disk_is_bad = False
        """A sync has failed: earlier writes may look durable without being so."""
        self.streams: dict[Stream, None] = {}
        self.after_event: Callable[[SimulatedNode], None] = lambda node: None
        """Called after each event of this node, to check the invariants."""
        self.on_end: Callable[[SimulatedNode], None] = lambda node: None
        """Called when a process ends, in whatever way."""
        self.on_dead: Callable[[SimulatedNode, Ending], None] = lambda node, ending: None
        """Called when the node has ended by itself: at a planned power cut during a write, by an error, or cleanly."""
        self.on_built: Callable[[Broker], None] = lambda broker: None
        """Called with the broker of each process run before it starts."""
        self._board = board
        self._options = options
        self._chunk_bytes = chunk_bytes
        self._cluster = ClusterOptions(
            peers={
                NodeId(other): PeerAddress(f"node-{other}", CLIENT_PORT, PEER_PORT)
                for other in range(1, founders + 1)
                if other != node_id
            },
            peer_host=f"node-{node_id}",
            peer_port=PEER_PORT,
            rack=rack_of(node_id),
        )
        self._waiting: list[tuple[str, Callable[[], object]]] = []
        self.loop: SimulatedLoop
        self.broker: Broker
        self.server: KafkaServer
        self.writer: SimulatedWriter
        self.peers: SimulatedPeers | None = None
        self.listener: SimulatedServer | None = None

    def __repr__(self) -> str:
        return self.name

    # ---- lifecycle ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new process with the current content of the disk."""
        assert not self.is_running
        self.run_number += 1
        self.is_running, self.is_serving, self.is_stopping = True, False, False
        self.has_broker = False
        self.world.say(self.name, f"starts (process run {self.run_number})")
        self._waiting = []
        self.loop = SimulatedLoop(self.world, self.name, self._after_turn)  # type: ignore[abstract]
        self.loop.halts = lambda: self.files.is_off
        self.loop.listen = self._listen
        self.loop.unit_us = self._unit_us
        pool = SimulatedPool(self)
        self.loop.executor = pool
        self.listener = None
        self.peers = None
        self.loop.call_soon(self._begin, pool)

    def _begin(self, pool: SimulatedPool) -> None:
        random = Random(self.world.random.getrandbits(64))

        def make_writer(events: WriterEvents) -> SimulatedWriter:
            self.writer = SimulatedWriter(events, self)
            return self.writer

        async def open_network(
            identity: Callable[[], Identity],
            handler: PeerHandler,
            options: PeerOptions,
            clock: object,
            host: str,
            port: int,
        ) -> tuple[Network, int]:
            self.peers = SimulatedPeers(
                self._board, self.loop, identity, handler, options, self.clock.monotonic_ms, lambda: self.files.is_off
            )
            return self.peers, port

        async def live() -> None:
            try:
                directory = DataDirectory(
                    DATA_DIRECTORY,
                    self.node_id,
                    files=self.files,
                    new_id=lambda: random.randbytes(16).hex(),
                    new_secret=lambda: "simulated",
                )
                store = DiskLogs(directory, self.files, JOURNAL_BYTES, OPEN_FILES_MAX)
                environment = Environment(random, Pools(pool, pool, pool, pool, pool), make_writer, open_network)
                cluster = replace(self._cluster, greets_as_version_1=self.greets_as_version_1)
                self.broker = Broker(self.node_id, store, self._options, self.clock, cluster, environment)
                self.broker.host.raft_options = replace(
                    self.broker.host.raft_options,
                    snapshot_chunk_bytes_max=self._chunk_bytes,
                    promotion_lag_max=_PROMOTION_LAG_MAX,
                )
                self._charge_for_replicas(self.broker)
                self.broker.on_fatal = self._on_fatal
                self.on_built(self.broker)
                self.has_broker = True
                self.server = KafkaServer(self.broker)
                await self.broker.start()
                _, port = await self.server.open(f"node-{self.node_id}", CLIENT_PORT)
                self.broker.advertised = (f"node-{self.node_id}", port)
                await self.broker.join()
            except (DrmqError, OSError) as error:
                self._on_fatal(error)
                return
            self.is_serving = True
            self.world.say(self.name, "serves")

        self.loop.create_task(live())

    def _charge_for_replicas(self, broker: Broker) -> None:
        """Let everything that is done for a replica cost a unit of work."""
        guard = broker.host.guard

        def charging(replica: Replica, work: Callable[..., object], *arguments: object) -> None:
            self.loop.charge()
            guard(replica, work, *arguments)

        broker.host.guard = charging  # type: ignore[method-assign]

    def _on_fatal(self, error: BaseException) -> None:
        if self.files.is_off or not self.is_running:
            return
        self.fatal_error = str(error)
        self.world.say(self.name, f"stops because of a fatal error: {error}")
        self.later(0, "fatal", lambda: self.on_dead(self, Ending.FAILED))

    def _listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> SimulatedServer:
        self.listener = SimulatedServer(self.loop, factory, host, port)
        return self.listener

    def _after_turn(self) -> None:
        if self.files.is_off:
            self._lose_power()
        else:
            self.after_event(self)

    def _lose_power(self) -> None:
        if self.is_running:
            self.world.say(self.name, "loses power in the middle of a write")
            self._end(silently=True)
            self.on_dead(self, Ending.POWER_CUT)

    def _end(self, *, silently: bool) -> None:
        self.on_end(self)
        self.is_running = self.is_serving = self.is_stopping = False
        self.loop.die()
        if self.peers is not None and self._board.up.get(self.node_id) is self.peers:
            del self._board.up[self.node_id]
        for stream in list(self.streams):
            stream.die(silently=silently)
        self.streams.clear()

    def power_cut(self) -> None:
        """The machine loses power now. The disk keeps what was synced, and a random part of the rest."""
        if self.is_running:
            self._end(silently=True)
        self.files = self.files.after_power_cut(self.world.random.getrandbits(32))
        self.disk_is_bad = False

    def power_cut_soon(self) -> None:
        """The machine loses power during one of its next writes."""
        self.files.crash_at = self.files.step + 1 + self.world.random.randrange(30)

    def power_cut_while_installing(self) -> None:
        """The machine loses power between two steps of the next installation of a snapshot."""
        self.files.crash_near(f"/{INSTALL_SNAPSHOT}-", 1 + self.world.random.randrange(_INSTALL_CHANGES))

    def kill(self) -> None:
        """The process is killed, but the machine keeps running: nothing that was written is lost."""
        if self.is_running:
            self._end(silently=False)
        if self.disk_is_bad:
            self.power_cut()
        else:
            self.files = self.files.after_kill()

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        if self.is_running:
            self._end(silently=True)
        self.files.is_off = True
        self.files = FakeFiles()
        self.disk_is_bad = False

    def stop(self) -> None:
        """Shut down cleanly, as on SIGTERM."""
        if not self.is_serving or self.is_stopping:
            return
        self.is_stopping = True

        async def ending() -> None:
            await self.broker.hand_over()
            await self.server.close()
            await self.broker.stop()
            if self.peers is not None:
                self.peers.close()
            self.later(0, "stopped", self._on_stopped)

        self.loop.call_soon(lambda: self.loop.create_task(ending()))

    def _on_stopped(self) -> None:
        self.world.say(self.name, "has stopped cleanly")
        self._end(silently=False)
        if self.disk_is_bad:
            self.power_cut()
        else:
            self.files = self.files.after_kill()
        self.on_dead(self, Ending.STOPPED)

    # ---- faults ---------------------------------------------------------------------------------

    def starve(self, unit_us: int) -> None:
        """From now on each unit of work costs that much time."""
        self._unit_us = unit_us
        if self.is_running:
            self.loop.unit_us = unit_us

    def pause(self) -> None:
        self.loop.pause()

    def resume(self) -> None:
        """Resume as if nothing had happened."""
        if not self.is_running or not self.loop.is_paused:
            return
        self.loop.resume()
        waiting, self._waiting = self._waiting, []
        for name, event in waiting:
            self.later(0, name, event)

    def fill_disk(self) -> None:
        used = UNLIMITED_BYTES - self.files.free_bytes("/")
        self.files.capacity_bytes = used + self.world.random.randrange(2_000)

    def free_disk(self) -> None:
        self.files.capacity_bytes = UNLIMITED_BYTES

    def fail_sync(self) -> None:
        self.disk_is_bad = True
        self.files.fail("sync", errno.EIO, path_part=".log", fail_count=1)

    # ---- disk.Machine ---------------------------------------------------------------------------

    def disk_delay_us(self) -> int:
        return 20 + self.world.random.randrange(self.disk_us_max)

    def later(self, delay_us: int, name: str, event: Callable[[], object]) -> None:
        run_number = self.run_number

        def meet() -> None:
            if not self.is_running or self.run_number != run_number:
                return
            if self.loop.is_paused:
                self._waiting.append((name, event))
                return
            with suppress(PowerCut):
                event()
            if self.files.is_off:
                self._lose_power()

        self.world.later(delay_us, name, meet)


__all__ = ["CLIENT_PORT", "SECOND", "Ending", "NodeClock", "SimulatedNode", "rack_of"]
