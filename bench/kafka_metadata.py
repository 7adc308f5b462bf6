"""Metadata of Kafka's protocol, requested over a plain socket: leaders and in-sync replicas.

An administrative client takes seconds to notice that a node is gone, and keeps what it knew.
Measurements of failover and start want to know what a node says at this moment.
"""

import socket
import struct
from dataclasses import dataclass

from bench.kafka_frames import CLIENT_ID, METADATA, frame, string

TIMEOUT_SECONDS = 2.0
_PARTITION = struct.Struct(">hii")


@dataclass(frozen=True)
class PartitionState:
    """One partition, as the node that was asked sees it."""

    leader: int
    """A node, or -1."""
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """A node's view of the cluster and of one topic."""

    ports: dict[int, int]
    """Of the nodes it counts as alive."""
    controller: int
    partitions: dict[int, PartitionState]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, form: str) -> int:
        value = struct.unpack_from(">" + form, self._data, self._at)[0]
        self._at += struct.calcsize(">" + form)
        return int(value)

    def text(self) -> str:
        size = max(0, self.take("h"))
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def numbers(self) -> tuple[int, ...]:
        count = self.take("i")
        self._at += 4 * count
        return struct.unpack_from(f">{count}i", self._data, self._at - 4 * count)

    def partition(self) -> tuple[int, PartitionState]:
        _error, index, leader = _PARTITION.unpack_from(self._data, self._at)
        self._at += _PARTITION.size
        return index, PartitionState(leader, self.numbers(), self.numbers())


def ask(port: int, topic: str, timeout_seconds: float = TIMEOUT_SECONDS) -> Metadata:
    """What the node on `port` says about `topic`; raises OSError if it does not answer."""
    request = struct.pack(">hhi", METADATA, 1, 1) + string(CLIENT_ID) + struct.pack(">i", 1) + string(topic)
    return _parse(exchange(port, request, timeout_seconds))


def exchange(port: int, request: bytes, timeout_seconds: float) -> bytes:
    """The answer to one request on a connection of its own, without its length."""
    with socket.create_connection(("127.0.0.1", port), timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        connection.sendall(frame(request))
        size = struct.unpack(">i", _receive(connection, 4))[0]
        return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the node closed the connection instead of answering")
        data += part
    return bytes(data)


def _parse(data: bytes) -> Metadata:
    reader = _Reader(data)
    reader.take("i")
    ports = {}
    for _ in range(reader.take("i")):
        node, _host = reader.take("i"), reader.text()
        ports[node] = reader.take("i")
        reader.text()
    controller = reader.take("i")
    partitions: dict[int, PartitionState] = {}
    for _ in range(reader.take("i")):
        reader.take("h")
        reader.text()
        reader.take("b")
        partitions.update(reader.partition() for _ in range(reader.take("i")))
    return Metadata(ports, controller, partitions)
