"""What can be asked of replicas where there is one node: one, and here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drmq.broker import Broker
from drmq.model import ApiError, ErrorCode

REPLICATION_FACTOR = 1
_DEFAULT = -1


def check_replication_factor(factor: int) -> None:
    """Raise `ApiError` unless a topic can have this many replicas."""
    if factor not in (_DEFAULT, REPLICATION_FACTOR):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: there is one node, so {REPLICATION_FACTOR} (or -1) is all there can be",
        )


def check_assignment(broker: Broker, assigned: Iterable[Sequence[int]]) -> None:
    """Raise `ApiError` unless every partition is assigned to this node and to no other."""
    for node_ids in assigned:
        if list(node_ids) != [broker.node_id]:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"replicas on nodes {list(node_ids)}: the only node is {broker.node_id}",
            )
