"""What broken, slow and hostile clients can cost: a connection, a log line, a bounded amount of memory.

After every attack a healthy client produces and reads. Memory is the resident size of the broker's process.
"""

from __future__ import annotations

import contextlib
import resource
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from drmq.client import Admin
from support.polling import PATIENCE_S, Deadline, eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient
from support.wire import api_versions, batch, fetch, int32, metadata, produce

MEGABYTE = 1024 * 1024
IDLE_CONNECTIONS = 10_000
IDLE_CONNECTIONS_MIN = 2_000
FILES_SPARE = 500
TIMEOUT_MS = 1_000
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(200))
HTTP_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.0\r\n\r\n"

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker with settings: `start_broker(request_receive_timeout_ms=1000)`."""
    with contextlib.ExitStack() as stack:

        def start(**settings: int) -> BrokerProcess:
            env = {f"DRMQ_{name.upper()}": str(value) for name, value in settings.items()}
            broker = stack.enter_context(BrokerProcess(tmp_path / "data", env=env))
            with RawClient(broker.bootstrap) as client:
                client.create_topic("healthy", 1)
            check_health(broker)
            return broker

        yield start


def check_health(broker: BrokerProcess) -> None:
    """Someone else is served: a record goes in and comes out."""
    with RawClient(broker.bootstrap) as client:
        offset = client.produce("healthy", [b"healthy"])
        assert client.fetch("healthy", offset).records == [(offset, b"healthy")]
    assert "Traceback" not in broker.log_text()


def resident_bytes(broker: BrokerProcess) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def connect(broker: BrokerProcess, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S, (source, 0))


def is_closed(connection: socket.socket) -> bool:
    """Wait until the broker hangs up, reading what it still says."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def refused_count(broker: BrokerProcess) -> int:
    """How many connections the broker has closed by itself."""
    with Admin(broker.bootstrap) as admin:
        return sum(sample.value for sample in admin.counters.of(broker.node_id, "drmq_connections_refused_total"))


# ---- requests that are too large, and that never come -------------------------------------------


@pytest.mark.parametrize(
    "length", [0, 1, 7, -1, -(2**31), 2**31 - 1, 104_857_601], ids=lambda length: f"length{length}"
)
def test_impossible_length_closes_the_connection(start_broker: StartBroker, length: int) -> None:
    """Four bytes are enough to refuse a request that is too short, negative or too large."""
    broker = start_broker()
    with connect(broker) as connection:
        connection.sendall(int32(length))
        assert is_closed(connection)
    check_health(broker)
    assert "closed 127.0.0.1" in broker.log_text()
    assert f"a request of {length} bytes" in broker.log_text()


def test_only_produce_may_be_large(start_broker: StartBroker) -> None:
    """A large request of another kind is refused by its first six bytes, with what is allowed in the log."""
    broker = start_broker()
    with connect(broker) as connection:
        connection.sendall(int32(50 * MEGABYTE) + b"\0\x03")
        assert is_closed(connection)
    assert "with api key 3; allowed are 8 to 4194304" in broker.log_text()
    check_health(broker)


def test_request_above_the_maximum_that_was_set(start_broker: StartBroker) -> None:
    """The limit is a setting: below it a request works, above it it closes the connection."""
    broker = start_broker(request_bytes_max=300_000)
    with RawClient(broker.bootstrap) as client:
        assert client.produce("healthy", [bytes(250_000)]) == 1
    with connect(broker) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(produce("healthy", batch([bytes(350_000)]), 1))
        assert is_closed(connection)
    check_health(broker)


@pytest.mark.parametrize("sent", [1, 4, 5, 200, 100_000])
def test_request_that_does_not_come_is_cut_at_the_timeout(start_broker: StartBroker, sent: int) -> None:
    """Wherever a request stops, prefix included, the connection ends once its time is up."""
    broker = start_broker(request_receive_timeout_ms=TIMEOUT_MS)
    request = produce("healthy", batch([bytes(500_000)]), 1)
    with connect(broker) as connection:
        connection.sendall(request[:sent])
        assert is_closed(connection)
    check_health(broker)
    assert "a request was not complete after 1 s" in broker.log_text()


def test_slow_loris(start_broker: StartBroker) -> None:
    """A byte now and then does not extend the time that a request has."""
    broker = start_broker(request_receive_timeout_ms=TIMEOUT_MS)
    request = produce("healthy", batch([b"x" * 5_000]), 1)
    deadline = Deadline()
    with connect(broker) as connection:
        connection.settimeout(0.1)
        for byte in request:
            assert not deadline.passed(), "the connection was never cut"
            try:
                connection.sendall(bytes([byte]))
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert "a request was not complete after 1 s" in broker.log_text()
    check_health(broker)


