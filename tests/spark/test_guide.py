"""The guide's page on Spark: its examples as they stand there, and what it says that no other test shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.errors import PySparkException

from drmq.client import Admin
from drmq.spark.filters import parse_filter
from drmq.spark.shell import names
from support.polling import PATIENCE_S

from .conftest import QUERY_TIMEOUT_S, Collected, Topics
from .test_command_line import drmq

PAGE = (Path(__file__).parents[2] / "docs/guide/spark.md").read_text()
Collect = Callable[..., Collected]


def example(beginning: str) -> str:
    """The example of the page that begins like this; its broker is the one of the tests."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(beginning)]
    return str(found)


@pytest.fixture
def page_topics(topics: Topics) -> Iterator[Topics]:
    """The topics that the page uses by name, which exist for the time of one test."""
    for name in ("orders", "totals", "flights"):
        topics.create(4, name=name)
    yield topics
    with topics.admin() as admin:
        for name in ("orders", "totals", "flights"):
            admin.topics.delete(name)


def send(topics: Topics, topic: str, records: list[tuple[str | None, str]], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for key, value in records:
        producer.produce(topic, value, key, **more)
    assert producer.flush(PATIENCE_S) == 0


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.2)


# ---- examples ----------------------------------------------------------------------------------------


def test_the_shell_example(page_topics: Topics, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What is typed at the prompt, with the names that stand ready there: a table, and sums that grow."""
    table, stream = example('topic("orders")').split("\n\n", 1)
    prompt = names(page_topics.bootstrap)
    send(page_topics, "orders", [("k", '{"customer": "ann", "total": 2.5}')])
    exec(table, prompt)
    assert '{"customer": "ann' in capsys.readouterr().out
    # The console is that of the JVM, so the same sums go to a table here.
    assert '.format("console")' in stream
    query = eval(stream.strip().replace('.format("console")', '.format("memory").queryName("sums")'), prompt)
    try:
        # A stream begins at the end, so the query is there first.
        wait_until(lambda: query.lastProgress is not None)
        send(page_topics, "orders", [(None, json.dumps({"customer": "bob", "total": total})) for total in (1.5, 3)])
        wait_until(lambda: spark.table("sums").collect() == [("bob", 4.5)])
    finally:
        query.stop()


def test_the_file_example(page_topics: Topics, spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Orders in, upper case out, and a lag that the group's tools show."""
    monkeypatch.setenv("DRMQ_BOOTSTRAP", page_topics.bootstrap)
    program, waiting = example("import os").rsplit("\n", 2)[:2]
    assert waiting == "query.awaitTermination()"
    send(page_topics, "orders", [("k1", "one"), (None, "two")])
    run: dict[str, Any] = {}
    exec(program.replace("checkpoints/totals", str(tmp_path / "totals")), run)
    query = run["query"]
    try:
        wait_until(lambda: bool(page_topics.read("totals").count() >= 2) or not query.isActive)
        assert query.isActive, query.exception()
        rows = page_topics.read("totals").selectExpr("cast(key as string) k", "cast(value as string) v").collect()
        assert sorted((row.k or "", row.v) for row in rows) == [("", "TWO"), ("k1", "ONE")]

        def read() -> int:
            with Admin(page_topics.bootstrap) as admin:
                return sum(at.offset for at in admin.groups.offsets("orders-to-totals").values())

        wait_until(lambda: read() == 2)
    finally:
        query.stop()


def test_the_examples_of_the_past_and_of_json(page_topics: Topics, spark: Any) -> None:
    """One day of a topic, and fields of values beside the reason why there are none."""
    for day in (13, 14, 15):
        moment = int(datetime(2026, 11, day, 12, tzinfo=UTC).timestamp() * 1000)
        send(page_topics, "orders", [(None, str(day))], partition=0, timestamp=moment)
    run: dict[str, Any] = {"spark": spark}
    exec(example("yesterday").replace("localhost:9092", page_topics.bootstrap), run)
    assert [bytes(row.value) for row in run["yesterday"].collect()] == [b"14"]

    exec(example("flights").replace("localhost:9092", page_topics.bootstrap), run)
    assert run["flights"].isStreaming
    assert run["flights"].dtypes == [("origin", "string"), ("dep_delay", "int"), ("_error", "string")]


def test_filter_and_columns_of_the_page() -> None:
    """The condition that the page shows is understood as it stands there."""
    (condition,) = re.findall(r"- `filter` = `(.*?)`", PAGE)
    parsed = parse_filter(condition)
    assert parsed.keys == frozenset({b"DL"})
    assert parsed.time_ms_min == int(datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1000)


def test_the_queries_in_the_terminal(page_topics: Topics) -> None:
    """A table of counts; what is not older than two hours, twenty rows at most, a JSON object each; a given schema."""

    def run(line: str) -> str:
        program, *words = shlex.split(line)
        assert program == "drmq"
        done = drmq(page_topics, *words, "--master", "local[2]")
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout

    old = int((time.time() - 3 * 3600) * 1000)
    send(page_topics, "orders", [(None, '{"n": -1}')], timestamp=old)
    send(page_topics, "orders", [(None, json.dumps({"n": n})) for n in range(30)])
    flights = [("JFK", 10), ("JFK", 20), ("SFO", 60)]
    send(page_topics, "flights", [(None, json.dumps({"origin": origin, "delay": delay})) for origin, delay in flights])
    counts, recent, average = typed("drmq sql")
    assert sorted(line.split() for line in run(counts).splitlines()) == [
        ["JFK", "2"],
        ["SFO", "1"],
        ["origin", "count(1)"],
    ]
    rows = [json.loads(line) for line in run(recent).splitlines()]
    assert len(rows) == 20
    assert {row["n"] for row in rows} < set(range(30))
    assert run(average).split() == ["avg(delay)", "30.0"]


def typed(beginning: str) -> list[str]:
    """The lines of the terminal example that begins like this."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(beginning)]
    return str(found).splitlines()


class Terminal:
    """Runs lines as they are typed, in a place of its own, with `drmq` as the command of this Python."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environment = {**os.environ, "PYTHON": sys.executable, "NO_COLOR": "1"}
        for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "SPARK_LOCAL_IP"):
            self.environment.pop(name, None)

    def start(self, line: str) -> subprocess.Popen[str]:
        words = ["sh", "-c", f'drmq() {{ "$PYTHON" -m drmq "$@"; }}; {line}']
        log = (self.place / "log").open("a")
        return subprocess.Popen(
            words, cwd=self.place, env=self.environment, stdout=log, stderr=log, text=True, start_new_session=True
        )

    def run(self, line: str) -> str:
        words = ["sh", "-c", f'drmq() {{ "$PYTHON" -m drmq "$@"; }}; {line}']
        done = subprocess.run(
            words, cwd=self.place, env=self.environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout


def test_the_commands_of_the_first_part(tmp_path: Path) -> None:
    """From `drmq up` to a query that goes on while a node is dead, as the page says to type it.

    But for the ports, which are free ones here. Only one broker is named to the query.
    """
    terminal = Terminal(tmp_path)
    up, *prepare, shell = typed("drmq up")
    (submit,) = typed("drmq spark submit")
    kill, produce, consume, lag, start = typed("drmq node kill")
    assert (up, shell) == ("drmq up --nodes 3", "drmq spark shell")
    (tmp_path / "orders.py").write_text(example("import os"))
    terminal.run(f"{up} --port 0")
    query = None
    try:
        nodes = json.loads((tmp_path / "drmq-local" / "cluster.json").read_text())["nodes"]
        terminal.environment["DRMQ_BOOTSTRAP"] = nodes[0]["kafka"]
        for line in prepare:
            terminal.run(line)
        query = terminal.start(submit)

        def total(count: int) -> None:
            def is_there() -> bool:
                assert query is not None
                assert query.poll() is None, (tmp_path / "log").read_text()[-3000:]
                return len(terminal.run(consume).splitlines()) == count

            wait_until(is_there)

        total(1)
        terminal.run(kill)
        terminal.run(produce)
        total(2)
        assert '{"CUSTOMER": "BOB", "TOTAL": 4}' in terminal.run(consume)
        wait_until(lambda: "0 records behind" in terminal.run(lag))
        terminal.run(start)
    finally:
        if query is not None:
            os.killpg(query.pid, signal.SIGKILL)
            query.wait()
        terminal.run("drmq down --force")


# ---- claims ------------------------------------------------------------------------------------------


def test_a_batch_read_is_a_snapshot(topics: Topics) -> None:
    """Where it ends is decided when it is first used, and stays so."""
    topic = topics.create()
    topics.fill(topic, 10)
    frame = topics.read(topic)
    topics.fill(topic, 5, start=10)
    assert frame.count() == 15
    topics.fill(topic, 5, start=15)
    assert frame.count() == 15
    assert topics.read(topic).count() == 20


def test_spark_demands_the_mode_of_a_write(topics: Topics) -> None:
    """Without it Spark plans to refuse what is there, which a Python sink cannot do."""
    topic = topics.create()
    frame = topics.spark.createDataFrame([("a",)], "value string")
    writer = frame.write.format("drmq").options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topic})
    with pytest.raises(PySparkException, match=r"(?i)mode|append"):
        writer.save()
    writer.mode("append").save()
    assert topics.read(topic).count() == 1


