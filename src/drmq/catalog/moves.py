"""The effect of reassignment facts on an assignment. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from drmq.catalog.records import AssignmentRestored
from drmq.catalog.topics import Assignment
from drmq.model import NodeId


def moved_assignment(present: Assignment, replicas: tuple[NodeId, ...]) -> Assignment:
    """The assignment once its group has exactly the members `replicas`."""
    stayed = set(replicas) == set(present.replicas)
    moved = Assignment(replicas, None, present.initial_members if stayed else (), moves=present.moves)
    return _with_arrivals(moved, present)


def retargeted(present: Assignment, target: tuple[NodeId, ...] | None) -> Assignment:
    """The assignment with another target than before, or with none."""
    tried = present.given_up + (present.target or ()) if present.begun else ()
    given_up = tuple(node for node in dict.fromkeys(tried) if node not in present.replicas + (target or ()))
    return _with_arrivals(replace(present, target=target, given_up=given_up, moves=present.moves + 1), present)


def _with_arrivals(moved: Assignment, before: Assignment) -> Assignment:
    """Record the present move as the arrival of each new host, and drop hosts that left."""
    arrivals = ((node, before.arrival(node) if node in before.hosts else moved.moves) for node in moved.hosts)
    return replace(moved, arrivals=tuple((node, move) for node, move in arrivals if move))


def without_copy(present: Assignment, node_id: NodeId) -> Assignment:
    """The assignment after one of its hosts lost its replica and starts a new one."""
    moves = present.moves + 1
    others = tuple((node, move) for node, move in present.arrivals if node != node_id)
    return replace(present, moves=moves, arrivals=(*others, (node_id, moves)))


def restored_assignment(present: Assignment, fact: AssignmentRestored) -> Assignment:
    return replace(
        present,
        target=None if fact.target is None else tuple(fact.target),
        given_up=tuple(fact.given_up),
        begun=fact.begun,
        moves=fact.moves,
        arrivals=tuple((NodeId(node), move) for node, move in fact.arrivals),
    )
