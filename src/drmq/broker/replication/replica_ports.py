"""What a replica knows of those around it: whose log it is, and the node that it runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, Protocol

from drmq.broker.replication.learner_catch_up import LearnerCatchUp
from drmq.broker.replication.recent_entries import RecentMemory
from drmq.model import GroupId, NodeId, Offset
from drmq.raft import IndexRange, Leadership, Message, RaftOptions, SnapshotMeta
from drmq.records import BatchHeader
from drmq.storage import Writer

if TYPE_CHECKING:
    from drmq.broker.replication.replica import Replica


class ReplicaOwner(Protocol):
    """Whose log it is: hears in offsets what consensus decided. On the event loop, if nothing else is said."""

    def on_leadership(self, leadership: Leadership) -> None:
        """The role, the term or the known leader has changed."""

    def on_appended(self, headers: Sequence[BatchHeader]) -> None:
        """Batches of another leader are durable here."""

    def reload(self, end_offset: Offset) -> object:
        """On the writer thread: what the log amounts to now that it ends at `end_offset`."""

    def on_truncated(self, end_offset: Offset, reloaded: object) -> None:
        """What lay at or behind `end_offset` is gone."""

    def on_committed(self, committed: IndexRange, next_offset: Offset) -> None:
        """Everything below `next_offset` is committed; calls `replica.on_applied` when it is applied."""

    def on_trim(self, offset: Offset) -> None:
        """The records below `offset` are to be removed."""

    def on_damage(self) -> None:
        """What the log holds does not read back."""

    def on_replica_failed(self, reason: str, end_offset: Offset) -> None:
        """Nothing is appended any more until `on_replica_restarted`."""

    def on_replica_restarted(self, reloaded: object) -> None:
        """The replica has begun again from what the disk holds."""

    def snapshot_bytes(self, meta: SnapshotMeta) -> bytes | None:
        """On a thread of the pool: the state that the snapshot stands for; None if it is there no longer."""

    def decode_snapshot(self, meta: SnapshotMeta, data: bytes) -> object | None:
        """On a thread of the pool: what received bytes amount to; None if they are no sound state."""

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        """On the writer thread: keep a received state beside one's own."""

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        """On the writer thread: the log is in its place, so the state can be."""

    def on_snapshot_installed(self, meta: SnapshotMeta, reloaded: object) -> None:
        """The log now begins behind the snapshot, which amounts to `reloaded`."""


class ReplicaHost(Protocol):
    """What a replica needs of its node."""

    writer: Writer
    raft_options: RaftOptions
    random: Random
    pool: Executor
    recent_memory: RecentMemory
    catch_up: LearnerCatchUp

    def send(self, node_id: NodeId, group: GroupId, message: Message) -> None: ...

    def mark_dirty(self, replica: Replica) -> None:
        """Have `replica.pump` called soon, once, whoever else asks."""

    def guard(self, replica: Replica, work: Callable[..., object], *arguments: object) -> None:
        """Do some work of a replica now. An exception costs that replica, and not whoever calls."""

    def wake_others(self, replica: Replica) -> None:
        """A replica is about to end: have the others of its group see for themselves."""

    def call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """From any thread, in order."""

    def call_later(self, delay_s: float, function: Callable[..., object], *arguments: object) -> None: ...
