"""How a broker ends, and what it makes of its data directory when it begins: in order, or with a clear refusal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from drmq.server.segments import FoundBatch, read_batches
from drmq.storage import LogOptions, SegmentLog
from support.checked import History, Place
from support.checked_clients import QUIET, IdempotentProducer
from support.cluster import ClusterProcesses
from support.journal import empty_journal
from support.polling import PATIENCE_S, eventually
from support.ports import lasting_port
from support.processes import BrokerProcess
from support.raw_client import KAFKA_STORAGE_ERROR, RawClient, RequestFailed, read_produced
from support.wire import batch, fetch, frame, produce

GAVE_UP = "connections closed without all their answers"
"""In the log if the listener has waited in vain for clients to take their answers."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def partition_path(broker: BrokerProcess, topic: str, partition: int = 0) -> Path:
    (path,) = broker.data_dir.glob(f"topics/{topic}.*/{partition}")
    return path


def last_segment(broker: BrokerProcess, topic: str, partition: int = 0) -> Path:
    return max(partition_path(broker, topic, partition).glob("*.log"))


class Pipeline(threading.Thread):
    """Keeps many acks=all requests in flight until the broker hangs up; notes each answer."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        super().__init__(daemon=True)
        self._client = RawClient(bootstrap)
        self._topic = topic
        self._partition = partition
        self.sent: list[bytes] = []
        self.acked: dict[int, bytes] = {}
        self.codes: list[int] = []

    def run(self) -> None:
        connection = self._client.connection
        try:
            while True:
                while len(self.sent) < len(self.acked) + len(self.codes) + 50:
                    value = b"%d-%d" % (self._partition, len(self.sent))
                    self.sent.append(value)
                    number = self._client.next_id()
                    connection.send(produce(self._topic, batch([value]), number, partition=self._partition))
                answer = connection.receive()
                value = self.sent[answer.int32() - 1]
                try:
                    self.acked[read_produced(answer)] = value
                except RequestFailed as error:
                    self.codes.append(error.code)
        except OSError:
            return
        finally:
            self._client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_in_order_under_load(broker: BrokerProcess, number: signal.Signals) -> None:
    """Requests in flight are answered or not, never refused; the exit code is 0; every answer was true."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("load", 3)
    pipelines = [Pipeline(broker.bootstrap, "load", partition) for partition in range(3)]
    for pipeline in pipelines:
        pipeline.start()
    eventually(lambda: min(len(one.acked) for one in pipelines), lambda count: count > 200, what="load")
    os.kill(broker.pid, number)
    eventually(lambda: broker.exit_status(), lambda status: status is not None, what="the end")
    for pipeline in pipelines:
        pipeline.join(PATIENCE_S)
        assert not pipeline.is_alive()
        assert pipeline.codes == []
    text = broker.log_text()
    assert broker.exit_status() == 0, text
    assert f"received {number.name}" in text
    assert "stopped cleanly" in text
    assert "Traceback" not in text
    broker.start().wait_ready()
    with RawClient(broker.bootstrap) as client:
        for partition, pipeline in enumerate(pipelines):
            found = client.fetch_all("load", partition=partition)
            assert {offset: found.get(offset) for offset in pipeline.acked} == pipeline.acked
            assert list(found.values()) == pipeline.sent[: len(found)], "in order, without holes, nothing twice"


def test_ends_at_once_with_parked_requests(broker: BrokerProcess) -> None:
    """A long poll is answered when the broker stops, not waited for."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("parked", 1)
        number = client.next_id()
        client.connection.send(fetch("parked", 0, number, wait_ms_max=600_000))
        assert client.connection.is_silent(0.2)
        assert broker.terminate() == 0
        assert GAVE_UP not in broker.log_text()
        assert client.connection.receive().int32() == number


def test_ends_with_a_rebalance_under_way(tmp_path: Path) -> None:
    """A member that waits for others does not keep the broker from stopping."""
    delay = {"DRMQ_GROUP_INITIAL_REBALANCE_DELAY_MS": "600000"}
    with BrokerProcess(tmp_path / "data", env=delay) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic("joined", 1)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.instance.id": "i", "logger": QUIET}
        )
        try:
            consumer.subscribe(["joined"])

            def joins() -> bool:
                consumer.poll(0.05)
                done = subprocess.run(
                    [*broker.command[:3], "group", "ls", "-b", broker.bootstrap],
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=PATIENCE_S,
                )
                return "PreparingRebalance" in done.stdout or "preparing" in done.stdout.lower()

            eventually(joins, what="the group is preparing a rebalance")
            assert broker.terminate() == 0
            assert GAVE_UP not in broker.log_text()
        finally:
            consumer.close()


def unread_answers(broker: BrokerProcess) -> socket.socket:
    """A client that has asked for megabytes and takes none of them."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("unread", 1)
        for _ in range(18):
            client.produce("unread", [bytes(900_000)])
    greedy = socket.socket()
    greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    greedy.connect(("127.0.0.1", broker.port))
    for number in range(10):
        # One answer is more than all buffers between here and there.
        greedy.sendall(fetch("unread", 0, number, wait_ms_max=0, bytes_max=50_000_000))
    # A request that the broker has not seen yet is none that it would wait for.
    assert greedy.recv(4, socket.MSG_PEEK)
    return greedy


