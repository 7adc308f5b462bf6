"""Processes: started, watched and ended by their id, and never by name.

A `Server` is the thing being measured; its CPU time and memory include its children. A client
is a program of `bench.clients`, told its task as JSON and started in two steps: it prepares,
says so, and begins only when told, so that neither side's preparation is measured.
"""

import contextlib
import json
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import IO, NoReturn, Protocol

import psutil

from bench.clients import Report, Task

ROOT = Path(__file__).resolve().parent.parent
STOP_SECONDS_MAX = 20.0
SAMPLE_SECONDS = 0.1
FIXED_PORTS = range(20_000, 30_000)
"""Below what kernels hand out by themselves."""


class BenchError(Exception):
    """A measurement that could not be taken; the run reports it and goes on."""


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fixed_ports(count: int) -> list[int]:
    """Ports for servers that will be killed and started again on them.

    One from `free_port` could become the local end of somebody's connection in between.
    """
    found: list[int] = []
    for port in random.sample(FIXED_PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
            if len(found) == count:
                return found
    raise BenchError(f"found no {count} free ports from {FIXED_PORTS.start} to {FIXED_PORTS.stop}")


@dataclass(frozen=True)
class Usage:
    """CPU seconds since start and resident bytes of a process with its children."""

    cpu_seconds: float
    rss_bytes: int
    cpu_seconds_each: tuple[float, ...] = ()
    """Per node, where several servers are watched as one."""


class Watched(Protocol):
    """What a client runs against: a server, or several that make up a cluster."""

    @property
    def name(self) -> str:
        """For messages."""

    def usage(self) -> Usage:
        """CPU time and memory now."""

    def log_tail(self) -> str:
        """Its last words, for messages."""


class Server:
    """One started program; `stop` ends it and waits for it."""

    def __init__(self, command: list[str], log: Path, *, has_session: bool = False) -> None:
        """With `has_session`, the scheduler weighs it as a session of its own; see `bench.cluster.burners`."""
        self.command = command
        self.log = log
        self.started_at = time.perf_counter()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=has_session
            )
        self._watch = psutil.Process(self._process.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def name(self) -> str:
        """The program."""
        return self.command[0]

    def is_alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def usage(self) -> Usage:
        """CPU time and memory now, summed over the process and its children."""
        cpu, rss = 0.0, 0
        for process in [self._watch, *self._watch.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                cpu += times.user + times.system
                rss += process.memory_info().rss
        return Usage(cpu, rss)

    def wait_ready(self, is_ready: Callable[[], bool], seconds_max: float) -> None:
        """Poll until `is_ready`; raise with the end of the log if the program ends or takes too long."""
        while not is_ready():
            if self._process.poll() is not None:
                raise BenchError(f"{self.command[0]} ended with code {self._process.returncode}: {self.log_tail()}")
            if time.perf_counter() - self.started_at > seconds_max:
                raise BenchError(f"{self.command[0]} was not ready after {seconds_max:.0f} s: {self.log_tail()}")
            time.sleep(0.005)

    def log_tail(self) -> str:
        """The last words of the program, for an error message."""
        return self.log.read_bytes()[-600:].decode(errors="replace").strip()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it with `how`, and with SIGKILL if that takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Program:
    """A program of `bench.clients` that lives through several events, and is asked line by line."""

    def __init__(self, name: str, module: str, task: object, *, has_session: bool = False) -> None:
        """`task` is a dataclass; the program gets it as JSON."""
        self.name = name
        assert is_dataclass(task)
        assert not isinstance(task, type)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.clients.{module}", json.dumps(asdict(task))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True,
            start_new_session=has_session,
        )  # fmt: skip

    def tell(self, line: str) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def hear(self, seconds_max: float) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds_max)[0]:
            raise BenchError(f"the program {self.name} said nothing within {seconds_max:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        return line

    def close(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.communicate()

    def _fail(self) -> NoReturn:
        self._process.kill()
        words = self._process.stderr.read() if self._process.stderr else ""
        raise BenchError(f"the program {self.name} failed: {words[-600:].strip()}")


def port_answers(port: int) -> bool:
    """Whether something accepts connections on `port` of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Run:
    """One client's report, with what the server spent while it ran."""

    report: Report
    server_cpu_seconds: float
    server_rss_bytes: int
    server_rss_bytes_peak: int
    server_cpu_seconds_each: tuple[float, ...] = ()
    """Per node, for a cluster."""


def run_client(module: str, task: Task, server: Watched, grace_seconds: float = 60.0) -> Run:
    """Let `bench.clients.<module>` do `task` against `server`, and measure both sides.

    The client stops by itself at the task's time limit; `grace_seconds` is for preparation and
    for a server that stopped answering.
    """
    client = subprocess.Popen(
        [sys.executable, "-m", f"bench.clients.{module}", json.dumps(asdict(task))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    peak, done = [0], threading.Event()

    def sample() -> None:
        with contextlib.suppress(psutil.Error):
            while not done.wait(SAMPLE_SECONDS):
                peak[0] = max(peak[0], server.usage().rss_bytes)

    try:
        _expect(client, client.stdout, grace_seconds)
        before = server.usage()
        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        client.stdin.write("go\n")
        client.stdin.flush()
        answer = _expect(client, client.stdout, task.seconds_max + grace_seconds)
        after = server.usage()
        done.set()
        sampler.join()
        return Run(
            Report(**json.loads(answer)), after.cpu_seconds - before.cpu_seconds, after.rss_bytes,
            max(peak[0], after.rss_bytes),
            tuple(b - a for a, b in zip(before.cpu_seconds_each, after.cpu_seconds_each, strict=True)),
        )  # fmt: skip
    except psutil.NoSuchProcess as gone:
        raise BenchError(f"{server.name} ended during the measurement: {server.log_tail()}") from gone
    finally:
        done.set()
        client.kill()
        client.communicate()


def _expect(client: "subprocess.Popen[str]", lines: IO[str], seconds_max: float) -> str:
    """The client's next line; its last words as an error if there is none in time."""
    if not select.select([lines], [], [], seconds_max)[0]:
        raise BenchError(f"the client gave no answer within {seconds_max:.0f} s")
    line = lines.readline()
    if not line:
        client.wait()
        words = client.stderr.read()[-600:].strip() if client.stderr else ""
        raise BenchError(f"the client failed: {words}")
    return line
