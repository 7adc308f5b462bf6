"""Which measurement comes when.

The machine is noisy and its disk remembers: repetitions are interleaved (every system once per
workload, then everything again) and the order of the systems turns with each repetition, so
that a bad minute or a slow neighbour does not fall on one system alone.
"""

import os
from collections.abc import Callable

from bench.measurement import Cell
from bench.systems import System
from bench.workloads import Workload


def run_all(
    systems: list[System], workloads: list[Workload], repeat_count: int, on_step: Callable[[str], None]
) -> list[Cell]:
    """Measure every workload on every system `repeat_count` times; `on_step` is called before each."""
    cells = [Cell(workload, system) for workload in workloads for system in systems]
    for repetition in range(repeat_count):
        for workload in workloads:
            row = [cell for cell in cells if cell.workload is workload]
            turn = repetition % len(row)
            for cell in row[turn:] + row[:turn]:
                on_step(f"{workload.name}: {cell.system.label}")
                # What an earlier system left unwritten would be written during our fsyncs.
                os.sync()
                cell.repeat()
    return cells
