"""Chaos: a cluster of real processes, clients that write everything down, and failures from a seed.

    python -m chaos                     every scenario once, then random mixtures, for ten minutes
    python -m chaos --minutes 60 --seed 7
    python -m chaos --list              what there is
    python -m chaos F4-leader-paused    some of them, by name or part of a name
    python -m chaos tools               which failures this machine allows, each tried out
    python -m chaos failover --times 30 how long until the next acknowledged write when the leader dies
    python -m chaos planted-bugs        planted bugs: does it find them?
    python -m chaos control             power cuts on NATS, whose outcome is known: does it see them?
    python -m chaos --nodes 5           all of it with five nodes; with 1 what makes sense on a single one

**The idea.** The guarantees of a cluster are tested only while failures happen, and only if all promises are recorded.
`support.cluster_load` therefore keeps producers, readers and a consumer group busy and records every send, response,
read and commit. A scenario (`scenarios`) kills or pauses processes, cuts links, or damages disks. At the end everything
is compared: what clients received, what is stored, and the files of all replicas byte by byte. Meanwhile
`support.answers` sends every node every kind of request: a wrong response is an error even if no client happened to
receive it. After a failed run, the last log lines of the consumers' library are kept in `clients.log`.

**When a run counts.** Every producer must have had acknowledgements before a failure, and during it if a majority is
left; after the failure every client must work again. A run without that fails as invalid. A scenario whose tool is
missing on this machine is reported as not run, never as passed. The same seed makes the same choices, but real
processes run concurrently: it repeats a schedule, not an execution. For that there is the simulator.

**What SIGKILL cannot show.** It loses nothing that was passed to the kernel, so a missing fsync is not detected. The
scenarios K1 put each node on a disk image and revert to what was synced (`support.power`), if the machine allows it;
the tests on `drmq.testing.FakeFiles` and the simulator cut the power at every step.
"""

import sys
from pathlib import Path

# The harness belongs to the tests, which are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import os

# The nodes that are started here serve no HTTP: it is not what is measured or shown.
os.environ.setdefault("DRMQ_GATEWAY", "false")
