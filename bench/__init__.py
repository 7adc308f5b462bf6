"""The benchmark suite: one command, one table, one JSON file.

`python -m bench` drives DRMQ, a bare limit and a few peers with the same workloads on the same
machine in the same run, and says how DRMQ does against each and against its targets. What each
number means is in docs/reference/benchmarks.md.

The layout follows one measurement from top to bottom:

- `workloads` says what is sent; `schedule` decides in which order, and repeats it;
- `systems/` starts and stops the things being measured, one module each;
- `clients/` are the programs that send and receive, each in a process of its own;
- `measurement` takes one of each and joins both sides' numbers; `lifecycle` measures starts and memory;
- `targets` judges, `report` prints and writes;
- `cluster/` does the same for three nodes, `queues/` for work queues, and `compare` for two checkouts in turns.

Nothing here imports `drmq`, except programs that measure DRMQ's own client: the broker is measured from outside, like
any other.
"""

import os

# The nodes that are started here serve no HTTP: it is not what is measured or shown.
os.environ.setdefault("DRMQ_GATEWAY", "false")
