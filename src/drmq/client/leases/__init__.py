"""Work by lease, for consumers: an asyncio core on DRMQ's own wire code.

The problem: many consumers share the messages of a topic, each message is leased to one of them at a time, and a lease
must be settled or renewed before it runs out, also while brokers fail and leaders move. An application wants to see
none of that: it takes messages, works, and says how it went.

From the bottom up:

- `link` is a connection, `brokers` has all of them and finds coordinators and leaders;
- `batch` has the messages of an answer as columns, with a byte of state for each, and `source` those of a partition:
  both are plain values without time and network, and decide what is to be sent;
- `prefetch` decides how much to lease ahead;
- `membership` keeps the consumer in its group, `leaders` knows its partitions and their leaders;
- `lane` exchanges requests with one broker, and `session` puts everything together.

Invariants: what was settled is repeated until a broker has answered, so an answer that was lost costs nothing. Only
what a broker has confirmed counts as done. Offsets without a record (compaction, transaction markers) are accepted
without the application; offsets whose records did not arrive are given back. No message waits in the buffer of a
consumer for longer than a third of its lease.

Not here: the classes that applications use (`drmq.client.blocking`, `drmq.client.aio`).
"""

from drmq.client.leases.batch import LeasedBatch
from drmq.client.leases.group_start import Start
from drmq.client.leases.session import LeaseSession, SessionOptions

__all__ = ["LeaseSession", "LeasedBatch", "SessionOptions", "Start"]
