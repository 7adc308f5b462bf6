"""What the gateway's doors cost: appending and taking work over HTTP and gRPC, as ratios to the Kafka door.

    python -m bench.doors [--seconds 5] [--only append-batch,lease] [--profile]

One node with its gateway, one client process, all on this machine. Every section runs door by door, one after the
other, on a topic of its own. The CPU time of the node, the gateway and the client is beside each rate: on a machine
with few cores the sum of them limits. `--profile` also shows where the gateway's thread spends its time (py-spy).

- `append-batch`: requests with 100 records of 1 KB, eight on their way at a time.
- `append-single`: requests with one such record, 32 on their way at a time.
- `lease`: messages of 1 KB that are there already are leased, and each is acknowledged.

The Kafka door is used by librdkafka, with as many records on their way, and by DRMQ's Python consumer, which leases.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import psutil

from bench.process import Server, fixed_ports, port_answers
from drmq import aio
from drmq.client import Admin, NewTopic
from drmq.gateway.appending import Appending, RecordToSend
from drmq.v1 import leases_pb2, leases_pb2_grpc, log_pb2, log_pb2_grpc
from drmq.v1.records_pb2 import NewRecord

VALUE = b"x" * 1_000
BATCH = 100
BATCHES_AT_A_TIME = 8
SINGLES_AT_A_TIME = 32
LEASED_AHEAD = 1_000
LEASED_COUNT = 150_000
FILLED_AT_A_TIME = 10_000
RECORD = RecordToSend(VALUE, None, None, None, None)
READY_S = 60.0
PROFILE_LINES = 12


class Ports(NamedTuple):
    """Where the doors of the node are."""

    kafka: int
    http: int
    grpc: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.kafka}"


class Result(NamedTuple):
    """Messages of one run, its time, and the CPU seconds of node, gateway and client."""

    moved: int
    seconds: float
    cpu: tuple[float, float, float]

    @property
    def rate(self) -> float:
        return self.moved / self.seconds


Load = Callable[[Ports, str, float], Coroutine[Any, Any, int]]
"""Runs for so many seconds over a topic, and returns how many messages it moved."""


# ---- appending --------------------------------------------------------------------------------------


async def _in_parallel(count: int, seconds: float, send: Callable[[], Awaitable[int]]) -> int:
    """Call `send` again and again in so many tasks."""
    end = time.perf_counter() + seconds

    async def repeat() -> int:
        sent = 0
        while time.perf_counter() < end:
            sent += await send()
        return sent

    return sum(await asyncio.gather(*(repeat() for _ in range(count))))


def append_kafka(size: int, at_a_time: int) -> Load:
    async def run(ports: Ports, topic: str, seconds: float) -> int:
        async with aio.Producer(ports.bootstrap) as producer:

            async def send() -> int:
                # librdkafka's own callbacks: a future for each record would measure futures.
                appending = Appending(producer.sender, topic, size)
                await appending.send([RECORD] * size)
                await appending.results()
                return size

            return await _in_parallel(at_a_time, seconds, send)

    return run


def append_grpc(size: int, at_a_time: int) -> Load:
    async def run(ports: Ports, topic: str, seconds: float) -> int:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
            stub: Any = log_pb2_grpc.LogServiceStub(channel)

            async def send() -> int:
                records = [NewRecord(value=VALUE) for _ in range(size)]
                await stub.Append(log_pb2.AppendRequest(topic=topic, records=records))
                return size

            return await _in_parallel(at_a_time, seconds, send)

    return run


def append_grpc_stream(size: int, at_a_time: int) -> Load:
    async def run(ports: Ports, topic: str, seconds: float) -> int:
        end = time.perf_counter() + seconds
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
            stub: Any = log_pb2_grpc.LogServiceStub(channel)
            room = asyncio.Semaphore(at_a_time)
            call = stub.AppendStream()

            async def write() -> None:
                while time.perf_counter() < end:
                    await room.acquire()
                    records = [NewRecord(value=VALUE) for _ in range(size)]
                    await call.write(log_pb2.AppendStreamRequest(topic=topic, records=records))
                await call.done_writing()

            writing = asyncio.ensure_future(write())
            sent = 0
            async for response in call:
                sent += len(response.results)
                room.release()
            await writing
            return sent

    return run


def append_http(size: int, at_a_time: int) -> Load:
    body = json.dumps({"records": [{"value": VALUE.decode()}] * size})

    async def run(ports: Ports, topic: str, seconds: float) -> int:
        end = time.perf_counter() + seconds
        counts: list[int] = []

        def repeat() -> None:
            connection = HTTPConnection("127.0.0.1", ports.http)
            sent = 0
            while time.perf_counter() < end:
                connection.request(
                    "POST", f"/api/v1/topics/{topic}/records", body, {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, answer.status
                sent += size
            counts.append(sent)

        threads = [threading.Thread(target=repeat) for _ in range(at_a_time)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        return sum(counts)

    return run


# ---- taking work ------------------------------------------------------------------------------------


async def fill(ports: Ports, topic: str) -> None:
    async with aio.Producer(ports.bootstrap) as producer:
        for _ in range(LEASED_COUNT // FILLED_AT_A_TIME):
            appending = Appending(producer.sender, topic, FILLED_AT_A_TIME)
            await appending.send([RECORD] * FILLED_AT_A_TIME)
            await appending.results()


async def lease_kafka(ports: Ports, topic: str, seconds: float) -> int:
    end = time.perf_counter() + seconds
    done = 0
    async with aio.Consumer(ports.bootstrap, f"g-{topic}", start="earliest") as consumer:
        await consumer.subscribe(topic)
        while done < LEASED_COUNT and time.perf_counter() < end:
            for message in await consumer.poll(500, 1.0):
                await message.ack(wait=False)
                done += 1
        await consumer.flush(30)
    return done


async def lease_grpc(ports: Ports, topic: str, seconds: float) -> int:
    end = time.perf_counter() + seconds
    done = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        stub: Any = leases_pb2_grpc.LeaseServiceStub(channel)
        call = stub.Lease()
        subscribe = leases_pb2.Subscribe(
            group=f"g-{topic}", topics=[topic], credits=LEASED_AHEAD, start=leases_pb2.GROUP_START_EARLIEST
        )
        await call.write(leases_pb2.LeaseRequest(subscribe=subscribe))
        async for response in call:
            ids = [each.delivery_id for each in response.deliveries.deliveries]
            if ids:
                settle = leases_pb2.Settle(delivery_ids=ids, outcome=leases_pb2.OUTCOME_ACK)
                await call.write(leases_pb2.LeaseRequest(settle=settle))
            done += len(response.settled.delivery_ids)
            if done >= LEASED_COUNT or time.perf_counter() > end:
                break
        call.cancel()
    return done


async def lease_http(ports: Ports, topic: str, seconds: float) -> int:
    connection = HTTPConnection("127.0.0.1", ports.http, timeout=60)

    headers = {"Content-Type": "application/json"}

    def ask(method: str, path: str, body: dict[str, Any]) -> Any:
        connection.request(method, f"/api/v1/groups/g-{topic}/{path}", json.dumps(body), headers)
        answer = connection.getresponse()
        data = json.loads(answer.read())
        assert answer.status == 200, data
        return data

    def run() -> int:
        ask("PATCH", "settings", {"set": {"share.auto.offset.reset": "earliest"}})
        end = time.perf_counter() + seconds
        done = 0
        while done < LEASED_COUNT and time.perf_counter() < end:
            found = ask("POST", "poll", {"topics": [topic], "max": 500, "wait_ms": 1_000})["messages"]
            if found:
                ask("POST", "ack", {"ack_ids": [each["ack_id"] for each in found]})
            done += len(found)
        return done

    return await asyncio.to_thread(run)


SECTIONS: dict[str, dict[str, Load]] = {
    "append-batch": {
        "kafka": append_kafka(BATCH, BATCHES_AT_A_TIME),
        "grpc": append_grpc(BATCH, BATCHES_AT_A_TIME),
        "grpc stream": append_grpc_stream(BATCH, BATCHES_AT_A_TIME),
        "http": append_http(BATCH, BATCHES_AT_A_TIME),
    },
    "append-single": {
        "kafka": append_kafka(1, SINGLES_AT_A_TIME),
        "grpc": append_grpc(1, SINGLES_AT_A_TIME),
        "http": append_http(1, SINGLES_AT_A_TIME),
    },
    "lease": {"kafka": lease_kafka, "grpc": lease_grpc, "http": lease_http},
}


# ---- running ----------------------------------------------------------------------------------------


def _cpu(node: psutil.Process) -> tuple[float, float, float]:
    def spent(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    [gateway] = node.children()
    return spent(node), spent(gateway), spent(psutil.Process())


def measure(node: psutil.Process, load: Load, ports: Ports, topic: str, seconds: float) -> Result:
    before, started = _cpu(node), time.perf_counter()
    count = asyncio.run(load(ports, topic, seconds))
    elapsed = time.perf_counter() - started
    after = _cpu(node)
    return Result(count, elapsed, (after[0] - before[0], after[1] - before[1], after[2] - before[2]))


def profiled(pid: int, seconds: float) -> subprocess.Popen[str]:
    command = ["py-spy", "record", "--pid", str(pid), "--duration", str(max(1, int(seconds) - 1)), "--format", "raw"]
    output = ["--output", "/dev/stdout", "--nonblocking", "--rate", "200"]
    program = str(Path(sys.executable).with_name(command[0]))
    return subprocess.Popen(
        [program, *command[1:], *output], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def show_profile(profile: subprocess.Popen[str]) -> None:
    """Where the samples were, by the innermost function and by every function on the stack."""
    text, _ = profile.communicate()
    total, own, whole = 0, dict[str, int](), dict[str, int]()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not count.isdigit():
            continue
        frames = [frame.rpartition(":")[0] or frame for frame in stack.split(";")]
        total += int(count)
        own[frames[-1]] = own.get(frames[-1], 0) + int(count)
        for frame in set(frames):
            whole[frame] = whole.get(frame, 0) + int(count)
    for title, found in (("itself", own), ("with what it calls", whole)):
        print(f"    of the gateway's time, {title}:")
        for frame, samples in sorted(found.items(), key=lambda item: -item[1])[:PROFILE_LINES]:
            print(f"    {samples / max(total, 1):6.1%}  {frame}")


def show(section: str, door: str, result: Result, base: Result) -> None:
    node, gateway, client = (1e6 * spent / max(result.moved, 1) for spent in result.cpu)
    print(
        f"{section:14} {door:12} {result.rate:9,.0f}/s  {result.rate / base.rate:5.2f} of kafka   "
        f"CPU us per message: node {node:5.1f}  gateway {gateway:5.1f}  client {client:5.1f}",
        flush=True,
    )


def run(options: argparse.Namespace, directory: Path) -> None:
    ports = Ports(*fixed_ports(3))
    command = [
        str(Path(sys.executable).with_name("drmq")), "server", "--gateway", "true", "--port", str(ports.kafka),
        "--http-port", str(ports.http), "--grpc-port", str(ports.grpc), "--data-dir", str(directory / "data"),
    ]  # fmt: skip
    server = Server(command, directory / "server.log")
    try:
        server.wait_ready(lambda: all(map(port_answers, ports)), READY_S)
        node = psutil.Process(server.pid)
        # What the gateway does in its first seconds is over, and nobody has asked it for anything.
        time.sleep(3)
        [gateway] = node.children()
        print(f"idle: node {_megabytes(node)}, gateway {_megabytes(gateway)}")
        for section in options.only:
            base: Result | None = None
            for door, load in SECTIONS[section].items():
                topic = f"{section}-{door.replace(' ', '-')}"
                with Admin(ports.bootstrap, timeout_s=30) as admin:
                    admin.topics.create(NewTopic(topic, 4))
                if section == "lease":
                    asyncio.run(fill(ports, topic))
                profile = profiled(gateway.pid, options.seconds) if options.profile and door != "kafka" else None
                result = measure(node, load, ports, topic, options.seconds)
                base = base or result
                show(section, door, result, base)
                if profile is not None:
                    show_profile(profile)
        print(f"after: node {_megabytes(node)}, gateway {_megabytes(gateway)}")
    finally:
        server.stop()


def _megabytes(process: psutil.Process) -> str:
    return f"{process.memory_info().rss / 1e6:.0f} MB"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.doors", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections: {','.join(SECTIONS)}")
    parser.add_argument("--profile", action="store_true", help="where the gateway spends its time")
    options = parser.parse_args()
    options.only = options.only.split(",")
    with tempfile.TemporaryDirectory(prefix="drmq-doors-") as directory:
        run(options, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
