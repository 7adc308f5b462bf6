"""Bytes on a socket: version negotiation, order of answers, silence, and what a broken client gets."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from support.clients import CLIENTS, Record
from support.wire import (
    API_VERSIONS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    RawConnection,
    Reader,
    api_versions,
    batch,
    fetch,
    frame,
    int16,
    int32,
    metadata,
    produce,
    request,
    string,
)

UNSUPPORTED_VERSION = 35


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as connection:
        yield connection


@pytest.fixture
def still_serves(bootstrap: str) -> Iterator[None]:
    """After the test a new connection is served as if nothing had happened."""
    yield
    with RawConnection(bootstrap) as connection:
        assert connection.ask(api_versions(0, 1), 1).int16() == 0


def read_api_versions(answer: Reader, version: int) -> tuple[int, dict[int, tuple[int, int]]]:
    """Error code and version ranges by API key, in the layout of that version."""
    error_code = answer.int16()
    ranges = {}
    for _ in range(answer.varuint() - 1 if version >= 3 else answer.int32()):
        key = answer.int16()
        ranges[key] = (answer.int16(), answer.int16())
        if version >= 3:
            assert answer.varuint() == 0
    return error_code, ranges


def produced(answer: Reader) -> tuple[int, int]:
    """Error code and base offset of a Produce answer (versions 3 and 4) for one partition."""
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
    answer.int32()
    return answer.int16(), answer.int64()


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions(connection: RawConnection, version: int) -> None:
    """Every version lists the same table; the answer's header has no tagged fields, also where the body has."""
    error_code, ranges = read_api_versions(connection.ask(api_versions(version, 7), 7), version)
    assert error_code == 0
    assert ranges[API_VERSIONS][0] == 0
    assert ranges[API_VERSIONS][1] >= 4
    assert ranges[METADATA] == (0, 13)
    assert {0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 22, 32, 33, 35, 37, 42, 44, 47} <= set(ranges)


def test_api_versions_5(connection: RawConnection) -> None:
    """Version 5 carries the cluster and node that the client believes to talk to (KIP-1242); unset is fine."""
    error_code, ranges = read_api_versions(connection.ask(api_versions(5, 7), 7), 5)
    assert (error_code, ranges[API_VERSIONS]) == (0, (0, 5))


def test_api_versions_too_high(connection: RawConnection) -> None:
    """A version that we do not have is answered in version 0 with error 35 and one row: the versions we do have."""
    _, ranges = read_api_versions(connection.ask(api_versions(0, 1), 1), 0)
    answer = connection.ask(api_versions(99, 2), 2)
    assert read_api_versions(answer, 0) == (UNSUPPORTED_VERSION, {API_VERSIONS: ranges[API_VERSIONS]})
    assert answer.at_end()
    assert connection.ask(api_versions(0, 3), 3).int16() == 0


def test_table_of_drmq(connection: RawConnection) -> None:
    """The table is the one in the design: what kafka-python infers from it, and no API that does not work."""
    _, ranges = read_api_versions(connection.ask(api_versions(0, 1), 1), 0)
    assert ranges[PRODUCE] == (0, 13)
    assert ranges[1] == (4, 18)
    assert ranges[2] == (1, 10)
    assert ranges[35][1] == 4
    assert ranges[API_VERSIONS] == (0, 5)
    assert not {68, 69, 71, 72, 83, 84, 85, 86, 87} & set(ranges)


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_is_advertised_and_refused(connection: RawConnection, topic: str, version: int) -> None:
    """librdkafka wants to see Produce from 0 on, but nobody may use 0 to 2: nothing is written.

    Apache Kafka hangs up. An answer with UNSUPPORTED_VERSION for the partition is as good.
    """
    _, ranges = read_api_versions(connection.ask(api_versions(0, 1), 1), 0)
    assert ranges[PRODUCE][0] == 0
    connection.send(produce(topic, batch([b"v"]), 2, version=version))
    try:
        answer = connection.receive()
    except ConnectionError:
        return
    assert answer.int32() == 2
    assert produced(answer)[0] == UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata(connection: RawConnection, topic: str, version: int) -> None:
    """Each version of Metadata names the topic asked for."""
    connection.send(metadata([topic], version, 5))
    answer = connection.receive()
    assert answer.int32() == 5
    assert topic.encode() in answer._data


def test_null_and_empty_topic_lists(connection: RawConnection, topic: str) -> None:
    """A null list means all topics and an empty list none; only in version 0 does an empty list mean all."""
    cases: list[tuple[list[str] | None, int, bool]] = [
        ([], 0, True),
        (None, 1, True),
        ([], 1, False),
        (None, 12, True),
        ([], 12, False),
    ]
    for correlation_id, (topics, version, listed) in enumerate(cases):
        answer = connection.ask(metadata(topics, version, correlation_id), correlation_id)
        assert (topic.encode() in answer._data) is listed, (topics, version)


