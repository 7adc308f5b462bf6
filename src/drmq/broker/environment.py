"""The environment of a broker: threads, randomness, and the network to its peers.

In a real process these are a writer thread, small thread pools, the system's randomness and sockets. The simulator
injects replacements that do the same things in an order determined by one seed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random, SystemRandom

from drmq.broker.clock import Clock
from drmq.storage import Writer, WriterEvents
from drmq.transport.peers import Identity, Network, PeerHandler, PeerNetwork, PeerOptions

OpenNetwork = Callable[
    [Callable[[], Identity], PeerHandler, PeerOptions, Clock, str, int], Awaitable[tuple[Network, int]]
]
"""Listens for peers on a host and a port; returns the network and the port that was bound."""

_CLIENT_THREADS = 4
_FOLLOWER_THREADS = 2
_REPLICA_THREADS = 4
_CODEC_THREADS = 2
_SNAPSHOT_THREADS = 1
"""One thread, because a task computes for seconds and shares the interpreter lock with the event loop."""


async def _open_sockets(
    identity: Callable[[], Identity], handler: PeerHandler, options: PeerOptions, clock: Clock, host: str, port: int
) -> tuple[Network, int]:
    network = PeerNetwork(identity, handler, options, clock)
    _, bound = await network.open(host, port)
    return network, bound


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads for tasks that may wait for the disk and need no place in the order of a log's changes.

    Each kind of task has its own pool, so that creating a thousand partitions, or a lagging follower, does not delay
    clients. The queue of each pool is bounded by the submitters: a connection has a limited number of open requests, a
    group submits one read for its followers and one snapshot, and replicas are created for one topic at a time.
    """

    clients: Executor = field(default_factory=lambda: ThreadPoolExecutor(_CLIENT_THREADS, "drmq-clients"))
    """Reads for clients."""
    followers: Executor = field(default_factory=lambda: ThreadPoolExecutor(_FOLLOWER_THREADS, "drmq-followers"))
    """Reads for lagging followers, where the data is not in the page cache."""
    replicas: Executor = field(default_factory=lambda: ThreadPoolExecutor(_REPLICA_THREADS, "drmq-replicas"))
    """Creating, opening and removing replicas of this node, and the record of which replicas were created."""
    snapshots: Executor = field(default_factory=lambda: ThreadPoolExecutor(_SNAPSHOT_THREADS, "drmq-snapshots"))
    """Whole snapshots, which may be large: reading them for followers, and decoding received ones."""
    codecs: Executor = field(default_factory=lambda: ThreadPoolExecutor(_CODEC_THREADS, "drmq-codecs"))
    """Recompression of batches for topics that require a codec."""

    def shutdown(self) -> None:
        """Wait for the tasks that have started, and end the threads."""
        # Queued snapshot tasks can be dropped: the snapshot is sent again after a restart, or by the next leader.
        self.snapshots.shutdown(cancel_futures=True)
        for pool in (self.clients, self.followers, self.replicas, self.codecs):
            pool.shutdown()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside a broker that it needs, except its disk and its clocks."""

    random: Random = field(default_factory=SystemRandom)
    """For ids that must never repeat, and for values that must differ between nodes."""
    pools: Pools = field(default_factory=Pools)
    make_writer: Callable[[WriterEvents], Writer] = Writer
    open_network: OpenNetwork = _open_sockets
