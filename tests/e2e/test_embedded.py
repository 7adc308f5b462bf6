"""The broker that runs inside a test: `drmq.testing.Broker`, and the pytest fixture that comes with the package."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from drmq.broker import BrokerOptions
from drmq.client import ClientError
from drmq.model import DrmqError
from drmq.testing import Broker, cluster, clusters
from support.checked_clients import QUIET
from support.polling import PATIENCE_S, eventually
from support.raw_client import RawClient


def round_trip(broker: Broker, topic: str = "topic") -> int:
    """Produce a record with a real client, read it back, and return its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "logger": QUIET})
    producer.produce(
        topic, b"value", partition=0, on_delivery=lambda error, message: offsets.append(message.offset() or 0)
    )
    assert producer.flush(PATIENCE_S) == 0
    with RawClient(broker.bootstrap_servers) as client:
        assert client.fetch_all(topic)[offsets[0]] == b"value"
    return offsets[0]


_earlier: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _note_threads() -> None:
    """What other tests in this process left behind is not ours to judge."""
    _earlier.clear()
    _earlier.update(threading.enumerate())


def own_threads() -> list[str]:
    """The broker threads that this test started and that still run."""
    threads = set(threading.enumerate()) - _earlier
    return [thread.name for thread in threads if thread.name.startswith("drmq")]


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_serves_and_leaves_nothing_behind(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real broker, gone at the end with its threads and its temporary directory."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Broker(storage="disk" if storage == "disk" else "memory") as broker:
        assert round_trip(broker) == 0
        assert bool(list(tmp_path.glob("drmq-test-*/drmq.json"))) == (storage == "disk")
        assert own_threads()
    assert own_threads() == []
    assert list(tmp_path.iterdir()) == []


def test_two_at_once() -> None:
    """Two brokers in one process have nothing to do with each other."""
    with Broker() as one, Broker(storage="disk") as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        assert round_trip(one) == 0
        assert round_trip(one) == 1
        assert round_trip(other) == 0
    assert own_threads() == []


def test_own_data_directory_stays(tmp_path: Path) -> None:
    """What one broker wrote, the next one on the same directory serves; also on the same port."""
    with Broker(data_dir=tmp_path / "data") as broker:
        assert round_trip(broker) == 0
        port = int(broker.bootstrap_servers.rpartition(":")[2])
    with Broker(data_dir=tmp_path / "data", port=port) as broker:
        assert broker.bootstrap_servers.endswith(f":{port}")
        assert round_trip(broker) == 1
    assert (tmp_path / "data" / "drmq.json").exists()


def test_can_be_started_again() -> None:
    """Stopping and starting the same object works, and stopping twice does no harm."""
    broker = Broker()
    for _ in range(3):
        broker.start()
        assert round_trip(broker) == 0, "memory keeps nothing"
        broker.stop()
        broker.stop()
    assert own_threads() == []


def test_options_are_those_of_a_broker() -> None:
    """Topics get the partitions that the options say."""
    with Broker(options=BrokerOptions(num_partitions=3)) as broker:
        round_trip(broker)
        with RawClient(broker.bootstrap_servers) as client:
            assert client.fetch_all("topic", partition=2) is not None


def test_bad_data_directory_is_an_error_of_start(tmp_path: Path) -> None:
    """The error is raised where the broker is started, in the test's own thread, and nothing is left running."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "drmq.json").write_text("rubbish")
    with pytest.raises(DrmqError, match="unreadable"):
        Broker(data_dir=tmp_path / "data").start()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        Broker(data_dir=tmp_path / "file" / "data").start()
    eventually(lambda: own_threads() == [], what="no threads are left")


def test_locked_data_directory_is_an_error_of_start(tmp_path: Path) -> None:
    """The one that has the directory is not disturbed."""
    with Broker(data_dir=tmp_path / "data") as broker:
        with pytest.raises(DrmqError, match="in use"):
            Broker(data_dir=tmp_path / "data").start()
        assert round_trip(broker) == 0


def test_taken_port_is_an_error_of_start() -> None:
    """Also here: raised by `start`, and everything let go."""
    with Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError):
            Broker(port=port).start()
        assert round_trip(broker) == 0
    eventually(lambda: own_threads() == [], what="no threads are left")


PROJECT = '''
from confluent_kafka import Consumer, Producer


def test_first(drmq_broker):
    producer = Producer({"bootstrap.servers": drmq_broker.bootstrap_servers})
    producer.produce("topic", b"one")
    assert producer.flush(90) == 0
    consumer = Consumer(
        {"bootstrap.servers": drmq_broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["topic"])
    message = None
    while message is None:
        message = consumer.poll(1.0)
    assert message.value() == b"one"
    consumer.close()


def test_second_is_fresh(drmq_broker):
    """Each test has a broker of its own: there is nothing of the first one."""
    offsets = []
    producer = Producer({"bootstrap.servers": drmq_broker.bootstrap_servers})
    producer.produce("topic", b"two", on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(90) == 0
    assert offsets == [0]
'''


def run_project(tmp_path: Path, text: str, *flags: str) -> str:
    """What pytest prints about a project of somebody else, which must pass without a warning."""
    (tmp_path / "test_project.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    done = subprocess.run(
        [sys.executable, *flags, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        # Otherwise it removes what earlier runs left in pytest's directory, which may be gigabytes.
        env=os.environ | {"PYTEST_DEBUG_TEMPROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_fixture_of_the_pytest_plugin(tmp_path: Path) -> None:
    """In a project of somebody else the fixture is there without an import, and nothing warns."""
    assert "2 passed" in run_project(tmp_path, PROJECT, "-X", "dev")


REWRITING = """
import sys

import drmq.testing.clusters


def test_drmq_is_imported_as_usual(drmq_broker):
    modules = list(sys.modules.items())
    loaders = {name: type(getattr(module, "__loader__", None)).__name__ for name, module in modules}
    # pytest imports the plugin and the packages around it before the plugin can say anything.
    plugin = {"drmq", "drmq.testing", "drmq.testing.plugin"}
    rewritten = {name for name, loader in loaders.items() if loader == "AssertionRewritingHook"}
    assert "drmq.testing.broker" in loaders
    assert "test_project" in rewritten, "this file is, or nothing would be tested here"
    assert {name for name in rewritten if name.startswith("drmq")} <= plugin
"""


def test_assertions_of_drmq_are_not_rewritten(tmp_path: Path) -> None:
    """pytest would compile all of DRMQ again, for the first fixture of every fresh environment."""
    assert "1 passed" in run_project(tmp_path, REWRITING)


SHARED = """
import asyncio

import drmq.testing

seen = []


def test_topic(drmq_session_broker, drmq_topic):
    seen.append((drmq_session_broker, drmq_topic))


def test_other_topic_of_the_same_broker(drmq_session_broker, drmq_topic):
    ((broker, topic),) = seen
    assert drmq_session_broker is broker
    assert drmq_topic != topic


def test_cluster(drmq_cluster):
    topic = drmq_cluster.create_topic("orders", partitions=2, configs={"retention.ms": 1000})
    assert topic == "orders"
    drmq_cluster.kill(drmq_cluster.leader(topic, 1))


def test_shared_cluster(drmq_session_cluster):
    assert drmq_session_cluster.create_topic(replicas=1)


def test_async_with():
    async def use():
        async with drmq.testing.Broker() as broker:
            assert await asyncio.to_thread(broker.create_topic)
        async with drmq.testing.cluster(nodes=1) as cluster:
            assert await asyncio.to_thread(cluster.create_topic)

    asyncio.run(use())
"""


def test_fixtures_that_are_shared_and_clusters(tmp_path: Path) -> None:
    """One broker for the session with a topic for each test, clusters, and `async with`."""
    assert "5 passed" in run_project(tmp_path, SHARED)


def test_wrong_arguments_are_errors_where_they_are_made() -> None:
    """With the value, and what is allowed."""
    wrong: Any
    for wrong in ({"storage": "dsk"}, {"port": 70_000}, {"port": "9092"}, {"port": True}):
        with pytest.raises(ValueError, match=str(*wrong)):
            Broker(**wrong)
    for wrong in ({"num_partitions": 3}, 3):
        with pytest.raises(TypeError, match="BrokerOptions"):
            Broker(options=wrong)
        with pytest.raises(TypeError, match="BrokerOptions"):
            cluster(options=wrong)
    for wrong in (5, b"data"):
        with pytest.raises(TypeError, match="and must be a str or a path"):
            Broker(data_dir=wrong)
    with pytest.raises(ValueError, match="data_dir is empty"):
        Broker(data_dir="")
    with pytest.raises(ValueError, match="nodes is 1000000, and must be a whole number from 1 to 100"):
        cluster(nodes=1_000_000)
    for wrong in (0, -1, "3", 2.5, True):
        with pytest.raises(ValueError, match="must be a whole number from 1"):
            cluster(nodes=wrong)
    with pytest.raises(ValueError, match="there is no node 4; the nodes are 1, 2, 3"):
        cluster(racks={4: "east"})


def test_wrong_calls_are_errors_too() -> None:
    """Of nodes that do not exist or do not run, and of a broker that does or does not."""
    wrong: Any
    with cluster(nodes=1) as one:
        for call in (one.kill, one.stop_node, one.start, one.pause, one.resume, one.node):
            with pytest.raises(ValueError, match="there is no node 7; the nodes are 1"):
                call(7)
        with pytest.raises(ValueError, match="there is no node 2"):
            one.partition([1], [2])
        with pytest.raises(ValueError, match="node 1 is in two groups"):
            one.partition([1], [1])
        wrong = 1
        with pytest.raises(TypeError, match="a group is 1, and must be a list of nodes"):
            one.partition(wrong)
        for wrong in ({"name": 5}, {"configs": 5}):
            with pytest.raises(TypeError, match=f"{next(iter(wrong))} is 5, and must be"):
                one.create_topic(**wrong)
        with pytest.raises(RuntimeError, match="node 1 is already running"):
            one.start(1)
        with pytest.raises(ClientError, match="INVALID_REPLICATION_FACTOR"):
            one.create_topic(replicas=2)
        one.kill(1)
        for call in (one.kill, one.pause, one.node):
            with pytest.raises(RuntimeError, match="node 1 is not running"):
                call(1)
    with Broker() as broker:
        with pytest.raises(RuntimeError, match="already running"):
            broker.start()
        for wrong in (0, "2"):
            with pytest.raises(ValueError, match="partitions is"):
                broker.create_topic(partitions=wrong)
        assert broker.create_topic("mine", partitions=2) == "mine"
        with pytest.raises(ClientError, match="already exists"):
            broker.create_topic("mine")
    with pytest.raises(RuntimeError, match="not running"):
        broker.create_topic()


def test_a_node_that_cannot_serve_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts while it is cut off, or while most of the others are down."""
    with cluster(nodes=2) as two:
        two.kill(1)
        two.partition([1], [2])
        monkeypatch.setattr(clusters, "_TIMEOUT_S", 3.0)
        with pytest.raises(TimeoutError, match=r"node 1 does not serve after 3 s; it needs most of the nodes"):
            two.start(1)
        monkeypatch.undo()


QUIET_PROGRAM = """
import gc, threading
from drmq.testing import Broker
from confluent_kafka import Producer
for storage in ("memory", "disk"):
    with Broker(storage=storage) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("topic", b"value")
        assert producer.flush(90) == 0
        del producer
    gc.collect()
assert threading.active_count() == 1, threading.enumerate()
try:
    Broker(data_dir="/proc/nowhere").start()
except OSError:
    pass
gc.collect()
assert threading.active_count() == 1, threading.enumerate()
print("fine")
"""


def test_no_warning_in_development_mode() -> None:
    """Under `python -X dev -W error` there is no unclosed socket, no pending task, no slow callback to complain of."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", QUIET_PROGRAM],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
    for word in ("Warning", "Traceback", "never awaited", "was destroyed"):
        assert word not in done.stderr, done.stderr
