"""What DRMQ needs to start, and what it keeps in memory.

One broker lives through it all, in this order: it starts, idles, takes and returns some
gigabytes, takes more until the log is as large as wanted, and is started again twice, after a
clean stop and after SIGKILL. Time to the first acknowledgement counts from before the process
exists until a Produce request to an existing topic is answered without error.
"""

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from bench.kafka_frames import RESPONSE_SIZE, first_error, produce_request, record_batch
from bench.payloads import make_payloads
from bench.process import BenchError
from bench.systems.drmq import DrmqSystem
from bench.workloads import TOPIC, Batching, Workload

PARTITION_COUNT = 4
SETTLE_SECONDS = 2.0
PHASE_SECONDS_MAX = 150.0
STEPS = 5
GIGABYTE = 1_000_000_000


@dataclass
class Lifecycle:
    """Memory in bytes, times in seconds; None where the measurement failed."""

    first_ack_seconds: list[float] = field(default_factory=list)
    """Starts with next to no data."""
    rss_idle_bytes: int | None = None
    rss_after_bytes: int | None = None
    rss_peak_bytes: int | None = None
    passed_through_bytes: int = 0
    """How much was written and read between idle and after."""
    sealed_bytes: int = 0
    """How much log there was at the last two starts."""
    first_ack_sealed_seconds: float | None = None
    first_ack_killed_seconds: float | None = None
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """All of it."""
        return asdict(self)


def measure(
    system: DrmqSystem, *, through_bytes: int, sealed_bytes: int, start_count: int, on_step: Callable[[str], None]
) -> Lifecycle:
    """Run the whole lifecycle once. An error ends it early and is recorded."""
    out = Lifecycle()
    shape = Workload("lifecycle", 1024, Batching.RAW, PARTITION_COUNT, through_bytes, seconds_max=PHASE_SECONDS_MAX)
    try:
        on_step("lifecycle: starts")
        system.start(shape)
        for _ in range(start_count):
            system.server.stop()
            out.first_ack_seconds.append(_first_ack(system, shape))
        time.sleep(SETTLE_SECONDS)
        out.rss_idle_bytes = system.server.usage().rss_bytes

        on_step("lifecycle: write")
        run = system.produce(shape)
        assert run is not None
        records = run.report.records
        # A start leaves one record, and the sender's warm-up a few.
        expected = records + run.report.records_before + start_count
        on_step("lifecycle: read")
        peak = run.server_rss_bytes_peak
        run = system.consume(shape, expected)
        assert run is not None
        if run.report.records != expected:
            raise BenchError(f"read {run.report.records} of {expected} records")
        time.sleep(SETTLE_SECONDS)
        out.passed_through_bytes = records * shape.record_size
        out.rss_after_bytes = system.server.usage().rss_bytes
        out.rss_peak_bytes = max(peak, run.server_rss_bytes_peak)

        on_step("lifecycle: fill the log")
        out.sealed_bytes = out.passed_through_bytes
        more = sealed_bytes - out.sealed_bytes
        if more > 0:
            run = system.produce(replace(shape, bytes_max=more))
            assert run is not None
            out.sealed_bytes += run.report.records * shape.record_size
        on_step("lifecycle: start with it")
        system.server.stop()
        out.first_ack_sealed_seconds = _first_ack(system, shape)
        system.server.stop(signal.SIGKILL)
        out.first_ack_killed_seconds = _first_ack(system, shape)
    except BenchError as failed:
        out.errors.append(str(failed))
    finally:
        system.stop()
    return out


def _first_ack(system: DrmqSystem, shape: Workload) -> float:
    """Start on the data that is there, and wait for the first record to be acknowledged."""
    batch = record_batch(make_payloads(shape.record_size, 1), int(time.time() * 1000))
    request = produce_request(TOPIC, 0, batch)

    def is_acknowledged() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", system.port), 1.0) as connection:
            connection.settimeout(10.0)
            connection.sendall(request)
            response = connection.recv(RESPONSE_SIZE, socket.MSG_WAITALL)
            return len(response) == RESPONSE_SIZE and first_error(memoryview(response)) == 0
        return False

    system.launch(shape, is_acknowledged)
    return time.perf_counter() - system.server.started_at
