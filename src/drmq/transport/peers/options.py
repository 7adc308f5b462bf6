"""The options of the peer network: timeouts, and a named limit for everything that could grow."""

from __future__ import annotations

from dataclasses import dataclass

from drmq.model.options import Bytes, Bytes32, Count, InvalidOption, Milliseconds, check_ranges
from drmq.transport.peers.messages import ConnectionKind


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Timeouts and limits of the connections between nodes. All nodes of a cluster should have the same."""

    heartbeat_interval_ms: Milliseconds = 100
    """How often a node sends a heartbeat to each peer, whatever else it sends. Sleeping groups rely on it."""

    peer_timeout_ms: Milliseconds = 1_000
    """A peer from which nothing was received for this long is down, unless its messages came late before (`silence`).
    If it is too short, a busy peer is taken for dead; if it is too long, the groups that a dead peer led wait."""

    dial_timeout_ms: Milliseconds = 1_000
    """How long opening a connection may take, until the peer has answered the greeting. It doubles for a peer that
    takes longer, up to ten times this. A node that has dialled us may take ten times this to greet."""

    redial_ms_min: Milliseconds = 50
    """The pause before a connection that broke is dialled again. It doubles with every failure."""

    redial_ms_max: Milliseconds = 1_000
    """The longest such pause: how long it may take until a peer that returns is noticed."""

    stall_timeout_ms: Milliseconds = 10_000
    """A connection is closed if its peer reads none of the waiting bytes, or leaves a frame half sent, for this long.
    The peer may work while only this connection is broken."""

    heartbeat_frame_bytes_max: Bytes32 = 1 << 20
    """The largest frame on a heartbeat connection. Frames are closed far below this size."""

    append_frame_bytes_max: Bytes32 = 128 << 20
    """The largest frame on an append connection. A frame has at least one entry, so this limits the largest batch."""

    snapshot_frame_bytes_max: Bytes32 = 4 << 20
    """The largest frame on a snapshot connection: a chunk and the snapshot's metadata."""

    request_frame_bytes_max: Bytes32 = 16 << 20
    """The largest request to a peer, and the largest answer."""

    buffered_bytes_max: Bytes = 32 << 20
    """Bytes that wait for the peer of one connection to read them. Beyond this limit messages are dropped. Raft sends
    again what matters."""

    requests_in_flight_max: Count = 1_000
    """Requests of one peer that this node is serving; further ones are refused."""

    connections_max: Count = 1_000
    """Connections that other nodes have opened; further ones are closed at once."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.peer_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise InvalidOption("peer_timeout_ms", "must be at least twice heartbeat_interval_ms")
        if self.redial_ms_max < self.redial_ms_min:
            raise InvalidOption("redial_ms_max", "must not be below redial_ms_min")

    def frame_bytes_max(self, kind: ConnectionKind) -> int:
        """The largest frame on a connection of this kind."""
        match kind:
            case ConnectionKind.HEARTBEAT:
                return self.heartbeat_frame_bytes_max
            case ConnectionKind.APPEND:
                return self.append_frame_bytes_max
            case ConnectionKind.SNAPSHOT:
                return self.snapshot_frame_bytes_max
            case ConnectionKind.REQUEST:
                return self.request_frame_bytes_max
