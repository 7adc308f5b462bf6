"""One workload on one system: what was measured, and what follows from it.

A `Phase` is one repetition of producing or of consuming. A `Cell` collects the repetitions and
answers for the median one: a whole phase, not a median per column, so that the numbers in a
row of the table belong together.
"""

import statistics
from dataclasses import asdict, dataclass, field

from bench.process import BenchError, Run
from bench.systems import System
from bench.workloads import Workload

BROKER_BUSY_CORES = 0.8
CLIENT_BUSY_CORES = 0.8


@dataclass(frozen=True)
class Phase:
    """Producing or consuming once."""

    records: int
    record_size: int
    seconds: float
    server_cpu_seconds: float
    client_cpu_seconds: float
    server_rss_bytes: int
    server_rss_bytes_peak: int

    @classmethod
    def of(cls, run: Run, record_size: int) -> "Phase":
        """From what a client and its server did."""
        report = run.report
        return cls(
            report.records, record_size, report.seconds, run.server_cpu_seconds, report.cpu_seconds,
            run.server_rss_bytes, run.server_rss_bytes_peak,
        )  # fmt: skip

    @property
    def records_per_second(self) -> float:
        """Acknowledged or received records."""
        return self.records / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """Record values only, in millions of bytes: what the user sent, not what protocols add."""
        return self.records_per_second * self.record_size / 1e6

    @property
    def server_cores(self) -> float:
        """How many cores the server kept busy."""
        return self.server_cpu_seconds / self.seconds

    @property
    def client_cores(self) -> float:
        """How many cores the client kept busy."""
        return self.client_cpu_seconds / self.seconds

    @property
    def cpu_seconds_per_gigabyte(self) -> float:
        """The server's CPU time per 10⁹ bytes of record values."""
        return self.server_cpu_seconds / (self.records * self.record_size / 1e9)

    @property
    def cpu_seconds_per_million(self) -> float:
        """The server's CPU time per million records."""
        return self.server_cpu_seconds / (self.records / 1e6)

    @property
    def bound(self) -> str:
        """What was busy: `client`, `broker`, `both`, or neither, which leaves the disk or waiting."""
        is_broker = self.server_cores >= BROKER_BUSY_CORES
        is_client = self.client_cores >= CLIENT_BUSY_CORES
        if is_broker and is_client:
            return "both"
        return "broker" if is_broker else "client" if is_client else "wait"

    def as_json(self) -> dict[str, object]:
        """Everything measured and derived."""
        derived = (
            "records_per_second", "megabytes_per_second", "server_cores", "client_cores",
            "cpu_seconds_per_gigabyte", "cpu_seconds_per_million", "bound",
        )  # fmt: skip
        return asdict(self) | {name: getattr(self, name) for name in derived}


def median_phase(phases: list[Phase]) -> Phase | None:
    """The phase with the median rate; of two in the middle, the slower."""
    if not phases:
        return None
    rate = statistics.median_low(phase.records_per_second for phase in phases)
    return next(phase for phase in phases if phase.records_per_second == rate)


@dataclass
class Cell:
    """All repetitions of one workload on one system."""

    workload: Workload
    system: System
    produced: list[Phase] = field(default_factory=list)
    consumed: list[Phase] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_applicable: bool = True

    @property
    def produce(self) -> Phase | None:
        """The median of producing."""
        return median_phase(self.produced)

    @property
    def consume(self) -> Phase | None:
        """The median of consuming."""
        return median_phase(self.consumed)

    def repeat(self) -> None:
        """Start the system, produce, consume all of it, stop; an error is kept, not raised."""
        if not self.is_applicable:
            return
        try:
            try:
                self.system.start(self.workload)
                self._take_phases()
            finally:
                self.system.stop()
        except BenchError as failed:
            self.errors.append(str(failed))

    def _take_phases(self) -> None:
        size = self.workload.record_size
        run = self.system.produce(self.workload)
        if run is None:
            self.is_applicable = False
            return
        self.produced.append(Phase.of(run, size))
        expected = run.report.records + run.report.records_before
        run = self.system.consume(self.workload, expected)
        if run is None:
            return
        if run.report.records != expected:
            raise BenchError(f"consumed {run.report.records} of {expected} records in {run.report.seconds:.0f} s")
        self.consumed.append(Phase.of(run, size))