def test_answers_come_in_order(connection: RawConnection, topic: str) -> None:
    """Requests sent together are answered in their order, also when the first one waits for data."""
    together = fetch(topic, 0, 1, wait_ms_max=700) + api_versions(3, 2) + metadata([topic], 4, 3) + api_versions(0, 4)
    connection.send(together)
    assert [connection.receive().int32() for _ in range(4)] == [1, 2, 3, 4]


def test_acks_0_gets_no_answer(connection: RawConnection, bootstrap: str, topic: str) -> None:
    """After a Produce with acks=0 the next answer belongs to the next request, and the record is there."""
    connection.send(produce(topic, batch([b"unanswered"]), 1, acks=0) + api_versions(0, 2))
    assert connection.receive().int32() == 2
    assert connection.is_silent()
    assert [seen.value for seen in CLIENTS["confluent-kafka"](bootstrap).consume(topic, 1)] == [b"unanswered"]


@pytest.mark.usefixtures("still_serves")
def test_refused_acks_0_closes(connection: RawConnection, topic: str) -> None:
    """Without an answer the only way to tell the producer of an error is to hang up."""
    connection.send(produce(topic, batch([b"v"], crc_error=1), 1, acks=0))
    assert connection.is_closed_by_broker()


def test_bytes_one_by_one(connection: RawConnection) -> None:
    """A frame may arrive in any pieces."""
    for byte in api_versions(3, 77):
        connection.send(bytes([byte]))
    assert connection.receive().int32() == 77


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize("key", [-1, 999, 32767])
def test_unknown_api_closes(connection: RawConnection, key: int) -> None:
    """What nobody can parse nobody can answer: the connection is closed, and only that one."""
    connection.send(request(key, 0, 1, b""))
    assert connection.is_closed_by_broker()


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(int32(-1), id="negative-length"),
        pytest.param(int32(2**31 - 1) + b"x" * 100, id="two-gigabytes-announced"),
        pytest.param(frame(b""), id="empty-frame"),
        pytest.param(frame(b"\0\x12\0"), id="header-cut"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(request(METADATA, 99, 1, b""), id="version-too-high"),
        pytest.param(request(METADATA, -1, 1, b""), id="version-negative"),
        pytest.param(request(METADATA, 1, 1, int32(2**31 - 1)), id="array-longer-than-the-frame"),
        pytest.param(request(METADATA, 1, 1, int32(1) + int16(500) + b"short"), id="string-longer-than-the-frame"),
        pytest.param(request(METADATA, 9, 1, b"\xff" * 20, flexible=True), id="endless-varint"),
        pytest.param(frame(int16(METADATA) + int16(1) + int32(1) + int16(9) + b"cut"), id="client-id-cut"),
    ],
)
def test_malformed_frames_close(connection: RawConnection, garbage: bytes) -> None:
    """A peer that does not speak the protocol is disconnected."""
    connection.send(garbage)
    assert connection.is_closed_by_broker()


@pytest.mark.usefixtures("still_serves")
def test_half_a_frame(connection: RawConnection) -> None:
    """A client may vanish in the middle of a request."""
    connection.send(api_versions(3, 1)[:-4])
    connection.stop_sending()
    assert connection.is_closed_by_broker()


def test_batch_made_by_hand(connection: RawConnection, topic: str) -> None:
    """Batches that no client library made are accepted as well."""
    assert produced(connection.ask(produce(topic, batch([b"a", b"b"]), 1), 1)) == (0, 0)
    assert produced(connection.ask(produce(topic, batch([b"c"]), 2, acks=1), 2)) == (0, 2)


def test_base_offset_of_the_producer_is_ignored(connection: RawConnection, topic: str) -> None:
    """The offsets are the broker's, whatever the producer wrote there."""
    assert produced(connection.ask(produce(topic, batch([b"a", b"b"], base_offset=500), 1), 1)) == (0, 0)


@pytest.mark.parametrize(
    ("records", "codes"),
    [
        pytest.param(batch([b"v"], crc_error=1), {2}, id="crc"),
        pytest.param(batch([b"v"])[:-3], {2, 87}, id="cut"),
        pytest.param(batch([b"v"]) + batch([b"w"]), {87}, id="two-batches"),
        pytest.param(batch([b"v"], count=2), {87}, id="count-too-high"),
        pytest.param(batch([b"v", b"w"], count=1), {87}, id="count-too-low"),
        pytest.param(batch([b"v"], magic=1), {87}, id="old-magic"),
        pytest.param(batch([b"v"], attributes=0x20), {87}, id="control"),
        pytest.param(b"", {87}, id="nothing"),
    ],
)
def test_bad_batches_are_refused(connection: RawConnection, topic: str, records: bytes, codes: set[int]) -> None:
    """A bad batch is answered with its code, nothing is written, and the connection lives on."""
    code, offset = produced(connection.ask(produce(topic, records, 1), 1))
    assert code in codes
    assert offset == -1
    assert produced(connection.ask(produce(topic, batch([b"good"]), 2), 2)) == (0, 0)


