"""The interfaces between a replica and its surroundings: the owner of its log, and its node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, Protocol

from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.recent_entries import RecentMemory
from drmq.model import GroupId, NodeId, Offset
from drmq.raft import IndexRange, Leadership, MembersChange, Message, RaftOptions, SnapshotMeta
from drmq.records import BatchHeader
from drmq.storage import Writer

if TYPE_CHECKING:
    from drmq.broker.replication.replica import Replica


class ReplicaOwner(Protocol):
    """The owner of the log, which receives the results of consensus in offsets. On the event loop unless stated."""

    def on_leadership(self, leadership: Leadership) -> None:
        """The role, the term or the known leader has changed."""

    def on_members_changed(self, change: MembersChange) -> None:
        """A change of the members of the group, which this replica leads, is committed."""

    def on_appended(self, headers: Sequence[BatchHeader]) -> None:
        """Batches of another leader are durable on this node."""

    def reload(self, end_offset: Offset) -> object:
        """On the writer thread: the derived state of the log, which now ends at `end_offset`."""

    def on_truncated(self, end_offset: Offset, reloaded: object) -> None:
        """Everything at or after `end_offset` was removed."""

    def on_committed(self, committed: IndexRange, next_offset: Offset) -> None:
        """Everything below `next_offset` is committed. Calls `replica.on_applied` when it is applied."""

    def on_trim(self, offset: Offset) -> None:
        """The records below `offset` must be removed."""

    def on_damage(self) -> None:
        """The content of the log cannot be read back."""

    def on_replica_failed(self, reason: str, end_offset: Offset) -> None:
        """Nothing can be appended until `on_replica_restarted`."""

    def on_replica_restarted(self, reloaded: object) -> None:
        """The replica has started again from what is on the disk."""

    def snapshot_bytes(self, meta: SnapshotMeta) -> bytes | None:
        """On a thread of the pool: the state of this snapshot; None if it no longer exists."""

    def decode_snapshot(self, meta: SnapshotMeta, data: bytes) -> object | None:
        """On a thread of the pool: the state in received bytes; None if they are not valid."""

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        """On the writer thread: store a received state beside the present one."""

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        """On the writer thread: replace the state, after the log was replaced."""

    def on_snapshot_installed(self, meta: SnapshotMeta, reloaded: object) -> None:
        """The log now begins after the snapshot, whose state is `reloaded`."""


class ReplicaHost(Protocol):
    """What a replica needs from its node."""

    writer: Writer
    raft_options: RaftOptions
    random: Random
    pool: Executor
    recent_memory: RecentMemory
    catch_up: LearnerCatchUp

    def send(self, node_id: NodeId, group: GroupId, message: Message) -> None: ...

    def mark_dirty(self, replica: Replica) -> None:
        """Schedule one call of `replica.pump`, however many times this is called."""

    def on_woken(self, replica: Replica) -> None:
        """A replica that may have been asleep is to be ticked again."""

    def guard(self, replica: Replica, work: Callable[..., object], *arguments: object) -> None:
        """Call a function that works for a replica. An exception ends that replica and does not reach the caller."""

    def wake_others(self, replica: Replica) -> None:
        """Wake the other members of the group of a replica that is about to end, so that they notice."""

    def call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the event loop, from any thread, in order."""

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None: ...
