"""A small Kafka client on the simulated streams: real requests and responses, with a real client's timeouts.

It finds leaders by asking any node for metadata, and never returns to a leader of an older epoch, as real clients do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from drmq.model import ErrorCode
from drmq.testing.simulation.history import Place
from drmq.wire import read_response, write_request
from drmq.wire.fields import spec_of
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest
from drmq.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA_VERSION = 9
FIND_COORDINATOR_VERSION = 3


class Unavailable(Exception):
    """No response, or an error. The request may have been executed."""


class ClientStream(Protocol):
    """The client's end of a connection."""

    def to_server(self, data: bytes) -> None:
        """Send bytes."""

    def break_off(self, *, by_server: bool) -> None:
        """Close the connection."""


class Connector(Protocol):
    """How a client reaches nodes."""

    @property
    def node_ids(self) -> list[int]:
        """All nodes that a client may know."""

    def connect(self, node: int, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> ClientStream | None:
        """A connection, or None if the node does not listen."""


@dataclass(frozen=True, slots=True)
class Leader:
    node: int
    epoch: int


class Connection:
    """One connection to one node. Responses come in the order of the requests."""

    def __init__(self, connector: Connector, node: int, client_id: str) -> None:
        self.node = node
        self._client_id = client_id
        self._buffer = bytearray()
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._count = 0
        self.is_lost = False
        self._stream = connector.connect(node, self._on_data, self._on_lost)
        self.is_lost = self._stream is None

    def send(self, request: object, version: int) -> asyncio.Future[Any]:
        """Send a request. The future fails with `Unavailable` if the connection breaks."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_lost or self._stream is None:
            future.set_exception(Unavailable("no connection"))
            future.exception()  # mark it as retrieved: it may never be awaited
            return future
        key = spec_of(type(request)).api_key
        self._count += 1
        self._waiting.append((key, version, self._count, future))
        self._stream.to_server(bytes(write_request(key, version, self._count, self._client_id, request)))
        return future

    def send_and_forget(self, request: object, version: int) -> None:
        """Send a request that has no response."""
        if self._stream is not None and not self.is_lost:
            key = spec_of(type(request)).api_key
            self._count += 1
            self._stream.to_server(bytes(write_request(key, version, self._count, self._client_id, request)))

    def _on_data(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            key, version, number, future = self._waiting.popleft()
            correlation_id, response = read_response(key, version, frame)
            assert correlation_id == number, (correlation_id, number)
            if not future.done():
                future.set_result(response)

    def _on_lost(self) -> None:
        self.is_lost = True
        while self._waiting:
            future = self._waiting.popleft()[3]
            if not future.done():
                future.set_exception(Unavailable(f"the connection to node {self.node} is lost"))
                future.exception()

    def close(self) -> None:
        if self._stream is not None and not self.is_lost:
            self._stream.break_off(by_server=False)
        self._on_lost()


class Client:
    """The client of one application: connections, leaders, coordinators."""

    def __init__(self, connector: Connector, name: str, random: Random) -> None:
        self.name = name
        self._doors = connector
        self._random = random
        self._connections: dict[int, Connection] = {}
        self._leaders: dict[Place, Leader] = {}
        self._stale: set[Place] = set()

    def connection(self, node: int) -> Connection:
        connection = self._connections.get(node)
        if connection is None or connection.is_lost:
            connection = self._connections[node] = Connection(self._doors, node, self.name)
        return connection

    def disconnect(self, node: int) -> None:
        """Close a connection, as after a timeout."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    async def ask(self, node: int, request: object, version: int, timeout_s: float = 2.0) -> Any:
        """One request to one node. Raises `Unavailable`."""
        future = self.connection(node).send(request, version)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            self.disconnect(node)
            raise Unavailable(f"node {node} did not answer in {timeout_s} s") from None

    async def ask_any(self, request: object, version: int, timeout_s: float = 2.0) -> Any:
        return await self.ask(self._random.choice(self._doors.node_ids), request, version, timeout_s)

    # ---- leaders --------------------------------------------------------------------------------

    async def leader(self, place: Place) -> Leader:
        """The leader of a partition, as far as it is known. Raises `Unavailable`."""
        if place in self._leaders and place not in self._stale:
            return self._leaders[place]
        request = MetadataRequest([MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=False)
        answer = await self.ask_any(request, METADATA_VERSION)
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.leader_id < 0:
                    continue
                at = Place(place.topic, partition.partition_index)
                known = self._leaders.get(at)
                if known is None or partition.leader_epoch >= known.epoch:
                    self._leaders[at] = Leader(partition.leader_id, partition.leader_epoch)
                    self._stale.discard(at)
        if place not in self._leaders or place in self._stale:
            raise Unavailable(f"{place} has no leader")
        return self._leaders[place]

    def mark_stale(self, place: Place) -> None:
        """The cached leader is wrong or out of date."""
        self._stale.add(place)

    async def coordinator(self, group: str) -> int:
        """The coordinator of a group. Raises `Unavailable`."""
        answer = await self.ask_any(FindCoordinatorRequest(key=group, key_type=0), FIND_COORDINATOR_VERSION, 3.0)
        if answer.error_code != ErrorCode.NONE:
            raise Unavailable(f"no coordinator for {group}: {ErrorCode(answer.error_code).name}")
        return int(answer.node_id)
