"""Workers: functions over a queue, against a real broker in this process, and as processes of their own."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import drmq
from drmq.testing import Broker
from support.polling import PATIENCE_S, eventually
from support.queue_client import client_threads, send, take


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(partitions=2)


@contextmanager
def running(worker: drmq.Worker[Any, Any], bootstrap: str) -> Iterator[threading.Thread]:
    """A worker in a thread of its own; no thread of it may be left."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(bootstrap)
        except BaseException as error:  # noqa: BLE001  # raised again below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        while thread.is_alive():
            worker.stop()
            thread.join(0.1)
    assert not failures, failures
    assert client_threads() == []


def what_is_left(bootstrap: str, topic: str, group: str) -> list[tuple[bytes, int]]:
    """Values and attempts of the messages that are not done, none of which anybody holds."""
    with drmq.Consumer(bootstrap, group) as consumer:
        consumer.subscribe(topic)
        left: list[tuple[bytes, int]] = []
        while found := consumer.poll(100, 1.5):
            left += [(message.value, message.attempt) for message in found]
        return left


def test_a_function_is_run_for_every_message_so_many_at_a_time(bootstrap: str, topic: str) -> None:
    values = [b"%d" % number for number in range(30)]
    send(bootstrap, topic, values)
    done: list[bytes] = []
    together = threading.Barrier(4)
    numbers = itertools.count()

    @drmq.worker(topic, group=f"g-{topic}", concurrency=4, start="earliest")
    def work(message: drmq.LeasedMessage[bytes]) -> None:
        if next(numbers) < 4:
            together.wait(PATIENCE_S)
        done.append(message.value)

    with running(work, bootstrap):
        eventually(lambda: len(done), lambda count: count >= 30)
    assert sorted(done) == sorted(values)
    assert what_is_left(bootstrap, topic, f"g-{topic}") == []


def test_a_coroutine_function_is_run_as_tasks(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    done: list[int] = []
    present = most = 0

    @drmq.worker(topic, group=f"g-{topic}", concurrency=5, start="earliest", codec="json")
    async def work(message: drmq.aio.LeasedMessage[Any]) -> None:
        nonlocal present, most
        present += 1
        most = max(most, present)
        await asyncio.sleep(0.1)
        present -= 1
        done.append(message.value)

    with running(work, bootstrap):
        eventually(lambda: len(done), lambda count: count >= 10)
    assert sorted(done) == list(range(10))
    assert 1 < most <= 5


def test_failures_are_retried_after_a_backoff_and_end_in_the_dead_letters(bootstrap: str, topic: str) -> None:
    group = f"g-{topic}"
    send(bootstrap, topic, [b"good", b"flaky", b"poison", b"invalid"])
    attempts: dict[bytes, list[float]] = {}

    @drmq.worker(
        topic, group=group, start="earliest", retries=2, backoff=drmq.Backoff(0.3, jitter=0), reject_on=[KeyError]
    )
    def work(message: drmq.LeasedMessage[bytes]) -> None:
        attempts.setdefault(message.value, []).append(time.monotonic())
        if message.value == b"flaky" and message.attempt == 1:
            raise OSError("try again")
        if message.value == b"poison":
            raise ValueError("never")
        if message.value == b"invalid":
            raise KeyError("nor this")

    with running(work, bootstrap), drmq.Consumer(bootstrap, mode="single") as reader:
        eventually(lambda: len(attempts.get(b"poison", ())), lambda count: count >= 3)
        reader.subscribe(f"dlq.{group}")
        dead: list[bytes] = []
        while len(dead) < 2:
            dead += [message.value for message in reader.poll(2, 1.0)]
    assert {value: len(times) for value, times in attempts.items()} == {
        b"good": 1,
        b"flaky": 2,
        b"poison": 3,
        b"invalid": 1,
    }
    assert sorted(dead) == [b"invalid", b"poison"]
    first, second, third = attempts[b"poison"]
    assert second - first >= 0.3
    assert third - second >= 0.6


@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_message_that_takes_too_long_has_failed(bootstrap: str, topic: str, kind: str) -> None:
    send(bootstrap, topic, [b"a"])
    attempts: list[int] = []
    finished = threading.Event()

    def work(message: drmq.LeasedMessage[bytes]) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            time.sleep(1.0)
        else:
            finished.set()

    async def work_async(message: drmq.aio.LeasedMessage[bytes]) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            await asyncio.sleep(PATIENCE_S)
        else:
            finished.set()

    function: Callable[[Any], Any] = work if kind == "thread" else work_async
    worker = drmq.worker(topic, group=f"g-{topic}", start="earliest", timeout=0.2, concurrency=2)(function)
    with running(worker, bootstrap):
        assert finished.wait(PATIENCE_S)
    assert attempts == [1, 2]


def test_a_function_may_settle_its_message_itself(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"a"])
    seen: list[int] = []

    @drmq.worker(topic, group=f"g-{topic}", start="earliest")
    def work(message: drmq.LeasedMessage[bytes]) -> None:
        seen.append(message.attempt)
        if len(seen) == 1:
            message.nack()

    with running(work, bootstrap):
        eventually(lambda: len(seen), lambda count: count >= 2)
    assert seen == [1, 2]


def test_stopping_waits_for_what_runs_and_takes_no_more(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(10)], partition=0)
    began, goes_on = threading.Event(), threading.Event()
    done: list[bytes] = []

    @drmq.worker(topic, group=f"g-{topic}", start="earliest", grace=PATIENCE_S)
    def work(message: drmq.LeasedMessage[bytes]) -> None:
        began.set()
        assert goes_on.wait(PATIENCE_S)
        done.append(message.value)

    with running(work, bootstrap) as thread:
        assert began.wait(PATIENCE_S)
        work.stop()
        thread.join(0.5)
        assert thread.is_alive()
        goes_on.set()
    assert done == [b"0"]
    assert what_is_left(bootstrap, topic, f"g-{topic}") == [(b"%d" % number, 1) for number in range(1, 10)]


