"""The hand-written Produce codec against the compiled one, and against hostile frames."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drmq.wire import (
    ApiKey,
    NodeEndpoint,
    ProduceResult,
    ProtocolError,
    decode,
    read_produce,
    write_produce_response,
    write_response,
)
from drmq.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponseLeader,
    ProduceResponseNode,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)

from .samples import encoded, filled, messages

VERSIONS = range(3, 14)
each_version = pytest.mark.parametrize("version", VERSIONS)


def flat(request: ProduceRequest, version: int) -> tuple[Any, ...]:
    return (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (topic.topic_id if version >= 13 else topic.name, partition.index, partition.records)
            for topic in request.topic_data
            for partition in topic.partition_data
        ],
    )


@each_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_reads_what_the_compiled_codec_writes(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(ProduceRequest, version))
    written = encoded(request, version)
    assert read_produce(b"head" + written, 4, version) == flat(request, version)
    assert read_produce(memoryview(written), 0, version) == flat(request, version)


@each_version
def test_records_are_views_into_the_frame(version: int) -> None:
    """Nothing is copied: a change of the frame is seen through the view."""
    request = ProduceRequest(topic_data=[ProduceRequestTopic("t", bytes(16), [ProduceRequestPartition(0, b"batch")])])
    frame = bytearray(encoded(request, version))
    records = read_produce(frame, 0, version).partitions[0].records
    assert isinstance(records, memoryview)
    where = frame.index(b"batch")
    frame[where] = ord("X")
    assert bytes(records) == b"Xatch"


@each_version
def test_truncated_request_is_refused(version: int) -> None:
    written = encoded(filled(ProduceRequest, version), version)
    for stop in range(len(written)):
        with pytest.raises(ProtocolError):
            read_produce(written[:stop], 0, version)
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        read_produce(written + b"\0", 0, version)


@each_version
def test_damaged_request_is_read_as_the_compiled_codec_reads_it(version: int) -> None:
    """Both readers accept the same bytes and see the same in them."""
    chance = random.Random(version)
    written = encoded(filled(ProduceRequest, version), version)
    accepted = 0
    for _ in range(2000):
        damaged = bytearray(written)
        for _ in range(chance.randint(1, 2)):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        try:
            expected = flat(decode(ProduceRequest, version, damaged), version)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                read_produce(damaged, 0, version)
        else:
            accepted += 1
            assert read_produce(damaged, 0, version) == expected
    assert accepted > 100


@each_version
def test_memory_grows_with_the_frame(version: int) -> None:
    for records in (None, b"", b"x"):
        partitions = [ProduceRequestPartition(1, records)] * 1000
        written = encoded(ProduceRequest(topic_data=[ProduceRequestTopic("", bytes(16), partitions)]), version)
        tracemalloc.start()
        read_produce(written, 0, version)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60 * len(written)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x98\x96\x80", b"\xff\xff\xff\xff"])
def test_hostile_counts_are_refused(count: bytes) -> None:
    start = b"\xff\xff\x00\x01\x00\x00\x00\x00"
    with pytest.raises(ProtocolError):
        read_produce(start + count + bytes(50), 0, 3)
    with pytest.raises(ProtocolError):
        read_produce(start + b"\x00\x00\x00\x01\x00\x01t" + count + bytes(50), 0, 3)
    with pytest.raises(ProtocolError):
        read_produce(b"\x00\x00\x01\x00\x00\x00\x00" + b"\xff\xff\xff\xff\x07" + bytes(50), 0, 9)


# ---- the response --------------------------------------------------------------------------------

_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_text = st.text(max_size=3) | st.just("n" * 126) | st.just("n" * 127) | st.just("n" * 249)


def results(version: int, plain: bool) -> st.SearchStrategy[ProduceResult]:
    topic: st.SearchStrategy[Any] = st.binary(min_size=16, max_size=16) if version >= 13 else _text
    rare: dict[str, st.SearchStrategy[Any]] = {
        "error_message": st.none() | _text,
        "record_errors": st.lists(st.tuples(_int32, st.none() | _text), max_size=2),
        "current_leader": st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
    }
    return st.builds(
        ProduceResult,
        topic=topic,
        partition=_int32,
        error_code=st.integers(-1, 130),
        base_offset=_int64,
        log_append_time_ms=_int64,
        log_start_offset=_int64,
        # Left out, they would be made up from the types, with a string for a sequence.
        **({"error_message": st.none(), "record_errors": st.just(()), "current_leader": st.none()} if plain else rare),
    )


def as_response(version: int, given_results: list[ProduceResult], throttle: int, nodes: list[NodeEndpoint]) -> Any:
    response = ProduceResponse(throttle_time_ms=throttle)
    response.node_endpoints = [ProduceResponseNode(*node) for node in nodes]
    last = None
    for result in given_results:
        if not response.responses or result.topic != last:
            last = result.topic
            names = {"topic_id": last} if version >= 13 else {"name": last}
            response.responses.append(ProduceResponseTopic(**names))  # type: ignore[arg-type]  # a name or an id
        partition = ProduceResponsePartition(*result[1:6])
        partition.error_message = result.error_message
        partition.record_errors = [ProduceResponseRecordError(*error) for error in result.record_errors]
        if result.current_leader is not None:
            partition.current_leader = ProduceResponseLeader(*result.current_leader)
        response.responses[-1].partition_responses.append(partition)
    return response


@each_version
@pytest.mark.parametrize("plain", [True, False])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_response_equals_the_compiled_codec(version: int, plain: bool, data: st.DataObject) -> None:
    """The short way and the general way write what the classes write."""
    given_results = data.draw(st.lists(results(version, plain), min_size=plain, max_size=1 if plain else 4))
    throttle = data.draw(_int32)
    nodes = [] if plain else data.draw(st.lists(st.builds(NodeEndpoint, _int32, _text, _int32, st.none() | _text)))
    written = write_produce_response(version, 42, given_results, throttle_time_ms=throttle, node_endpoints=nodes)
    response = as_response(version, given_results, throttle, nodes)
    assert written == write_response(ApiKey.PRODUCE, version, 42, response)


@each_version
def test_neighbours_of_one_topic_share_an_entry(version: int) -> None:
    a, b = (bytes(16), bytes([1] * 16)) if version >= 13 else ("a", "b")
    given_results = [ProduceResult(a, 0), ProduceResult(a, 1), ProduceResult(b, 0)]
    written = write_produce_response(version, 1, given_results)
    response = decode(ProduceResponse, version, written, 9 if version >= 9 else 8)
    assert [[p.index for p in topic.partition_responses] for topic in response.responses] == [[0, 1], [0]]
