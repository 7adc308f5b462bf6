"""The table of committed offsets: per group, per partition, the last commit.

It holds the records themselves and nothing derived from them, so a snapshot of it is a list of its
contents, but for an index of which groups have offsets of a topic: a topic that is deleted is of no
concern to all the others. A group without offsets has no row: `groups()` names exactly the groups that
have some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from drmq.groups.records import OffsetCommitted, OffsetDeleted
from drmq.model import TopicPartition


@dataclass(slots=True)
class OffsetTable:
    """Owned by the replicated state; only a replay writes it."""

    _by_group: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)
    _counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each topic: the groups that have offsets there, with how many."""

    def put(self, record: OffsetCommitted) -> None:
        offsets = self._by_group.setdefault(record.group_id, {})
        if record.topic_partition not in offsets:
            self._counts.setdefault(record.topic, Counter())[record.group_id] += 1
        offsets[record.topic_partition] = record

    def remove(self, record: OffsetDeleted) -> None:
        """Forget one offset; a tombstone for an offset that is not there changes nothing."""
        offsets = self._by_group.get(record.group_id)
        if offsets is None or offsets.pop(record.topic_partition, None) is None:
            return
        if not offsets:
            del self._by_group[record.group_id]
        counts = self._counts[record.topic]
        counts[record.group_id] -= 1
        if not counts[record.group_id]:
            del counts[record.group_id]
        if not counts:
            del self._counts[record.topic]

    def get(self, group_id: str, partition: TopicPartition) -> OffsetCommitted | None:
        return self._by_group.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> list[OffsetCommitted]:
        """All offsets of a group, by topic and partition."""
        offsets = self._by_group.get(group_id, {})
        return [offsets[partition] for partition in sorted(offsets)]

    def of_topics(self, topics: Collection[str]) -> list[OffsetCommitted]:
        """The offsets that any group has committed for one of these topics. Looks at the groups with such."""
        groups = {group_id for topic in topics for group_id in self._counts.get(topic, ())}
        return [record for group_id in sorted(groups) for record in self.of_group(group_id) if record.topic in topics]

    def groups(self) -> list[str]:
        return sorted(self._by_group)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def __iter__(self) -> Iterator[OffsetCommitted]:
        for group_id in self.groups():
            yield from self.of_group(group_id)

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in self._by_group.values())