def test_what_is_not_done_in_the_grace_period_is_given_back(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [b"a"])
    began = threading.Event()

    @drmq.worker(topic, group=f"g-{topic}", start="earliest", grace=0.1)
    async def work(message: drmq.aio.LeasedMessage[bytes]) -> None:
        began.set()
        await asyncio.sleep(PATIENCE_S)

    with running(work, bootstrap):
        assert began.wait(PATIENCE_S)
    assert what_is_left(bootstrap, topic, f"g-{topic}") == [(b"a", 1)]


def test_a_worker_is_still_its_function() -> None:
    """So it can be tested without a broker."""

    @drmq.worker("orders", group="billing")
    def double(number: int) -> int:
        """Doubles."""
        return 2 * number

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Doubles.")
    double.stop()


def test_a_worker_whose_cluster_cannot_be_reached_fails() -> None:
    worker = drmq.worker("orders", group="billing")(print)
    with pytest.raises(drmq.Unreachable):
        worker.run("127.0.0.1:1", timeout=0.5)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="no topic"):
        drmq.worker(group="billing")
    with pytest.raises(ValueError, match="concurrency is 0"):
        drmq.worker("orders", group="billing", concurrency=0)
    with pytest.raises(ValueError, match="waits must not be negative"):
        drmq.worker("orders", group="billing", backoff=-1)


def test_backoff() -> None:
    backoff = drmq.Backoff(1.0, factor=2, maximum=5, jitter=0.5)
    assert [backoff.delay(attempt, 0.0) for attempt in range(1, 5)] == [1, 2, 4, 5]
    assert backoff.delay(1, 1.0) == 0.5
    assert backoff.delay(10_000, 0.0) == 5


# ---- processes ---------------------------------------------------------------------------------------

TASKS = """
import pathlib, time
import drmq

@drmq.worker("{topic}", group="g-{topic}", start="earliest", concurrency=2, grace=30)
def work(message):
    with open("began", "a") as began:
        began.write(message.value.decode() + "\\n")
    if message.value == b"slow":
        while not pathlib.Path("go").exists():
            time.sleep(0.02)
    with open("done", "a") as done:
        done.write(message.value.decode() + "\\n")

def plain(message):
    print(message.value.decode(), flush=True)
"""


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@contextmanager
def command(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "drmq", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_sigterm_ends_a_worker_process_cleanly(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """It finishes what it works on, and everything else is with others at once, not when a lease ends."""
    (tmp_path / "tasks.py").write_text(TASKS.format(topic=topic))
    send(bootstrap, topic, [b"slow", *(b"%d" % number for number in range(50))], partition=0)
    with command(tmp_path, "worker", "run", "tasks:work", "-b", bootstrap) as process:
        eventually(lambda: "slow" in lines(tmp_path / "began") and len(lines(tmp_path / "done")) > 5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        (tmp_path / "go").touch()
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, output
    done = lines(tmp_path / "done")
    assert "slow" in done
    assert sorted(done) == sorted(lines(tmp_path / "began"))
    left = what_is_left(bootstrap, topic, f"g-{topic}")
    assert sorted([*done, *(value.decode() for value, _ in left)]) == sorted(["slow", *map(str, range(50))])
    assert {attempt for _, attempt in left} <= {1}


def test_a_plain_function_with_topic_and_group(bootstrap: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS.format(topic=topic))
    where = ("-t", topic, "-g", f"plain-{topic}", "-b", bootstrap)
    with command(tmp_path, "worker", "run", "tasks:plain", *where) as process:
        assert process.stdout is not None
        while "takes" not in process.stdout.readline():
            assert process.poll() is None
        send(bootstrap, topic, [b"hello"])
        assert process.stdout.readline() == "hello\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tasks",), "is not MODULE:FUNCTION"),
        (("nothing:here",), "There is no module 'nothing'"),
        (("tasks:nothing",), "has no 'nothing'"),
        (("tasks:plain",), "name its topics (-t) and group (-g)"),
        (("tasks:work", "-t", "orders"), "has its topics and its group already"),
        (("tasks:time",), "is not a function but module"),
    ],
)
def test_what_cannot_be_run_is_refused(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import click
    from click.testing import CliRunner

    from drmq.server.cli.worker import run

    (tmp_path / "tasks.py").write_text(TASKS.format(topic="orders"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    result = CliRunner().invoke(run, arguments)
    assert result.exit_code != 0
    assert words in result.output
    assert isinstance(result.exception, SystemExit | click.ClickException)


CONSUMER = """
import sys
import drmq

with drmq.Consumer("{bootstrap}", "g-{topic}", start="earliest") as consumer:
    consumer.subscribe("{topic}")
    for message in consumer:
        print("took", flush=True)
"""


def test_sigterm_leaves_the_block_of_a_consumer(bootstrap: str, topic: str) -> None:
    """What it holds is with others at once, and the exit status is what a shell expects."""
    send(bootstrap, topic, [b"a", b"b"], partition=0)
    program = CONSUMER.format(bootstrap=bootstrap, topic=topic)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "took\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    with drmq.Consumer(bootstrap, f"g-{topic}") as consumer:
        consumer.subscribe(topic)
        assert {message.attempt for message in take(consumer, 2)} == {1}
