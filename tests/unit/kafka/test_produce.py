"""Produce: every version, every acks, every refusal, and the connection lives on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from drmq.broker import Partition
from drmq.model import ErrorCode
from drmq.records import Codec, decode_batch, encode_batch
from drmq.wire import ApiKey
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from support.batches import a_batch
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness, versions


def request(
    harness: Harness, *batches: bytes | None, topic: str = "t", acks: int = -1, index: int = 0
) -> ProduceRequest:
    known = harness.broker.catalog.topics.get(topic)
    topic_id = known.topic_id if known is not None else bytes(15) + b"\x09"
    partitions = [ProduceRequestPartition(index, batch) for batch in batches]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[ProduceRequestTopic(topic, topic_id, partitions)])


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    harness.create_topic("t", 2)
    return KafkaHarness(harness)


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_gets_the_next_offsets(harness: Harness, line: KafkaHarness, version: int, acks: int) -> None:
    for expected in (0, 2):
        response = line.ask(request(harness, bytes(a_batch([b"a", b"b"])), acks=acks), version)
        (answered,) = response.responses[0].partition_responses
        assert (answered.error_code, answered.base_offset) == (0, expected)
    assert harness.partition("t").high_watermark == 4


def test_acks_zero_is_not_answered(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, bytes(a_batch()), acks=0), 9)
    assert line.paper.answers == []
    assert harness.partition("t").high_watermark == 1


def test_an_error_with_acks_zero_closes_the_connection(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, b"not a batch", acks=0), 9)
    assert line.paper.closed


def test_odd_acks_are_refused(harness: Harness, line: KafkaHarness) -> None:
    response = line.ask(request(harness, bytes(a_batch()), acks=2), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert harness.partition("t").next_offset == 0


def damaged(position: int) -> bytes:
    batch = bytearray(a_batch([b"hello"]))
    batch[position] ^= 0xFF
    return bytes(batch)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (damaged(-1), ErrorCode.CORRUPT_MESSAGE),
        (damaged(18), ErrorCode.CORRUPT_MESSAGE),
        (bytes(a_batch()) + bytes(a_batch()), ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(encode_batch([], control=True, last_offset_delta=0)), ErrorCode.INVALID_RECORD),
        (bytes(a_batch([b"x" * 2_000_000])), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_bad_batch_is_refused_and_the_next_is_taken(
    harness: Harness, line: KafkaHarness, batch: bytes | None, code: ErrorCode
) -> None:
    response = line.ask(request(harness, batch), 9)
    answered = response.responses[0].partition_responses[0]
    assert answered.error_code == code
    assert answered.error_message
    good = line.ask(request(harness, bytes(a_batch())), 9)
    assert good.responses[0].partition_responses[0].base_offset == 0
    assert not line.paper.closed


def test_zstd_needs_a_version_that_knows_it(harness: Harness, line: KafkaHarness) -> None:
    plain = decode_batch(a_batch([b"x" * 100]), decompressed_size_max=1 << 20)
    batch = bytes(encode_batch(plain, codec=Codec.ZSTD))
    old = line.ask(request(harness, batch), 6)
    assert old.responses[0].partition_responses[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    new = line.ask(request(harness, batch), 7)
    assert new.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
def test_an_unknown_topic(harness: Harness, line: KafkaHarness, version: int, code: int) -> None:
    response = line.ask(request(harness, bytes(a_batch()), topic="nowhere"), version)
    assert response.responses[0].partition_responses[0].error_code == code


def test_an_unknown_partition(harness: Harness, line: KafkaHarness) -> None:
    response = line.ask(request(harness, bytes(a_batch()), index=2), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_bad_partition_does_not_stop_the_others(harness: Harness, line: KafkaHarness) -> None:
    response = line.ask(request(harness, b"bad", bytes(a_batch()), b"bad"), 9)
    codes = [answered.error_code for answered in response.responses[0].partition_responses]
    assert codes[1] == 0
    assert codes[0] != 0
    assert codes[2] != 0


def test_internal_topics_are_not_written_by_clients(harness: Harness, line: KafkaHarness) -> None:
    response = line.ask(request(harness, bytes(a_batch()), topic="__consumer_offsets"), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_retry_gets_the_original_offset(harness: Harness, line: KafkaHarness) -> None:
    batch = bytes(a_batch([b"once"], producer_id=7, epoch=0, sequence=0))
    later = bytes(a_batch([b"then"], producer_id=7, epoch=0, sequence=1))
    for batches in (batch, later):
        line.ask(request(harness, batches), 9)
    response = line.ask(request(harness, batch), 9)
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert harness.partition("t").high_watermark == 2


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("acks", [0, 1])
def test_retired_versions_are_refused_in_their_own_layout(line: KafkaHarness, version: int, acks: int) -> None:
    """Advertised for old clients' sake, and refused with UNSUPPORTED_VERSION for each partition."""
    name = (1).to_bytes(2, "big") + b"t"
    body = acks.to_bytes(2, "big") + (1000).to_bytes(4, "big") + (1).to_bytes(4, "big") + name
    body += (1).to_bytes(4, "big") + (0).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"old"
    head = bytes([0, 0, 0, version]) + (42).to_bytes(4, "big") + (-1).to_bytes(2, "big", signed=True)
    line.send_frame(head + body)
    if not acks:
        assert line.paper.answers == []
        return
    buffers = line.paper.answers[0].buffers
    assert buffers is not None
    frame = b"".join(map(bytes, buffers))
    none = (-1).to_bytes(8, "big", signed=True)
    expected = (42).to_bytes(4, "big") + (1).to_bytes(4, "big") + name + (1).to_bytes(4, "big")
    expected += (0).to_bytes(4, "big") + (35).to_bytes(2, "big") + none
    expected += none if version == 2 else b""
    expected += (0).to_bytes(4, "big") if version else b""
    assert frame == len(expected).to_bytes(4, "big") + expected


