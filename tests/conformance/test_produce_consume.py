"""What a producer sends, every consumer reads: keys, values, headers, times, sizes, partitions, codecs, acks."""

import time
from collections import defaultdict

import pytest

from conformance.conftest import MakeTopic
from support.clients import CLIENTS, CODECS, Acks, Client, Codec, Headers, Record, content
from support.raw_client import RawClient, read_produced
from support.wire import RawConnection, batch, fetch, produce

HEADERS: tuple[Headers, ...] = (
    (),
    (("one", b"1"),),
    (("same", b"first"), ("same", b"second"), ("same", b"first")),
    (("empty", b""),),
    (("größe", "naïve ☃".encode()), ("binary", bytes([0x80, 0xFF, 0xFE, 0x01, 0x7F]))),
)


def test_offsets_are_dense_from_zero(client: Client, topic: str) -> None:
    """A fresh partition numbers its records 0, 1, 2, … in the order sent, and tells the producer so."""
    records = [Record(b"value-%d" % number) for number in range(300)]
    deliveries = client.produce(topic, records)
    assert [delivery.offset for delivery in deliveries] == list(range(300))
    seen = client.consume(topic, 300)
    assert [record.offset for record in seen] == list(range(300))
    assert [record.value for record in seen] == [record.value for record in records]


def test_offsets_continue_over_producers(client: Client, topic: str) -> None:
    """A second producer continues where the first stopped."""
    client.produce(topic, [Record(b"a"), Record(b"b")])
    client.produce(topic, [Record(b"c")])
    assert [(record.offset, record.value) for record in client.consume(topic, 3)] == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Record(b"value", key=b"key"), id="both"),
        pytest.param(Record(b"value"), id="null-key"),
        pytest.param(Record(None, key=b"key"), id="tombstone"),
        pytest.param(Record(b"", key=b"key"), id="empty-value"),
        pytest.param(Record(b"value", key=b""), id="empty-key"),
        pytest.param(Record(b"", key=b""), id="both-empty"),
        pytest.param(Record(bytes(range(256)), key=bytes(range(255, -1, -1))), id="binary"),
    ],
)
def test_null_and_empty_stay_apart(client: Client, topic: str, record: Record) -> None:
    """A null key or value comes back as null and an empty one as empty."""
    client.produce(topic, [record, Record(b"next")])
    assert [seen.content for seen in client.consume(topic, 2)] == [content(record), content(Record(b"next"))]


def test_both_null(client: Client, topic: str) -> None:
    """A record may have neither key nor value."""
    client.produce(topic, [Record(None), Record(b"next")])
    assert [seen.content for seen in client.consume(topic, 2)] == [(None, None, ()), (None, b"next", ())]


def test_headers_come_back_in_order(client: Client, topic: str) -> None:
    """Headers keep their order, duplicates, null values and bytes."""
    records = [Record(b"v%d" % number, headers=headers) for number, headers in enumerate(HEADERS)]
    client.produce(topic, records)
    assert [seen.headers for seen in client.consume(topic, len(records))] == list(HEADERS)


def test_null_headers(client: Client, topic: str) -> None:
    """A header without a value differs from one with an empty value."""
    headers: Headers = (("nothing", None), ("empty", b""), ("nothing", None))
    client.produce(topic, [Record(b"v", headers=headers)])
    assert [seen.headers for seen in client.consume(topic, 1)] == [headers]


def test_what_librdkafka_can_write_is_read_by_all(client: Client, topic: str) -> None:
    """Shapes that some clients cannot write are read by them all the same: null headers, two nulls, own times."""
    records = [
        Record(None, timestamp_ms=1_600_000_000_000),
        Record(b"v", headers=(("nothing", None), ("empty", b""))),
        Record(None, key=b"", headers=(("only", None),), timestamp_ms=1_500_000_000_000),
        Record(b"", key=None, timestamp_ms=1),
    ]
    CLIENTS["confluent-kafka"](client.bootstrap).produce(topic, records)
    seen = client.consume(topic, len(records))
    assert [record.content for record in seen] == [content(record) for record in records]
    assert [seen[index].timestamp_ms for index in (0, 2, 3)] == [1_600_000_000_000, 1_500_000_000_000, 1]


def test_large_records(client: Client, topic: str) -> None:
    """Records of 900 KB pass with the default settings of broker and client, among small ones."""
    records = [Record(b"small"), Record(b"L" * 900_000), Record(b"M" * 900_000), Record(b"small again")]
    client.produce(topic, records)
    assert [seen.value for seen in client.consume(topic, 4)] == [record.value for record in records]


