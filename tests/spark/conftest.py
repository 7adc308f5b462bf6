"""One session and one broker for all tests of this folder: a session takes ten seconds to start.

Each test has topics of its own, named after it. Tests that kill a broker start one of their own.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from drmq.broker import BrokerOptions
from drmq.client import Admin, NewTopic
from drmq.spark.session import spark_session
from drmq.testing import Broker
from support.polling import PATIENCE_S

QUERY_TIMEOUT_S = 240


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """pyspark and py4j leave sockets to the garbage collector and warn of themselves; that is theirs to mend."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session: two cores, few shuffle partitions, nothing on the screen."""
    found = spark_session(
        "tests",
        master="local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
            # Killed workers and failing tasks are the point of some tests.
            "spark.task.maxFailures": "1",
        },
    )
    yield found
    found.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    # Some tests write records with old timestamps, which must not expire while the test runs.
    with Broker(options=BrokerOptions(retention_check_interval_ms=3_600_000)) as started:
        yield started


class Topics:
    """Topics of one test, and short ways to fill and to read them."""

    def __init__(self, spark: Any, bootstrap: str, prefix: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._prefix = prefix
        self._numbers = itertools.count()

    def create(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        """A new topic; its name."""
        name = name or f"{self._prefix}-{next(self._numbers)}"
        with self.admin() as admin:
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            admin.topics.create(NewTopic(name, partitions=partitions, configs=settings))
        return name

    def admin(self) -> Admin:
        return Admin(self.bootstrap)

    def fill(self, topic: str, count: int, partitions: int = 1, start: int = 0, **settings: Any) -> None:
        """Values `start` to `start + count - 1` as text, in turn to the partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **settings})
        for number in range(start, start + count):
            producer.produce(topic, str(number).encode(), partition=number % partitions)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    def read(self, topic: str, **options: Any) -> Any:
        """The topic as a batch DataFrame."""
        return self._load(self.spark.read, topic, options)

    def stream(self, topic: str, **options: Any) -> Any:
        """The topic as a stream, from its beginning."""
        return self._load(self.spark.readStream, topic, {"startingOffsets": "earliest", **options})

    def _load(self, reader: Any, topic: str, options: dict[str, Any]) -> Any:
        selects = {"subscribe", "subscribePattern", "assign"} & options.keys()
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "timeoutMs": 60000}
        chosen |= {} if selects else {"subscribe": topic}
        return reader.format("drmq").options(**{**chosen, **options}).load()

    def numbers(self, topic: str, **options: Any) -> list[int]:
        """The values of a topic that `fill` wrote, sorted."""
        rows = self.read(topic, **options).selectExpr("cast(value as string) v").collect()
        return sorted(int(row.v) for row in rows)


@pytest.fixture
def topics(spark: Any, broker: Broker, request: pytest.FixtureRequest) -> Topics:
    prefix = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60]
    return Topics(spark, broker.bootstrap_servers, prefix)


class Collected:
    """A streaming query whose rows are kept, micro-batch by micro-batch."""

    def __init__(self, stream: Any, checkpoint: Path, *, available_now: bool = True, **trigger: Any) -> None:
        self.batches: dict[int, list[Any]] = {}

        def keep(frame: Any, batch_id: int) -> None:
            self.batches[batch_id] = frame.collect()

        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        chosen = {"availableNow": True} if available_now and not trigger else trigger or {"processingTime": "0 seconds"}
        self.query = writer.trigger(**chosen).start()

    def finish(self) -> Collected:
        """Wait until the query has ended by itself."""
        assert self.query.awaitTermination(QUERY_TIMEOUT_S), self.query.status
        return self

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait for something that the running query should bring about; its own failure is raised."""
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while not reached():
            if not self.query.isActive:
                raise AssertionError(f"the query ended: {self.query.exception()}")
            assert time.monotonic() < deadline, (self.query.status, self.query.lastProgress)
            time.sleep(0.1)

    @property
    def rows(self) -> list[Any]:
        return [row for batch_id in sorted(self.batches) for row in self.batches[batch_id]]

    @property
    def numbers(self) -> list[int]:
        """The values that `Topics.fill` wrote, as far as they have arrived, sorted."""
        return sorted(int(row.value) for row in self.rows)

    @property
    def sizes(self) -> list[int]:
        """Rows of each micro-batch that had any."""
        return [len(self.batches[batch_id]) for batch_id in sorted(self.batches) if self.batches[batch_id]]


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Callable[..., Collected]]:
    """Starts queries with a checkpoint of this test, and stops those that still run."""
    started: list[Collected] = []

    def start(stream: Any, *, checkpoint: str = "checkpoint", **trigger: Any) -> Collected:
        started.append(Collected(stream, tmp_path / checkpoint, **trigger))
        return started[-1]

    yield start
    for collected in started:
        collected.query.stop()