def test_a_storage_failure_reaches_the_producer(harness: Harness, line: KafkaHarness) -> None:
    harness.partition("t").failure = "no space left"
    response = line.ask(request(harness, bytes(a_batch())), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_log_append_time_is_told_and_stored(harness: Harness) -> None:
    harness.create_topic("stamped", message_timestamp_type="LogAppendTime")
    line = KafkaHarness(harness)
    response = line.ask(request(harness, bytes(a_batch()), topic="stamped"), 9)
    stamped = response.responses[0].partition_responses[0].log_append_time_ms
    assert abs(stamped - harness.clock.wall_ms()) < 1000
    log = harness.partition("stamped").log
    data = log.read(log.start_offset, 1 << 20, log.flushed_offset)
    assert data is not None
    (record,) = decode_batch(data, decompressed_size_max=1 << 20)
    assert record.timestamp == stamped


@pytest.mark.parametrize(("acks", "code"), [(-1, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE)])
def test_more_replicas_than_there_are_nodes(harness: Harness, acks: int, code: ErrorCode) -> None:
    """A setting is honoured or refused, never ignored: two replicas cannot hold a record on one node."""
    harness.create_topic("twice", min_insync_replicas="2")
    response = KafkaHarness(harness).ask(request(harness, bytes(a_batch()), topic="twice", acks=acks), 9)
    assert response.responses[0].partition_responses[0].error_code == code


class Traces:
    """Stands for `ProduceTraces`: a span is the index of its partition."""

    def __init__(self) -> None:
        self.ended: list[tuple[list[int], int, ErrorCode]] = []

    def begin(self, partition: Partition, batch: memoryview | None, request_id: str) -> list[int]:
        return [partition.index]

    def end(self, spans: list[int], base_offset: int, error: ErrorCode) -> None:
        self.ended.append((spans, base_offset, error))


def test_a_refused_batch_does_not_end_the_spans_of_the_one_before_it(harness: Harness, line: KafkaHarness) -> None:
    traces = Traces()
    line.server.traces = cast("Any", traces)
    wanted = request(harness, bytes(a_batch()))
    wanted.topic_data[0].partition_data += [ProduceRequestPartition(9, bytes(a_batch()))]
    response = line.ask(wanted, 9)
    codes = [each.error_code for each in response.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert traces.ended == [([0], 0, ErrorCode.NONE)]
