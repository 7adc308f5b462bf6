"""The producers that the leaders of partitions know: those with a producer id, and what each has open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drmq.client.cluster import Cluster
from drmq.client.errors import ClientError
from drmq.client.topics import by_topic, leader_of
from drmq.model import TopicPartition
from drmq.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """An idempotent producer in one partition. `transaction_start` is the first offset of its open transaction."""

    producer_id: int
    epoch: int
    last_ms: int
    transaction_start: int | None


class Producers:
    """Calls about producers. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def active(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers of each partition, without partitions that have no leader or whose leader does not respond."""
        wanted = sorted(set(partitions))
        if not wanted:
            return {}
        deadline = self._cluster.deadline()
        described = self._cluster.retry(
            lambda attempt: self._cluster.metadata(attempt, topics=sorted({place.topic for place in wanted})),
            deadline=deadline,
        ).topics
        shares: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            leader = leader_of(place, described)
            if not isinstance(leader, ClientError):
                shares.setdefault(leader, []).append(place)
        found: dict[TopicPartition, list[ActiveProducer]] = {}
        for position, (leader, share) in enumerate(shares.items()):
            part = deadline.part(1 / (len(shares) - position))
            topics = [DescribeProducersRequestTopic(topic, indexes) for topic, indexes in by_topic(share).items()]
            try:
                node = self._cluster.node(leader, part)
                answer = node.call(DescribeProducersRequest(topics), DescribeProducersResponse, part)
            except ClientError:
                continue
            for each in answer.topics:
                for entry in each.partitions:
                    if not entry.error_code:
                        found[TopicPartition(each.name, entry.partition_index)] = [
                            ActiveProducer(
                                producer.producer_id,
                                producer.producer_epoch,
                                producer.last_timestamp,
                                producer.current_txn_start_offset if producer.current_txn_start_offset >= 0 else None,
                            )
                            for producer in entry.active_producers
                        ]
        return found
