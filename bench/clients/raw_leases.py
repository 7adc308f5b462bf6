"""A bare client of lease groups: leases records with LeaseFetch and acknowledges them, with as little work as possible.

    from bench.clients.raw_leases import lease_and_acknowledge
    result = lease_and_acknowledge("127.0.0.1:9092", "bench", "raw", messages=200_000, per_request=100)
    result.messages, result.requests, result.seconds, result.cpu_seconds

`lease_and_acknowledge` joins as `members` members, each with a connection of its own to one node, which must lead all
partitions of the topic, and works until `messages` records are leased and accepted. There must be as many. It returns
a `RawLeases`. Requests are put together from bytes that were encoded before, and of an answer only the numbers are
read that the next request needs: what this measures is the other side.

`per_request` is the number of acknowledgements in one request. With more than one, a request acknowledges what an
earlier one has leased, and leases as many again; each member has a few such requests in flight. With one, each record
is acknowledged by a request of its own, and records are leased `take_count` at a time. `is_one_by_one` lists each
record in a request by itself, and not as a run of offsets.
"""

import itertools
import resource
import selectors
import socket
import struct
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from bench.kafka_frames import CLIENT_ID, string

LEASE_FETCH, SHARE_GROUP_HEARTBEAT, METADATA = 12_001, 76, 3
ACCEPT = 1
WAIT_MS, BYTES_MAX = 1_000, 16_000_000
TIMEOUT_SECONDS = 60.0
IN_FLIGHT_MAX = 100
"""Requests of one connection. A broker reads no more than 128."""
CHAINS = 4
"""Requests in flight that acknowledge many records each. With 16 members and 100 records each, these are more than a
group leases of one partition at a time."""

_ROW = struct.Struct(">qqbqqB")
_HEAD = struct.Struct(">hhi")
_LIMITS = struct.Struct(">iii")
_FIXED = struct.Struct(">iBihBiB16sBihBhBBiiBqi")
"""An answer with one partition, no error and no refusal, up to its deliveries."""
_DELIVERY = struct.Struct(">qqhB")


@dataclass(frozen=True)
class RawLeases:
    """What was done."""

    messages: int
    """Leased and accepted."""
    requests: int
    """Answered, of all kinds."""
    seconds: float
    cpu_seconds: float
    """Of this process."""


class LeaseError(Exception):
    """The broker has refused something."""


def lease_and_acknowledge(
    address: str,
    topic: str,
    group: str,
    *,
    messages: int,
    per_request: int,
    members: int = 1,
    partitions: int = 1,
    take_count: int = 500,
    is_one_by_one: bool = True,
    seconds_max: float = 120.0,
) -> RawLeases:
    """Lease `messages` records and accept them. Raises `LeaseError`, also if that takes longer than `seconds_max`."""
    topic_id = find_topic_id(address, topic)
    lanes = [
        Lane(address, group, topic_id, number % partitions, per_request, take_count, is_one_by_one)
        for number in range(members)
    ]
    selector = selectors.DefaultSelector()
    cpu, began = _cpu_now(), time.perf_counter()
    for lane in lanes:
        selector.register(lane.socket, selectors.EVENT_READ, lane)
        lane.begin()
    done = 0
    while done < messages:
        for key, _ in selector.select(1.0):
            key.data.receive()
        done = sum(lane.accepted for lane in lanes)
        if time.perf_counter() - began > seconds_max:
            raise LeaseError(f"{done} of {messages} records were accepted within {seconds_max:.0f} s")
    result = RawLeases(done, sum(lane.answered for lane in lanes), time.perf_counter() - began, _cpu_now() - cpu)
    for lane in lanes:
        lane.socket.close()
    return result


def find_topic_id(address: str, topic: str) -> bytes:
    """The id of a topic, from Metadata version 12."""
    body = b"\x02" + bytes(16) + compact(topic) + b"\0" + b"\0" + b"\0" + b"\0"
    with connect(address) as connection:
        connection.sendall(_frame(METADATA, 12, 0, body))
        answer = _read_frame(connection)
    at = answer.find(compact(topic))
    if at < 0 or answer[at - 2 : at] != b"\0\0":
        raise LeaseError(f"there is no topic {topic!r} at {address}")
    at += 1 + len(topic)
    return answer[at : at + 16]


def begin_group(address: str, topic: str, group: str, partition: int = 0) -> None:
    """Have a group begin in a partition: without a setting it begins at the end of the log."""
    lane = Lane(address, group, find_topic_id(address, topic), partition, 1, 1, False)
    lane.socket.setblocking(True)
    # A shard may have no leader yet.
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        lane.socket.sendall(lane.request(b"", 0, 1, 0))
        try:
            lane.read_answer(_read_frame(lane.socket))
            break
        except LeaseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    lane.socket.close()