def test_nothing_is_allocated_because_a_header_said_so(start_broker: StartBroker) -> None:
    """200 connections announce 100 MB each and send ten bytes of it."""
    broker = start_broker()
    before, reserved = resident_bytes(broker), psutil.Process(broker.pid).memory_info().vms
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(connect(broker))
            connection.sendall(int32(100_000_000) + b"\0\0" + bytes(4))
        check_health(broker)
        assert resident_bytes(broker) - before < 50 * MEGABYTE
        assert psutil.Process(broker.pid).memory_info().vms - reserved < 500 * MEGABYTE
    check_health(broker)


def test_frames_that_are_half_sent_share_a_budget(start_broker: StartBroker) -> None:
    """Twenty connections send 2 MB of 3 MB each: what is held stays near the limit, and everyone gets through."""
    limit = 8 * MEGABYTE
    # What is whole waits for the disk, which may be slow: that is memory too, and has a limit of its own.
    broker = start_broker(partial_request_bytes_max=limit, queued_bytes_max=limit)
    with RawClient(broker.bootstrap) as client:
        client.create_topic("large", 1, {"max.message.bytes": "4000000"})
    before = resident_bytes(broker)
    request = produce("large", batch([bytes(3 * MEGABYTE)]), 7, acks=1)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(broker)) for _ in range(20)]
        sent = dict.fromkeys(connections, 0)
        for connection in connections:
            connection.setblocking(False)
        send_until_stuck(sent, request, 2 * MEGABYTE)
        assert resident_bytes(broker) - before < 3 * limit
        check_health(broker)
        # The budget is given to some of them after all, so that all get to their end one after the other.
        deadline = Deadline()
        waiting = set(connections)
        while waiting:
            assert not deadline.passed(), f"{len(waiting)} of 20 requests were never answered"
            send_until_stuck(sent, request, len(request), pause_s=0.05)
            for connection in select.select(list(waiting), [], [], 0.05)[0]:
                assert connection.recv(100)
                waiting.remove(connection)
        assert resident_bytes(broker) - before < 6 * limit
    check_health(broker)


def send_until_stuck(sent: dict[socket.socket, int], request: bytes, upto: int, pause_s: float = 0.3) -> None:
    """Send on every connection as far as `upto`, until none takes a byte for a moment."""
    while True:
        behind = [connection for connection, count in sent.items() if count < upto]
        ready = select.select([], behind, [], pause_s)[1] if behind else []
        if not ready:
            return
        for connection in ready:
            with contextlib.suppress(BlockingIOError):
                sent[connection] += connection.send(request[sent[connection] : upto][:262_144])


# ---- clients that do not read -------------------------------------------------------------------


def test_reader_that_never_reads(start_broker: StartBroker) -> None:
    """Pipelined fetches whose answers nobody takes: bounded memory, others are served, cut at the time-out."""
    broker = start_broker(response_send_timeout_ms=3_000)
    with RawClient(broker.bootstrap) as client:
        client.create_topic("big", 1)
        for _ in range(40):
            client.produce("big", [bytes(900_000)])
    before = resident_bytes(broker)
    with contextlib.ExitStack() as stack:
        greedy = []
        for _ in range(5):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(("127.0.0.1", broker.port))
            connection.settimeout(PATIENCE_S)
            for number in range(120):
                connection.sendall(fetch("big", number % 20, number, wait_ms_max=0, bytes_max=50_000_000))
            greedy.append(connection)
        check_health(broker)
        # An answer holds up to 16 MB here, what the broker gives at most, and one or two are under way for each.
        assert resident_bytes(broker) - before < 5 * 2 * 16 * MEGABYTE + 20 * MEGABYTE
        text = "answers were not read for 3 s"
        eventually(lambda: text in broker.log_text(), what="the broker gives up")
        # All are cut before the check below, which reads: that would save a connection.
        eventually(lambda: refused_count(broker) == len(greedy), what="the broker gives up on all")
        for connection in greedy:
            assert is_closed(connection)
    check_health(broker)
    eventually(
        lambda: resident_bytes(broker) - before, lambda grown: grown < 60 * MEGABYTE, what="memory is given back"
    )


def test_many_readers_that_never_read_get_small_answers(start_broker: StartBroker) -> None:
    """Past half of the limit on unread answers, fetches are answered with one batch: slow readers do not add up.

    (Past the limit there is not even that for anybody, which is another promise: memory comes first.)
    """
    broker = start_broker(response_bytes_max=40 * MEGABYTE, fetch_bytes_max=4 * MEGABYTE)
    with RawClient(broker.bootstrap) as client:
        client.create_topic("big", 1)
        for _ in range(100):
            client.produce("big", [bytes(100_000)])
    before = resident_bytes(broker)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.connect(("127.0.0.1", broker.port))
            for number in range(20):
                connection.sendall(fetch("big", 0, number, wait_ms_max=0, bytes_max=50_000_000))
            check_health(broker)
        assert resident_bytes(broker) - before < 200 * MEGABYTE
    check_health(broker)