def test_ends_in_spite_of_a_client_that_does_not_read(broker: BrokerProcess) -> None:
    """The broker waits a few seconds for a slow reader, and then goes without it."""
    with unread_answers(broker):
        assert broker.terminate() == 0
    assert GAVE_UP in broker.log_text()
    assert "stopped cleanly" in broker.log_text()


def test_second_signal_ends_at_once(broker: BrokerProcess) -> None:
    """Who does not want to wait says so twice; what was acknowledged is there all the same."""
    with unread_answers(broker):
        os.kill(broker.pid, signal.SIGTERM)
        eventually(lambda: "stopping: " in broker.log_text(), what="the first signal is seen")
        assert broker.terminate() == -signal.SIGTERM
    assert "again: exiting at once" in broker.log_text()
    broker.start().wait_ready()
    with RawClient(broker.bootstrap) as client:
        assert len(client.fetch_all("unread")) == 18


def test_clean_stop_needs_no_walk(broker: BrokerProcess) -> None:
    """After a clean stop only the end of the log is looked at; after SIGKILL what follows the last checkpoint."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("walk", 1)
        for _ in range(300):
            client.produce("walk", [bytes(1_000)])
    path, options = str(partition_path(broker, "walk")), LogOptions()
    broker.terminate()
    recovery = SegmentLog(path, options).recovery
    assert recovery.was_clean
    assert recovery.walked_bytes < 2 * options.index_interval_bytes
    broker.start().wait_ready()
    broker.terminate()
    assert SegmentLog(path, options).recovery.was_clean, "also when nothing was written"
    broker.start().wait_ready()
    with RawClient(broker.bootstrap) as client:
        assert client.produce("walk", [b"more"]) == 300
    broker.kill()
    recovery = SegmentLog(path, options).recovery
    assert not recovery.was_clean
    assert 0 < recovery.walked_bytes < 300_000, "a clean stop is a checkpoint"
    assert recovery.cut_bytes == 0


# ---- refusals -----------------------------------------------------------------------------------


def refused(broker: BrokerProcess, *, node_id: int = 1) -> str:
    """What a second process says that is started on the directory; it must end with code 1."""
    other = BrokerProcess(broker.data_dir, lasting_port(), node_id=node_id)
    other.log_path = broker.data_dir.with_name("other.log")
    other.start()
    try:
        status = eventually(lambda: other.exit_status(), lambda status: status is not None, what="a refusal")
    finally:
        if other.running:
            other.kill()
    text = other.log_text()
    assert status == 1, (status, text)
    assert "Traceback" not in text
    return text


def test_second_process_is_refused(broker: BrokerProcess) -> None:
    """The directory is locked; the message names the process that has it, which is not disturbed."""
    text = refused(broker)
    assert f"is in use by process {broker.pid}" in text
    with RawClient(broker.bootstrap) as client:
        client.create_topic("undisturbed", 1)
        assert client.produce("undisturbed", [b"x"]) == 0


def test_lock_of_a_killed_broker_is_free(broker: BrokerProcess) -> None:
    """A crash leaves the lock file, but nobody holds it."""
    broker.kill()
    assert (broker.data_dir / "lock").exists()
    broker.start().wait_ready()


def test_wrong_node_is_refused(broker: BrokerProcess) -> None:
    """A data directory belongs to one node."""
    broker.terminate()
    assert "belongs to node 1, and this is node 2" in refused(broker, node_id=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is unreadable"),
        (b'{"format_version": 2, "node_id": 1, "cluster_id": "x", "checksum": 1}', "its checksum does not match"),
        (b'{"format_version": 99}', "format version 99"),
        (None, "drmq.json is missing"),
    ],
    ids=["empty", "changed", "newer", "missing"],
)
def test_unreadable_description_is_refused(broker: BrokerProcess, content: bytes | None, message: str) -> None:
    """A node that forgot who it is does not start as a new one, and changes nothing."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("kept", 1)
        client.produce("kept", [b"x"])
    broker.terminate()
    description = broker.data_dir / "drmq.json"
    good = description.read_bytes()
    if content is None:
        description.unlink()
    else:
        description.write_bytes(content)
    assert message in refused(broker)
    description.write_bytes(good)
    broker.start().wait_ready()
    with RawClient(broker.bootstrap) as client:
        assert client.fetch_all("kept") == {0: b"x"}


