"""What replicas of one group say to each other. One class per kind; all are values.

Every message names its sender, its target and the sender's term. A receiver with a lower term takes over
the higher one before anything else, with two exceptions that `node` explains: a pre-vote asks about a term
nobody is in yet, and a vote request is not heard at all by those who hear from a leader.

    asks                answers
    PreVoteRequest      PreVoteResponse
    VoteRequest         VoteResponse
    AppendRequest       AppendAccepted or AppendRejected
    Heartbeat           HeartbeatResponse
    SnapshotChunk       SnapshotAnswer, and AppendAccepted once it is installed
    TimeoutNow          none: its target campaigns

Heartbeats are three small numbers, so that a driver can put those of many groups into one message.
"""

from __future__ import annotations

from drmq.model import NodeId, value
from drmq.raft.snapshot import SnapshotId, SnapshotMeta
from drmq.raft.types import Entry, LogIndex, Term


@value
class PreVoteRequest:
    """Would you vote for me in `campaign_term`? Asking and answering changes nobody's term or vote."""

    sender: NodeId
    target: NodeId
    term: Term
    campaign_term: Term
    last_index: LogIndex
    last_term: Term


@value
class PreVoteResponse:
    """`term` is the answering node's own; `campaign_term` is the question's."""

    sender: NodeId
    target: NodeId
    term: Term
    campaign_term: Term
    granted: bool


@value
class VoteRequest:
    """Vote for me in `term`. The sender's log ends with `last_index` of `last_term`, durably."""

    sender: NodeId
    target: NodeId
    term: Term
    last_index: LogIndex
    last_term: Term
    transfer: bool
    """The leader asked for this election, so hearing from that leader is no reason to ignore it."""


@value
class VoteResponse:
    """A granted vote is on the voter's disk before this is sent."""

    sender: NodeId
    target: NodeId
    term: Term
    granted: bool


@value
class AppendRequest:
    """Append `entries` after the entry `previous_index` of `previous_term`, if you have that one."""

    sender: NodeId
    target: NodeId
    term: Term
    previous_index: LogIndex
    previous_term: Term
    entries: tuple[Entry, ...]
    commit: LogIndex


@value
class AppendAccepted:
    """My log equals yours up to `match`, and is on my disk up to there."""

    sender: NodeId
    target: NodeId
    term: Term
    match: LogIndex


@value
class AppendRejected:
    """I do not have the entry before `rejected + 1`.

    Our logs can only agree up to `hint_index`, where mine has `hint_term`: everything behind it here is of
    a later term than the entry you named, or not there at all.
    """

    sender: NodeId
    target: NodeId
    term: Term
    rejected: LogIndex
    hint_index: LogIndex
    hint_term: Term


@value
class Heartbeat:
    """I lead `term`. `commit` never exceeds what the target has confirmed to hold."""

    sender: NodeId
    target: NodeId
    term: Term
    commit: LogIndex
    read_round: int
    """Counts the leader's rounds of reads to confirm. The answer gives it back."""


@value
class HeartbeatResponse:
    """I follow you in `term`. With a higher term: you lead no longer."""

    sender: NodeId
    target: NodeId
    term: Term
    read_round: int


@value
class SnapshotChunk:
    """Bytes of a snapshot from `offset` on. Without bytes and not `done`, an offer: how much do you have?"""

    sender: NodeId
    target: NodeId
    term: Term
    meta: SnapshotMeta
    offset: int
    data: bytes | bytearray | memoryview
    done: bool


@value
class SnapshotAnswer:
    """I have the first `received` bytes of that snapshot, durably. Go on from there."""

    sender: NodeId
    target: NodeId
    term: Term
    snapshot_id: SnapshotId
    received: int


@value
class TimeoutNow:
    """You hold all of my log: campaign at once."""

    sender: NodeId
    target: NodeId
    term: Term


Message = (
    PreVoteRequest
    | PreVoteResponse
    | VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendAccepted
    | AppendRejected
    | Heartbeat
    | HeartbeatResponse
    | SnapshotChunk
    | SnapshotAnswer
    | TimeoutNow
)
