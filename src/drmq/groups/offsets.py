"""The table of committed offsets: per group and partition, the last commit.

It holds the records themselves, so a snapshot is a list of its content. The only derived data is an index of the groups
that have offsets of a topic, so that deleting a topic does not examine all groups. A group without offsets has no row:
`groups()` returns exactly the groups that have some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field

from drmq.groups.quota import OFFSET_BYTES
from drmq.groups.records import OffsetCommitted, OffsetDeleted
from drmq.model import TopicId, TopicPartition


@dataclass(slots=True)
class OffsetTable:
    """Owned by the replicated state; only a replay changes it."""

    _by_group: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)
    _counts: dict[str | TopicId, Counter[str]] = field(default_factory=dict)
    """For each topic, by its id or, if an offset has none, by its name: the groups with offsets, and how many each
    has."""
    size_bytes: int = 0
    """The memory of all offsets."""

    def put(self, record: OffsetCommitted) -> None:
        offsets = self._by_group.setdefault(record.group_id, {})
        before = offsets.get(record.topic_partition)
        if before is None or _topic(before) != _topic(record):
            self._counts.setdefault(_topic(record), Counter())[record.group_id] += 1
            if before is not None:
                self._discount(before)
        offsets[record.topic_partition] = record
        self.size_bytes += offset_bytes(record) - (0 if before is None else offset_bytes(before))

    def remove(self, record: OffsetDeleted) -> None:
        """Remove one offset. A tombstone for an offset that does not exist changes nothing."""
        offsets = self._by_group.get(record.group_id, {})
        gone = offsets.pop(record.topic_partition, None)
        if gone is None:
            return
        self.size_bytes -= offset_bytes(gone)
        if not offsets:
            del self._by_group[record.group_id]
        self._discount(gone)

    def _discount(self, record: OffsetCommitted) -> None:
        counts = self._counts[_topic(record)]
        counts[record.group_id] -= 1
        if not counts[record.group_id]:
            del counts[record.group_id]
        if not counts:
            del self._counts[_topic(record)]

    def get(self, group_id: str, partition: TopicPartition) -> OffsetCommitted | None:
        return self._by_group.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> list[OffsetCommitted]:
        """All offsets of a group, by topic and partition."""
        offsets = self._by_group.get(group_id, {})
        return [offsets[partition] for partition in sorted(offsets)]

    def of_topics(self, topics: Collection[str]) -> list[OffsetCommitted]:
        """The offsets of all groups for these topics, as far as they have only a topic name and no id."""
        return self._of([name for name in topics if name in self._counts])

    def of_topic_ids(self, topic_ids: Container[TopicId]) -> list[OffsetCommitted]:
        """The offsets of all groups for topics with these ids."""
        return self._of([key for key in self._counts if not isinstance(key, str) and key in topic_ids])

    def _of(self, topics: Collection[str | TopicId]) -> list[OffsetCommitted]:
        """Examines only the groups that have such offsets."""
        wanted = set(topics)
        groups = sorted({group_id for topic in wanted for group_id in self._counts[topic]})
        return [record for group_id in groups for record in self.of_group(group_id) if _topic(record) in wanted]

    def groups(self) -> list[str]:
        return sorted(self._by_group)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def __iter__(self) -> Iterator[OffsetCommitted]:
        for group_id in self.groups():
            yield from self.of_group(group_id)

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in self._by_group.values())


def offset_bytes(record: OffsetCommitted) -> int:
    """The memory of an offset."""
    return OFFSET_BYTES + len(record.group_id) + len(record.topic) + len(record.metadata)


def _topic(record: OffsetCommitted) -> str | TopicId:
    return record.topic if record.topic_id is None else record.topic_id
