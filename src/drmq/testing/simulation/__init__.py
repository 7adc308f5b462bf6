"""A whole cluster in one process, on a fake clock, network and disk, from one seed.

The problem
-----------

What a replicated log promises shows only when things go wrong at the wrong moment: power fails between a write and its
sync, a message arrives twice and late, a leader stands still for three seconds and goes on as if nothing had been. On
real machines such moments are rare, and once seen they cannot be seen again.

The idea
--------

Everything that decides about *when* is taken away from the real world. Each node is the real `Broker` with the real
`KafkaServer`, on the real storage, but its event loop, its writer and its pool only run as events of one `World`, whose
clock is virtual; its disk is `FakeFiles`, which forgets what was not synced; its peers are reached through `Links`,
which lose, delay, double and cut. Clients are events too: they speak the Kafka protocol through real connections that
have no sockets. One random generator, seeded once, decides about every delay and every fault. So the same seed gives
the same run, event for event, and a failure is a number.

    result = simulate(seed=17, nodes=3, minutes=2)
    result.violation        # None, or what was broken
    result.story            # what happened, the last lines of it

What is checked
---------------

`invariants` looks at every replica after every event of its node. `history` has the notes of all clients and the rules
for them. A traceback in the log or a callback that failed is a violation too: `no-bug`. At the end everything is
healed; then every client must be able to work again (`liveness`), all replicas must become the same, byte for byte, and
everything that was acknowledged must be read.

Where things are
----------------

`world` is the clock. `loop`, `disk`, `peers` and `streams` are what a process needs, made of events; `links` is what is
between machines. `node` is a machine with its lives, `client` and `workload` are the other side; `members` are those of
a group, `topics` come and go, and so do nodes in `growth`. `profile` draws how rough a run is and `faults` breaks
things accordingly. `cluster` puts it together and `runner` runs it.

What is missing, and what it costs
----------------------------------

- The sockets between nodes, `transport.peers` below its codec, are replaced: messages are lost one by one, which is
  harsher than connections are, but reconnecting itself is not tested here.
- Time passes between events and not inside them: a slow computation delays nobody.
- Threads do not interleave: the writer's and the pool's work happens at one moment each, which may be cut short by a
  loss of power after any single write.
- Damage to bytes that were synced is one flipped bit in one log: at its end, and then it does not come together with a
  power cut, or further up, under a process that has not read it.
"""

from drmq.testing.simulation.runner import Result, command_for, simulate
from drmq.testing.simulation.world import Violation

__all__ = ["Result", "Violation", "command_for", "simulate"]
