"""Configurations: as bytes, along the log, and on the way from one to the next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drmq.model import NodeId
from drmq.raft import (
    Configuration,
    EntryKind,
    LogIndex,
    ProtocolError,
    configuration_from_bytes,
    configuration_to_bytes,
)
from drmq.raft.configuration import ConfigurationHistory

from .nodes import entry

groups = st.frozensets(st.integers(-(2**31), 2**31 - 1).map(NodeId), max_size=5)


@given(groups, groups, groups)
def test_bytes_and_back(voters: frozenset[NodeId], learners: frozenset[NodeId], before: frozenset[NodeId]) -> None:
    """What is written is read, also from a view."""
    configuration = Configuration(voters, learners, before)
    data = configuration_to_bytes(configuration)
    assert configuration_from_bytes(data) == configuration
    assert configuration_from_bytes(memoryview(data)) == configuration


@given(st.binary(max_size=40))
def test_bytes_of_nobody(data: bytes) -> None:
    """Anything else is refused, or happens to be a configuration; it never breaks."""
    try:
        configuration = configuration_from_bytes(data)
    except ProtocolError:
        return
    assert configuration_from_bytes(configuration_to_bytes(configuration)) == configuration


@pytest.mark.parametrize("cut", range(15))
def test_cut_short(cut: int) -> None:
    """A part of a configuration is none."""
    data = configuration_to_bytes(Configuration.of([1, 2]))
    with pytest.raises(ProtocolError):
        configuration_from_bytes(data[:cut])


def test_change_of_voters_is_joint() -> None:
    """Voters change through both majorities; learners come and go without."""
    start = Configuration.of([1, 2, 3])
    joint = start.towards(Configuration.of([1, 4]).voters, frozenset({NodeId(3)}))
    assert joint == Configuration.of([1, 4], [3], [1, 2, 3])
    assert joint.settled() == Configuration.of([1, 4], [3])
    assert joint.votes(NodeId(3))
    assert not joint.settled().votes(NodeId(3))
    assert not start.towards(start.voters, frozenset({NodeId(9)})).is_joint


def test_history_follows_the_log() -> None:
    """Each configuration holds from its entry on, and is forgotten with it, from either end."""

    def configured(index: int, *voters: int) -> None:
        payload = configuration_to_bytes(Configuration.of(voters))
        assert history.on_append(entry(index, 1, payload, EntryKind.CONFIGURATION))

    history = ConfigurationHistory(LogIndex(0), Configuration.of([1]), ())
    configured(3, 1, 2)
    configured(7, 1, 2, 3)
    assert not history.on_append(entry(8, 1))
    assert [len(history.at(LogIndex(n)).voters) for n in (0, 2, 3, 6, 7, 99)] == [1, 1, 2, 2, 3, 3]
    assert history.on_truncate(LogIndex(7))
    assert (history.latest_index, history.latest) == (3, Configuration.of([1, 2]))
    assert not history.on_truncate(LogIndex(5))
    configured(7, 5)
    history.on_compact(LogIndex(6))
    assert history.at(LogIndex(6)) == Configuration.of([1, 2])
    with pytest.raises(AssertionError):
        history.at(LogIndex(2))


def test_who_voted_lately() -> None:
    """A node that a change removes still counts as concerned until the change is committed."""
    history = ConfigurationHistory(LogIndex(0), Configuration.of([1, 2]), ())
    payload = configuration_to_bytes(Configuration.of([2]))
    history.on_append(entry(5, 1, payload, EntryKind.CONFIGURATION))
    assert history.voted_since(LogIndex(4), NodeId(1))
    assert not history.voted_since(LogIndex(5), NodeId(1))
    assert history.voted_since(LogIndex(5), NodeId(2))
