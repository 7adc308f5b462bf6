"""What every replica of a shard agrees on: the stored groups and the committed offsets.

`replay` is the only writer, and the order of the log the only input: two replicas that have replayed
the same records are equal. `snapshot` is the shortest list of records that leads to the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drmq.groups.offsets import OffsetTable
from drmq.groups.records import GroupDeleted, GroupMetadata, GroupRecord, OffsetCommitted, OffsetDeleted


@dataclass(slots=True)
class ReplicatedState:
    """The last record per key. Knows nothing of time, tickets or who leads."""

    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    offsets: OffsetTable = field(default_factory=OffsetTable)

    def replay(self, record: GroupRecord) -> None:
        """Take one record from the log. Total: whatever `record_from_bytes` returns can be replayed."""
        match record:
            case GroupMetadata():
                self.groups[record.group_id] = record
            case GroupDeleted():
                self.groups.pop(record.group_id, None)
            case OffsetCommitted():
                self.offsets.put(record)
            case OffsetDeleted():
                self.offsets.remove(record)

    def snapshot(self) -> list[GroupRecord]:
        """Records that rebuild this state in an empty one."""
        return [*(self.groups[group_id] for group_id in sorted(self.groups)), *self.offsets]

    def __contains__(self, group_id: str) -> bool:
        """Whether a group of this name exists: stored, or "simple", known by its offsets alone."""
        return group_id in self.groups or group_id in self.offsets