def test_flood_of_producers_waits_for_the_disk(start_broker: StartBroker) -> None:
    """More than the disk takes stays in the sockets of its senders: the broker pauses instead of growing."""
    broker = start_broker(queued_bytes_max=4 * MEGABYTE, requests_in_flight_max=8)
    before = resident_bytes(broker)
    request = produce("healthy", batch([bytes(900_000)]), 7)
    total = 12
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(broker)) for _ in range(20)]
        stream = request * total
        sent = dict.fromkeys(connections, 0)
        answered = dict.fromkeys(connections, 0)
        for connection in connections:
            connection.setblocking(False)
        deadline = Deadline()
        highest = 0
        while any(count < total for count in answered.values()):
            assert not deadline.passed(), (sorted(answered.values()), sorted(sent.values()))
            unsent = [connection for connection in connections if sent[connection] < len(stream)]
            readable, writable, _ = select.select(connections, unsent, [], 0.1)
            for connection in writable:
                with contextlib.suppress(BlockingIOError):
                    sent[connection] += connection.send(stream[sent[connection] : sent[connection] + 262_144])
            for connection in readable:
                data = connection.recv(65_536)
                assert data, "the broker closed the connection of a patient producer"
                answered[connection] += data.count(int32(7))
            highest = max(highest, resident_bytes(broker) - before)
    # Each connection may hold one request beyond the queue, and receive buffers are a fixed pool.
    assert highest < 100 * MEGABYTE, f"grew by {highest / MEGABYTE:.0f} MB"
    check_health(broker)


# ---- many connections ---------------------------------------------------------------------------


