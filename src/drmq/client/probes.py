"""Why there is no progress: the errors behind reads and writes that a Kafka client silently retries.

Clients treat errors such as KAFKA_STORAGE_ERROR as temporary and keep retrying. A waiting user wants to know the
reason. `reads` requests the next records as a consumer does. `writes` sends a batch with a deliberately wrong checksum:
a broker that accepts appends rejects it as corrupt and stores nothing; any other response is the actual problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError
from drmq.client.topics import by_topic, leader_of, topic_refusal
from drmq.model import ErrorCode, Offset, TopicPartition
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic, ProduceResponse

T = TypeVar("T")

_BY_NAME_VERSION_MAX = 12
"""The last version of Fetch and Produce with topic names."""

_READ_BYTES = 1 << 20
_ACKS_ALL = -1
_ACCEPTS_APPENDS = frozenset({ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
"""The responses to the corrupt batch if nothing else is wrong."""


class Probes:
    """Requests that are sent once, without retries. Each raises `ClientError` if there is no response at all."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def reads(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ClientError]:
        """The partitions that cannot be read at these offsets, each with the reason."""

        def ask(leader: Connection, share: Sequence[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
            topics = [
                FetchRequestTopic(
                    topic=topic,
                    partitions=[
                        FetchRequestPartition(
                            partition=index,
                            fetch_offset=offsets[TopicPartition(topic, index)],
                            partition_max_bytes=_READ_BYTES,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(share).items()
            ]
            answer = leader.call(FetchRequest(topics=topics), FetchResponse, deadline, _BY_NAME_VERSION_MAX)
            return {
                TopicPartition(topic.topic, entry.partition_index): entry.error_code
                for topic in answer.responses
                for entry in topic.partitions
            }

        found: dict[TopicPartition, ClientError] = {}
        for place, code in self._ask(offsets, ask, found).items():
            if code:
                found[place] = topic_refusal(code, place.topic, partition=place.partition, doing="be read")
        return found

    def writes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ClientError]:
        """The partitions that accept no records now, each with the reason."""

        def ask(
            leader: Connection, share: Sequence[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, tuple[int, str | None]]:
            topics = [
                ProduceRequestTopic(
                    name=topic,
                    partition_data=[
                        ProduceRequestPartition(index=index, records=_corrupt_batch()) for index in indexes
                    ],
                )
                for topic, indexes in by_topic(share).items()
            ]
            request = ProduceRequest(acks=_ACKS_ALL, timeout_ms=1000, topic_data=topics)
            answer = leader.call(request, ProduceResponse, deadline, _BY_NAME_VERSION_MAX)
            return {
                TopicPartition(topic.name, entry.index): (entry.error_code, entry.error_message)
                for topic in answer.responses
                for entry in topic.partition_responses
            }

        found: dict[TopicPartition, ClientError] = {}
        for place, (code, said) in self._ask(partitions, ask, found).items():
            if code not in _ACCEPTS_APPENDS:
                found[place] = topic_refusal(code, place.topic, said, partition=place.partition, doing="be written")
        return found

    def _ask(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[Connection, Sequence[TopicPartition], Deadline], dict[TopicPartition, T]],
        found: dict[TopicPartition, ClientError],
    ) -> dict[TopicPartition, T]:
        """The leaders' responses. Partitions that have no leader or do not exist go to `found`."""
        deadline = self._cluster.deadline()
        wanted = list(partitions)
        described = self._cluster.metadata(deadline, topics=sorted({place.topic for place in wanted})).topics
        shares: dict[int, list[TopicPartition]] = {}
        for place in wanted:
            leader = leader_of(place, described)
            if isinstance(leader, ClientError):
                found[place] = leader
            else:
                shares.setdefault(leader, []).append(place)
        answers: dict[TopicPartition, T] = {}
        for node_id, share in shares.items():
            answers |= ask(self._cluster.node(node_id, deadline), share, deadline)
        return answers


def _corrupt_batch() -> bytes:
    # Imported here, because the compression libraries take time to import and are rarely needed.
    from drmq.records import Record, encode_batch

    batch = bytearray(encode_batch([Record(Offset(0), 0, None, b"probe", ())]))
    batch[-1] ^= 1
    return bytes(batch)
