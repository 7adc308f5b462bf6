"""Spark over topics, as ratios: `python -m bench.spark`, or `make spark-bench`.

What is measured, warm, in one `local[2]` session, for records of 100 B and 1 KB:

- batch read into an aggregate, stream read with `availableNow`, write, topic to topic;
- beside (a) a source that yields ready-made Arrow batches of the same rows, which is what Spark can do at best,
  and (b) confluent-kafka consuming, or producing, the same in plain Python;
- what a nearly empty micro-batch costs;
- with `--memory`, the most that a Python worker holds while it reads 5 GB.

Broker, Spark and workers share the cores, so rows per second say little about another machine. The
ratios say more: both sides of each were measured within the same minutes. Each number is the best of the
repetitions, the one that was disturbed least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
"""A plain consumer needs no warm-up and no plan, so fewer rows tell its speed as well, and sooner."""

BYTES_WRITTEN = 60_000_000
MEMORY_BYTES = 5_000_000_000
READY_MADE, CONSUMER, PRODUCER = "ready-made (a)", "consumer (b)", "producer (b)"
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

    def rate(self, name: str, size: str, rows: int, work: Callable[[], object], *beside: Result) -> Result:
        """Rows per second of `work`, once cold and then warm; noted with its ratios to what stands beside it."""
        work()
        rates, cpu = [], []
        for _ in range(self.repeat):
            started, cpu_started = time.perf_counter(), self._cpu_seconds()
            work()
            rates.append(rows / (time.perf_counter() - started))
            cpu.append((self._cpu_seconds() - cpu_started) / rows * 1e6)
        result = Result(name, size, max(rates), rates, min(cpu))
        for other in beside:
            result.ratios[other.name] = result.rows_per_second / other.rows_per_second
            result.cpu_ratios[other.name] = other.cpu_us_per_row / result.cpu_us_per_row
        self.results.append(result)
        self.console.print(
            f"  {size:>6} {name:<20} {result.rows_per_second:>12,.0f} rows/s {result.cpu_us_per_row:>8.2f} us CPU/row"
        )
        return result

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
        """A topic of so many bytes; its number of records."""
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
        ready_rows = ready_made(self.spark, rows, record_size)
        ready = self.rate(READY_MADE, size, rows, lambda: aggregate(ready_rows))
        few = min(rows, CONSUMED_ROWS_MAX)
        consumer = self.rate(CONSUMER, size, few, lambda: self.consume(topic, few))
        beside = (ready, consumer)
        self.rate("batch read", size, rows, lambda: aggregate(self.read(topic)), *beside)
        only_value = {"columns": "value"}
        self.rate("batch read, columns=value", size, rows, lambda: aggregate(self.read(topic, **only_value)), *beside)
        self.rate("stream read, availableNow", size, rows, lambda: self.stream(topic), *beside)
        self.write(size, record_size)

    def write(self, size: str, record_size: int) -> None:
        rows = BYTES_WRITTEN // record_size
        target = f"written-{size.lower()}"
        create_topic(self.port, target, PARTITIONS)
        produced = self.rate(PRODUCER, size, rows, lambda: self.produce(target, rows, record_size))
        frame = self.spark.range(0, rows, 1, 2).selectExpr(f"repeat('x', {record_size}) value")
        self.rate("write", size, rows, lambda: self.save(frame, target), produced)
        source = f"source-{size.lower()}"
        rows = self.fill(source, record_size, BYTES_WRITTEN)
        self.rate(
            "topic to topic", size, rows, lambda: self.save(self.read(source, columns="key,value"), target), produced
        )

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


def ready_made(spark: Any, rows: int, record_size: int) -> Any:
    """A source without a broker: batches in memory, handed out again and again."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[Any]:
            return [InputPartition(index) for index in range(PARTITIONS)]

        def read(self, partition: Any) -> Iterator[Any]:
            import pyarrow as pa

            left = rows // PARTITIONS
            count = min(65_536, (16 << 20) // record_size)
            value = pa.array([bytes(record_size)] * count, pa.binary())
            schema = pa.schema(
                [
                    ("key", pa.binary()),
                    ("value", pa.binary()),
                    pa.field("topic", pa.string(), nullable=False),
                    pa.field("partition", pa.int32(), nullable=False),
                    pa.field("offset", pa.int64(), nullable=False),
                    ("timestamp", pa.timestamp("us", "UTC")),
                    ("timestampType", pa.int32()),
                ]
            )
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.nulls(count, pa.binary()),
                    value,
                    pa.array(["bench"] * count, pa.string()),
                    pa.array([0] * count, pa.int32()),
                    pa.array(range(count), pa.int64()),
                    pa.array([0] * count, pa.timestamp("us", "UTC")),
                    pa.array([0] * count, pa.int32()),
                ],
                schema=schema,
            )
            while left > 0:
                yield batch.slice(0, min(left, count))
                left -= count

    class ReadyMade(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready-made"

        def schema(self) -> str:
            return (
                "key binary, value binary, topic string not null, partition int not null, offset bigint not null, "
                "timestamp timestamp, timestampType int"
            )

        def reader(self, schema: Any) -> Any:
            return Reader()

    spark.dataSource.register(ReadyMade)
    return spark.read.format("ready-made").load()


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


if __name__ == "__main__":
    sys.exit(main())