def raise_file_limit(wanted: int) -> int:
    """How many files this process may have open; as root, as many as wanted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), max(hard, wanted)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_ten_thousand_idle_connections(start_broker: StartBroker) -> None:
    """Idle connections cost a few kilobytes each, and others do not notice them."""
    count = min(IDLE_CONNECTIONS, raise_file_limit(IDLE_CONNECTIONS + FILES_SPARE) - FILES_SPARE)
    if count < IDLE_CONNECTIONS:
        print(f"only {count} connections: this process may not open more files")
    assert count >= IDLE_CONNECTIONS_MIN, f"the limit of open files allows only {count} connections"
    broker = start_broker()
    before = resident_bytes(broker)
    hello = api_versions(0, 1)
    connections: list[socket.socket] = []
    try:
        for number in range(count):
            # One address has fewer ports to connect from than some machines need here.
            connection = connect(broker, f"127.0.0.{2 + number // 4_000}")
            connections.append(connection)
            if number % 10 == 0:
                connection.sendall(hello)
        for connection in connections[::10]:
            assert len(connection.recv(4)) == 4
        grown = resident_bytes(broker) - before
        assert grown < count * 20_000, f"{grown / count:.0f} bytes per connection"
        check_health(broker)
        for connection in connections[:: count // 100]:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while connection.recv(65_536):
                    pass
                raise AssertionError("an idle connection was closed")
        connections[-1].setblocking(True)
        connections[-1].sendall(hello)
        assert len(connections[-1].recv(4)) == 4
        print(f"{count} idle connections: {grown / count:.0f} bytes each")
    finally:
        for connection in connections:
            connection.close()
    check_health(broker)


def test_limit_of_connections(start_broker: StartBroker) -> None:
    """Those beyond the limit are closed at once; when one of the others leaves there is room again."""
    broker = start_broker(connections_max=20)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(broker)) for _ in range(20)]
        for number, connection in enumerate(connections):
            connection.sendall(api_versions(0, number))
            assert len(connection.recv(4)) == 4
        for _ in range(100):
            with connect(broker) as extra:
                assert is_closed(extra)
        connections[0].sendall(api_versions(0, 1))
        assert connections[0].recv(4)
    eventually(lambda: _serves(broker), what="room for a new connection")
    assert broker.log_text().count("which is the limit") == 1


def _serves(broker: BrokerProcess) -> bool:
    try:
        check_health(broker)
    except ConnectionError:
        return False
    return True


def test_idle_connections_are_closed_after_a_while(start_broker: StartBroker) -> None:
    """Silence ends a connection, a long poll does not count as silence."""
    broker = start_broker(idle_timeout_ms=1_500)
    with connect(broker) as silent, RawClient(broker.bootstrap) as polling:
        number = polling.next_id()
        polling.connection.send(fetch("healthy", 1, number, wait_ms_max=6_000))
        assert is_closed(silent)
        assert polling.connection.receive().int32() == number


# ---- many partitions, few descriptors -----------------------------------------------------------


class WithFewFiles(BrokerProcess):
    """A broker that may open few files."""

    open_files = 512

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {self.open_files}; exec "$0" "$@"', *super().command]


def catches_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_many_partitions_need_few_descriptors(tmp_path: Path) -> None:
    """A node with more partitions than descriptors is created, serves, is killed, starts and stops as any other."""
    partitions = 300
    few = WithFewFiles(tmp_path / "data")
    with few as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("healthy", 1)
            client.create_topic("many", partitions)
            offsets = [client.produce("many", [b"value"], partition=index) for index in range(partitions)]
        assert offsets == [0] * partitions
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(connect(broker)).sendall(api_versions(0, 1))
            check_health(broker)
        assert psutil.Process(broker.pid).num_fds() < few.open_files
        broker.kill()
        broker.start()
        eventually(lambda: catches_sigterm(broker.pid), what="the process handles signals", timeout_s=60)
        assert broker.terminate(60) == 0, "a node that opens its partitions obeys"
        broker.start().wait_ready(60)
        check_health(broker)
        with RawClient(broker.bootstrap) as client:
            for index in range(0, partitions, 7):
                assert client.fetch("many", 0, partition=index).records == [(0, b"value")]
        assert broker.terminate() == 0
        assert "is stopped" not in broker.log_text()


def test_a_node_that_may_open_too_few_files_says_so(tmp_path: Path) -> None:
    broker = WithFewFiles(tmp_path / "data")
    broker.open_files = 100
    with pytest.raises(Exception, match="may open 100 files"):
        broker.start().wait_ready()


# ---- rubbish ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rubbish",
    [HTTP_GET, TLS_HELLO, b"\0" * 5_000, b"\xff" * 5_000, b"SSH-2.0-OpenSSH_9.2\r\n", bytes(range(256)) * 40],
    ids=["http", "tls", "zeros", "ones", "ssh", "bytes"],
)
def test_other_protocols_are_refused(start_broker: StartBroker, rubbish: bytes) -> None:
    """Whatever is not Kafka ends its own connection and nothing else."""
    broker = start_broker(request_receive_timeout_ms=TIMEOUT_MS)
    with connect(broker) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(rubbish)
        assert is_closed(connection)
    check_health(broker)


def test_a_flood_of_rubbish_is_logged_once(start_broker: StartBroker) -> None:
    """A thousand bad connections make one line, and a count when the broker stops."""
    broker = start_broker()
    for number in range(1_000):
        with connect(broker) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall((HTTP_GET, TLS_HELLO, b"\xff" * 50)[number % 3])
            assert is_closed(connection)
    check_health(broker)
    lines = broker.log_text().splitlines()
    assert len([line for line in lines if "closed 127.0.0.1" in line]) <= 5, lines[-10:]
    assert len(lines) < 30
    assert broker.terminate() == 0
    counted = [line for line in broker.log_text().splitlines() if "more" in line and "99" in line]
    assert counted, broker.log_text()


def test_unknown_apis_and_versions_flood_nothing(start_broker: StartBroker) -> None:
    """Requests for APIs and versions that do not exist close their connection, without a line each."""
    broker = start_broker()
    for key in [*range(120), 32_767, -1]:
        for version in (-1, 99, 32_767):
            with connect(broker) as connection:
                head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
                connection.sendall(int32(10) + head + int32(7) + b"\xff\xff")
                if key == 18:
                    continue  # answered in any version, if the rest is sound: see the conformance tests
                assert is_closed(connection), (key, version)
    check_health(broker)
    assert len(broker.log_text().splitlines()) < 30


def test_abandoned_requests_leave_nothing_behind(start_broker: StartBroker) -> None:
    """Clients that ask and hang up at once: a thousand parked fetches, half requests and unread answers."""
    broker = start_broker()
    before = resident_bytes(broker)
    for number in range(1_500):
        with connect(broker) as connection:
            connection.sendall(
                (fetch("healthy", 1, 1, wait_ms_max=60_000), metadata(None, 1, 1), int32(5_000_000) + b"\0\0")[
                    number % 3
                ]
            )
    check_health(broker)

    def open_files() -> int:
        return int(psutil.Process(broker.pid).num_fds())

    eventually(open_files, lambda count: count < 200, what="sockets are closed")
    assert resident_bytes(broker) - before < 30 * MEGABYTE


def test_time_is_bounded_too(start_broker: StartBroker) -> None:
    """A request that claims two billion elements is refused as fast as any other."""
    broker = start_broker()
    body = int32(2**31 - 1) + b"\0\x01x" * 10
    request = int32(2 + 2 + 4 + 2 + len(body)) + b"\0\x03\0\x01" + int32(1) + b"\xff\xff" + body
    before = resident_bytes(broker)
    for _ in range(50):
        with connect(broker) as connection:
            connection.sendall(request)
            assert is_closed(connection)
    assert resident_bytes(broker) - before < 20 * MEGABYTE
    check_health(broker)
