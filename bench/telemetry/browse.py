"""The first page of the message browser, on a topic that does not fit into memory at once."""

import json
import random
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.clients import Task, percentiles
from bench.process import BenchError, run_client
from bench.systems.kafka_admin import create_topic
from bench.telemetry.observed import ObservedCluster

RECORD_SIZE = 1024
PARTITIONS = 4


@dataclass
class Browse:
    """Seconds for the first page, by where it begins."""

    topic_bytes: int
    pages: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def percentile(self, where: str, name: str) -> float:
        """Of the pages that begin there."""
        return percentiles(self.pages[where])[name]

    @property
    def slowest(self) -> float:
        """Of all pages."""
        return max((max(each) for each in self.pages.values()), default=0.0)

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(cluster: ObservedCluster, topic_bytes: int, pages: int, on_step: Callable[[str], None]) -> Browse:
    """Write the topic with the raw sender, then ask for pages at random places. The broker sets the times."""
    out = Browse(topic_bytes)
    try:
        try:
            on_step(f"writing {topic_bytes / 1e9:.0f} GB")
            cluster.form(PARTITIONS)
            create_topic(
                cluster.nodes[0].port, cluster.topic, PARTITIONS, {"message.timestamp.type": "LogAppendTime"},
                replica_count=1,
            )  # fmt: skip
            cluster.wait_led(PARTITIONS)
            began_ms = int(time.time() * 1000)
            records = topic_bytes // RECORD_SIZE
            task = Task("produce", cluster.nodes[0].port, cluster.topic, PARTITIONS, RECORD_SIZE, records, 170.0, "raw")
            written = run_client("raw", task, cluster).report.records
            ended_ms = int(time.time() * 1000)
            cluster.wait_gateways()
            on_step("browsing")
            chance = random.Random(1)
            per_partition = written // PARTITIONS
            ask = Asking(cluster.http_ports[0], cluster.topic)
            ask.seconds("order=newest")  # the first call of the gateway opens its connections
            for _ in range(pages):
                offset = chance.randrange(per_partition)
                at_ms = chance.randrange(began_ms, ended_ms)
                partition = chance.randrange(PARTITIONS)
                for where, query in {
                    "newest": "order=newest",
                    "oldest": "order=oldest",
                    "offset, oldest first": f"order=oldest&partition={partition}&from={offset}",
                    "offset, newest first": f"order=newest&partition={partition}&from={offset}",
                    "time, oldest first": f"order=oldest&from=@{at_ms}",
                    "time, newest first": f"order=newest&from=@{at_ms}",
                }.items():
                    out.pages.setdefault(where, []).append(ask.seconds(query))
        finally:
            cluster.stop()
    except BenchError as failed:
        out.errors.append(str(failed))
    return out


class Asking:
    """Asks a gateway for pages of 50 records."""

    def __init__(self, port: int, topic: str) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1/topics/{topic}/records"

    def seconds(self, query: str) -> float:
        """How long a page takes. It must have records."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"{self._address}?limit=50&{query}", timeout=60) as answer:
            page = json.loads(answer.read())
        took = time.perf_counter() - began
        if not page["items"] and "from" not in query:
            raise BenchError(f"no records for {query}")
        return took
