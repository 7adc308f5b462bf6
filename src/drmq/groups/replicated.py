"""The state that all replicas of a shard share: the stored groups and the committed offsets.

Only `replay` changes it, and only the log determines it: two replicas that have replayed the same records are equal.
`snapshot` returns the shortest list of records that produces the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drmq.groups.offsets import OffsetTable
from drmq.groups.records import GroupDeleted, GroupMetadata, GroupRecord, OffsetCommitted, OffsetDeleted


@dataclass(slots=True)
class ReplicatedState:
    """The last record per key. Does not depend on time, tickets or leadership."""

    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    offsets: OffsetTable = field(default_factory=OffsetTable)

    def replay(self, record: GroupRecord) -> None:
        """Apply one record from the log. Accepts anything that `record_from_bytes` returns."""
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
