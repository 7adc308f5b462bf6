"""The state that all replicas of a shard share: the stored groups and the committed offsets.

Only `replay` changes it, and only the log determines it: two replicas that have replayed the same records are equal.
`snapshot` returns the shortest list of records that produces the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drmq.groups.offsets import OffsetTable
from drmq.groups.quota import GROUP_BYTES, MEMBER_BYTES, Usage
from drmq.groups.records import GroupDeleted, GroupMetadata, GroupRecord, OffsetCommitted, OffsetDeleted
from drmq.groups.share import ShareGroupTable


@dataclass(slots=True)
class ReplicatedState:
    """The last record per key. Does not depend on time, tickets or leadership."""

    groups: dict[str, GroupMetadata] = field(default_factory=dict)
    offsets: OffsetTable = field(default_factory=OffsetTable)
    share: ShareGroupTable = field(default_factory=ShareGroupTable)
    group_count: int = 0
    """Stored and simple groups."""
    member_bytes: int = 0
    """The memory of all stored members."""

    def replay(self, record: GroupRecord) -> None:
        """Apply one record from the log. Accepts anything that `record_from_bytes` returns."""
        existed = record.group_id in self
        match record:
            case GroupMetadata():
                self.member_bytes += members_bytes(record) - members_bytes(self.groups.get(record.group_id))
                self.groups[record.group_id] = record
            case GroupDeleted():
                self.member_bytes -= members_bytes(self.groups.pop(record.group_id, None))
            case OffsetCommitted():
                self.offsets.put(record)
            case OffsetDeleted():
                self.offsets.remove(record)
            case _:
                self.share.replay(record)
        self.group_count += (record.group_id in self) - existed

    @property
    def usage(self) -> Usage:
        groups = self.group_count + len(self.share.groups)
        size_bytes = groups * GROUP_BYTES + self.member_bytes + self.offsets.size_bytes + self.share.size_bytes
        return Usage(groups, size_bytes)

    def snapshot(self) -> list[GroupRecord]:
        """Records that rebuild this state in an empty one."""
        return [*(self.groups[group_id] for group_id in sorted(self.groups)), *self.offsets, *self.share.snapshot()]

    def __contains__(self, group_id: str) -> bool:
        """Whether a consumer group of this name exists: stored, or "simple", known by its offsets alone."""
        return group_id in self.groups or group_id in self.offsets


def members_bytes(group: GroupMetadata | None) -> int:
    """The memory of the members of a stored group, with every text that a client chooses."""
    if group is None:
        return 0
    return len(group.protocol_type) + sum(
        MEMBER_BYTES
        + len(member.member_id)
        + len(member.instance_id or "")
        + len(member.client_id)
        + len(member.assignment)
        + sum(len(each.name) + len(each.metadata) for each in member.protocols)
        for member in group.members
    )
