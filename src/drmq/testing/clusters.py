"""A real cluster inside a test: nodes in threads of this process, on free ports, removed at the end.

    with drmq.testing.cluster(nodes=3) as c:
        producer = Producer({"bootstrap.servers": c.bootstrap_servers})
        c.kill(c.leader("orders", 0))
        producer.produce("orders", b"still here")

The nodes are the same that `drmq server` runs, with their own disks (temporary directories) and real connections
between them. `kill` ends a node as `kill -9` does, without notifying others, and `start` starts it again with its disk,
or with `wiped=True` with an empty one. `pause` and `resume` correspond to SIGSTOP and SIGCONT. `partition` cuts the
connections between groups of nodes, and `heal` restores them; clients still reach every node.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from drmq.broker import BrokerOptions, ClusterOptions, PeerAddress
from drmq.model import GroupId, NodeId
from drmq.server.config import ServerConfig
from drmq.server.node import Node, new_event_loop, open_store
from drmq.server.ports import free_ports
from drmq.testing.arguments import check_number, check_options
from drmq.testing.topics import create_topic

T = TypeVar("T")

_NODES_MAX = 100
_HOST = "127.0.0.1"
_TIMEOUT_S = 30.0


class _Thread:
    """One node and the thread of its event loop."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.node: Node
        self.loop: asyncio.AbstractEventLoop
        self.is_paused = False
        self._resumed = threading.Event()
        self._ready: Future[None] = Future()
        self._ended: asyncio.Event
        self._is_killed = False
        self._thread = threading.Thread(target=self._run, name=f"drmq-node-{config.node_id}", daemon=True)
        self._thread.start()

    def wait_ready(self) -> None:
        try:
            self._ready.result(_TIMEOUT_S)
        except TimeoutError:
            if self._ready.done():
                raise
            raise TimeoutError(
                f"node {self.config.node_id} does not serve after {_TIMEOUT_S:.0f} s; it needs most of the nodes: are "
                "enough of them running, and connected with it (`heal`)?"
            ) from None

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # raised again in `wait_ready`
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self.node = Node(self.config, open_store(self.config))
        starting = asyncio.ensure_future(self.node.start())
        ending = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        await starting
        self._ready.set_result(None)
        await ending
        await (self.node.crash() if self._is_killed else self.node.stop())

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the node's event loop."""
        result: Future[T] = Future()

        def act() -> None:
            try:
                result.set_result(function())
            except BaseException as error:  # noqa: BLE001  # raised again in the calling thread
                result.set_exception(error)

        self.loop.call_soon_threadsafe(act)
        return result.result(_TIMEOUT_S)

    def pause(self) -> None:
        if not self.is_paused:
            self.is_paused = True
            self._resumed.clear()
            self.loop.call_soon_threadsafe(self._resumed.wait)

    def resume(self) -> None:
        self.is_paused = False
        self._resumed.set()

    def end(self, *, killed: bool) -> None:
        self._is_killed = killed
        self.resume()
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(_TIMEOUT_S)


