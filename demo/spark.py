"""`python -m demo.spark`: a year of flights through a streaming query, with a leader killed in the middle.

Flights arrive in the order in which they took off, so that those with a long delay come late; a watermark
of ten days waits for them. A hundred flights of January come once more in December: too late, and not to be
counted. Each flight is joined with the weather of its hour; flights, delays and flights in the rain are
summed for each week and airport, and written to a topic. At the end the sums are compared with those that
a few lines of Python make of the data set itself. Exits 0 only if they are equal.

`--month` does the same with a month of flights, and in smaller steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.cluster import Cluster
from demo.flights import FLIGHT_COUNT, flights
from demo.traffic import Sender, wait_until
from demo.weather import weather
from drmq.spark.session import spark_session

NODES, PARTITIONS = 3, 4
LATE_COUNT = 100


@dataclass(frozen=True)
class Scale:
    """How much is sent, and in which steps."""

    flight_count: int
    late_before_end: int
    """How many flights before the last one the flights of January are repeated."""
    rows_per_batch: int
    ahead_max: int
    """How far the flights may be ahead of the query: a replay in a hurry, and still something like a stream."""

    @property
    def record_count(self) -> int:
        return self.flight_count + LATE_COUNT


YEAR = Scale(FLIGHT_COUNT, late_before_end=10_000, rows_per_batch=40_000, ahead_max=80_000)
MONTH = Scale(27_000, late_before_end=3_000, rows_per_batch=4_000, ahead_max=8_000)

PATIENCE_S = 300.0
WATERMARK = "10 days"
FLIGHT_FIELDS = "number bigint, origin string, dep_delay string, time_hour timestamp"
WEATHER_FIELDS = "origin string, time_hour timestamp, precip string"
FAR_FUTURE = "2015-01-01T00:00:00Z"
"""The time of a last record that is no flight: it moves the watermark past every week."""

Sums = dict[tuple[str, str], tuple[int, int, int, int]]
"""For each week and airport: flights, minutes of delay, flights with known weather, flights in the rain."""


@dataclass(frozen=True)
class Outcome:
    """What the query has written, beside what it should have."""

    found: Sums
    expected: Sums
    written: int
    """Records in the topic of results: after a crash some may be there twice."""
    lag: int
    killed_at: int
    """How many flights were processed when the leader was killed."""

    @property
    def wrong(self) -> list[tuple[str, str]]:
        places = self.expected.keys() | self.found.keys()
        return sorted(place for place in places if self.expected.get(place) != self.found.get(place))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.spark", description="Flights through a streaming query.")
    parser.add_argument("--month", action="store_true", help="a month of flights instead of a year")
    scale = MONTH if parser.parse_args(arguments).month else YEAR
    console = Console()
    console.print("[bold]1[/] starting Spark, local[2], in this process")
    spark = spark_session("demo", master="local[2]", settings=QUIET)
    started = time.monotonic()
    try:
        outcome = run(console, spark, scale)
    finally:
        spark.stop()
    return _report(console, outcome, scale, time.monotonic() - started)


def run(console: Console, spark: Any, scale: Scale) -> Outcome:
    """The demo with a session that is there, from an empty cluster to the comparison."""
    with tempfile.TemporaryDirectory(prefix="drmq-demo-") as directory:
        cluster = Cluster(Path(directory) / "nodes", NODES)
        console.print("[bold]2[/] starting three nodes, loading a year of hourly weather")
        cluster.up()
        try:
            cluster.create_topic("flights", PARTITIONS)
            cluster.create_topic("weather", 1)
            cluster.create_topic("delays", 1)
            hours = Sender(cluster.bootstrap_servers, "weather", weather())
            hours.run()
            console.print(
                f"[bold]3[/] {scale.flight_count:,} flights as they took off, joined with {hours.sent:,} hours"
            )
            console.print(f"  of weather, summed by week and airport, watermark {WATERMARK}; SIGKILL at half of them")
            query = _query(spark, cluster.bootstrap_servers, Path(directory) / "checkpoint", scale)
            try:
                killed_at = _replay(console, cluster, query, scale)
            finally:
                query.stop()
            found, written = _written(spark, cluster.bootstrap_servers)
            return Outcome(found, truth(scale.flight_count), written, _lag(cluster), killed_at)
        finally:
            cluster.down()


QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
}


# ---- the query ---------------------------------------------------------------------------------------


def _query(spark: Any, bootstrap: str, checkpoint: Path, scale: Scale) -> Any:
    from pyspark.sql import functions as f

    source = {"kafka.bootstrap.servers": bootstrap, "valueFormat": "json", "columns": "value"}
    rain = (
        spark.read.format("drmq")
        .options(**source, subscribe="weather", valueSchema=WEATHER_FIELDS)
        .load()
        .select("value.*")
        .groupBy("origin", "time_hour")
        .agg(f.max(f.col("precip").cast("double")).alias("precip"))
    )
    flown = (
        spark.readStream.format("drmq")
        .options(
            **source,
            subscribe="flights",
            valueSchema=FLIGHT_FIELDS,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=scale.rows_per_batch,
            groupId="spark-demo",
        )
        .load()
        .select("value.*")
        .withWatermark("time_hour", WATERMARK)
    )
    sums = (
        flown.join(rain, ["origin", "time_hour"], "left")
        .groupBy(f.window("time_hour", "7 days"), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.coalesce(f.sum(f.col("dep_delay").cast("int")), f.lit(0)).alias("delay"),
            f.count("precip").alias("known"),
            f.coalesce(f.sum((f.col("precip") > 0).cast("int")), f.lit(0)).alias("rain"),
        )
        .select(f.to_json(f.struct(f.col("window.start").alias("week"), "origin", "flights", "delay", "known", "rain"))
                .alias("value"), f.col("origin").alias("key"))
    )  # fmt: skip
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": "delays", "checkpointLocation": str(checkpoint)}
    return sums.writeStream.format("drmq").options(**sink).outputMode("append").start()


# ---- the traffic -------------------------------------------------------------------------------------


def as_they_took_off(scale: Scale) -> Iterator[tuple[bytes, bytes]]:
    """The flights by the moment at which they left, and in between, near the end, some of January again."""
    decoded = [(key, value, json.loads(value)) for key, value in islice(flights(), scale.flight_count)]

    def left_at(entry: tuple[bytes, bytes, dict[str, str]]) -> datetime:
        return datetime.fromisoformat(entry[2]["time_hour"]) + timedelta(minutes=int(entry[2].get("dep_delay", 0)))

    decoded.sort(key=left_at)
    late_from = scale.flight_count - scale.late_before_end
    for number, (key, value, _) in enumerate(decoded):
        if late_from <= number < late_from + LATE_COUNT:
            late_key, late_value, _ = decoded[number % 1000]
            yield late_key, late_value
        yield key, value


def _replay(console: Console, cluster: Cluster, query: Any, scale: Scale) -> int:
    """Send everything, with a crash at half of it; wait until the query has closed every week."""
    rows = 0

    def read() -> int:
        nonlocal rows
        rows = max(rows, sum(int(progress.numInputRows) for progress in query.recentProgress))
        if not query.isActive:
            raise SystemExit(f"the query ended: {query.exception()}")
        return rows

    total = scale.record_count
    sender = Sender(cluster.bootstrap_servers, "flights", _paced(as_they_took_off(scale), read, scale.ahead_max))
    bar = Progress(
        TextColumn("  {task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    with bar:
        sent_bar, read_bar = bar.add_task("sent", total=total), bar.add_task("through", total=total)

        def tick() -> None:
            bar.update(sent_bar, completed=len(sender.acknowledged))
            bar.update(read_bar, completed=min(total, read()))

        sender.start()
        wait_until(lambda: read() >= total // 2, PATIENCE_S, tick)
        killed_at = read()
        leader = cluster.leader_of("flights", 0)
        pid = cluster.kill(leader)
        bar.console.print(f"  killed node {leader} (process {pid}), which led a partition, after {killed_at:,} flights")
        wait_until(lambda: read() >= killed_at + scale.rows_per_batch, PATIENCE_S, tick)
        cluster.up()
        bar.console.print(f"  started it again after {read():,} flights; the query never stopped")
        wait_until(lambda: not sender.is_alive() and read() >= total, PATIENCE_S, tick)
        tick()
        _close_all_weeks(cluster, query)
    if sender.refused or len(sender.acknowledged) != total:
        raise SystemExit(f"{len(sender.refused)} flights were refused: {sender.refused[:1]}")
    return killed_at


def _paced(
    records: Iterator[tuple[bytes, bytes]], read: Callable[[], int], ahead_max: int
) -> Iterator[tuple[bytes, bytes]]:
    for number, record in enumerate(records):
        while number % 1000 == 0 and number - read() > ahead_max:
            time.sleep(0.05)
        yield record


def _close_all_weeks(cluster: Cluster, query: Any) -> None:
    """A record from the future to each partition, and then the batch without data that writes the last weeks."""
    value = json.dumps({"number": -1, "origin": "none", "time_hour": FAR_FUTURE}).encode()
    Sender(cluster.bootstrap_servers, "flights", ((str(n).encode(), value) for n in range(20))).run()

    def is_closed() -> bool:
        watermark = (query.lastProgress.eventTime or {}).get("watermark", "") if query.lastProgress else ""
        return str(watermark) >= "2014-06"

    wait_until(is_closed, PATIENCE_S, lambda: None)
    query.processAllAvailable()


# ---- the truth ---------------------------------------------------------------------------------------


def truth(flight_count: int) -> Sums:
    """The same sums, by hand, from the data set."""
    rain: dict[tuple[str, str], float] = {}
    for _, value in weather():
        hour = json.loads(value)
        if "precip" in hour:
            place = (hour["origin"], hour["time_hour"])
            rain[place] = max(rain.get(place, 0.0), float(hour["precip"]))
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for _, value in islice(flights(), flight_count):
        flight = json.loads(value)
        moment = datetime.fromisoformat(flight["time_hour"])
        # Spark counts weeks from 1970, and that was a Thursday.
        days = (moment - datetime(1970, 1, 1, tzinfo=UTC)).days
        week = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days - days % 7)).date().isoformat()
        precipitation = rain.get((flight["origin"], flight["time_hour"]))
        found = sums[week, flight["origin"]]
        found[0] += 1
        found[1] += int(flight.get("dep_delay", 0))
        found[2] += precipitation is not None
        found[3] += precipitation is not None and precipitation > 0
    return {place: (values[0], values[1], values[2], values[3]) for place, values in sums.items()}


def _written(spark: Any, bootstrap: str) -> tuple[Sums, int]:
    """What the query has written, and how many records that took: after a crash some may be there twice."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "delays", "columns": "value"}
    rows = spark.read.format("drmq").options(**options).load().collect()
    found: Sums = {}
    for row in rows:
        week = json.loads(row.value)
        if week["origin"] == "none":
            continue
        place = (week["week"][:10], week["origin"])
        values = (week["flights"], week["delay"], week["known"], week["rain"])
        if found.setdefault(place, values) != values:
            raise SystemExit(f"two answers for {place}: {found[place]} and {values}")
    return found, len(rows)


