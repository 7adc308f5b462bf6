"""How fast a group commits one offset after the other, and the limit of the disk in the same run.

    python -m bench.commits_micro [--nodes N] [--clients N] [--commits N] [--directory DIR] [--kafka]

A client sends OffsetCommit with one offset, waits for the answer, and sends the next. Each client has its own group.
The limit appends as many bytes as one commit takes in the log to a file and calls `fdatasync`, one after the other.
With `--kafka` one node of Apache Kafka does the same afterwards, without syncing. Its JVM first gets as many commits to
compile what they need.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.systems.base import Unavailable
from bench.systems.kafka import KafkaNode, KafkaSystem
from bench.systems.kafka_admin import create_topic as create_kafka_topic
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError
from drmq.model.address import parse_bootstrap
from drmq.server.ports import free_ports
from drmq.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from drmq.wire.messages.find_coordinator import FindCoordinatorRequest
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

RECORD_BYTES = 300
"""About the size of a batch with one committed offset."""
_TIMEOUT_S = 120.0


def limit(directory: str, count: int) -> float:
    """Appends and syncs per second of a bare file."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(bytes(64 << 20))  # as the journal, which is allocated in advance
        file.flush()
        os.fsync(file.fileno())
        data, started = os.urandom(RECORD_BYTES), time.perf_counter()
        for number in range(count):
            os.pwrite(file.fileno(), data, number * RECORD_BYTES)
            os.fdatasync(file.fileno())
        return count / (time.perf_counter() - started)


def connect(bootstrap: str) -> Connection:
    [address] = parse_bootstrap(bootstrap)
    return Connection(address, "bench", Deadline(_TIMEOUT_S))


def ask(connection: Connection, request: Any, version_max: int = 32_767) -> Any:
    return connection.call(request, object, Deadline(_TIMEOUT_S), version_max)


def commit(addresses: dict[int, str], group: str, count: int, latencies: list[float]) -> None:
    """Commit one offset after the other, at the coordinator of the group."""
    first = connect(addresses[1])
    while True:
        [found] = ask(first, FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators
        if found.error_code == 0:
            break
        time.sleep(0.05)
    connection = connect(addresses[found.node_id])

    def send(offset: int) -> int:
        partition = OffsetCommitRequestPartition(0, offset, -1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        answer = ask(connection, OffsetCommitRequest(group, -1, "", topics=[topic]), 8)
        return int(answer.topics[0].partitions[0].error_code)

    # Kafka refuses for a moment, until the coordinator has loaded its partition.
    deadline = time.monotonic() + _TIMEOUT_S
    while send(0) and time.monotonic() < deadline:
        time.sleep(0.05)
    for offset in range(count):
        started = time.perf_counter()
        error_code = send(offset)
        latencies.append(time.perf_counter() - started)
        assert error_code == 0, error_code


def launch(directory: str, count: int) -> tuple[list[subprocess.Popen[bytes]], dict[int, str]]:
    """Start the nodes; returns them, and their addresses by id."""
    ports = free_ports("127.0.0.1", 2 * count)
    program = Path(sys.executable).with_name("drmq")
    peers = ",".join(f"{at + 1}:127.0.0.1:{ports[2 * at]}:{ports[2 * at + 1]}" for at in range(count))
    nodes, addresses = [], {}
    for at in range(count):
        command = [str(program), "server", "--node-id", str(at + 1), "--port", str(ports[2 * at])]
        command += ["--data-dir", f"{directory}/{at + 1}"]
        if count > 1:
            command += ["--peers", peers, "--peer-port", str(ports[2 * at + 1])]
        nodes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        addresses[at + 1] = f"127.0.0.1:{ports[2 * at]}"
    return nodes, addresses


def create_topic(bootstrap: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            connection = connect(bootstrap)
            break
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    connection.call(CreateTopicsRequest([CreateTopicsRequestTopic("t", 1, -1)]), object, Deadline(_TIMEOUT_S))


def measure(name: str, addresses: dict[int, str], pids: list[int], clients: int, commits: int) -> str:
    latencies: list[list[float]] = [[] for _ in range(clients)]
    threads = [
        threading.Thread(target=commit, args=(addresses, f"group-{number}", commits // clients, each))
        for number, each in enumerate(latencies)
    ]
    started, before = time.perf_counter(), sum(map(cpu_s, pids))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken, used = time.perf_counter() - started, sum(map(cpu_s, pids)) - before
    every = sorted(each for some in latencies for each in some)
    count = len(every)
    return (
        f"{name}, {len(pids)} nodes, {clients} clients: {count} commits in {taken:.1f} s, {count / taken:.0f}/s, "
        f"p50 {every[count // 2] * 1000:.2f} ms, p99 {every[count * 99 // 100] * 1000:.2f} ms, "
        f"{used / count * 1e6:.0f} us of processor time each, on all nodes"
    )


def measure_kafka(directory: str, clients: int, commits: int) -> str:
    node = KafkaNode(Path(directory))
    try:
        KafkaSystem(Path(directory), node, fsyncs=False).check()
        node.start()
        assert node.server is not None
        create_kafka_topic(node.port, "t", 1, {})
        addresses = {1: f"127.0.0.1:{node.port}"}
        measure("warm-up", addresses, [node.server.pid], clients, commits)
        return measure("kafka", addresses, [node.server.pid], clients, commits)
    except Unavailable as reason:
        return f"kafka: not measured: {reason}"
    finally:
        node.stop()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--directory", default=None)
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        nodes, addresses = launch(directory, options.nodes)
        try:
            create_topic(addresses[1])
            syncs = limit(directory, options.commits)
            pids = [node.pid for node in nodes]
            measured = measure("drmq", addresses, pids, options.clients, options.commits)
            print(f"{measured}; limit {syncs:.0f}/s")
        finally:
            for node in nodes:
                node.kill()
                node.wait()
        if options.kafka:
            print(measure_kafka(directory, options.clients, options.commits))


if __name__ == "__main__":
    main()
