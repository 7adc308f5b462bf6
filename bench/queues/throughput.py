"""How fast workers empty a queue.

A measurement is a visit to one system: it is started, filled, and worked on by each of its clients in turn, each in a
group of its own. Visits are interleaved over the systems in rotating order, as in `bench.schedule`.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bench.measurement import Phase, median_phase
from bench.process import BenchError
from bench.queues.systems import Contender, QueueSystem
from bench.queues.workers import run_workers


@dataclass(frozen=True)
class Shape:
    """One kind of work."""

    record_size: int
    worker_count: int

    @property
    def size_words(self) -> str:
        """The size, for the table."""
        return "1 KB" if self.record_size == 1024 else f"{self.record_size} B"

    @property
    def words(self) -> str:
        """For messages."""
        return f"{self.size_words}, {self.worker_count} worker{'' if self.worker_count == 1 else 's'}"


@dataclass
class Cell:
    """One client on one system with one kind of work: all repetitions."""

    shape: Shape
    program: str
    label: str
    node_count: int
    fsyncs_before_ack: bool
    contender: Contender
    runs: list[Phase] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def phase(self) -> Phase | None:
        """The repetition with the median rate."""
        return median_phase(self.runs)

    @property
    def name(self) -> str:
        """System and client."""
        return f"{self.label}, {self.contender.name}"

    def as_json(self) -> dict[str, object]:
        """All repetitions, and which counts."""
        phase = self.phase
        return {
            "system": self.label,
            "client": self.contender.name,
            "nodes": self.node_count,
            "record_size": self.shape.record_size,
            "workers": self.shape.worker_count,
            "fsyncs_before_ack": self.fsyncs_before_ack,
            "median": phase.as_json() if phase else None,
            "runs": [run.as_json() for run in self.runs],
            "errors": self.errors,
        }


@dataclass(frozen=True)
class Plan:
    """What a run of this section measures."""

    shapes: tuple[Shape, ...]
    repeat_count: int
    seconds_max: float
    messages_max: int
    """At most; a system that is slower needs fewer."""
    clients: frozenset[str]
    """Keys of contenders; empty for all."""

    def contenders(self, system: QueueSystem) -> list[Contender]:
        """Those of `system` that are measured."""
        return [contender for contender in system.contenders if not self.clients or contender.key in self.clients]


def measure(cells: list[Cell], systems: list[QueueSystem], plan: Plan, on_step: Callable[[str], None]) -> None:
    """Add to `cells` what these systems, which have the same number of nodes, do with each shape."""
    new = [
        Cell(shape, system.program, system.label, system.node_count, system.fsyncs_before_ack, contender)
        for shape in plan.shapes
        for system in systems
        for contender in plan.contenders(system)
    ]
    cells += new
    groups = (f"group-{number}" for number in itertools.count())
    for repetition in range(plan.repeat_count):
        for shape in plan.shapes:
            turn = repetition % len(systems)
            for system in systems[turn:] + systems[:turn]:
                row = [cell for cell in new if cell.shape == shape and cell.label == system.label]
                turned = repetition % len(row) if row else 0
                if row:
                    on_step(f"throughput: {system.label}, {shape.words}")
                    # What an earlier system left unwritten would be written during our fsyncs.
                    os.sync()
                    visit(system, row[turned:] + row[:turned], plan, groups)


def visit(system: QueueSystem, row: list[Cell], plan: Plan, groups: Iterator[str]) -> None:
    """Measure all cells of one system and one shape; errors are kept, not raised."""
    shape = row[0].shape
    count = min(plan.messages_max, system.records_max(shape.record_size))
    try:
        try:
            system.start()
            sent = system.fill(shape.record_size, count) if system.keeps_messages else 0
            for cell in row:
                if not system.keeps_messages:
                    sent = system.fill(shape.record_size, count)
                _work(system, cell, sent, plan.seconds_max, next(groups))
        finally:
            system.stop()
    except BenchError as failed:
        row[0].errors.append(str(failed))


def _work(system: QueueSystem, cell: Cell, count: int, seconds_max: float, group: str) -> None:
    contender, shape = cell.contender, cell.shape
    try:
        system.open_group(group)
        task = system.task(contender, group, shape.record_size)
        worked = run_workers(contender.module, task, shape.worker_count, system.servers, count, seconds_max)
        cell.runs.append(worked.phase)
    except BenchError as failed:
        cell.errors.append(str(failed))