def test_two_queries_of_one_group_read_everything(topics: Topics, collect: Collect) -> None:
    """Even while a consumer is a member of it and its commits are refused: nobody takes partitions from another."""
    topic = topics.create(2)
    topics.fill(topic, 20, 2)
    group = f"{topic}-group"
    member = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    wait_until(lambda: bool(member.poll(0.2)) and bool(member.assignment()))
    value = "cast(value as string) value"
    both = [collect(topics.stream(topic, groupId=group).selectExpr(value), checkpoint=name) for name in ("one", "two")]
    assert [found.finish().numbers for found in both] == [list(range(20))] * 2
    assert len(member.assignment()) == 2
    with topics.admin() as admin:
        assert len(admin.groups.describe(group).members) == 1
    member.close()


def test_the_error_is_above_the_last_line(topics: Topics) -> None:
    """Below all else that Spark says: which option, which value, what is wrong with it."""
    topic = topics.create()
    with pytest.raises(PySparkException) as raised:
        topics.read(topic, startingOffsets="newest").collect()
    lines = [line for line in str(raised.value).splitlines() if line.strip()]
    assert lines[-1].strip().startswith("SQLSTATE")
    assert "`startingOffsets` is 'newest'" in lines[-2]


def test_update_mode_through_for_each_batch(topics: Topics, tmp_path: Path) -> None:
    """The way out that the page names: each micro-batch of changed rows, written as a batch."""
    source, target = topics.create(), topics.create()
    topics.fill(source, 10)

    def write(frame: Any, batch_id: int) -> None:
        options = {"kafka.bootstrap.servers": topics.bootstrap, "topic": target}
        frame.write.format("drmq").options(**options).mode("append").save()

    counted = topics.stream(source).groupBy("partition").count().selectExpr("cast(count as string) value")
    for total in (10, 25):
        query = (
            counted.writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "update"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S)
        assert topics.numbers(target)[-1] == total
        topics.fill(source, 15, start=10)
