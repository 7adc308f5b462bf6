"""Metadata of Kafka's protocol, requested over a plain socket: leaders and in-sync replicas.

An administrative client takes seconds to notice that a node is gone, and keeps what it knew.
Measurements of failover and start want to know what a node says at this moment.
"""

import socket
import struct
from dataclasses import dataclass

from bench.kafka_frames import CLIENT_ID, METADATA, frame, string

TIMEOUT_SECONDS = 2.0


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
        return tuple(self.take("i") for _ in range(self.take("i")))


def ask(port: int, topic: str) -> Metadata:
    """What the node on `port` says about `topic`; raises OSError if it does not answer."""
    request = struct.pack(">hhi", METADATA, 1, 1) + string(CLIENT_ID) + struct.pack(">i", 1) + string(topic)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        connection.sendall(frame(request))
        size = struct.unpack(">i", _receive(connection, 4))[0]
        return _parse(_receive(connection, size))


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
    partitions = {}
    for _ in range(reader.take("i")):
        reader.take("h")
        reader.text()
        reader.take("b")
        for _ in range(reader.take("i")):
            reader.take("h")
            index, leader = reader.take("i"), reader.take("i")
            partitions[index] = PartitionState(leader, reader.numbers(), reader.numbers())
    return Metadata(ports, controller, partitions)