def test_timestamps_of_the_producer_are_kept(client: Client, make_topic: MakeTopic) -> None:
    """With the default timestamp type a consumer sees the time that the producer set."""
    topic = make_topic(config={"retention.ms": "-1"})
    times_ms = [1_700_000_000_000, 1_600_000_000_123, 1_700_000_000_001]
    client.produce(topic, [Record(b"v", timestamp_ms=time_ms) for time_ms in times_ms])
    seen = client.consume(topic, 3)
    assert [record.timestamp_ms for record in seen] == times_ms
    assert {record.timestamp_type for record in seen} == {"create"}


def test_timestamps_are_now_by_default(client: Client, topic: str) -> None:
    """A record without a time carries the time of sending."""
    before_ms = int(time.time() * 1000) - 1_000
    client.produce(topic, [Record(b"v")])
    (seen,) = client.consume(topic, 1)
    assert before_ms <= seen.timestamp_ms <= int(time.time() * 1000) + 1_000


def test_log_append_time(client: Client, make_topic: MakeTopic) -> None:
    """With message.timestamp.type=LogAppendTime the consumer sees the broker's time, and that it is the broker's."""
    topic = make_topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    records = [Record(b"v%d" % number, timestamp_ms=1_600_000_000_000) for number in range(3)]
    CLIENTS["confluent-kafka"](client.bootstrap).produce(topic, records, codec="gzip")
    seen = client.consume(topic, 3)
    assert [record.value for record in seen] == [b"v0", b"v1", b"v2"]
    assert all(before_ms - 1_000 <= record.timestamp_ms <= int(time.time() * 1000) + 1_000 for record in seen)
    if client.name != "kcat":
        assert {record.timestamp_type for record in seen} == {"append"}


def test_many_partitions(client: Client, make_topic: MakeTopic) -> None:
    """Each of many partitions has its own dense offsets, and its records stay in order."""
    topic = make_topic(partitions=24)
    records = [Record(b"%d" % number, partition=partition) for partition in range(24) for number in range(5)]
    client.produce(topic, records)
    seen = client.consume(topic, len(records), partitions=range(24))
    by_partition: dict[int, list[tuple[int, bytes | None]]] = defaultdict(list)
    for record in seen:
        by_partition[record.partition].append((record.offset, record.value))
    assert by_partition == {partition: [(n, b"%d" % n) for n in range(5)] for partition in range(24)}