def test_damaged_metadata_is_refused(broker: BrokerProcess) -> None:
    """Without its own metadata the broker does not start, rather than forget its topics."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("kept", 1)
    broker.kill()
    empty_journal(broker.data_dir)
    (path,) = (broker.data_dir / "internal").glob("*/0/*.log")
    data = bytearray(path.read_bytes())
    data[80] ^= 0x40
    path.write_bytes(data)
    assert "the metadata log cannot be read" in refused(broker)
    assert list(broker.data_dir.glob("topics/kept.*"))


# ---- damage -------------------------------------------------------------------------------------


@pytest.fixture
def killed(broker: BrokerProcess) -> BrokerProcess:
    """A broker with two partitions of ten records each, killed."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("damage", 2, {"segment.bytes": "1024"})
        for number in range(10):
            for partition in (0, 1):
                client.produce("damage", [b"%d " % number * 100], partition=partition)
    broker.kill()
    empty_journal(broker.data_dir)
    return broker


def test_damage_to_what_the_journal_still_has_is_put_right(broker: BrokerProcess) -> None:
    """A segment that was damaged right after its node was killed: the start writes the same bytes there again."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("young", 1)
        client.produce("young", [b"kept"])
    broker.kill()
    path = last_segment(broker, "young", 0)
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    broker.start().wait_ready()
    with RawClient(broker.bootstrap) as client:
        assert client.fetch_all("young") == {0: b"kept"}
    assert path.read_bytes() == sound


WHOLE = {number: b"%d " % number * 100 for number in range(10)}


def test_damage_before_the_flushed_position_stops_the_partition(killed: BrokerProcess) -> None:
    """What was acknowledged and cannot be read is reported, not cut; the neighbour goes on."""
    path = last_segment(killed, "damage", 0)
    data = bytearray(path.read_bytes())
    data[100] ^= 0x01
    path.write_bytes(data)
    killed.start().wait_ready()
    with RawClient(killed.bootstrap) as client:
        for attempt in (lambda: client.produce("damage", [b"x"]), lambda: client.fetch("damage", 0)):
            with pytest.raises(RequestFailed) as refusal:
                attempt()
            assert refusal.value.code == KAFKA_STORAGE_ERROR
        assert client.fetch_all("damage", partition=1) == WHOLE
        assert client.produce("damage", [b"x"], partition=1) == 10
    assert "partition damage-0 is stopped" in killed.log_text()
    assert path.read_bytes() == bytes(data), "nothing was changed"
    # A clean stop and a start do not make it look sound, and the repaired file is taken again.
    assert killed.terminate() == 0
    data[100] ^= 0x01
    path.write_bytes(data)
    killed.start().wait_ready()
    with RawClient(killed.bootstrap) as client:
        assert client.fetch_all("damage") == WHOLE


def test_damage_in_a_sealed_segment_is_found_by_its_readers(killed: BrokerProcess) -> None:
    """Sealed segments are not read at the start. A batch whose place is broken is reported when it is asked for."""
    path = min(partition_path(killed, "damage").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[7] ^= 0x55
    path.write_bytes(data)
    killed.start().wait_ready()
    with RawClient(killed.bootstrap) as client:
        with pytest.raises(RequestFailed) as refusal:
            client.fetch("damage", 0)
        assert refusal.value.code == KAFKA_STORAGE_ERROR
        later = client.fetch("damage", 9).records
        assert later == [(9, WHOLE[9])]
        assert client.fetch_all("damage", partition=1) == WHOLE


def test_indexes_are_made_again(killed: BrokerProcess) -> None:
    """An index is a hint: deleted or overwritten ones are rebuilt from the log."""
    indexes = sorted(partition_path(killed, "damage").glob("*.index"))
    assert len(indexes) > 1
    indexes[0].unlink()
    indexes[1].write_bytes(b"rubbish")
    killed.start().wait_ready()
    with RawClient(killed.bootstrap) as client:
        assert client.fetch_all("damage") == WHOLE
        assert client.offset("damage", 1_600_000_000_000) == 0
        for number in range(10):
            assert client.fetch("damage", number).records[0] == (number, WHOLE[number])


@pytest.mark.parametrize(
    "tail", [b"\0" * 500, b"garbage" * 99, batch([b"x" * 900], base_offset=10)[:-1]], ids=["zeros", "garbage", "half"]
)
def test_torn_tail_is_cut(killed: BrokerProcess, tail: bytes) -> None:
    """What follows the last sound batch and was never acknowledged goes, and appends follow on."""
    path = last_segment(killed, "damage")
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    killed.start().wait_ready()
    assert path.stat().st_size == size
    assert f"cut a torn tail of {len(tail)} bytes at offset 10" in killed.log_text()
    with RawClient(killed.bootstrap) as client:
        assert client.fetch_all("damage") == WHOLE
        assert client.produce("damage", [b"next"]) == 10
    killed.restart(crash=True)
    with RawClient(killed.bootstrap) as client:
        assert client.fetch_all("damage") == WHOLE | {10: b"next"}


def test_missing_partition_is_not_taken_for_a_new_one(killed: BrokerProcess) -> None:
    """A directory that is gone held records: the partition is stopped, and not started afresh from offset 0."""
    path = partition_path(killed, "damage")
    path.rename(killed.data_dir.with_name("elsewhere"))
    killed.start().wait_ready()
    with RawClient(killed.bootstrap) as client:
        with pytest.raises(RequestFailed) as refusal:
            client.produce("damage", [b"x"])
        assert refusal.value.code == KAFKA_STORAGE_ERROR
        assert client.produce("damage", [b"x"], partition=1) == 10
    assert not path.exists()


def test_half_a_request_does_not_delay_the_end(broker: BrokerProcess) -> None:
    """A client in the middle of a request has no claim to be waited for."""
    with socket.create_connection(("127.0.0.1", broker.port)) as half:
        half.sendall(frame(bytes(100_000))[:5_000])
        assert broker.terminate() == 0
        assert GAVE_UP not in broker.log_text()


PARTITIONS = 8


def test_a_node_that_stops_in_order_knows_its_producers_at_the_next_start(tmp_path: Path) -> None:
    """The table of producers is saved at the very end of each log, however fast leaders were still sending."""
    with ClusterProcesses(tmp_path) as cluster:
        cluster.create_topic("busy", PARTITIONS)
        cluster.wait_healthy()
        history = History()
        places = [Place("busy", index) for index in range(PARTITIONS)]
        producers = [IdempotentProducer(f"busy-{n}", cluster.bootstrap, history, places) for n in range(2)]
        for producer in producers:
            producer.start()
        for node in cluster.nodes.values():
            enough = history.acked_count + 500
            eventually(lambda: history.acked_count, enough.__lt__, what="records")
            node.terminate()
            stale = {
                f"{path.parent.name}-{path.name}": (saved, end)
                for path in node.data_dir.glob("topics/busy.*/*")
                if (saved := _producers_saved(path)) != (end := _log_end(path))
            }
            assert not stale, f"node {node.node_id}: saved at, and the log ends at: {stale}"
            node.start()
            cluster.wait_serving()
            cluster.wait_healthy()
        for producer in producers:
            producer.stop()


def _producers_saved(path: Path) -> int:
    """The offset of the newest table of producers of a partition; -1 without one."""
    return max((int(found.stem.rpartition("-")[2]) for found in path.glob("producers-*.snapshot")), default=-1)


def _log_end(path: Path) -> int:
    *_, last = read_batches(max(path.glob("*.log")))
    assert isinstance(last, FoundBatch)
    return last.header.next_offset
