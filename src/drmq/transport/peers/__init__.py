"""Connections between nodes: which peers are up, and how messages reach them.

The problem
-----------

Nodes exchange two kinds of traffic that do not mix well: heartbeats, which are small and must arrive in time, and logs,
which are large and may take their time. A peer may be slow, down, or restarted without its memory, and another node may
use its address by now. None of this may make the sender wait or fill its memory.

The idea
--------

- **One connection for each kind of traffic.** Node A dials B once for heartbeats and small messages, once for appends,
  once for snapshots and once for requests. A large transfer that is stuck delays no heartbeat. These connections carry
  messages from A to B only; B uses its own connections to A. Only the answers to requests use the connection of the
  request.
- **Drop, do not wait.** `send` passes on a message if there is a connection with room, and drops it otherwise. Raft
  repeats what matters. Memory is therefore bounded, and a sender does not depend on the speed of its peers.
- **Greet first.** Both sides send their node id, cluster, and process start, the node that they expect at the other
  end, and the versions and features that they support. If something does not match, the other side gets the reason and
  the connection is closed; both log it once.
- **Up means both directions.** A peer is up when each node has a heartbeat connection to the other, and our other
  connections to it are open. It is down when it was silent for too long, or closed the connection and accepts no new
  one.

Always true
-----------

- what one connection carries arrives in order or not at all; there is no order between connections;
- a damaged frame is detected and closes its connection;
- a connection buffers at most `buffered_bytes_max` and one frame more;
- a message is delivered only from a peer whose greeting was accepted, and its sender is a member on that peer;
- everything happens on one event loop, by the time of that loop.

Where things are
----------------

`messages` has the types and `interface` the two sides that the broker sees. The encoding is in `frames`, `hello` (the
greeting) and `codec` (everything else), with `outbox`, which combines messages into frames; none of these uses a
socket. The connections are `stream` (a socket), `lane` (one kind of traffic to a peer), `link` (a peer), `inbound`
(connections that peers have opened) and `network`, which owns them all.

What is missing, and what it costs
----------------------------------

- No authentication and no encryption. Any process that can reach the port can greet as any node; keep the port inside
  a trusted network.
- No compression: batches are compressed by their producers, if at all.
- One event loop: a node whose loop is blocked for long is silent. Afterwards it does not count that time against its
  peers, but the peers cannot know why they received nothing.
- Nodes speak the newest version of the protocol that both know, and this one knows the last two. Nodes that have no
  version in common refuse each other, with the reason.
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