def _lag(cluster: Cluster) -> int:
    """Flights that the group of the query has not read, as any tool for groups shows it."""
    from drmq.client import Admin

    with Admin(cluster.bootstrap_servers) as admin:
        committed = admin.groups.offsets("spark-demo")
        bounds = admin.topics.bounds(committed)
        return sum(bounds[place].end - at.offset for place, at in committed.items())


def _report(console: Console, outcome: Outcome, scale: Scale, seconds: float) -> int:
    found, expected = outcome.found, outcome.expected
    title = f"{scale.flight_count:,} flights in {seconds:.0f} s, one SIGKILL after {outcome.killed_at:,}"
    table = Table(title=title, min_width=72)
    for heading in ("airport", "flights", "minutes of delay", "in the rain", "weeks that agree"):
        table.add_column(heading, justify="left" if heading == "airport" else "right")
    airports = sorted({airport for _, airport in expected})
    for airport in airports:
        mine = [values for (_, at), values in found.items() if at == airport]
        weeks = [place for place in expected if place[1] == airport]
        agree = sum(found.get(place) == expected[place] for place in weeks)
        table.add_row(
            airport,
            f"{sum(values[0] for values in mine):,}",
            f"{sum(values[1] for values in mine):,}",
            f"{sum(values[3] for values in mine):,}",
            f"{agree} of {len(weeks)}",
        )
    console.print(table)
    wrong = outcome.wrong
    console.print(f"{outcome.written} sums written; lag of group spark-demo: {outcome.lag}")
    for place in wrong[:5]:
        console.print(f"WRONG {place}: the query says {found.get(place)}, the data set {expected.get(place)}")
    console.print("Every sum is what the data set says." if not wrong else f"{len(wrong)} sums are WRONG.")
    return 1 if wrong else 0


if __name__ == "__main__":
    # Threads of py4j outlive the session for a moment; the exit code is all that is left to say.
    threading.excepthook = lambda _: None
    sys.exit(main())
