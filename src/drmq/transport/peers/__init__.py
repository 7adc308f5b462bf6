"""Connections between nodes: who is there, who is not, and the way of each message.

The problem
-----------

Nodes exchange two things that do not go together: signs of life, which are small and must arrive in time, and logs,
which are large and arrive when they arrive. A peer may be slow, gone, or gone and back with an empty memory; its
address may be someone else's by now. And nothing of this may make the sender wait, or fill its memory.

The idea
--------

- **A connection for each kind.** Node A dials B once for heartbeats and small messages, once for appends, once for
  snapshots and once for requests. Bulk that is stuck delays no heartbeat. Each is A's own way to B: what B has to say
  it says on its own connections to A. Only requests are answered where they were asked.
- **Drop, do not wait.** `send` puts a message where there is a connection and room, and forgets it otherwise. Raft
  repeats what matters. So memory is bounded, and nobody needs to know about anybody's speed.
- **Greet first.** Both sides say which node of which cluster they are, whom they mean, which start of the process
  this is, and what they can speak and support. A wrong one is told why and let go; both logs say it once.
- **Up means both ways.** A peer is up when each has a heartbeat connection to the other, and our other ones are
  open. It is down when it was silent for too long, or broke the connection and takes no new one.

Always true
-----------

- what one connection carries arrives in order or not at all; between connections there is no order;
- a frame that was damaged on the way is noticed, and costs its connection;
- a connection holds at most `buffered_bytes_max` and one frame more;
- a message is handed over only from a peer whose greeting was accepted, and its sender is a member on that peer;
- everything happens on one event loop, whose time is the only one that matters here.

Where things are
----------------

`messages` has the words and `interface` the two sides that the broker sees. The bytes: `frames`, `hello` (the
greeting) and `codec` (everything else), with `outbox`, which gathers messages into frames; none of these knows a
socket. The connections: `stream` (a socket), `lane` (one kind of traffic to a peer), `link` (a peer), `inbound` (what
peers have opened to us) and `network`, which has them all.

What is missing, and what it costs
----------------------------------

- No authentication and no encryption. Whoever reaches the port can greet as any node; keep it inside.
- No compression: batches are compressed by their producers, if at all.
- One event loop: a loop that is blocked for long is silent. It forgives its peers the time that it missed, but they do
  not know why they did not hear from it.
- Nodes speak the newest version of the protocol that both know, and this one knows the last two. Nodes further apart
  are told so, and have no connection.
"""

from drmq.transport.peers.errors import PeerError, PeerRefused, PeerUnavailable
from drmq.transport.peers.hello import another_cluster, twin
from drmq.transport.peers.interface import Network, PeerClock, PeerHandler, PeerStatus
from drmq.transport.peers.messages import (
    NO_LEADER,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    ConnectionKind,
    FeatureRange,
    GreetingRefusal,
    Hello,
    Identity,
    LeaderNotice,
    PeerMessage,
    RefusalCode,
    Sleep,
    Wake,
)
from drmq.transport.peers.network import PeerNetwork
from drmq.transport.peers.no_network import NoNetwork
from drmq.transport.peers.options import PeerOptions

__all__ = [
    "NO_LEADER",
    "PROTOCOL_VERSION",
    "PROTOCOL_VERSION_MIN",
    "ConnectionKind",
    "FeatureRange",
    "GreetingRefusal",
    "Hello",
    "Identity",
    "LeaderNotice",
    "Network",
    "NoNetwork",
    "PeerClock",
    "PeerError",
    "PeerHandler",
    "PeerMessage",
    "PeerNetwork",
    "PeerOptions",
    "PeerRefused",
    "PeerStatus",
    "PeerUnavailable",
    "RefusalCode",
    "Sleep",
    "Wake",
    "another_cluster",
    "twin",
]
