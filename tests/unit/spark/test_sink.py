"""Records reach whoever leads. Brokers here answer as they are told; librdkafka is the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from drmq.model import ErrorCode
from drmq.spark import sink
from drmq.spark.errors import OptionsError, WriteFailed
from drmq.spark.options import write_options
from drmq.wire import ApiKey
from drmq.wire.messages.init_producer_id import InitProducerIdResponse
from drmq.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from drmq.wire.messages.produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic
from support.fake_broker import FakeCluster, fake_cluster

ROWS = pa.record_batch({"value": pa.array([b"v"] * 10, pa.binary())})


class Leaders:
    """Two brokers and the topic `orders`, which one of them leads."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        for node_id, fake in cluster.brokers.items():
            fake.answers[ApiKey.PRODUCE] = self._produce(node_id)
            fake.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: InitProducerIdResponse(
                producer_id=7, producer_epoch=0
            )
        self.lead(1)

    def lead(self, node_id: int) -> None:
        self.leader = node_id
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=node_id, leader_epoch=node_id, replica_nodes=[1, 2], isr_nodes=[1, 2]
        )
        self.cluster.topics = [MetadataResponseTopic(name="orders", topic_id=b"o" * 16, partitions=[partition])]

    def _produce(self, node_id: int) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            code = ErrorCode.NONE if node_id == self.leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ProduceResponse(
                responses=[
                    ProduceResponseTopic(
                        topic.name,
                        partition_responses=[
                            ProduceResponsePartition(part.index, code, 0) for part in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )

        return answer

    def write(self, **more: str) -> int:
        given = {"kafka.bootstrap.servers": self.cluster.bootstrap, "topic": "orders", **more}
        return sink.write_all(iter([ROWS]), ("value",), write_options(given)).records


@pytest.fixture
def leaders() -> Iterator[Leaders]:
    with fake_cluster(2) as cluster:
        for fake in cluster.brokers.values():
            # What librdkafka speaks, so that it names topics as the answers above do.
            fake.versions = {
                ApiKey.API_VERSIONS: (0, 3),
                ApiKey.METADATA: (0, 12),
                ApiKey.PRODUCE: (3, 9),
                ApiKey.INIT_PRODUCER_ID: (0, 4),
            }
        yield Leaders(cluster)
        sink._senders.clear()


def test_a_leader_that_falls_silent_leaves_time_for_its_successor(leaders: Leaders) -> None:
    """Frozen, with its connection still open, while the other one leads already."""
    assert leaders.write(timeoutMs="8000") == 10
    leaders.cluster[1].freeze()
    leaders.lead(2)
    assert leaders.write(timeoutMs="8000") == 10


def test_large_rows_are_sent_a_few_at_a_time() -> None:
    """However many of them a batch has: what is copied at once is bounded by its bytes. Order and number stay."""
    sizes = [1 << 20] * 50 + [1] * 4000 + [9 << 20, 1]
    batch = pa.record_batch({"value": pa.array([bytes([number % 251]) * size for number, size in enumerate(sizes)])})
    chunks = list(sink._chunks(batch))
    assert pa.Table.from_batches(chunks).equals(pa.Table.from_batches([batch]))
    assert all(chunk.num_rows <= sink.CHUNK_ROWS for chunk in chunks)
    assert all(chunk.num_rows == 1 or chunk.nbytes <= sink.CHUNK_BYTES_MAX for chunk in chunks)
    assert list(sink._chunks(batch.slice(0, 0))) == []


def test_a_setting_of_the_user_counts(leaders: Leaders) -> None:
    """Also one that leaves no time for a successor."""
    chosen = {"timeoutMs": "2000", "kafka.socket.timeout.ms": "60000"}
    assert leaders.write(**chosen) == 10
    leaders.cluster[1].freeze()
    leaders.lead(2)
    with pytest.raises(WriteFailed, match="10 records were not written within 2 s"):
        leaders.write(**chosen)


def test_a_header_name_that_would_be_cut_off_is_refused(leaders: Leaders) -> None:
    """At its NUL, by librdkafka."""
    headers = pa.array(
        [[{"key": "a\0b", "value": b"x"}]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    batch = pa.record_batch({"value": pa.array([b"v"]), "headers": headers})
    options = write_options({"kafka.bootstrap.servers": leaders.cluster.bootstrap, "topic": "orders"})
    with pytest.raises(WriteFailed, match="a NUL in the name of a header"):
        sink.write_all(iter([batch]), ("value", "headers"), options)


@pytest.mark.parametrize("setting", ["default.topic.config", "error_cb", "throttle_cb", "no.such.setting"])
def test_settings_that_are_none(leaders: Leaders, setting: str) -> None:
    with pytest.raises(OptionsError, match="librdkafka rejects a setting"):
        leaders.write(**{f"kafka.{setting}": "x"})
