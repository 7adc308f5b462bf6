"""The dashboard in a browser, on real nodes: the first ten minutes, empty pages, a work queue, axe, killed nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import drmq
from drmq.client import Admin, NewTopic
from drmq.model import TopicPartition
from support.polling import eventually
from support.processes import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
_HTTP = re.compile(r"serves HTTP at (http://127\.0\.0\.1:\d+)")
_JOURNEY_S = 400
Actions = Mapping[str, Callable[[], object]]


@pytest.fixture(scope="module")
def node() -> str:
    """The program that runs the journeys; a test without what it needs is skipped."""
    if not (ROOT / "src/drmq/gateway/static/index.html").exists():
        pytest.skip("the dashboard is not built: make dashboard")
    if not (ROOT / "dashboard/node_modules/playwright-core").is_dir():
        pytest.skip("the packages of the dashboard are not installed: make dashboard")
    if shutil.which("chromium") is None:
        pytest.skip("there is no Chromium (Debian package chromium)")
    command = [sys.executable, "dashboard/tool.py", "node"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def travel(node: str, script: str, base: str, actions: Actions, *arguments: str) -> None:
    """Run a journey. A line `@name` of it is a request to do something outside the browser, which is answered."""
    with subprocess.Popen(
        [node, str(HERE / script), base, *arguments],
        env={**os.environ, "CHROMIUM": shutil.which("chromium") or ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as journey:
        assert journey.stdin is not None
        assert journey.stdout is not None
        patience = threading.Timer(_JOURNEY_S, journey.kill)
        patience.start()
        said = []
        try:
            for line in journey.stdout:
                said.append(line)
                if line.startswith("@"):
                    journey.stdin.write(f"{actions[line[1:].strip()]()}\n")
                    journey.stdin.flush()
        finally:
            patience.cancel()
            journey.kill()
    assert said, "the journey said nothing"
    assert said[-1].strip() == "done", "".join(said)


@contextmanager
def one_node(directory: Path) -> Iterator[tuple[BrokerProcess, str]]:
    environment = {"DRMQ_GATEWAY": "true", "DRMQ_HTTP_PORT": "0"}
    with BrokerProcess(directory / "data", env=environment) as broker:
        eventually(lambda: bool(_HTTP.search(broker.log_text())))
        [base] = _HTTP.findall(broker.log_text())
        yield broker, base


def test_the_first_ten_minutes(node: str, tmp_path: Path) -> None:
    with one_node(tmp_path) as (broker, base):
        consumers: list[subprocess.Popen[bytes]] = []

        def consume() -> None:
            command = [sys.executable, "-m", "drmq", "consume", "journey", "--group", "billing", "--from", "begin"]
            consumers.append(
                subprocess.Popen([*command, "--follow", "-b", broker.bootstrap], stdout=subprocess.DEVNULL)
            )

        def stop() -> None:
            while consumers:
                consumer = consumers.pop()
                consumer.send_signal(signal.SIGTERM)
                consumer.wait(60)

        try:
            travel(node, "ten_minutes.mjs", base, {"consume": consume, "stop": stop})
        finally:
            stop()


def test_an_empty_cluster_and_keys_only(node: str, tmp_path: Path) -> None:
    with one_node(tmp_path) as (_, base):
        travel(node, "empty.mjs", base, {})


def test_a_page_survives_a_pause_and_the_loss_of_all_nodes(node: str, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    run_drmq("up", "--nodes", "1", "--port", "0", "--data-dir", str(directory))
    try:
        [only] = json.loads((directory / "cluster.json").read_text())["nodes"]
        on_node = partial(run_drmq, "node")
        actions = {verb: partial(on_node, verb, "1", "--data-dir", str(directory)) for verb in ("kill", "start")}
        travel(node, "reconnect.mjs", f"http://{only['http']}", actions)
    finally:
        run_drmq("down", "--data-dir", str(directory))


def test_a_work_queue_and_every_page(node: str, tmp_path: Path) -> None:
    with one_node(tmp_path) as (broker, base):
        with Admin(broker.bootstrap) as admin:
            for name in ("orders", "other"):
                admin.topics.create(NewTopic(name, 1))
        values = [b"poison-1", b"poison-2", b"poison-3", b"good", b"slow-1", b"slow-2"]
        with drmq.Producer(broker.bootstrap) as producer:
            for value in values:
                producer.send("orders", value, partition=0)

            def produce() -> None:
                for number in range(3):
                    producer.send("orders", f"tail-{number}".encode())
                    producer.send("other", f"tail-{number}".encode())

            with drmq.Consumer(broker.bootstrap, "workers", start="earliest", client_id="a-slow-worker") as worker:
                worker.subscribe("orders")
                held: list[drmq.LeasedMessage[bytes]] = []
                while len(held) < 2:
                    for message in worker.poll(10, timeout=1.0):
                        if message.value.startswith(b"poison"):
                            message.reject()
                        elif message.value == b"good":
                            message.ack()
                        else:
                            held.append(message)
                travel(node, "queues.mjs", base, {"produce": produce})


def test_many_topics_and_groups_draw_only_what_is_seen(node: str, tmp_path: Path) -> None:
    with one_node(tmp_path) as (broker, base):
        with Admin(broker.bootstrap) as admin:
            for number in range(500):
                admin.topics.create(NewTopic(f"topic-{number:03}", 2))
            for number in range(50):
                names = [f"topic-{10 * number + each:03}" for each in range(10)]
                places = [TopicPartition(name, index) for name in names for index in (0, 1)]
                admin.groups.commit(f"group-{number:02}", dict.fromkeys(places, 0))
        travel(node, "large.mjs", base, {})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "cluster"
    run_drmq("up", "--nodes", "3", "--port", "0", "--lab", "--data-dir", str(directory))
    yield directory
    run_drmq("down", "--data-dir", str(directory))


def run_drmq(*arguments: str) -> None:
    command = [sys.executable, "-m", "drmq", *arguments]
    subprocess.run(command, env={**os.environ, "DRMQ_GATEWAY": "true"}, check=True, capture_output=True, timeout=300)


def test_pages_go_on_when_nodes_are_killed(node: str, cluster: Path) -> None:
    nodes = json.loads((cluster / "cluster.json").read_text())["nodes"]
    place = TopicPartition("watched", 0)
    with Admin(",".join(each["kafka"] for each in nodes)) as admin:
        admin.topics.create(NewTopic(place.topic, 1, 3))
        leader = int(eventually(lambda: admin.replicas.quorum(place).leader_id) or 0)
    # The page must stay while the leader is killed.
    own = next(each for each in nodes if each["id"] != leader)

    def on_node(verb: str, node_id: int) -> int:
        run_drmq("node", verb, str(node_id), "--data-dir", str(cluster))
        return node_id

    actions = {
        "kill-leader": lambda: on_node("kill", leader),
        "start-killed": lambda: on_node("start", leader),
        "kill-own": lambda: on_node("kill", own["id"]),
        "start-own": lambda: on_node("start", own["id"]),
    }
    base = f"http://{own['http']}"
    travel(node, "failover.mjs", base, actions)
    travel(node, "lab.mjs", base, {}, str(leader))
