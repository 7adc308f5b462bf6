"""The follower role: accepting a leader's entries, its commit index, or its snapshot.

Always true:

- an append is accepted only if this log has the entry before it, so equal entries have equal histories (the
  log matching property);
- acceptance is sent only once the entries are durable;
- the commit index follows the leader only as far as the entries of *that message* reach: entries after them may
  come from an earlier leader and may never be committed;
- a snapshot replaces the whole log or nothing.
"""

from __future__ import annotations

from dataclasses import replace

from drmq.model import NodeId
from drmq.raft.messages import (
    AppendAccepted,
    AppendRejected,
    AppendRequest,
    Heartbeat,
    HeartbeatResponse,
    SnapshotAnswer,
    SnapshotChunk,
)
from drmq.raft.snapshot import ChunkToSave, SnapshotId, SnapshotMeta, SnapshotReceiving
from drmq.raft.state import ReplicaState
from drmq.raft.types import LogIndex, Role


class Follower:
    """The part of a replica that follows a leader. Owned by its `Node`."""

    def __init__(self, state: ReplicaState, receiving: SnapshotReceiving | None) -> None:
        self._state = state
        self._receiving = replace(receiving) if receiving is not None else None
        self._chunks_to_save: list[ChunkToSave] = []
        self._snapshot_to_install: SnapshotMeta | None = None

    # Entries

    def on_append(self, message: AppendRequest) -> None:
        """Append the entries that are new, if they continue this log."""
        state, log = self._state, self._state.log
        last_new = message.entries[-1].index if message.entries else message.previous_index
        if last_new <= log.commit_index:
            # An old message, or a leader that does not know how far this log reaches. All of it is here already.
            self._accept(message.sender, log.commit_index)
            return
        entries = message.entries
        if message.previous_index < log.commit_index:
            # Committed entries are the same on every node, so only the rest is compared.
            known = sum(entry.index <= log.commit_index for entry in entries)
            assert entries[known - 1].index == log.commit_index, "what is committed ends with an entry"
            assert entries[known - 1].term == log.term_at(log.commit_index), "a leader without a committed entry"
            entries = entries[known:]
        elif log.term_at(message.previous_index) != message.previous_term:
            self._reject(message)
            return
        for position, entry in enumerate(entries):
            # Compared at its first index: a conflicting entry in this log may be shorter than this one.
            term_here = log.term_at(entry.first)
            if term_here == entry.term:
                continue
            if term_here is not None:
                state.truncate_from(entry.first)
            for new_entry in entries[position:]:
                state.append(new_entry)
            break
        log.commit_to(min(message.commit, last_new))
        self._accept(message.sender, last_new)

    def on_heartbeat(self, message: Heartbeat) -> None:
        """Acknowledge the heartbeat and advance the commit index."""
        state = self._state
        state.log.commit_to(min(message.commit, state.log.last_index))
        state.send_in_term(HeartbeatResponse(state.node_id, message.sender, state.term, message.read_round))

    def _accept(self, leader_id: NodeId, match: LogIndex) -> None:
        state = self._state
        state.send_after_persist(AppendAccepted(state.node_id, leader_id, state.term, match))

    def _reject(self, message: AppendRequest) -> None:
        state, log = self._state, self._state.log
        hint_index = log.last_at_most(message.previous_index, message.previous_term)
        hint_term = log.term_at(hint_index)
        assert hint_term is not None, (hint_index, log.first_index)
        state.send_in_term(
            AppendRejected(state.node_id, message.sender, state.term, message.previous_index, hint_index, hint_term)
        )

    # Snapshots

    def on_snapshot_chunk(self, message: SnapshotChunk) -> None:
        """Save the next bytes of a snapshot, and report how many are here."""
        state, meta = self._state, message.meta
        if meta.index <= state.log.commit_index:
            self._accept(message.sender, state.log.commit_index)
            return
        receiving = self._receiving
        if receiving is None or receiving.sender != message.sender or receiving.meta != meta:
            if receiving is not None and receiving.term == message.term and meta.index < receiving.meta.index:
                return  # Late: a chunk of a snapshot that this leader has replaced by a newer one.
            receiving = self._receiving = SnapshotReceiving(message.sender, meta)
        receiving.term = message.term
        if message.offset == receiving.received and not receiving.complete and (len(message.data) or message.done):
            self._chunks_to_save.append(ChunkToSave(message.sender, meta, message.offset, message.data, message.done))
            receiving.received += len(message.data)
            receiving.complete = message.done
        self._answer(receiving)

    def on_snapshot_received(self, sender: NodeId, snapshot_id: SnapshotId, intact: bool) -> None:
        """The driver has checked the complete snapshot. Install it if it is intact and still needed."""
        state, log, receiving = self._state, self._state.log, self._receiving
        if receiving is None or not receiving.complete:
            return
        if receiving.sender != sender or receiving.meta.snapshot_id != snapshot_id:
            return
        self._receiving = None
        meta = receiving.meta
        if state.role is Role.LEADER or meta.index <= log.commit_index:
            return
        if not intact:
            self._answer(SnapshotReceiving(sender, meta))
            return
        if log.term_at(meta.index) == meta.term:
            # Meanwhile the entries arrived by normal replication. They must be kept instead of the snapshot: this
            # replica may have confirmed entries after the snapshot to the leader.
            log.commit_to(meta.index)
        else:
            if state.role is not Role.FOLLOWER:
                state.become_follower(state.term, None)  # The campaign was based on another log and other voters.
            state.restore(meta)
            self._snapshot_to_install = meta
        if state.leader_id is not None:
            self._accept(state.leader_id, meta.index)

    def take_chunks_to_save(self) -> tuple[ChunkToSave, ...]:
        """Chunks for the driver to save."""
        chunks, self._chunks_to_save = self._chunks_to_save, []
        return tuple(chunks)

    def take_snapshot_to_install(self) -> SnapshotMeta | None:
        """The snapshot for the driver to install."""
        meta, self._snapshot_to_install = self._snapshot_to_install, None
        return meta

    @property
    def has_work(self) -> bool:
        """Whether the driver has something to save or install."""
        return bool(self._chunks_to_save) or self._snapshot_to_install is not None

    def _answer(self, receiving: SnapshotReceiving) -> None:
        state = self._state
        state.send_after_persist(
            SnapshotAnswer(state.node_id, receiving.sender, state.term, receiving.meta.snapshot_id, receiving.received)
        )
