"""What clients put into a group, read from outside."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.client.groups import Group, _assigned, group_refusal
from drmq.model import ErrorCode, TopicPartition


def assignment(topics: dict[str, list[int]]) -> bytes:
    """As consumers write it: version, topics with their partitions, no user data."""
    out = struct.pack(">hi", 0, len(topics))
    for topic, partitions in topics.items():
        out += (
            struct.pack(">h", len(topic))
            + topic.encode()
            + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        )
    return out + struct.pack(">i", -1)


def test_assignment_is_read() -> None:
    """Partitions in order, whatever order the assignor wrote."""
    assert _assigned(assignment({"b": [1], "a": [2, 0]})) == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_an_assignment_or_none(data: bytes) -> None:
    """Other kinds of groups (Connect, schema registries) write what they like there."""
    for place in _assigned(data):
        assert isinstance(place, TopicPartition)


@pytest.mark.parametrize("cut", range(20))
def test_short_assignment_is_none(cut: int) -> None:
    """Half an assignment is not shown as a smaller one."""
    whole = assignment({"topic": [1, 2]})
    assert _assigned(whole[:cut]) == ()


@pytest.mark.parametrize(("state", "active"), [("Empty", False), ("Dead", False), ("Stable", True)])
def test_active_group(state: str, active: bool) -> None:
    """Offsets of an active group cannot be moved."""
    assert Group("g", state, "consumer", "range", ()).is_active is active


def test_commit_from_outside_to_a_live_group_reads_as_non_empty() -> None:
    """Brokers answer it with UNKNOWN_MEMBER_ID, which would puzzle a person who named no member."""
    error = group_refusal(ErrorCode.UNKNOWN_MEMBER_ID, "g")
    assert error.code is ErrorCode.NON_EMPTY_GROUP
