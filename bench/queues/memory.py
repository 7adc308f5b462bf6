"""What a DRMQ broker keeps in memory of messages that are done, and of messages that wait for a retry."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.process import BenchError
from bench.queues.kafka import DrmqQueue
from bench.queues.systems import Contender
from bench.queues.workers import run_workers

RECORD_SIZE = 100
SETTLE_SECONDS = 3.0
SECONDS_MAX = 180.0
WORKER_COUNT = 2


@dataclass
class Memory:
    """Resident bytes of the broker before and after; 0 where nothing was measured."""

    done_count: int = 0
    done_before_bytes: int = 0
    done_after_bytes: int = 0
    parked_count: int = 0
    parked_before_bytes: int = 0
    parked_after_bytes: int = 0
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(
    system: DrmqQueue, worker: Contender, parker: Contender, counts: tuple[int, int], on_step: Callable[[str], None]
) -> Memory:
    """Acknowledge the first number of messages with `worker`, and park the second with `parker`."""
    out = Memory()
    try:
        done, parked = counts
        on_step(f"memory: {done:,} messages, leased and acknowledged by the {worker.name}")
        out.done_before_bytes, out.done_after_bytes = _growth(system, worker, done)
        out.done_count = done
        on_step(f"memory: {parked:,} messages, put off by the {parker.name}")
        out.parked_before_bytes, out.parked_after_bytes = _growth(system, parker, parked)
        out.parked_count = parked
    except BenchError as failed:
        out.errors.append(str(failed))
    return out


def _growth(system: DrmqQueue, contender: Contender, count: int) -> tuple[int, int]:
    try:
        system.start()
        sent = 0
        while sent < count:
            sent += system.fill(RECORD_SIZE, count - sent)
        system.open_group("memory")
        time.sleep(SETTLE_SECONDS)
        before = system.servers.usage().rss_bytes
        task = system.task(contender, "memory", RECORD_SIZE)
        worked = run_workers(contender.module, task, WORKER_COUNT, system.servers, count, SECONDS_MAX)
        if worked.count != count:
            raise BenchError(f"{worked.count} of {count} messages were handed over within {SECONDS_MAX:.0f} s")
        time.sleep(SETTLE_SECONDS)
        return before, system.servers.usage().rss_bytes
    finally:
        system.stop()
