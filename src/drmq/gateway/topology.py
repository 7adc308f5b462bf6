"""Producers, topics and groups as a graph, and open transactions: both from what the leaders say about producers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from drmq.client import Admin
from drmq.client.producers import ActiveProducer
from drmq.gateway.group_survey import GroupsNow
from drmq.gateway.group_types import Topology, TopologyEdge, TopologyNode, Transactions, TransactionView
from drmq.gateway.topic_survey import TopicsNow
from drmq.model import TopicPartition

PRODUCERS_MAX: Final = 100
ACTIVE_MS: Final = 60_000
"""A producer that has sent nothing for so long is not shown."""
NO_TRANSACTIONS: Final = (
    "This version of DRMQ refuses transactional producers, so no transaction can be open. Idempotent producers work."
)

Active = dict[TopicPartition, list[ActiveProducer]]


def find_producers(admin: Admin, places: Iterable[TopicPartition]) -> Active:
    """The idempotent producers of partitions."""
    return admin.producers.active(places)


def graph(topics: TopicsNow, groups: GroupsNow, producers: Active) -> Topology:
    """The graph of what was seen last."""
    now_ms = int(time.time() * 1000)
    nodes = [
        TopologyNode(f"topic:{each.name}", "topic", each.name, partitions=each.partitions) for each in topics.topics
    ]
    rates = {each.name: each.rate for each in topics.topics}
    edges, sources, is_truncated = _producer_edges(producers, rates, now_ms)
    nodes += sources
    for facts in groups.groups.values():
        row = facts.row
        nodes.append(TopologyNode(f"group:{row.group_id}", "group", row.group_id, type=row.type, lag=row.lag))
        edges += [
            TopologyEdge(f"topic:{topic}", f"group:{row.group_id}", "consumes", progress.rate, progress.lag)
            for topic, progress in facts.topics.items()
            if topic in rates
        ]
        if row.dead_letter_topic in rates:
            edges.append(TopologyEdge(f"group:{row.group_id}", f"topic:{row.dead_letter_topic}", "dead_letters", None))
    return Topology(nodes, edges, now_ms, is_truncated)


def _producer_edges(
    producers: Active, rates: dict[str, float | None], now_ms: int
) -> tuple[list[TopologyEdge], list[TopologyNode], bool]:
    last_ms: dict[int, int] = {}
    sends_to: dict[int, set[str]] = {}
    for place, active in producers.items():
        for each in active:
            if now_ms - each.last_ms < ACTIVE_MS:
                last_ms[each.producer_id] = max(each.last_ms, last_ms.get(each.producer_id, 0))
                sends_to.setdefault(each.producer_id, set()).add(place.topic)
    shown = sorted(last_ms, key=lambda producer: -last_ms[producer])[:PRODUCERS_MAX]
    senders: dict[str, int] = {}
    for topics in sends_to.values():
        for topic in topics:
            senders[topic] = senders.get(topic, 0) + 1
    edges = []
    for producer in sorted(shown):
        for topic in sorted(sends_to[producer]):
            # What each of several producers sends is not known.
            rate = rates.get(topic) if senders[topic] == 1 else None
            edges.append(TopologyEdge(f"producer:{producer}", f"topic:{topic}", "produces", rate))
    nodes = [TopologyNode(f"producer:{each}", "producer", f"producer {each}") for each in sorted(shown)]
    return edges, nodes, len(shown) < len(last_ms)


def open_transactions(producers: Active) -> Transactions:
    """The transactions that leaders know to be open."""
    items = [
        TransactionView(each.producer_id, each.epoch, *place, each.transaction_start, each.last_ms)
        for place, active in sorted(producers.items())
        for each in active
        if each.transaction_start is not None
    ]
    return Transactions(items, None if items else NO_TRANSACTIONS)
