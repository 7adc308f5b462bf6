"""The table of committed offsets: per group, per partition, the last commit.

It holds the records themselves and nothing derived from them, so a snapshot of it is a list of its
contents. A group without offsets has no row: `groups()` names exactly the groups that have some.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field

from drmq.groups.records import OffsetCommitted, OffsetDeleted
from drmq.model import TopicId, TopicPartition


@dataclass(slots=True)
class OffsetTable:
    """Owned by the replicated state; only a replay writes it."""

    _by_group: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)

    def put(self, record: OffsetCommitted) -> None:
        self._by_group.setdefault(record.group_id, {})[record.topic_partition] = record

    def remove(self, record: OffsetDeleted) -> None:
        """Forget one offset; a tombstone for an offset that is not there changes nothing."""
        offsets = self._by_group.get(record.group_id)
        if offsets is None:
            return
        offsets.pop(record.topic_partition, None)
        if not offsets:
            del self._by_group[record.group_id]

    def get(self, group_id: str, partition: TopicPartition) -> OffsetCommitted | None:
        return self._by_group.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> list[OffsetCommitted]:
        """All offsets of a group, by topic and partition."""
        offsets = self._by_group.get(group_id, {})
        return [offsets[partition] for partition in sorted(offsets)]

    def of_topics(self, topics: Collection[str]) -> list[OffsetCommitted]:
        """The offsets that any group has committed for these topics, and that say no more than their topic's name."""
        return [record for record in self if record.topic in topics and record.topic_id is None]

    def of_topic_ids(self, topic_ids: Container[TopicId]) -> list[OffsetCommitted]:
        """The offsets that any group has committed for one of these very topics."""
        return [record for record in self if record.topic_id is not None and record.topic_id in topic_ids]

    def groups(self) -> list[str]:
        return sorted(self._by_group)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def __iter__(self) -> Iterator[OffsetCommitted]:
        for group_id in self.groups():
            yield from self.of_group(group_id)

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in self._by_group.values())
