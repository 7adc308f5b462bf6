"""Spark over topics, as ratios: `python -m bench.spark`, or `make spark-bench`.

What is measured, warm, in one `local[2]` session, for records of 100 B and 1 KB:

- batch read into an aggregate, stream read with `availableNow`, write, topic to topic;
- beside (a) a source that yields ready-made Arrow batches of the same rows, which is what Spark can do at best,
  and (b) confluent-kafka consuming, or producing, the same in plain Python;
- and the limits of both comparisons: a source that fetches the same bytes as ours and yields ready-made batches
  instead of decoding them shows how much of (a) is left where a broker shares the cores, and (a) itself
  beside (b) shows what no source behind Spark's hand-over can exceed;
- what a nearly empty micro-batch costs;
- with `--memory`, the most that a Python worker holds while it reads 5 GB.

Broker, Spark and workers share the cores, so rows per second say little about another machine. The
ratios say more: what is compared is measured in turns, so that a busy minute hits both sides. Each number is
the best of the repetitions, the one that was disturbed least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.payloads import make_payloads
from bench.process import Server, free_port
from bench.systems.kafka_admin import answers, create_topic
from drmq.spark.session import spark_session

PARTITIONS = 4
SIZES = {"100B": 100, "1KB": 1024}
BYTES_PER_TOPIC = 600_000_000
BYTES_PER_TOPIC_QUICK = 100_000_000
CONSUMED_ROWS_MAX = 500_000
"""A plain consumer needs no warm-up and no plan, so fewer rows show its speed as well, and sooner."""

BYTES_WRITTEN = 60_000_000
MEMORY_BYTES = 5_000_000_000
READY_MADE, CONSUMER, PRODUCER = "ready-made (a)", "consumer (b)", "producer (b)"
FETCHED = "fetched, not decoded"
BATCH_READ = "batch read"
TARGET_OF_READY, TARGET_OF_CONSUMER, TARGET_WORKER_MB = 0.7, 5.0, 300


@dataclass
class Result:
    """One workload: rows per second, and as ratios to what it is compared with."""

    name: str
    size: str
    rows_per_second: float
    all_rows_per_second: list[float]
    cpu_us_per_row: float
    """Of all processes together: this one, the JVM, its Python workers and the broker."""
    ratios: dict[str, float] = field(default_factory=dict)
    cpu_ratios: dict[str, float] = field(default_factory=dict)
    """The same ratios by CPU time, which a busy machine disturbs less than it does rows per second."""


class Workload(NamedTuple):
    """What is run and timed, and how many rows it handles."""

    name: str
    rows: int
    run: Callable[[], object]


class Bench:
    """One broker, one session, and the topics that are filled as they are needed."""

    def __init__(self, spark: Any, bootstrap: str, *, is_quick: bool, repeat: int, console: Console) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.repeat = repeat
        self.bytes_per_topic = BYTES_PER_TOPIC_QUICK if is_quick else BYTES_PER_TOPIC
        self.console = console
        self.results: list[Result] = []

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def compare(self, size: str, workloads: Sequence[Workload], beside: Sequence[str]) -> None:
        """Rows per second of each workload, once cold and then warm, in turns; and the ratios to those `beside`."""
        for workload in workloads:
            workload.run()
        rates: dict[str, list[float]] = defaultdict(list)
        cpu: dict[str, list[float]] = defaultdict(list)
        for _ in range(self.repeat):
            for workload in workloads:
                started, cpu_started = time.perf_counter(), self._cpu_seconds()
                workload.run()
                rates[workload.name].append(workload.rows / (time.perf_counter() - started))
                cpu[workload.name].append((self._cpu_seconds() - cpu_started) / workload.rows * 1e6)
        made = {name: Result(name, size, max(found), found, min(cpu[name])) for name, found in rates.items()}
        for result in made.values():
            for other in (made[name] for name in beside if name != result.name):
                result.ratios[other.name] = result.rows_per_second / other.rows_per_second
                result.cpu_ratios[other.name] = other.cpu_us_per_row / result.cpu_us_per_row
            self.console.print(
                f"  {size:>6} {result.name:<26} {result.rows_per_second:>12,.0f} rows/s "
                f"{result.cpu_us_per_row:>8.2f} us CPU/row"
            )
        self.results += made.values()

    def _cpu_seconds(self) -> float:
        """What this process and all below it, the broker, the JVM and its workers, have used so far."""
        total = 0.0
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            total += float(times.user + times.system)
        return total

    def fill(self, topic: str, record_size: int, total_bytes: int) -> int:
        """Create a topic of this size in bytes. Returns its number of records."""
        create_topic(self.port, topic, PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 20, "batch.size": 1 << 20, "enable.idempotence": True}
        )
        payloads = make_payloads(record_size)
        count = total_bytes // record_size
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, payloads[number % len(payloads)], partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(300) == 0
        return count

    def read(self, topic: str, **options: str) -> Any:
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **options}
        return self.spark.read.format("drmq").options(**chosen).load()

    # ---- workloads -----------------------------------------------------------------------------------

    def run(self, size: str) -> None:
        record_size = SIZES[size]
        topic = f"bench-{size.lower()}"
        rows = self.fill(topic, record_size, self.bytes_per_topic)
        few = min(rows, CONSUMED_ROWS_MAX)
        ready_rows = ready_made(self.spark, rows, record_size)
        fetched_rows = fetched_only(self.spark, self.bootstrap, topic, record_size)
        workloads = [
            Workload(READY_MADE, rows, lambda: aggregate(ready_rows)),
            Workload(CONSUMER, few, lambda: self.consume(topic, few)),
            Workload(FETCHED, rows, lambda: aggregate(fetched_rows)),
            Workload(BATCH_READ, rows, lambda: aggregate(self.read(topic))),
            Workload("batch read, columns=value", rows, lambda: aggregate(self.read(topic, columns="value"))),
            Workload("stream read, availableNow", rows, lambda: self.stream(topic)),
        ]
        self.compare(size, workloads, (READY_MADE, CONSUMER))
        self.write(size, record_size)

    def write(self, size: str, record_size: int) -> None:
        target, source = f"written-{size.lower()}", f"source-{size.lower()}"
        create_topic(self.port, target, PARTITIONS)
        rows = self.fill(source, record_size, BYTES_WRITTEN)
        frame = self.spark.range(0, rows, 1, 2).selectExpr(f"repeat('x', {record_size}) value")
        workloads = [
            Workload(PRODUCER, rows, lambda: self.produce(target, rows, record_size)),
            Workload("write", rows, lambda: self.save(frame, target)),
            Workload("topic to topic", rows, lambda: self.save(self.read(source, columns="key,value"), target)),
        ]
        self.compare(size, workloads, (PRODUCER,))

    def save(self, frame: Any, topic: str) -> None:
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic}
        frame.write.format("drmq").options(**options).mode("append").save()

    def stream(self, topic: str) -> None:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        stream = self.spark.readStream.format("drmq").options(**options).load()
        counted = stream.selectExpr("length(value) n").groupBy().sum("n")
        with tempfile.TemporaryDirectory(prefix="drmq-bench-") as checkpoint:
            writer = counted.writeStream.format("noop").outputMode("complete").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()

    def consume(self, topic: str, rows: int) -> int:
        """What a plain Python program does: every message an object, its value looked at."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        seen = total = 0
        while seen < rows:
            for message in consumer.consume(10_000, 1.0):
                total += len(message.value() or b"")
                seen += 1
        consumer.close()
        return total

    def produce(self, topic: str, rows: int, record_size: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "batch.size": 1 << 20, "compression.type": "lz4"}
        )
        value = b"x" * record_size
        for number in range(rows):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(300) == 0

    def empty_batch_ms(self, count: int = 15) -> dict[str, float]:
        """Milliseconds that a micro-batch of one record takes from source to sink, warm, and where they go."""
        create_topic(self.port, "trickle", 1)
        create_topic(self.port, "trickled", 1)
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": "trickle"}
        stream = self.spark.readStream.format("drmq").options(**options).load().select("value")
        producer = Producer({"bootstrap.servers": self.bootstrap})
        with tempfile.TemporaryDirectory(prefix="drmq-bench-") as checkpoint:
            sink = {"kafka.bootstrap.servers": self.bootstrap, "topic": "trickled", "checkpointLocation": checkpoint}
            query = stream.writeStream.format("drmq").options(**sink).start()
            while len(_with_rows(query)) < count:
                before = len(_with_rows(query))
                producer.produce("trickle", b"x")
                producer.flush()
                deadline = time.monotonic() + 60
                while len(_with_rows(query)) == before and time.monotonic() < deadline:
                    time.sleep(0.05)
            query.stop()
            warm = _with_rows(query)[5:]
        names = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
        return {name: statistics.median(p.durationMs.get(name, 0) for p in warm) for name in names}

    def worker_memory_mb(self) -> float:
        """The most that one Python worker holds while 5 GB are read."""
        self.fill("memory", SIZES["1KB"], MEMORY_BYTES)
        peak, finished = 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while not finished.wait(0.1):
                for child in psutil.Process().children(recursive=True):
                    try:
                        if child.name().startswith("python") and "pyspark" in " ".join(child.cmdline()):
                            peak = max(peak, child.memory_info().rss)
                    except psutil.Error:
                        continue

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        aggregate(self.read("memory"))
        finished.set()
        watcher.join()
        return peak / 1e6


