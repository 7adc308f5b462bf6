"""A whole cluster in one process, on a simulated clock, network and disk, driven by one seed.

The problem
-----------

The guarantees of a replicated log are tested only when failures come at the wrong moment: power fails between a write
and its sync, a message arrives twice and late, a leader freezes for three seconds and continues as if nothing had
happened. On real machines such moments are rare, and cannot be reproduced.

The idea
--------

Everything that determines *when* something happens is simulated. Each node is the real `Broker` with the real
`KafkaServer`, on the real storage, but its event loop, its writer and its pool only run as events of one `World`, whose
clock is virtual. Its disk is `FakeFiles`, which loses what was not synced. Its peers are reached through `Links`, which
lose, delay, duplicate and cut. Clients are events too: they speak the Kafka protocol through real connections without
sockets. One random generator, seeded once, decides about every delay and every fault. The same seed therefore gives the
same run, event for event, and a failure is reported as a number.

    result = simulate(seed=17, nodes=3, minutes=2)
    result.violation        # None, or the invariant that was broken
    result.story            # the last lines of what happened

What is checked
---------------

`invariants` checks every replica after every event of its node. `history` records what all clients sent and received,
and checks it. A traceback in the log or a failed callback is also a violation: `no-bug`. At the end all faults are
repaired. Then every client must be able to work again (`liveness`), all replicas must become identical, byte for byte,
and everything that was acknowledged must be readable.

Modules
-------

`world` is the clock. `loop`, `disk`, `peers` and `streams` provide what a process needs, as events; `links` is the
network between machines. `node` is a machine with its successive processes, `client` and `workload` are the clients.
`members` are members of a group, `topics` creates and deletes topics, and `growth` adds and removes nodes. `profile`
draws how many faults a run has, and `faults` injects them. `cluster` combines everything and `runner` runs it.

What is missing, and what it costs
----------------------------------

- The sockets between nodes, `transport.peers` below its codec, are replaced: messages are lost individually, which is
  harsher than with connections, but reconnecting itself is not tested here.
- Time passes between events and not inside them: a slow computation delays nothing.
- Threads do not interleave: the work of the writer and of the pool happens at one moment each, which a power cut can
  interrupt after any single write.
- Damage to synced bytes is limited to one flipped bit in one log: either at its end, and then never together with a
  power cut, or further up, in a part that the running process has not read.
"""

from drmq.testing.simulation.runner import Result, command_for, simulate
from drmq.testing.simulation.world import Violation

__all__ = ["Result", "Violation", "command_for", "simulate"]
