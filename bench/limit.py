"""The bare limit: what sockets, a file and fdatasync allow in one Python process.

It accepts what the Kafka clients send and answers that it is on disk, and it is, but it does
nothing else a broker does. For each connection a thread receives into a reused buffer until at
least one whole frame is there, and hands the buffer over. One writer thread takes everything
that was handed over since the last time, writes it to one file exactly as it came, calls
fdatasync once, and then sends one acknowledgement per frame: group commit, as a broker would.

Of a frame it looks at 16 bytes: length, API key, correlation id, and the partition number at
its fixed place, to address the acknowledgement. It checks no checksum, assigns no offset, keeps
no index. ApiVersions and Metadata get canned answers, so that librdkafka can be the sender.

A Fetch frame, whatever it says, is answered by the size of the file in eight bytes and the
whole file by sendfile.

Run as `python -m bench.limit PORT FILE PARTITIONS`.
"""

import contextlib
import os
import queue
import socket
import struct
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from bench import kafka_frames as frames
from bench.workloads import TOPIC

BUFFER_SIZE = 2 * 1024 * 1024
BUFFER_COUNT = 8
LARGE_FRAME_SIZE = 64 * 1024
_START = struct.Struct(">ihhi")
_PARTITION = struct.Struct(">i")
_PARTITION_AT = 4 + 8 + 2 + len(frames.CLIENT_ID) + 2 + 2 + 4 + 4 + 2 + len(TOPIC) + 4


@dataclass(frozen=True)
class Received:
    """A buffer with whole frames, and the acknowledgements they want."""

    connection: socket.socket
    buffer: bytearray
    size: int
    acknowledgements: bytes


class Limit:
    """The file, the buffers, and what waits for the next fdatasync."""

    def __init__(self, port: int, path: Path, partition_count: int) -> None:
        self._port = port
        self._partition_count = partition_count
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._waiting: list[Received] = []
        self._arrival = threading.Condition()
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(BUFFER_COUNT):
            self._free.put(bytearray(BUFFER_SIZE))

    def serve(self) -> None:
        """Accept connections for ever."""
        threading.Thread(target=self._write, daemon=True).start()
        with socket.create_server(("127.0.0.1", self._port)) as listener:
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._receive, args=(connection,), daemon=True).start()

    def _write(self) -> None:
        while True:
            with self._arrival:
                while not self._waiting:
                    self._arrival.wait()
                taken, self._waiting = self._waiting, []
            views = [memoryview(item.buffer)[: item.size] for item in taken]
            for view in views:
                while view:
                    view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
            self.on_synced(taken)

    def on_received(self, item: Received) -> None:
        """Whole frames have arrived, in the order of this call."""
        with self._arrival:
            self._waiting.append(item)
            self._arrival.notify()

    def on_synced(self, items: list[Received]) -> None:
        """These are on disk."""
        for item in items:
            self.release(item)
            self.acknowledge(item)

    def release(self, item: Received) -> None:
        """Let others use the buffer."""
        self._free.put(item.buffer)

    def acknowledge(self, item: Received) -> None:
        """Answer every frame of `item`."""
        # A sender that left is noticed by its connection's own thread.
        with contextlib.suppress(OSError):
            item.connection.sendall(item.acknowledgements)

    def _receive(self, connection: socket.socket) -> None:
        rest = b""
        with connection:
            while True:
                # A connection that is idle must not sit on a buffer, so wait for data first.
                if not rest and not connection.recv(1, socket.MSG_PEEK):
                    return
                buffer = self._free.get()
                view = memoryview(buffer)
                filled = len(rest)
                view[:filled] = rest
                acknowledgements = bytearray()
                end = wanted = 0
                while not end:
                    # A large frame is received exactly to its end: a beginning of the next one
                    # would have to be copied to the next buffer.
                    count = connection.recv_into(view[filled : wanted if wanted > filled else BUFFER_SIZE])
                    if not count:
                        self._free.put(buffer)
                        return
                    filled += count
                    end, wanted = self._scan(connection, view, filled, acknowledgements)
                rest = bytes(view[end:filled])
                if acknowledgements:
                    self.on_received(Received(connection, buffer, end, bytes(acknowledgements)))
                else:
                    self._free.put(buffer)

    def _scan(
        self, connection: socket.socket, view: memoryview, filled: int, acknowledgements: bytearray
    ) -> tuple[int, int]:
        """Where the whole frames end, and where the next one will if it is large (else 0)."""
        at = wanted = 0
        while filled - at >= _START.size:
            size, api_key, api_version, correlation_id = _START.unpack_from(view, at)
            end = at + 4 + size
            if end - at > BUFFER_SIZE:
                raise ValueError(f"a frame of {size} bytes does not fit the buffer")
            if end > filled:
                wanted = end if at == 0 and size >= LARGE_FRAME_SIZE else 0
                break
            if api_key == frames.PRODUCE:
                partition = _PARTITION.unpack_from(view, at + _PARTITION_AT)[0]
                acknowledgements += frames.produce_response(correlation_id, partition)
            else:
                self._answer(connection, api_key, api_version, correlation_id)
            at = end
        return at, wanted

    def _answer(self, connection: socket.socket, api_key: int, api_version: int, correlation_id: int) -> None:
        if api_key == frames.API_VERSIONS and api_version == 0:
            connection.sendall(frames.api_versions_response(correlation_id))
        elif api_key == frames.API_VERSIONS:
            connection.sendall(frames.unsupported_version_response(correlation_id))
        elif api_key == frames.METADATA:
            connection.sendall(frames.metadata_response(correlation_id, self._port, self._partition_count))
        elif api_key == frames.FETCH:
            size = os.fstat(self._file).st_size
            connection.sendall(struct.pack(">q", size))
            sent = 0
            while sent < size:
                sent += os.sendfile(connection.fileno(), self._file, sent, size - sent)
        else:
            raise ValueError(f"the limit has no answer for API {api_key}")


if __name__ == "__main__":
    Limit(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).serve()
