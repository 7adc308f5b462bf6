"""The receiver that belongs to the limit: asks for the whole file, and counts its bytes."""

import socket
import struct

from bench.clients import Clock, Report, Task, main
from bench.kafka_frames import FETCH, frame

BUFFER_SIZE = 1 << 20


def consume(task: Task) -> Report:
    """Receive everything into one reused buffer."""
    buffer = bytearray(BUFFER_SIZE)
    with socket.create_connection(("127.0.0.1", task.port), timeout=30) as connection:
        clock = Clock()
        connection.sendall(frame(struct.pack(">hhi", FETCH, 4, 0) + bytes(4)))
        head = connection.recv(8, socket.MSG_WAITALL)
        left = struct.unpack(">q", head)[0]
        if left < task.records_max * task.record_size:
            raise SystemExit(f"the file holds {left} bytes, fewer than {task.records_max} records")
        while left:
            count = connection.recv_into(buffer)
            if not count:
                raise SystemExit(f"the limit closed the connection with {left} bytes to go")
            left -= count
        return clock.report(task.records_max)


if __name__ == "__main__":
    main(None, consume)