def test_equal_keys_share_a_partition(client: Client, make_topic: MakeTopic) -> None:
    """The client's partitioner sends equal keys to one partition and different keys to several."""
    topic = make_topic(partitions=6)
    records = [Record(b"%d" % number, key=b"key-%d" % (number % 20), partition=None) for number in range(100)]
    client.produce(topic, records)
    homes: dict[bytes | None, set[int]] = defaultdict(set)
    for record in client.consume(topic, 100, partitions=range(6)):
        homes[record.key].add(record.partition)
    assert len(homes) == 20
    assert all(len(partitions) == 1 for partitions in homes.values()), homes
    assert len(set.union(*homes.values())) > 1


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, topic: str, acks: Acks) -> None:
    """Records arrive with every acknowledgement level; only without acknowledgement is the offset unknown."""
    deliveries = client.produce(topic, [Record(b"v%d" % number) for number in range(10)], acks=acks)
    expected = [None] * 10 if acks == "0" else list(range(10))
    assert [delivery.offset for delivery in deliveries] == expected
    assert [record.value for record in client.consume(topic, 10)] == [b"v%d" % number for number in range(10)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_every_client(client: Client, topic: str, codec: Codec) -> None:
    """What one client compresses, each of the four decompresses."""
    records = [
        Record(b"value %d " % number * 50, key=b"key-%d" % number, headers=(("codec", codec.encode()),))
        for number in range(40)
    ]
    client.produce(topic, records, codec=codec)
    expected = [content(record) for record in records]
    for reader in CLIENTS.values():
        seen = reader(client.bootstrap).consume(topic, len(records))
        assert [record.content for record in seen] == expected, reader.name
        assert [record.offset for record in seen] == list(range(len(records))), reader.name


def test_codecs_mix_in_one_partition(client: Client, topic: str) -> None:
    """A partition may hold batches of every codec, written by every client."""
    expected = []
    for number, codec in enumerate(CODECS * 2):
        writer = list(CLIENTS.values())[number % len(CLIENTS)]
        value = f"{writer.name} {codec} ".encode() * 20
        writer(client.bootstrap).produce(topic, [Record(value)], codec=codec)
        expected.append(value)
    assert [record.value for record in client.consume(topic, len(expected))] == expected


def stored_codecs(bootstrap: str, topic: str) -> set[str]:
    """The codecs of the batches that a broker sends."""
    with RawConnection(bootstrap) as connection:
        answer = connection.ask(fetch(topic, 0, 1, wait_ms_max=0), 1)
        answer.take(4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 8)
        answer.take(16 * max(0, answer.int32()))
        data = answer.take(answer.int32())
    found: set[str] = set()
    position = 0
    while position < len(data):
        found.add(CODECS[data[position + 22] & 0x07])
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


@pytest.mark.parametrize("kept", CODECS)
def test_a_topic_with_a_codec_of_its_own(bootstrap: str, make_topic: MakeTopic, kept: Codec) -> None:
    """Whatever producers chose, the broker stores the topic's codec; order, offsets and contents are as ever."""
    topic = make_topic(config={"compression.type": "uncompressed" if kept == "none" else kept})
    expected: list[Record] = []
    for number, name in enumerate(name for name in CLIENTS if name != "kcat"):
        for codec in CODECS if name == "confluent-kafka" else CODECS[number :: len(CLIENTS) - 2]:
            records = [
                Record(b"%s %d " % (name.encode(), index) * 20, key=b"%d" % index, headers=(("codec", codec.encode()),))
                for index in range(120)
            ]
            deliveries = CLIENTS[name](bootstrap).produce(topic, records, codec=codec, idempotent=True)
            assert [delivery.offset for delivery in deliveries] == [len(expected) + index for index in range(120)]
            expected += records
    assert stored_codecs(bootstrap, topic) == {kept}
    for name, reader in CLIENTS.items():
        seen = reader(bootstrap).consume(topic, len(expected))
        assert [record.content for record in seen] == [content(record) for record in expected], name
        assert [record.offset for record in seen] == list(range(len(expected))), name


def test_retries_to_a_topic_with_a_codec_of_its_own(bootstrap: str, make_topic: MakeTopic) -> None:
    """A producer whose answers are lost sends five batches again, on a new connection each time: each is there once.

    Some attempts arrive while an earlier one still waits to be recompressed, others when it is in the log.
    """
    topic = make_topic(config={"compression.type": "gzip"})
    values = [b"%d " % number * 40_000 for number in range(5)]
    with RawClient(bootstrap) as client:
        producer_id, epoch = client.init_producer_id()
    batches = [
        batch([value], producer_id=producer_id, producer_epoch=epoch, base_sequence=number)
        for number, value in enumerate(values)
    ]
    for _ in range(3):
        with RawConnection(bootstrap) as lost:
            for number, each in enumerate(batches):
                lost.send(produce(topic, each, number))
            lost.receive()  # of the first; the others are lost
    with RawConnection(bootstrap) as connection:
        offsets = [read_produced(connection.ask(produce(topic, each, n), n)) for n, each in enumerate(batches)]
    assert offsets == [0, 1, 2, 3, 4]
    assert stored_codecs(bootstrap, topic) == {"gzip"}
    assert [record.value for record in CLIENTS["confluent-kafka"](bootstrap).consume(topic, 5)] == values


def test_idempotent_producer(client: Client, make_topic: MakeTopic) -> None:
    """An idempotent producer writes each record once and in order, over many batches and partitions."""
    topic = make_topic(partitions=3)
    records = [Record(b"%d" % number, partition=number // 200) for number in range(600)]
    deliveries = client.produce(topic, records, idempotent=True)
    assert [delivery.offset for delivery in deliveries] == [number % 200 for number in range(600)]
    seen = client.consume(topic, 600, partitions=range(3))
    for partition in range(3):
        values = [record.value for record in seen if record.partition == partition]
        assert values == [b"%d" % number for number in range(200 * partition, 200 * partition + 200)]


def test_two_idempotent_producers_share_a_partition(client: Client, topic: str) -> None:
    """Producer ids differ, so the sequences of two producers do not disturb each other."""
    for number in range(2):
        client.produce(topic, [Record(b"%d-%d" % (number, index)) for index in range(20)], idempotent=True)
    assert [record.value for record in client.consume(topic, 40)] == [
        b"%d-%d" % (number, index) for number in range(2) for index in range(20)
    ]