class Cluster:
    """The nodes of a cluster. Use it as a context manager, or call `start_all` and `stop`."""

    def __init__(
        self, nodes: int = 3, *, options: BrokerOptions | None = None, racks: Mapping[int, str] | None = None
    ) -> None:
        check_number("nodes", nodes, 1, _NODES_MAX)
        check_options(options)
        self.node_ids = tuple(range(1, nodes + 1))
        for node_id in racks or {}:
            self._check_id(node_id)
        self._options = options or BrokerOptions()
        self._racks = dict(racks or {})
        self._directory = Path(tempfile.mkdtemp(prefix="drmq-cluster-"))
        self._threads: dict[int, _Thread] = {}
        self._blocked: set[tuple[int, int]] = set()
        ports = free_ports(_HOST, 2 * nodes)
        self._addresses = {
            NodeId(node_id): PeerAddress(_HOST, ports[2 * at], ports[2 * at + 1])
            for at, node_id in enumerate(self.node_ids)
        }

    def _check_id(self, node_id: int) -> None:
        if node_id not in self.node_ids:
            ids = ", ".join(map(str, self.node_ids))
            raise ValueError(f"there is no node {node_id!r}; the nodes are {ids}")

    def _running(self, node_id: int) -> _Thread:
        self._check_id(node_id)
        if node_id not in self._threads:
            raise RuntimeError(f"node {node_id} is not running; `start({node_id})` starts it")
        return self._threads[node_id]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for Kafka clients: all nodes, running or not."""
        return ",".join(f"{address.host}:{address.port}" for address in self._addresses.values())

    def __enter__(self) -> Self:
        try:
            return self.start_all()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        configs: Mapping[str, str | int] | None = None,
    ) -> str:
        """Create a topic, wait until each partition has a leader, and return its name.

        Without a name it gets one that no other topic has. `replicas` is 3 by default, or the number of nodes if there
        are fewer.
        """
        chosen = create_topic(self.bootstrap_servers, name, partitions=partitions, replicas=replicas, configs=configs)
        for partition in range(partitions):
            self.leader(chosen, partition)
        return chosen

    def start_all(self) -> Self:
        """Start the nodes that do not run. Returns when clients can use all of them."""
        starting = [self._launch(node_id) for node_id in self.node_ids if node_id not in self._threads]
        for thread in starting:
            thread.wait_ready()
        return self

    def stop(self) -> None:
        """Stop all nodes and remove their data."""
        ending = [threading.Thread(target=thread.end, kwargs={"killed": True}) for thread in self._threads.values()]
        for each in ending:
            each.start()
        for each in ending:
            each.join()
        self._threads.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    # ---- faults ---------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """Kill a node: it saves nothing, hands nothing over and notifies no other node."""
        self._running(node_id)
        self._threads.pop(node_id).end(killed=True)

    def stop_node(self, node_id: int) -> None:
        """Stop a node cleanly: it hands over its leaderships first."""
        self._running(node_id)
        self._threads.pop(node_id).end(killed=False)

    def start(self, node_id: int, *, wiped: bool = False) -> None:
        """Start a node that was killed or stopped, with its disk or with an empty one."""
        self._check_id(node_id)
        if node_id in self._threads:
            raise RuntimeError(f"node {node_id} is already running")
        if wiped:
            shutil.rmtree(self._directory / f"node-{node_id}", ignore_errors=True)
        self._launch(node_id).wait_ready()
        self._apply_blocks(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze a node; the other nodes have to detect it."""
        self._running(node_id).pause()

    def resume(self, node_id: int) -> None:
        self._running(node_id).resume()

    def partition(self, *groups: Iterable[int]) -> None:
        """Allow connections only between nodes of the same group. Nodes that are not named form one more group."""
        group_of: dict[int, int] = {}
        for index, group in enumerate(groups):
            if not isinstance(group, Iterable):
                raise TypeError(f"a group is {group!r}, and must be a list of nodes, as in `partition([1], [2, 3])`")
            for node_id in group:
                self._check_id(node_id)
                if group_of.setdefault(node_id, index) != index:
                    raise ValueError(f"node {node_id} is in two groups, and must be in one")
        self._blocked = {
            (one, other)
            for one in self.node_ids
            for other in self.node_ids
            if one != other and group_of.get(one, -1) != group_of.get(other, -1)
        }
        for node_id in self._threads:
            self._apply_blocks(node_id)

    def heal(self) -> None:
        """Restore all connections, and resume paused nodes."""
        self._blocked = set()
        for node_id, thread in self._threads.items():
            thread.resume()
            self._apply_blocks(node_id)

    def _apply_blocks(self, node_id: int) -> None:
        thread = self._threads[node_id]
        if thread.is_paused:
            return
        blocked = {NodeId(other) for one, other in self._blocked if one == node_id}
        thread.call(lambda: thread.node.broker.membership.block(blocked))

    # ---- queries ------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = 10.0) -> int:
        """The leader of a partition, as seen by the running nodes. Waits until there is one."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for node_id, thread in list(self._threads.items()):
                if not thread.is_paused and thread.call(lambda node=thread.node: _leads(node, topic, partition)):  # type: ignore[misc]
                    return node_id
            time.sleep(0.01)
        raise TimeoutError(f"{topic}-{partition} has no leader after {timeout_s:.0f} s")

    def node(self, node_id: int) -> Node:
        """The node itself, for tests that inspect it. Use it only on its own event loop."""
        return self._running(node_id).node

    def call(self, node_id: int, function: Callable[[], T]) -> T:
        """Call a function on a node's event loop, and return its result."""
        return self._running(node_id).call(function)

    # ---- inside ---------------------------------------------------------------------------------

    def _launch(self, node_id: int) -> _Thread:
        own = self._addresses[NodeId(node_id)]
        peers = {other: address for other, address in self._addresses.items() if other != node_id}
        config = ServerConfig(
            node_id=node_id,
            port=own.port,
            data_dir=self._directory / f"node-{node_id}",
            broker=self._options,
            cluster=ClusterOptions(peers=peers, peer_port=own.peer_port, rack=self._racks.get(node_id)),
        )
        thread = self._threads[node_id] = _Thread(config)
        return thread


def cluster(nodes: int = 3, *, options: BrokerOptions | None = None, racks: Mapping[int, str] | None = None) -> Cluster:
    """A cluster for a test: `with drmq.testing.cluster(nodes=3) as c:`."""
    return Cluster(nodes, options=options, racks=racks)


def _leads(node: Node, topic: str, partition: int) -> bool:
    known = node.broker.catalog.topics.get(topic)
    if known is None:
        return False
    found = node.broker.host.get(GroupId(known.topic_id, partition))
    return found is not None and found.is_serving
