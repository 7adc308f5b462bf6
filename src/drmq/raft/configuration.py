"""Configurations: which nodes are voters and which are learners, and which configuration holds at which index.

A configuration takes effect as soon as its entry is in the log, committed or not (Raft paper, section 6). So it is
undone when that entry is truncated. `ConfigurationHistory` records which configuration holds from which index on; the
oldest is the snapshot's.

To change voters, a leader writes the *joint* configuration, which has the old and the new voters, and once that is
committed, the new configuration. Voters may be demoted to learners on the way: such a node is in both `voters_before`
and `learners` until the change is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as StructError

from drmq.model import NodeId
from drmq.raft.errors import ProtocolError, UnknownConfiguration
from drmq.raft.types import Entry, EntryKind, LogIndex, Payload

_FORMAT_VERSION = 1
_HEADER = Struct(">BHHH")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The members of a group. Empty only on a node that has not received its group's configuration yet."""

    voters: frozenset[NodeId] = frozenset()
    learners: frozenset[NodeId] = frozenset()
    voters_before: frozenset[NodeId] = frozenset()
    """The voters before the change in progress; empty if there is none."""

    @classmethod
    def of(
        cls, voters: Iterable[int], learners: Iterable[int] = (), voters_before: Iterable[int] = ()
    ) -> Configuration:
        """A configuration from plain numbers."""
        return cls(
            frozenset(map(NodeId, voters)), frozenset(map(NodeId, learners)), frozenset(map(NodeId, voters_before))
        )

    @property
    def is_joint(self) -> bool:
        """Whether two sets of voters must agree."""
        return bool(self.voters_before)

    @property
    def members(self) -> frozenset[NodeId]:
        """All nodes that receive the log."""
        return self.voters | self.voters_before | self.learners

    def votes(self, node_id: NodeId) -> bool:
        """Whether the node counts in a quorum."""
        return node_id in self.voters or node_id in self.voters_before

    def settled(self) -> Configuration:
        """The configuration that follows a joint one."""
        return replace(self, voters_before=frozenset())

    def begun(self) -> Configuration:
        """The configuration before a joint one. Its new voters were learners: nobody votes who was none before."""
        voters = self.voters_before
        return Configuration(voters, (self.voters | self.learners) - voters)

    def towards(self, voters: frozenset[NodeId], learners: frozenset[NodeId]) -> Configuration:
        """The next configuration on the way to these members: joint, unless the voters stay as they are."""
        assert not self.is_joint, self
        if voters == self.voters:
            return Configuration(voters, learners)
        return Configuration(voters, learners, self.voters)


def configuration_to_bytes(configuration: Configuration) -> bytes:
    """A configuration as the payload of its entry."""
    groups = [sorted(configuration.voters), sorted(configuration.learners), sorted(configuration.voters_before)]
    ids = [node_id for group in groups for node_id in group]
    return _HEADER.pack(_FORMAT_VERSION, *map(len, groups)) + Struct(f">{len(ids)}q").pack(*ids)


def configuration_from_bytes(payload: Payload) -> Configuration:
    """The configuration in an entry's payload. Raises `ProtocolError` for anything else."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise ProtocolError(f"a configuration must be bytes, not {type(payload).__name__}")
    try:
        version, *counts = _HEADER.unpack_from(payload)
        if version != _FORMAT_VERSION:
            raise UnknownConfiguration(
                f"configuration of unknown format {version}; start the release that wrote it, or a later one"
            )
        body = Struct(f">{sum(counts)}q")
        if len(payload) != _HEADER.size + body.size:
            raise ProtocolError("configuration of the wrong length")
        ids = body.unpack_from(payload, _HEADER.size)
    except StructError as error:
        raise ProtocolError(f"configuration cut short: {error}") from None
    voter_end, learner_end = counts[0], counts[0] + counts[1]
    return Configuration.of(ids[:voter_end], ids[voter_end:learner_end], ids[learner_end:])


class ConfigurationHistory:
    """Records which configuration holds from which index on. Grows and is truncated together with the log."""

    def __init__(self, base_index: LogIndex, base: Configuration, entries: Iterable[Entry]) -> None:
        self._steps: list[tuple[LogIndex, Configuration]] = [(base_index, base)]
        for entry in entries:
            self.on_append(entry)

    @property
    def latest(self) -> Configuration:
        """The configuration in effect: the last one in the log, committed or not."""
        return self._steps[-1][1]

    @property
    def latest_index(self) -> LogIndex:
        """The index at which the configuration in effect was written."""
        return self._steps[-1][0]

    def at(self, index: LogIndex) -> Configuration:
        """The configuration at `index`, which a snapshot of that index must record."""
        for start, configuration in reversed(self._steps):
            if start <= index:
                return configuration
        raise AssertionError(f"no configuration is remembered for index {index}: {self._steps}")

    def voted_since(self, index: LogIndex, node_id: NodeId) -> bool:
        """Whether a node votes in the configuration at `index` or in any later one."""
        for start, configuration in reversed(self._steps):
            if configuration.votes(node_id):
                return True
            if start <= index:
                break
        return False

    def on_append(self, entry: Entry) -> bool:
        """Record an entry that was appended. Returns True if it changed the configuration."""
        if entry.kind is not EntryKind.CONFIGURATION:
            return False
        assert entry.index > self.latest_index, (entry.index, self.latest_index)
        self._steps.append((entry.index, configuration_from_bytes(entry.payload)))
        return True

    def on_truncate(self, start: LogIndex) -> bool:
        """Forget configurations from `start` on. Returns True if that changed the configuration."""
        before = len(self._steps)
        while self._steps[-1][0] >= start:
            self._steps.pop()
        assert self._steps, f"truncated at {start}, below the snapshot"
        return len(self._steps) != before

    def on_compact(self, index: LogIndex) -> None:
        """Forget the configurations that no snapshot at `index` or later can need."""
        while len(self._steps) > 1 and self._steps[1][0] <= index:
            del self._steps[0]
