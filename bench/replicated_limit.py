"""The bare limit with copies: what sockets, three files and fdatasync allow for three Python processes.

The first process is `bench.limit` with one addition: whatever it receives it also sends, as it
came, to two other `bench.limit`, and it acknowledges a frame once two of the three have it on
disk. So it does what replication cannot do without (every byte is sent twice more and written
three times, and an answer needs a majority) and nothing else: no terms, no elections, no
reading back for a follower that missed something.

Run as `python -m bench.replicated_limit PORT FILE PARTITIONS FOLLOWER_PORT FOLLOWER_PORT`.
"""

import queue
import socket
import struct
import sys
import threading
from collections import deque
from pathlib import Path

from bench.kafka_frames import RESPONSE_SIZE
from bench.limit import Limit, Received
from bench.process import BenchError

CONNECT_TIMEOUT_SECONDS = 10.0
RECEIVE_SIZE = 1 << 16


class Follower:
    """One connection to another limit: frames leave in order, answers are counted."""

    def __init__(self, port: int, leader: "ReplicatedLimit") -> None:
        self._leader = leader
        self._socket = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_SECONDS)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unsent: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self.frames_synced = 0
        for work in (self._send, self._count_answers):
            threading.Thread(target=work, daemon=True).start()

    def _send(self) -> None:
        while True:
            item = self.unsent.get()
            self._socket.sendall(memoryview(item.buffer)[: item.size])
            self._leader.on_buffer_unused(item)

    def _count_answers(self) -> None:
        received = bytearray()
        while data := self._socket.recv(RECEIVE_SIZE):
            received += data
            at = count = 0
            while len(received) - at >= 4:
                size = 4 + struct.unpack_from(">i", received, at)[0]
                if len(received) - at < size:
                    break
                # A client's other requests were passed on as well, and are answered in other sizes.
                count += size == RESPONSE_SIZE
                at += size
            del received[:at]
            self.frames_synced += count
            self._leader.on_progress()
        raise BenchError("a follower of the limit closed its connection")


class ReplicatedLimit(Limit):
    """The limit whose acknowledgements wait for one of two followers."""

    def __init__(self, port: int, path: Path, partition_count: int, follower_ports: list[int]) -> None:
        super().__init__(port, path, partition_count)
        self._lock = threading.Lock()
        self._unacknowledged: deque[tuple[int, Received]] = deque()
        self._users: dict[int, int] = {}
        self._frames_received = 0
        self._frames_synced = 0
        self._followers = [Follower(follower, self) for follower in follower_ports]

    def on_received(self, item: Received) -> None:
        """To the disk and to the followers, all in one order."""
        with self._lock:
            self._frames_received += len(item.acknowledgements) // RESPONSE_SIZE
            self._unacknowledged.append((self._frames_received, item))
            self._users[id(item)] = 1 + len(self._followers)
            for follower in self._followers:
                follower.unsent.put(item)
            super().on_received(item)

    def on_synced(self, items: list[Received]) -> None:
        """On this disk; whether that is enough depends on the followers."""
        self._frames_synced += sum(len(item.acknowledgements) // RESPONSE_SIZE for item in items)
        for item in items:
            self.on_buffer_unused(item)
        self.on_progress()

    def on_buffer_unused(self, item: Received) -> None:
        """One of the three has taken what it needs from the buffer."""
        with self._lock:
            self._users[id(item)] -= 1
            is_free = self._users[id(item)] == 0
            if is_free:
                del self._users[id(item)]
        if is_free:
            self.release(item)

    def on_progress(self) -> None:
        """Acknowledge what a majority has."""
        with self._lock:
            counts = sorted([self._frames_synced, *(follower.frames_synced for follower in self._followers)])
            frames_committed = counts[(len(counts) - 1) // 2]
            while self._unacknowledged and self._unacknowledged[0][0] <= frames_committed:
                self.acknowledge(self._unacknowledged.popleft()[1])


if __name__ == "__main__":
    port, path, partitions, *followers = sys.argv[1:]
    ReplicatedLimit(int(port), Path(path), int(partitions), [int(each) for each in followers]).serve()
