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

**The idea.** Whether a cluster keeps its promises shows only while things go wrong, and only to someone who knows what
was promised. So `support.cluster_load` keeps producers, readers and a consumer group busy and notes every send,
answer, read and commit; a scenario (`scenarios`) lets processes die, stand still, lose each other or their disks;
and in the end everything is compared: what clients were told, what is there, and the files of all replicas byte by
byte. Meanwhile `support.answers` asks every node about everything: a wrong answer that no client happened to stumble on
is one all the same. Of a failed run also what the consumers' library said last is kept, in `clients.log`.

**What a run counts for.** Every producer must have had acknowledgements before a failure, and where a majority is left
also during it; after the heal every client must work again. A run without that fails as invalid. A scenario whose tool
is missing on this machine is reported as not run, never as passed. The same seed makes the same choices, but real
processes do not take turns: it repeats a schedule, not an execution. For that there is the simulator.

**What SIGKILL cannot show.** It loses nothing that was handed to the kernel, so a missing fsync goes unnoticed. The
scenarios K1 put each node on a disk image and go back to what was synced (`support.power`), where the machine
allows it; the tests on `drmq.testing.FakeFiles` and the simulator cut the power at every step.
"""

import sys
from pathlib import Path

# The harness belongs to the tests, which are not installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
