"""What a broker does not decide for itself: threads, chance, and the way to its peers.

A node in a process has a writer thread, a small pool, the system's randomness and sockets. The simulator
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

OpenNetwork = Callable[[Callable[[], Identity], PeerHandler, Clock, str, int], Awaitable[tuple[Network, int]]]
"""Listen for peers on a host and a port; the network, and the port that was bound."""

_BLOCKING_THREADS = 4


async def _open_sockets(
    identity: Callable[[], Identity], handler: PeerHandler, clock: Clock, host: str, port: int
) -> tuple[Network, int]:
    network = PeerNetwork(identity, handler, PeerOptions(), clock)
    _, bound = await network.open(host, port)
    return network, bound


def _threads() -> Executor:
    return ThreadPoolExecutor(_BLOCKING_THREADS, "drmq-blocking")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside a broker that it needs beside its disk and its clocks."""

    random: Random = field(default_factory=SystemRandom)
    """For ids that must never repeat, and for what must differ between nodes."""
    pool: Executor = field(default_factory=_threads)
    """For what may wait for the disk and has no place in the order of a log's changes."""
    make_writer: Callable[[WriterEvents], Writer] = Writer
    open_network: OpenNetwork = _open_sockets
