"""Counts and logs what happens to the leadership, the members and the logs of a node's partitions.

Each event is a line with its cause, so that an operator can search for a partition's name. When a node starts or stops,
thousands of leaders change at once. Only the first of them are logged, and a line at the end has the number of the
others: to write a line each would delay the elections that are still running.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from drmq.model import GroupId, NodeId, Offset, node_of
from drmq.raft import Cause, Configuration, Leadership, MembersChange, Role

if TYPE_CHECKING:
    from drmq.broker.partitions.partition import Partition

log = logging.getLogger("drmq.broker")

LINES_MAX = 100
WINDOW_S = 10.0


class RoleEvents:
    """The events of all partitions of a node. `call_later(seconds, function)` is the event loop's."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self.elections = self.won = self.lost = self.truncations = 0
        self._call_later = call_later
        self._lines = 0
        self._last_leaders: dict[GroupId, NodeId] = {}
        """The last leader of each partition that has none."""

    def on_role_changing(self, partition: Partition, new: Leadership) -> None:
        """A partition, which still has its old role, is about to take a new role, term or leader."""
        leads = new.role is Role.LEADER
        # An election begins by forgetting the leader.
        last = partition.leader if partition.leader is not None else self._last_leaders.pop(partition.group, None)
        if new.leader is None and last is not None:
            self._last_leaders[partition.group] = last
        if new.term > partition.leader_epoch and (leads or new.role is Role.CANDIDATE):
            self.elections += 1
        if leads and not partition.is_leader:
            self.won += 1
            before = "no leader" if last is None else f"node {last}"
            self._say(
                "%s: this node is the leader now, in term %d; before: %s; cause: %s",
                _name(partition),
                new.term,
                before,
                new.cause.value,
            )
        elif partition.is_leader and not leads:
            self.lost += 1
            self._say("%s: this node is no longer the leader: %s", _name(partition), _why_lost(new))

    def on_members_changed(self, partition: Partition, change: MembersChange) -> None:
        """A change of members is committed. Only its leader reports it, so the cluster has one line for it."""
        self._say(
            "%s: members are now %s (were %s), in term %d: %s",
            _name(partition),
            _members(change.after),
            _members(change.before),
            change.term,
            change.reason or "begun by an earlier leader",
        )

    def on_truncating(self, partition: Partition, end_offset: Offset) -> None:
        count = partition.next_offset - end_offset
        if count > 0:
            self.truncations += 1
            self._say(
                "%s: removes %d records from offset %d on, which were never committed: the leader has others or none",
                _name(partition),
                count,
                end_offset,
            )

    def _say(self, text: str, *values: object) -> None:
        if not self._lines:
            self._call_later(WINDOW_S, self._end_window)
        self._lines += 1
        if self._lines <= LINES_MAX:
            log.info(text, *values)

    def _end_window(self) -> None:
        more, self._lines = self._lines - LINES_MAX, 0
        if more > 0:
            log.info("%d more changes of leaders, members and logs within %.0f s were not logged", more, WINDOW_S)


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.index}"


def _members(configuration: Configuration) -> str:
    voters = [str(node_id) for node_id in sorted(map(node_of, configuration.voters))]
    learners = [f"learner {node_id}" for node_id in sorted(map(node_of, configuration.learners))]
    return ", ".join(voters + learners)


def _why_lost(new: Leadership) -> str:
    if new.cause is Cause.HANDED_OVER and new.caused_by is not None:
        return f"it handed over to node {node_of(new.caused_by)}, in term {new.term}"
    if new.cause is Cause.LATER_TERM and new.leader is not None:
        return f"node {node_of(new.leader)} was elected, in term {new.term}"
    if new.cause is Cause.LATER_TERM and new.caused_by is not None:
        return f"node {node_of(new.caused_by)} is in a later term, {new.term}"
    return f"{new.cause.value}, in term {new.term}"
