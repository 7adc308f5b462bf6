"""Reading a few records at any place, for people who look at a topic.

It is not a consumer: nothing is remembered, and each call returns at once with what is there.
"""

from __future__ import annotations

from drmq.client.cluster import Cluster
from drmq.client.connection import Deadline
from drmq.client.errors import ClientError
from drmq.client.topics import leader_of, topic_refusal
from drmq.model import TopicPartition
from drmq.wire.codec import Buffer
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse

_BY_NAME_VERSION_MAX = 12
"""The last version of Fetch with topic names."""


class RecordReader:
    """Calls that read records. Each raises `ClientError` and ends within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def batches(self, place: TopicPartition, offset: int, bytes_max: int) -> Buffer:
        """Whole batches from the one with `offset` on, at least one; empty at the end of the partition."""

        def ask(deadline: Deadline) -> Buffer:
            leader = leader_of(place, self._cluster.metadata(deadline, topics=[place.topic]).topics)
            if isinstance(leader, ClientError):
                raise leader
            wanted = FetchRequestPartition(
                partition=place.partition, fetch_offset=offset, partition_max_bytes=bytes_max
            )
            request = FetchRequest(
                max_bytes=bytes_max, topics=[FetchRequestTopic(topic=place.topic, partitions=[wanted])]
            )
            connection = self._cluster.node(leader, deadline)
            answer = connection.call(request, FetchResponse, deadline, _BY_NAME_VERSION_MAX)
            for topic in answer.responses:
                for entry in topic.partitions:
                    if entry.error_code:
                        raise topic_refusal(entry.error_code, place.topic, partition=place.partition, doing="be read")
                    return entry.records or b""
            return b""

        return self._cluster.retry(ask)
