"""The table of committed offsets."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from drmq.groups import OffsetCommitted, OffsetDeleted
from drmq.groups.offsets import OffsetTable
from drmq.model import Offset, TopicId, TopicPartition


def committed(group_id: str, topic: str, partition: int, offset: int) -> OffsetCommitted:
    return OffsetCommitted(group_id, topic, partition, Offset(offset))


def test_the_last_commit_of_a_partition_counts() -> None:
    table = OffsetTable()
    table.put(committed("g", "t", 0, 5))
    table.put(committed("g", "t", 0, 3))
    assert table.get("g", TopicPartition("t", 0)) == committed("g", "t", 0, 3)
    assert table.get("g", TopicPartition("t", 1)) is None
    assert table.get("h", TopicPartition("t", 0)) is None
    assert len(table) == 1


def test_a_group_is_known_while_it_has_an_offset() -> None:
    table = OffsetTable()
    table.remove(OffsetDeleted("g", "t", 0))
    table.put(committed("g", "t", 0, 5))
    table.remove(OffsetDeleted("g", "t", 7))
    assert "g" in table
    table.remove(OffsetDeleted("g", "t", 0))
    assert "g" not in table
    assert table == OffsetTable()


def test_offsets_come_in_the_order_of_group_topic_and_partition() -> None:
    """A snapshot must not depend on the history that led to it."""
    rows = [committed(g, t, p, 1) for g in ("a", "b") for t in ("s", "t") for p in (0, 2, 10)]
    table = OffsetTable()
    for row in reversed(rows):
        table.put(row)
    assert list(table) == rows
    assert table.of_group("b") == rows[6:]
    assert table.of_topics({"s"}) == [row for row in rows if row.topic == "s"]


def test_a_name_stands_only_for_offsets_that_do_not_know_their_topic() -> None:
    one, other = TopicId(b"1" * 16), TopicId(b"2" * 16)
    rows = [
        replace(committed("g", "t", number, 1), topic_id=topic_id) for number, topic_id in enumerate((None, one, other))
    ]
    table = OffsetTable()
    for row in rows:
        table.put(row)
    assert table.of_topics({"t"}) == rows[:1]
    assert table.of_topic_ids({other}) == rows[2:]
    assert table.of_topic_ids(()) == []


def test_the_offsets_of_a_topic_after_any_history() -> None:
    """As if all were looked through."""
    chance = Random(7)
    ids = [TopicId(b"1" * 16), TopicId(b"2" * 16)]
    table = OffsetTable()
    for _ in range(2_000):
        group_id, topic, partition = chance.choice("abcd"), chance.choice("stu"), chance.randrange(3)
        if chance.random() < 0.5:
            table.put(replace(committed(group_id, topic, partition, 1), topic_id=chance.choice((None, *ids))))
        else:
            table.remove(OffsetDeleted(group_id, topic, partition))
        topics = set(chance.sample("stuv", 2))
        assert table.of_topics(topics) == [each for each in table if each.topic in topics and each.topic_id is None]
        assert table.of_topic_ids(ids[:1]) == [each for each in table if each.topic_id == ids[0]]
    for record in list(table):
        table.remove(OffsetDeleted(record.group_id, record.topic, record.partition))
    assert table == OffsetTable()


def test_groups_that_do_not_read_a_topic_are_not_looked_through_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard may hold a hundred thousand offsets, and one request delete a hundred topics."""
    table = OffsetTable()
    for number in range(50):
        table.put(committed(f"busy-{number}", "busy", 0, 1))
    table.put(committed("g", "quiet", 0, 1))
    looked_at: list[str] = []
    of_group = OffsetTable.of_group

    def count(table: OffsetTable, group_id: str) -> list[OffsetCommitted]:
        looked_at.append(group_id)
        return of_group(table, group_id)

    monkeypatch.setattr(OffsetTable, "of_group", count)
    assert table.of_topics({"quiet", "nobody-s"}) == [committed("g", "quiet", 0, 1)]
    assert looked_at == ["g"]
