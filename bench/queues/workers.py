"""Some workers on one queue: started together, measured together.

All workers have joined before the clock starts, and all of them are told to stop at the same time. What counts is what
they acknowledged in between; the CPU time of both sides is that of the same time.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace

import psutil

from bench.clients.leasing import QueueReport, QueueTask
from bench.measurement import Phase
from bench.process import ROOT, BenchError, Watched

READY_SECONDS_MAX = 120.0
REPORT_SECONDS_MAX = 60.0
STALL_SECONDS_MAX = 15.0
WATCH_SECONDS = 0.02
SAMPLE_SECONDS = 0.1


class Program:
    """One client process; a thread reads what it says."""

    def __init__(self, module: str, task: QueueTask) -> None:
        self.is_ready = threading.Event()
        self.progress: list[tuple[float, int, float]] = []
        """Time, messages so far, CPU seconds so far: when it was told to go, and whenever there were more messages."""
        self.report: QueueReport | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.clients.{module}", json.dumps(asdict(task))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True,
        )  # fmt: skip
        self._errors: list[str] = []
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def tell(self, word: str) -> None:
        """Send one line; a program that has ended says why later."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()

    @property
    def count(self) -> int:
        """Messages so far."""
        return self.progress[-1][1] if self.progress else 0

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def result(self, seconds_max: float) -> QueueReport:
        """Its report, when it has ended."""
        try:
            self._process.wait(seconds_max)
        except subprocess.TimeoutExpired as late:
            raise BenchError(f"a client did not end within {seconds_max:.0f} s") from late
        for thread in self._threads:
            thread.join(10.0)
        if self.report is None:
            raise BenchError(self.words())
        return self.report

    def words(self) -> str:
        """What it said last, if it failed."""
        return f"a client failed: {''.join(self._errors)[-600:].strip()}"

    def close(self) -> None:
        """End it, however it is."""
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(10.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                self.is_ready.set()
            elif line.startswith("report "):
                self.report = QueueReport(**json.loads(line.removeprefix("report ")))
            else:
                at, count, cpu = json.loads(line)
                if not self.progress or count > self.count:
                    self.progress.append((at, count, cpu))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)
            del self._errors[:-50]


@dataclass(frozen=True)
class Worked:
    """What the workers and the servers did between go and stop."""

    phase: Phase
    reports: tuple[QueueReport, ...]
    """One per worker."""

    @property
    def count(self) -> int:
        """All messages, with those before the clock started and after it ended."""
        return sum(report.count for report in self.reports)


class Workers:
    """The worker processes of one measurement, as a context."""

    def __init__(self, module: str, task: QueueTask, worker_count: int, server: Watched) -> None:
        self._server = server
        self._task = task
        self._programs = [Program(module, replace(task, worker=number)) for number in range(worker_count)]
        self._before = server.usage()
        self._peak = 0

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.close()

    @property
    def count(self) -> int:
        """Messages that all of them have acknowledged, as far as they have said."""
        return sum(program.count for program in self._programs)

    def go(self) -> None:
        """Wait until messages reach all of them, then start the clock."""
        deadline = time.perf_counter() + READY_SECONDS_MAX
        for program in self._programs:
            while not program.is_ready.wait(0.1):
                if not program.is_alive:
                    program.result(1.0)
                if time.perf_counter() > deadline:
                    raise BenchError(f"a worker got no message within {READY_SECONDS_MAX:.0f} s; {self._tail()}")
        self._before = self._server.usage()
        for program in self._programs:
            program.tell("go")

    def wait(self, count: int, seconds_max: float) -> None:
        """Wait until they have acknowledged `count` messages, but not for longer than that."""
        deadline = time.perf_counter() + seconds_max
        seen, seen_at, sampled_at = -1, time.perf_counter(), 0.0
        while (done := self.count) < count and (now := time.perf_counter()) < deadline:
            if done != seen:
                seen, seen_at = done, now
            if now - seen_at > STALL_SECONDS_MAX:
                raise BenchError(
                    f"nothing was acknowledged for {STALL_SECONDS_MAX:.0f} s, after {done}; {self._tail()}"
                )
            if dead := next((program for program in self._programs if not program.is_alive), None):
                dead.result(1.0)
                raise BenchError("a worker ended too early")
            if now - sampled_at >= SAMPLE_SECONDS:
                sampled_at = now
                self._peak = max(self._peak, self._usage_rss())
            time.sleep(WATCH_SECONDS)

    def stop(self) -> Worked:
        """Stop the clock and the workers; what they report must fit together."""
        try:
            after = self._server.usage()
        except psutil.NoSuchProcess as gone:
            raise BenchError(f"{self._server.name} ended during the measurement: {self._tail()}") from gone
        spans = [(program.progress[0], program.progress[-1]) for program in self._programs if program.progress]
        for program in self._programs:
            program.tell("stop")
        reports = tuple(program.result(REPORT_SECONDS_MAX) for program in self._programs)
        count, size = sum(report.count for report in reports), sum(report.size for report in reports)
        if size != count * self._task.record_size:
            raise BenchError(f"{count} messages had {size} bytes, not {count * self._task.record_size}")
        if not spans:
            raise BenchError("no worker said how far it is")
        first_at, last_at = min(first[0] for first, _ in spans), max(last[0] for _, last in spans)
        phase = Phase(
            sum(last[1] - first[1] for first, last in spans), self._task.record_size, last_at - first_at,
            after.cpu_seconds - self._before.cpu_seconds, sum(last[2] - first[2] for first, last in spans),
            after.rss_bytes, max(self._peak, after.rss_bytes),
        )  # fmt: skip
        if not phase.records or phase.seconds <= 0:
            raise BenchError(f"nothing was acknowledged while the clock ran; {self._tail()}")
        return Worked(phase, reports)

    def _usage_rss(self) -> int:
        try:
            return self._server.usage().rss_bytes
        except psutil.NoSuchProcess as gone:
            raise BenchError(f"{self._server.name} ended during the measurement: {self._tail()}") from gone

    def _tail(self) -> str:
        return f"{self._server.name} said: {self._server.log_tail()[-300:]}"


def run_workers(
    module: str, task: QueueTask, worker_count: int, server: Watched, record_count: int, seconds_max: float
) -> Worked:
    """Let workers empty a queue of `record_count` messages, for at most `seconds_max`."""
    with Workers(module, task, worker_count, server) as workers:
        workers.go()
        workers.wait(record_count, seconds_max)
        worked = workers.stop()
    if worked.count > record_count:
        raise BenchError(f"{worked.count} messages were handed over, but only {record_count} were sent")
    return worked
