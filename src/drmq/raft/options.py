"""The settings of a replica: times in ticks, and a named limit for everything that could grow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Times and limits of one replica. All replicas of a group should have the same times."""

    election_timeout_ticks: int = 10
    """The shortest time that a follower waits for its leader before it starts an election: each wait is drawn
    at random from here to just below twice this. A leader that has not heard from a quorum for this long
    steps down. If too short, a slow disk looks like a failed leader; if too long, a failed leader is replaced late."""

    heartbeat_ticks: int = 2
    """How often a leader sends heartbeats. Also how often an unanswered vote request is repeated. At least three of
    these should fit into an election timeout, so that one or two lost messages do not cause an election."""

    append_bytes_max: int = 1 << 20
    """Payload bytes in one append message. One entry always goes, however large it is."""

    append_entries_max: int = 1_024
    """Entries in one append message, for small ones."""

    in_flight_messages_max: int = 64
    """Append messages to one follower that may be unanswered. A lower limit takes less memory and, over a network with
    high latency, lowers the throughput."""

    in_flight_bytes_max: int = 16 << 20
    """Payload bytes in those messages. Limits the leader's memory for a follower that hangs, and what a follower
    must take at once."""

    uncommitted_bytes_max: int = 64 << 20
    """Payload bytes that a leader accepts before they are committed. Beyond this, proposals are refused. One
    proposal is always accepted if nothing else is uncommitted, so that a large one is not refused for ever."""

    uncommitted_entries_max: int = 65_536
    """The same for the number of entries, for small ones."""

    read_requests_max: int = 10_000
    """Reads that wait for confirmation. Beyond this, reads are refused."""

    snapshot_chunk_bytes_max: int = 2 << 20
    """Bytes of a snapshot in one message."""

    snapshot_resend_ticks: int = 10
    """How long the sender of a snapshot waits for an answer before it asks again how far the receiver is."""

    transfer_ticks_max: int = 10
    """How long a leader waits for the target of a transfer, refusing proposals meanwhile, before it continues
    as leader."""

    promotion_lag_max: int = 1_000
    """How many indexes behind the commit index a learner may be when it becomes a voter; what it lacks must also fit
    into `in_flight_bytes_max`. A voter that is far behind counts in the quorum without helping it: until it has caught
    up, the group tolerates fewer failures."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ticks < self.election_timeout_ticks:
            raise ValueError("heartbeat_ticks must be positive and below election_timeout_ticks")
        bounds = (
            self.append_bytes_max,
            self.append_entries_max,
            self.in_flight_messages_max,
            self.in_flight_bytes_max,
            self.uncommitted_bytes_max,
            self.uncommitted_entries_max,
            self.read_requests_max,
            self.snapshot_chunk_bytes_max,
            self.snapshot_resend_ticks,
            self.transfer_ticks_max,
        )
        if min(bounds) < 1 or self.promotion_lag_max < 0:
            raise ValueError("limits must be positive")
        if self.in_flight_bytes_max < self.append_bytes_max:
            raise ValueError("in_flight_bytes_max must have room for one append of append_bytes_max")
