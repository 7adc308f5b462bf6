"""The hand-written Fetch codec against the compiled one, and against hostile frames."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drmq.wire import (
    ApiKey,
    Buffer,
    FetchResult,
    NodeEndpoint,
    ProtocolError,
    decode,
    read_fetch,
    write_fetch_response,
    write_response,
)
from drmq.wire.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseDivergingEpoch,
    FetchResponseLeader,
    FetchResponseNode,
    FetchResponsePartition,
    FetchResponseTopic,
)

from .samples import encoded, filled, messages

VERSIONS = range(4, 18)
each_version = pytest.mark.parametrize("version", VERSIONS)


def flat(request: FetchRequest, version: int) -> tuple[Any, ...]:
    def name(topic: FetchRequestTopic | FetchRequestForgottenTopic) -> str | bytes:
        return topic.topic_id if version >= 13 else topic.topic

    return (
        request.replica_state.replica_id if version >= 15 else request.replica_id,
        request.replica_state.replica_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        [
            (
                name(topic), p.partition, p.current_leader_epoch, p.fetch_offset, p.last_fetched_epoch,
                p.log_start_offset, p.partition_max_bytes,
            )
            for topic in request.topics
            for p in topic.partitions
        ],
        [(name(topic), index) for topic in request.forgotten_topics_data for index in topic.partitions],
        request.rack_id,
    )  # fmt: skip


@each_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_reads_what_the_compiled_codec_writes(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(FetchRequest, version))
    written = encoded(request, version)
    assert read_fetch(b"head" + written, 4, version) == flat(request, version)
    assert read_fetch(memoryview(written), 0, version) == flat(request, version)


@each_version
def test_truncated_request_is_refused(version: int) -> None:
    written = encoded(filled(FetchRequest, version), version)
    for stop in range(len(written)):
        with pytest.raises(ProtocolError):
            read_fetch(written[:stop], 0, version)
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        read_fetch(written + b"\0", 0, version)


@each_version
def test_damaged_request_is_read_as_the_compiled_codec_reads_it(version: int) -> None:
    """What the compiled reader accepts, this one accepts, and sees the same in it.

    It may accept more: it does not look inside the tags that it has no use for.
    """
    chance = random.Random(version)
    written = encoded(filled(FetchRequest, version), version)
    accepted = 0
    for _ in range(2000):
        damaged = bytearray(written)
        for _ in range(chance.randint(1, 2)):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        try:
            expected = flat(decode(FetchRequest, version, damaged), version)
        except ProtocolError:
            if version < 12:
                with pytest.raises(ProtocolError):
                    read_fetch(damaged, 0, version)
                continue
            try:
                read_fetch(damaged, 0, version)
            except ProtocolError:
                continue
        else:
            accepted += 1
            assert read_fetch(damaged, 0, version) == expected
    assert accepted > 100


@each_version
def test_memory_grows_with_the_frame(version: int) -> None:
    request = FetchRequest(topics=[FetchRequestTopic("", bytes(16), []) for _ in range(1000)])
    if version >= 7:
        request.forgotten_topics_data = [FetchRequestForgottenTopic("", bytes(16), [7] * 1000)]
    written = encoded(request, version)
    tracemalloc.start()
    read_fetch(written, 0, version)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 * len(written)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\x00\x98\x96\x80", b"\xff\xff\xff\xff"])
def test_hostile_counts_are_refused(count: bytes) -> None:
    start = bytes(25)
    with pytest.raises(ProtocolError):
        read_fetch(start + count + bytes(60), 0, 7)
    with pytest.raises(ProtocolError):
        read_fetch(start + b"\x00\x00\x00\x01\x00\x01t" + count + bytes(60), 0, 7)
    with pytest.raises(ProtocolError):
        read_fetch(start + bytes(4) + b"\x00\x00\x00\x01\x00\x01t" + count + bytes(60), 0, 7)
    with pytest.raises(ProtocolError):
        read_fetch(bytes(21) + b"\xff\xff\xff\xff\x07" + bytes(60), 0, 15)


@pytest.mark.parametrize(
    "tags",
    [
        b"\x02" + (b"\x01\x0d" + bytes(13)) * 2,  # the same tag twice
        b"\x01\x01\x0c" + bytes(12),  # a replica state without its own tags
        b"\x01\x01\x0e" + bytes(14),  # a replica state with a byte too many
        b"\x01\x01\x7f" + bytes(13),  # a size beyond the end
    ],
)
def test_malformed_replica_state_is_refused(tags: bytes) -> None:
    body = encoded(FetchRequest(), 15)[:-1]
    with pytest.raises(ProtocolError):
        read_fetch(body + tags, 0, 15)


# ---- the response --------------------------------------------------------------------------------

_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_pair = st.tuples(st.integers(0, 9), st.integers(0, 9))
_text = st.text(max_size=3) | st.just("n" * 130)


def results(version: int) -> st.SearchStrategy[FetchResult]:
    topic: st.SearchStrategy[Any] = st.sampled_from([bytes(16), b"i" * 16] if version >= 13 else ["a", "n" * 200])
    piece = st.binary(max_size=3) | st.just(memoryview(bytes(200))) | st.builds(bytearray, st.binary())
    slices: st.SearchStrategy[list[Buffer]] = st.lists(piece, max_size=3)
    return st.builds(
        FetchResult,
        topic=topic,
        partition=_int32,
        error_code=st.integers(-1, 130),
        high_watermark=_int64,
        last_stable_offset=_int64,
        log_start_offset=_int64,
        records=st.none() | slices,
        aborted_transactions=st.none() | st.lists(st.tuples(_int64, _int64), max_size=2),
        preferred_read_replica=_int32,
        current_leader=st.none() | _pair,
        diverging_epoch=st.none() | _pair,
    )


def as_response(version: int, given_results: list[FetchResult]) -> FetchResponse:
    response = FetchResponse()
    last = None
    for result in given_results:
        if not response.responses or result.topic != last:
            last = result.topic
            names = {"topic_id": last} if version >= 13 else {"topic": last}
            response.responses.append(FetchResponseTopic(**names))  # type: ignore[arg-type]  # a name or an id
        partition = FetchResponsePartition(*result[1:6])
        partition.records = None if result.records is None else b"".join(result.records)
        if result.aborted_transactions is not None:
            partition.aborted_transactions = [FetchResponseAbortedTransaction(*a) for a in result.aborted_transactions]
        partition.preferred_read_replica = result.preferred_read_replica
        if result.current_leader is not None:
            partition.current_leader = FetchResponseLeader(*result.current_leader)
        if result.diverging_epoch is not None:
            partition.diverging_epoch = FetchResponseDivergingEpoch(*result.diverging_epoch)
        response.responses[-1].partitions.append(partition)
    return response


@each_version
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_response_equals_the_compiled_codec(version: int, data: st.DataObject) -> None:
    given_results = data.draw(st.lists(results(version), max_size=4))
    nodes = data.draw(st.lists(st.builds(NodeEndpoint, _int32, _text, _int32, st.none() | _text), max_size=2))
    throttle, error, session = data.draw(st.tuples(_int32, st.integers(-1, 130), _int32))
    buffers = write_fetch_response(
        version,
        42,
        given_results,
        throttle_time_ms=throttle,
        error_code=error,
        session_id=session,
        node_endpoints=nodes,
    )
    response = as_response(version, given_results)
    response.throttle_time_ms, response.error_code, response.session_id = throttle, error, session
    response.node_endpoints = [FetchResponseNode(*node) for node in nodes]
    assert b"".join(buffers) == write_response(ApiKey.FETCH, version, 42, response)


@each_version
def test_record_slices_go_out_as_they_came(version: int) -> None:
    """The very objects that were handed in are in the list, and nothing there is empty."""
    slices: list[Buffer] = [memoryview(b"one"), b"two", bytearray(b"three")]
    topic = bytes(16) if version >= 13 else "t"
    given_results = [
        FetchResult(topic, 0, records=slices[:2]),
        FetchResult(topic, 1),
        FetchResult(topic, 2, records=slices[2:]),
    ]
    buffers = write_fetch_response(version, 1, given_results)
    for piece in slices:
        assert any(buffer is piece for buffer in buffers)
    assert all(len(buffer) for buffer in buffers)
    assert int.from_bytes(buffers[0][:4], "big") == sum(map(len, buffers)) - 4