def compact(text: str) -> bytes:
    """A text of less than 127 bytes behind its length plus one."""
    assert len(text) < 127, text
    return bytes([len(text) + 1]) + text.encode()


def connect(address: str) -> socket.socket:
    """A connection that sends at once."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Lane:
    """One member with its connection."""

    def __init__(
        self,
        address: str,
        group: str,
        topic_id: bytes,
        partition: int,
        per_request: int,
        take_count: int,
        is_one_by_one: bool,
    ) -> None:
        self.socket = connect(address)
        self.member = str(uuid.uuid4())
        self.accepted = 0
        self.answered = 0
        self._per_request = per_request
        self._take_count = take_count if per_request == 1 else per_request
        self._is_one_by_one = is_one_by_one
        self._start = compact(group) + compact(self.member)
        self._place = b"\x02" + topic_id + b"\x02" + struct.pack(">i", partition)
        self._received = bytearray()
        self._open: Iterator[bytes] = iter(())
        """Requests that acknowledge one record each, and are not sent yet."""
        self._counts: list[int] = []
        """Acknowledgements in each request that is not answered, the oldest first."""
        self._number = itertools.count()

    def begin(self) -> None:
        self.socket.setblocking(False)
        for _ in range(CHAINS if self._per_request > 1 else 1):
            self._send(self.request(b"", 0, self._take_count, WAIT_MS), 0)

    def request(self, rows: bytes, row_count: int, take_count: int, wait_ms: int) -> bytes:
        limits = _LIMITS.pack(wait_ms, BYTES_MAX, take_count)
        takes = b"\x01" if take_count else b"\0"
        body = self._start + limits + self._place + takes + _varuint(row_count + 1) + rows + b"\0\0\0"
        return _frame(LEASE_FETCH, 0, next(self._number) & 0x7FFFFFFF, body)

    def _send(self, request: bytes, count: int) -> None:
        self._counts.append(count)
        # A request is far smaller than the buffer of a socket, and only some are in flight.
        sent = self.socket.send(request)
        if sent < len(request):
            self.socket.setblocking(True)
            self.socket.sendall(request[sent:])
            self.socket.setblocking(False)

    def receive(self) -> None:
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        if not data:
            raise LeaseError("the broker closed the connection")
        received = self._received
        received += data
        at = 0
        found: list[tuple[int, int, int]] = []
        while len(received) - at >= 4:
            size = int.from_bytes(received[at : at + 4], "big")
            if len(received) - at - 4 < size:
                break
            leased = self.read_answer(memoryview(received)[at + 4 : at + 4 + size])
            self.accepted += self._counts.pop(0)
            self.answered += 1
            at += 4 + size
            if self._per_request > 1:
                rows = [_ROW.pack(first, last, ACCEPT, -1, token, 0) for first, last, token in self._runs(leased)]
                count = sum(last - first + 1 for first, last, _ in leased)
                self._send(self.request(b"".join(rows), len(rows), self._take_count, WAIT_MS), count)
            else:
                found += leased
        del received[:at]
        if self._per_request == 1:
            self._settle_each(found)

    def _settle_each(self, found: list[tuple[int, int, int]]) -> None:
        if found:
            self._open = itertools.chain(
                self._open,
                (self.request(_ROW.pack(n, n, ACCEPT, -1, token, 0), 1, 0, 0) for n, _, token in self._each(found)),
            )
        some = list(itertools.islice(self._open, max(0, IN_FLIGHT_MAX - len(self._counts))))
        if some:
            self._counts += [1] * (len(some) - 1)
            self._send(b"".join(some), 1)
        if not self._counts:
            self._send(self.request(b"", 0, self._take_count, WAIT_MS), 0)

    def _runs(self, found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        return list(self._each(found)) if self._is_one_by_one else found

    def _each(self, found: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        return ((n, n, token) for first, last, token in found for n in range(first, last + 1))

    def read_answer(self, answer: bytes | memoryview) -> list[tuple[int, int, int]]:
        """The runs of offsets that were leased, each with the token."""
        fields = _FIXED.unpack_from(answer)
        error, partition_error, settle_error, refusals = fields[3], fields[10], fields[12], fields[14]
        if error or partition_error or settle_error or refusals != 1:
            raise LeaseError(f"error {error}, {partition_error}, {settle_error}, refusals {refusals - 1}: {fields}")
        token = fields[18]
        count, at = _read_varuint(answer, _FIXED.size)
        end = at + (count - 1) * _DELIVERY.size
        return [(first, last, token) for first, last, _, _ in _DELIVERY.iter_unpack(answer[at:end])]


def _frame(api_key: int, version: int, number: int, body: bytes) -> bytes:
    data = _HEAD.pack(api_key, version, number) + string(CLIENT_ID) + b"\0" + body
    return struct.pack(">i", len(data)) + data


def _read_frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(size, socket.MSG_WAITALL)


def _varuint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varuint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _cpu_now() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