def _with_rows(query: Any) -> list[Any]:
    return [progress for progress in query.recentProgress if progress.numInputRows]


def aggregate(frame: Any) -> Any:
    """The same small question of every source: it looks at each value and keeps nothing."""
    return frame.selectExpr("count(*) rows", "sum(length(value)) bytes").collect()


READY_SCHEMA = (
    "key binary, value binary, topic string not null, partition int not null, offset bigint not null, "
    "timestamp timestamp, timestampType int"
)


def ready_batch(count: int, record_size: int) -> Any:
    """A batch with this number of rows, with the columns of a topic."""
    import pyarrow as pa

    columns = {
        pa.field("key", pa.binary()): pa.nulls(count, pa.binary()),
        pa.field("value", pa.binary()): pa.array([bytes(record_size)] * count, pa.binary()),
        pa.field("topic", pa.string(), nullable=False): pa.array(["bench-100b"] * count, pa.string()),
        pa.field("partition", pa.int32(), nullable=False): pa.array([0] * count, pa.int32()),
        pa.field("offset", pa.int64(), nullable=False): pa.array(range(count), pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")): pa.array([0] * count, pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()): pa.array([0] * count, pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(list(columns)))


def ready_made(spark: Any, rows: int, record_size: int) -> Any:
    """A source without a broker: batches in memory, handed out again and again."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [InputPartition(index) for index in range(PARTITIONS)]

        def read(self, partition: Any) -> Iterator[Any]:
            left = rows // PARTITIONS
            count = min(65_536, (16 << 20) // record_size)
            batch = ready_batch(count, record_size)
            while left > 0:
                yield batch.slice(0, min(left, count))
                left -= count

    return load_from(spark, "ready-made", Reader())


def fetched_only(spark: Any, bootstrap: str, topic: str, record_size: int) -> Any:
    """A source that fetches all bytes of a topic, as ours does, and hands out ready-made rows in their place."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    selection = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            from drmq.spark.options import read_options
            from drmq.spark.planning import plan_batch

            return [InputPartition(part) for part in plan_batch(read_options(selection, is_stream=False))]

        def read(self, partition: Any) -> Iterator[Any]:
            from drmq.records import iter_batches
            from drmq.spark.options import read_options
            from drmq.spark.reading import fetcher_of

            # As large as the pieces that decoding yields; much larger ones would take longer to make than to hand over.
            ready = ready_batch(min(65_536, (4 << 20) // record_size), record_size)
            fetcher = fetcher_of(read_options(selection, is_stream=False))
            for fetched in fetcher.read(partition.value, fail_on_data_loss=True):
                left = sum(header.record_count for _, header in iter_batches(fetched.records))
                while left > 0:
                    yield ready.slice(0, min(left, ready.num_rows))
                    left -= ready.num_rows

    return load_from(spark, "fetched-only", Reader())


def load_from(spark: Any, format_name: str, reader: Any) -> Any:
    """The table of a source that is nothing but a reader."""
    from pyspark.sql.datasource import DataSource

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> str:
            return READY_SCHEMA

        def reader(self, schema: Any) -> Any:
            return reader

    spark.dataSource.register(Source)
    return spark.read.format(format_name).load()


def main(arguments: list[str] | None = None) -> int:
    """Run, print a table, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description="Measure Spark over topics.")
    parser.add_argument("--quick", action="store_true", help="smaller topics, one repetition: about two minutes")
    parser.add_argument("--size", action="append", choices=sorted(SIZES), help="only records of this size; repeatable")
    parser.add_argument("--memory", action="store_true", help="also read 5 GB and watch the workers")
    parser.add_argument("--repeat", type=int, help="repetitions (default 3; 1 with --quick)")
    parser.add_argument("--json", type=Path, help="where to write results (default bench/results/spark-<time>.json)")
    options = parser.parse_args(arguments)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="drmq-bench-") as directory:
        port = free_port()
        command = [sys.executable, "-m", "drmq", "server", "--port", str(port), "--data-dir", f"{directory}/data"]
        server = Server(command, Path(directory) / "server.log")
        try:
            server.wait_ready(lambda: answers(port), 20)
            settings = {
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "OFF",
                "spark.sql.shuffle.partitions": "2",
            }
            spark = spark_session("bench", master="local[2]", settings=settings)
            repeat = options.repeat or (1 if options.quick else 3)
            bench = Bench(
                spark,
                f"127.0.0.1:{port}",
                is_quick=options.quick,
                repeat=repeat,
                console=console,
            )
            for size in options.size or SIZES:
                bench.run(size)
            empty = bench.empty_batch_ms()
            memory = bench.worker_memory_mb() if options.memory else None
            spark.stop()
            report = {
                "machine": machine.describe(Path(directory)),
                "results": [asdict(result) for result in bench.results],
                "empty_batch_ms": empty,
                "worker_memory_mb": memory,
            }
        finally:
            server.stop()
    _print(console, bench.results, empty, memory)
    path = options.json or Path("bench/results") / f"spark-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"wrote {path}")
    return 0


def _print(console: Console, results: list[Result], empty: dict[str, float], memory: float | None) -> None:
    table = Table(title="Spark over topics, local[2], warm, best of the repetitions")
    for heading in ("records", "workload", "rows/s", "us CPU/row", "of (a)", "by CPU", "x (b)", "by CPU"):
        table.add_column(heading, justify="left" if heading in ("records", "workload") else "right")
    for result in results:
        cells = []
        for names in ((READY_MADE,), (CONSUMER, PRODUCER)):
            for ratios in (result.ratios, result.cpu_ratios):
                found = next((ratios[name] for name in names if name in ratios), None)
                cells.append("" if found is None else f"{found:.2f}" if found < 2 else f"{found:.1f}")
        table.add_row(
            result.size, result.name, f"{result.rows_per_second:,.0f}", f"{result.cpu_us_per_row:.2f}", *cells
        )
    console.print(table)
    console.print("a micro-batch of one record, ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in empty.items()))
    if memory is not None:
        console.print(f"most memory of a Python worker while 5 GB are read: {memory:.0f} MB (aim: {TARGET_WORKER_MB})")
    console.print(f"aims: batch read at least {TARGET_OF_READY} of (a) and {TARGET_OF_CONSUMER:g} x (b)")
    for size in dict.fromkeys(result.size for result in results):
        _print_limits(console, {result.name: result for result in results if result.size == size}, size)


def _print_limits(console: Console, results: dict[str, Result], size: str) -> None:
    """What the aims are against: how far anything could come on these cores."""
    ready, fetched, ours = results[READY_MADE], results[FETCHED], results[BATCH_READ]
    console.print(
        f"{size}: fetching without decoding reaches {fetched.ratios[READY_MADE]:.2f} of (a), by CPU "
        f"{fetched.cpu_ratios[READY_MADE]:.2f}, and the batch read "
        f"{ours.rows_per_second / fetched.rows_per_second:.2f} of that, by CPU "
        f"{fetched.cpu_us_per_row / ours.cpu_us_per_row:.2f}; (a) itself is {ready.ratios[CONSUMER]:.1f} x (b)"
    )


if __name__ == "__main__":
    sys.exit(main())
