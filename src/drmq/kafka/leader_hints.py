"""Where a client that asked the wrong node finds the leader, said in the refusal itself (KIP-951).

A client that gets NOT_LEADER_OR_FOLLOWER would ask for metadata next. From Produce v10 and Fetch v16 on, the answer
names the leader with its term and address, so that the client can go there at once. The hint is what this node has
heard; it has a term, so a client never follows it back to an older leader. Only refusals cost anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from drmq.broker import Broker
from drmq.kafka.views import may_lead
from drmq.model import ErrorCode, GroupId, NodeId, TopicId
from drmq.wire.fetch import FetchResult
from drmq.wire.produce import ProduceResult
from drmq.wire.topics import NodeEndpoint, Topic, hinted_leaders

R = TypeVar("R", ProduceResult, FetchResult)

MISDIRECTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Codes after which a client looks for another leader."""


def with_hints(broker: Broker, results: Sequence[R]) -> tuple[list[R], list[NodeEndpoint]]:
    """The results with the leaders that this node knows of, and where those listen."""
    hinted = [
        result._replace(current_leader=_leader(broker, result.topic, result.partition))
        if result.error_code in MISDIRECTED
        else result
        for result in results
    ]
    brokers = broker.metadata.committed_catalog.brokers
    endpoints = []
    for leader in hinted_leaders(hinted):
        known = brokers[NodeId(leader)]
        endpoints.append(NodeEndpoint(leader, known.host, known.port, known.rack))
    return hinted, endpoints


def is_being_elected(broker: Broker, results: Sequence[R]) -> bool:
    """Whether one of the refusals would name no leader because its group, which this node is in, is electing one."""
    return any(
        result.error_code in MISDIRECTED
        and _leader(broker, result.topic, result.partition) is None
        and _is_here(broker, _group(broker, result.topic, result.partition))
        for result in results
    )


def _is_here(broker: Broker, group: GroupId | None) -> bool:
    partition = broker.host.get(group) if group is not None else None
    return partition is not None and not partition.replica.is_alone and not partition.is_closed


def _group(broker: Broker, topic: Topic, index: int) -> GroupId | None:
    if not isinstance(topic, str):
        return GroupId(TopicId(topic), index)
    known = broker.metadata.committed_catalog.topics.get(topic)
    return None if known is None else GroupId(known.topic_id, index)


def _leader(broker: Broker, topic: Topic, index: int) -> tuple[int, int] | None:
    """Leader and term; None where they are not known, or where it is this node that should lead and does not."""
    group = _group(broker, topic, index)
    notice = broker.host.leaders.get(group) if group is not None else None
    if notice is None or notice.leader == broker.node_id or not may_lead(broker, notice):
        return None
    return notice.leader, notice.term