@pytest.mark.parametrize("acks", [2, -2, 5])
def test_invalid_acks(connection: RawConnection, topic: str, acks: int) -> None:
    """Only 0, 1 and -1 have a meaning: INVALID_REQUIRED_ACKS."""
    assert produced(connection.ask(produce(topic, batch([b"v"]), 1, acks=acks), 1)) == (21, -1)


def test_unknown_partition(connection: RawConnection, topic: str, name: str) -> None:
    """Producing to a partition or topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, and creates nothing."""
    assert produced(connection.ask(produce(topic, batch([b"v"]), 1, partition=3), 1)) == (3, -1)
    assert produced(connection.ask(produce(f"{name}-none", batch([b"v"]), 2), 2)) == (3, -1)


def new_producer_id(connection: RawConnection) -> tuple[int, int]:
    answer = connection.ask(request(INIT_PRODUCER_ID, 0, 99, string(None) + int32(1_000)), 99)
    answer.int32()
    assert answer.int16() == 0
    return answer.int64(), answer.int16()


def test_repeated_batch_is_written_once(connection: RawConnection, topic: str) -> None:
    """A retry of one of the last five batches is answered with the offset of the original."""
    producer_id, epoch = new_producer_id(connection)

    def send(sequence: int, epoch: int = epoch) -> tuple[int, int]:
        records = batch([b"a", b"b"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return produced(connection.ask(produce(topic, records, 1), 1))

    assert [send(sequence) for sequence in (0, 2, 4, 6, 8)] == [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8)]
    assert [send(sequence) for sequence in (8, 0, 4)] == [(0, 8), (0, 0), (0, 4)]
    assert send(10) == (0, 10)


def test_gap_in_the_sequence(connection: RawConnection, topic: str) -> None:
    """A batch that skips a sequence is OUT_OF_ORDER_SEQUENCE_NUMBER and is not written."""
    producer_id, epoch = new_producer_id(connection)
    for sequence, expected in ((0, (0, 0)), (5, (45, -1)), (1, (0, 1))):
        records = batch([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        assert produced(connection.ask(produce(topic, records, 1), 1)) == expected


def test_old_producer_epoch(connection: RawConnection, topic: str) -> None:
    """After a newer epoch the older one is INVALID_PRODUCER_EPOCH; a new epoch starts at sequence 0."""
    producer_id, _ = new_producer_id(connection)
    for epoch, sequence, expected in ((0, 0, (0, 0)), (1, 0, (0, 1)), (0, 1, (47, -1)), (2, 7, (45, -1))):
        records = batch([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        assert produced(connection.ask(produce(topic, records, 1), 1)) == expected, (epoch, sequence)


def test_producer_ids_are_unique(connection: RawConnection) -> None:
    """Each InitProducerId without a transactional id gets an id of its own."""
    assert len({new_producer_id(connection)[0] for _ in range(20)}) == 20


def test_fetch_inside_a_batch_returns_the_whole_batch(connection: RawConnection, topic: str) -> None:
    """Batches are not cut: the answer starts at the batch that contains the offset."""
    connection.ask(produce(topic, batch([b"a", b"b", b"c"]), 1), 1)
    answer = connection.ask(fetch(topic, 2, 2, wait_ms_max=100), 2)
    answer.int32()  # throttle time
    assert answer.int32() == 1
    assert answer.string() == topic
    assert answer.int32() == 1
    assert (answer.int32(), answer.int16(), answer.int64(), answer.int64()) == (0, 0, 3, 3)
    answer.int32()  # aborted transactions: null or none
    records = answer.take(answer.int32())
    base_offset, _, _, magic = struct.unpack(">qiib", records[:17])
    assert (base_offset, magic) == (0, 2)
    assert records[17:] == batch([b"a", b"b", b"c"])[17:]


@pytest.mark.parametrize(("offset", "code"), [(0, 0), (3, 0), (4, 1), (-1, 1)])
def test_fetch_outside_of_the_log(connection: RawConnection, topic: str, offset: int, code: int) -> None:
    """Only offsets before the start or after the end are OFFSET_OUT_OF_RANGE; the end itself is not."""
    connection.ask(produce(topic, batch([b"a", b"b", b"c"]), 1), 1)
    answer = connection.ask(fetch(topic, offset, 2, wait_ms_max=50), 2)
    answer.int32()
    answer.int32()
    answer.string()
    answer.int32()
    assert (answer.int32(), answer.int16()) == (0, code)


def test_compression_the_broker_does_not_know(connection: RawConnection, bootstrap: str, topic: str) -> None:
    """A codec number without a meaning is refused, and nothing is written."""
    code, offset = produced(connection.ask(produce(topic, batch([b"v"], attributes=5), 1), 1))
    assert code != 0
    assert offset == -1
    (delivery,) = CLIENTS["confluent-kafka"](bootstrap).produce(topic, [Record(b"first")])
    assert delivery.offset == 0


def test_kafka_python_knows_every_api(kafka_admin: Any) -> None:
    """It fails on a number that Kafka does not have."""
    assert {"PRODUCE", "FETCH"} <= {key.name.upper() for key in kafka_admin.api_versions()}
