"""What a partition reports to the rest of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from drmq.broker.partitions.commit_times import CommitTimes
from drmq.model import Offset
from drmq.raft import Leadership, MembersChange

if TYPE_CHECKING:
    from drmq.broker.partitions.partition import Partition


class PartitionEvents(Protocol):
    """Receives the events of a partition that concern other parts of the broker."""

    uncommitted_bytes: int
    """The uncommitted bytes of all partitions that this node leads; each partition adds its own."""
    believed_ms: int
    """The time of the last expiry. Producers that are seen now must not get an earlier time."""

    @property
    def types_own_entries(self) -> bool:
        """Whether all nodes can read own entries that start with their type."""

    produced_records: int
    produced_bytes: int
    """What producers have sent to partitions that this node leads, since the start."""
    commit_times: CommitTimes

    def on_role_changing(self, partition: Partition, leadership: Leadership) -> None:
        """A partition is about to take a new role, term or leader."""

    def on_members_changed(self, partition: Partition, change: MembersChange) -> None:
        """A change of the members of a group that is led here is committed."""

    def on_truncating(self, partition: Partition, end_offset: Offset) -> None:
        """A partition is about to lose its uncommitted records from `end_offset` on."""

    def on_leadership_changed(self, partition: Partition) -> None: ...

    def on_trim(self, partition: Partition, offset: Offset) -> None: ...

    def on_partition_failed(self, partition: Partition, reason: str) -> None: ...

    def on_damaged(self, partition: Partition) -> None: ...

    def on_state_unreadable(self, partition: Partition, reason: str) -> None:
        """Make its replica fail, after the caller is done."""

    def on_unknown_format(self, partition: Partition, reason: str) -> None:
        """The replica contains data of a later release, and must stop permanently."""
