"""What a broker does not decide for itself: threads, chance, and the way to its peers.

A node in a process has a writer thread, small pools, the system's randomness and sockets. The simulator
hands in others, which do the same things in an order that follows from one seed.
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
"""Listen for peers on a host and a port; the network, and the port that was bound."""

_CLIENT_THREADS = 4
_FOLLOWER_THREADS = 2
_REPLICA_THREADS = 4
_SNAPSHOT_THREADS = 1
"""Each computes for seconds, and shares the interpreter with the event loop."""


async def _open_sockets(
    identity: Callable[[], Identity], handler: PeerHandler, options: PeerOptions, clock: Clock, host: str, port: int
) -> tuple[Network, int]:
    network = PeerNetwork(identity, handler, options, clock)
    _, bound = await network.open(host, port)
    return network, bound


@dataclass(frozen=True, slots=True)
class Pools:
    """Threads for what may wait for the disk and has no place in the order of a log's changes.

    Whoever waits has a pool of their own, so that a thousand partitions that are being made, or a follower that lags,
    cost a client nothing. What can wait in each is bounded by those who ask: connections by the requests that they may
    have open, groups by one read for their followers and one snapshot, and replicas are made for one topic at a time.
    """

    clients: Executor = field(default_factory=lambda: ThreadPoolExecutor(_CLIENT_THREADS, "drmq-clients"))
    """What clients ask to be read."""
    followers: Executor = field(default_factory=lambda: ThreadPoolExecutor(_FOLLOWER_THREADS, "drmq-followers"))
    """What replicas on other nodes have missed and the page cache does not have."""
    replicas: Executor = field(default_factory=lambda: ThreadPoolExecutor(_REPLICA_THREADS, "drmq-replicas"))
    """Making, opening and removing replicas of this node, and notes about them."""
    snapshots: Executor = field(default_factory=lambda: ThreadPoolExecutor(_SNAPSHOT_THREADS, "drmq-snapshots"))
    """Whole snapshots, of which some are large: reading them for followers, and decoding those that were received."""

    def shutdown(self) -> None:
        """Wait for what has begun, and end the threads."""
        # A snapshot that is on its way is sent again to the next life of this node, or by the next leader.
        self.snapshots.shutdown(cancel_futures=True)
        for pool in (self.clients, self.followers, self.replicas):
            pool.shutdown()


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside a broker that it needs beside its disk and its clocks."""

    random: Random = field(default_factory=SystemRandom)
    """For ids that must never repeat, and for what must differ between nodes."""
    pools: Pools = field(default_factory=Pools)
    make_writer: Callable[[WriterEvents], Writer] = Writer
    open_network: OpenNetwork = _open_sockets
