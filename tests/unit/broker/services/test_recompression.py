"""A topic that requires a codec stores every batch with it, in the order sent, within limits of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from drmq.broker.services import recompression
from drmq.broker.services.caller import node_caller
from drmq.model import ErrorCode, NodeId, Offset, ProducerId
from drmq.records import (
    HEADER_SIZE,
    Codec,
    Record,
    compress,
    decode_batch,
    encode_batch,
    iter_batches,
    read_header,
    with_records,
)
from drmq.transport import Pause
from drmq.wire.messages.produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from support.broker_harness import Harness
from support.held_pool import HeldPool
from support.kafka_harness import KafkaHarness

NAMES = {Codec.NONE: "uncompressed", **{codec: codec.name.lower() for codec in Codec if codec}}
SIZE_MAX = 1 << 20


def batch_of(values: Sequence[bytes], codec: Codec = Codec.NONE, *, producer_id: int = -1, sequence: int = -1) -> bytes:
    records = [
        Record(Offset(index), 1_000 + index, b"key", value, (("name", b"header"), ("none", None)))
        for index, value in enumerate(values)
    ]
    return bytes(
        encode_batch(
            records,
            codec=codec,
            producer_id=ProducerId(producer_id),
            producer_epoch=min(producer_id, 0),
            base_sequence=sequence,
        )
    )


def request(*batches: bytes, acks: int = -1, index: int = 0) -> ProduceRequest:
    partitions = [ProduceRequestPartition(index, batch) for batch in batches]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[ProduceRequestTopic("t", bytes(16), partitions)])


class Line:
    """A client of a topic that requires a codec, on a broker whose codec threads work when the test says so."""

    def __init__(self, harness: Harness, **configs: str) -> None:
        self.harness = harness
        harness.create_topic("t", 2, **configs)
        self.line = KafkaHarness(harness)
        self.queue = harness.broker.services.recompression
        self.pool = HeldPool()
        self.queue._pool = self.pool

    def send(self, *batches: bytes, acks: int = -1, index: int = 0) -> None:
        self.line.send(request(*batches, acks=acks, index=index), 9)

    def step(self) -> None:
        """Let the threads finish what they have begun."""
        self.pool.run()
        for _ in range(4):
            self.harness.settle()

    def work(self) -> None:
        """Let the threads finish everything."""
        while len(self.pool):
            self.step()

    def answers(self) -> list[tuple[int, int, str | None]]:
        """Code, offset and message for each batch of all requests that are answered."""
        found = []
        for index in range(self.line.answered()):
            for topic in self.line.answer(index - len(self.line.paper.answers)).responses:
                for each in topic.partition_responses:
                    found.append((each.error_code, each.base_offset, each.error_message))
        return found

    def stored(self, index: int = 0) -> list[bytes]:
        """The batches in the log."""
        log = self.harness.partition("t", index).log
        data = bytes(log.read(Offset(0), 1 << 26, log.end_offset) or b"")
        return [data[position : position + header.size] for position, header in iter_batches(data)]

    def values(self, index: int = 0) -> list[bytes | None]:
        return [
            record.value
            for batch in self.stored(index)
            for record in decode_batch(batch, decompressed_size_max=SIZE_MAX)
        ]


@pytest.fixture
def line(harness: Harness) -> Line:
    return Line(harness, compression_type="zstd")


@pytest.mark.parametrize(("sent", "kept"), list(product(Codec, Codec)))
def test_every_codec_becomes_every_codec(harness: Harness, sent: Codec, kept: Codec) -> None:
    """The records, and every field of the header but codec, length and checksum, are as they were sent."""
    line = Line(harness, compression_type=NAMES[kept])
    values = [b"value %d " % number * 30 for number in range(40)]
    batch = batch_of(values, sent, producer_id=7, sequence=0)
    line.send(batch)
    assert len(line.pool) == (sent is not kept)
    line.work()
    assert line.answers() == [(0, 0, None)]
    (stored,) = line.stored()
    before, after = read_header(batch), read_header(stored)
    assert after.codec == kept
    changed = {"length", "crc", "attributes", "leader_epoch"}
    assert {name: value for name, value in after._asdict().items() if name not in changed} == {
        name: value for name, value in before._asdict().items() if name not in changed
    }
    assert after.attributes & ~0x07 == before.attributes & ~0x07
    assert decode_batch(stored, decompressed_size_max=SIZE_MAX) == decode_batch(batch, decompressed_size_max=SIZE_MAX)


def test_a_topic_that_keeps_batches_uses_no_thread(harness: Harness) -> None:
    line = Line(harness)
    batch = batch_of([b"v"], Codec.GZIP)
    line.send(batch)
    assert (len(line.pool), line.answers()) == (0, [(0, 0, None)])
    assert line.stored()[0][HEADER_SIZE:] == batch[HEADER_SIZE:]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", "1", "9"), ("lz4", "1", "12"), ("zstd", "-7", "19")])
def test_a_higher_level_makes_smaller_batches(harness: Harness, codec: str, low: str, high: str) -> None:
    values = [b"%d %d %d " % (number, number * 7919 % 1000, number % 7) * 8 for number in range(300)]
    sizes = []
    line = Line(harness, compression_type=codec)
    for level in (low, high):
        harness.run(
            harness.broker.topics.set_configs("t", {"compression.type": codec, f"compression.{codec}.level": level})
        )
        harness.settle()
        line.send(batch_of(values))
        line.work()
        sizes.append(len(line.stored()[-1]))
    assert sizes[0] > sizes[1]


def test_order_is_kept_behind_a_batch_that_is_recompressed(line: Line) -> None:
    """Also by a batch that has the right codec already, and by one for which there would be a thread."""
    line.send(batch_of([b"1"], Codec.GZIP))
    line.send(batch_of([b"2"], Codec.ZSTD))
    line.send(batch_of([b"3"]))
    line.send(batch_of([b"4"], Codec.ZSTD))
    assert (len(line.pool), line.values()) == (1, [])
    line.work()
    assert line.values() == [b"1", b"2", b"3", b"4"]
    assert [offset for _, offset, _ in line.answers()] == [0, 1, 2, 3]
    assert not line.queue.queued_bytes


def test_another_partition_does_not_wait(line: Line) -> None:
    line.send(batch_of([b"slow"], Codec.GZIP))
    line.send(batch_of([b"fast"], Codec.ZSTD), index=1)
    assert (line.values(0), line.values(1)) == ([], [b"fast"])
    line.work()
    assert line.values(0) == [b"slow"]


def test_another_client_does_not_wait_for_all_batches_of_one(line: Line, harness: Harness) -> None:
    """One client has ten batches in the queue. Another one gets its turn with the first of them."""
    for number in range(10):
        line.send(batch_of([b"greedy %d" % number], Codec.GZIP))
    other = KafkaHarness(harness)
    other.paper.peer = "192.0.2.1:50000"
    other.send(request(batch_of([b"modest"]), index=1), 9)
    line.step()
    assert other.answered() == 1
    assert line.line.answered() < 10
    line.work()
    assert line.values() == [b"greedy %d" % number for number in range(10)]


def test_a_repeat_of_an_idempotent_producer_is_found(line: Line) -> None:
    """Whether the first attempt has been appended already, or still waits to be recompressed."""
    first, second = (batch_of([b"%d" % n], Codec.LZ4, producer_id=5, sequence=n) for n in range(2))
    for batch in (first, second, first, second):
        line.send(batch)
    line.work()
    line.send(first)
    line.work()
    assert line.answers() == [(0, offset, None) for offset in (0, 1, 0, 1, 0)]
    assert line.values() == [b"0", b"1"]


def test_a_gap_in_a_producers_batches_is_refused(line: Line) -> None:
    line.send(batch_of([b"0"], Codec.LZ4, producer_id=5, sequence=0))
    line.send(batch_of([b"2"], Codec.LZ4, producer_id=5, sequence=2))
    line.work()
    assert [code for code, _, _ in line.answers()] == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def broken(what: str) -> bytes:
    batch = batch_of([b"some value"] * 20, Codec.GZIP)
    body = batch[HEADER_SIZE:]
    if what == "no gzip":
        return bytes(with_records(batch, Codec.GZIP, b"x" * len(body)))
    if what == "cut off":
        return bytes(with_records(batch, Codec.GZIP, body[:-20]))
    if what == "no records":
        return bytes(with_records(batch, Codec.GZIP, compress(Codec.GZIP, b"\x7f" * 1_000)))
    assert what == "one record too few"
    fewer = batch_of([b"some value"] * 19)
    return bytes(with_records(batch, Codec.GZIP, compress(Codec.GZIP, fewer[HEADER_SIZE:])))


@pytest.mark.parametrize("kept", ["zstd", "uncompressed"])
@pytest.mark.parametrize("what", ["no gzip", "cut off", "no records", "one record too few"])
def test_what_cannot_be_read_is_refused(harness: Harness, what: str, kept: str) -> None:
    """With a code that clients do not repeat, since the checksum is right; and the next batch is taken."""
    line = Line(harness, compression_type=kept)
    line.send(broken(what))
    line.send(batch_of([b"good"], Codec.GZIP))
    line.work()
    (code, offset, message), good = line.answers()
    assert (code, offset, good) == (ErrorCode.INVALID_RECORD, -1, (0, 0, None))
    assert message
    assert line.values() == [b"good"]


def test_a_damaged_batch_is_refused_as_for_any_topic(line: Line) -> None:
    damaged = bytearray(batch_of([b"v"], Codec.GZIP))
    damaged[-1] ^= 1
    line.send(bytes(damaged))
    line.work()
    assert line.answers()[0][0] == ErrorCode.CORRUPT_MESSAGE


def test_a_bomb_is_refused(line: Line) -> None:
    """A batch that decompresses to more than half of `decompressed_bytes_max`: it is in memory twice for a moment."""
    line.queue._size_max = 100_000
    line.send(batch_of([b"0" * 200_000], Codec.GZIP))
    line.work()
    code, _, message = line.answers()[0]
    assert code == ErrorCode.INVALID_RECORD
    assert "100000" in str(message)


def test_the_limit_is_half_of_that_of_the_node(harness: Harness) -> None:
    queue = harness.broker.services.recompression
    assert queue._size_max == harness.broker.options.decompressed_bytes_max // 2


def test_a_batch_that_grows_too_large_is_refused(harness: Harness) -> None:
    """By the size with which it would be stored, as by Kafka."""
    line = Line(harness, compression_type="uncompressed", max_message_bytes="5000")
    line.send(batch_of([b"0" * 10_000], Codec.GZIP))
    line.work()
    code, _, message = line.answers()[0]
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert "compression.type" in str(message)
    assert line.values() == []


def test_a_batch_that_is_too_large_as_sent_is_not_recompressed(harness: Harness) -> None:
    line = Line(harness, compression_type="gzip", max_message_bytes="5000")
    line.send(batch_of([b"0" * 10_000]))
    assert (len(line.pool), line.answers()[0][0]) == (0, ErrorCode.MESSAGE_TOO_LARGE)


def test_one_batch_is_decompressed_at_a_time(line: Line, harness: Harness) -> None:
    """On the whole node: a lookup by timestamp waits as well, and a batch without a codec does not."""
    others = [KafkaHarness(harness) for _ in range(2)]
    line.send(batch_of([b"a"], Codec.GZIP))
    for number, (other, codec) in enumerate(zip(others, (Codec.LZ4, Codec.NONE), strict=True)):
        other.paper.peer = f"192.0.2.{number}:50000"
        other.send(request(batch_of([b"b"], codec), index=1), 9)
    assert len(line.pool) == 1
    assert line.queue._decompressing is harness.broker.services.lookups._decompressing
    assert line.queue._decompressing.locked()
    line.work()
    assert line.values(1) == [b"b", b"b"]
    assert not line.queue._decompressing.locked()


def test_acks_zero(line: Line) -> None:
    """It is not answered, and its batch is appended."""
    line.send(batch_of([b"v"], Codec.GZIP), acks=0)
    line.work()
    assert (line.line.paper.answers, line.values()) == ([], [b"v"])
    line.send(broken("no gzip"), acks=0)
    line.work()
    assert line.line.paper.closed
    assert "INVALID_RECORD" in str(line.line.paper.reason)


def test_a_request_with_several_batches_gets_one_answer(line: Line) -> None:
    """The places of the results are those of the batches, whichever is ready first."""
    line.send(batch_of([b"a"], Codec.GZIP), b"no batch", batch_of([b"b"], Codec.GZIP))
    assert not line.line.answered()
    line.work()
    codes = [(code, offset) for code, offset, _ in line.answers()]
    assert codes == [(0, 0), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 1)]


def test_a_producer_is_not_read_while_too_much_waits(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a producer whose batches wait: one that needs no recompression goes on."""
    batch = batch_of([b"v" * 500], Codec.NONE)
    monkeypatch.setattr(recompression, "QUEUED_BYTES_MAX", 3 * len(batch))
    for _ in range(3):
        line.send(batch)
    assert line.line.paper.paused == []
    line.send(batch)
    assert line.line.paper.paused == [Pause.RECOMPRESSION]
    other = KafkaHarness(line.harness)
    other.send(request(batch_of([b"b"], Codec.ZSTD), index=1), 9)
    assert (other.answered(), other.paper.paused) == (1, [])
    line.work()
    assert line.line.paper.paused == []
    assert len(line.values()) == 4


def test_far_too_much_is_refused_and_sent_again(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a refused batch of an idempotent producer is refused as well, so that both are sent again."""
    batches = [batch_of([b"v" * 500], producer_id=3, sequence=sequence) for sequence in range(4)]
    monkeypatch.setattr(recompression, "QUEUED_BYTES_MAX", len(batches[0]))
    for batch in batches[:3]:
        line.send(batch)
    assert line.queue.queued_bytes == 2 * len(batches[0]) + HEADER_SIZE
    line.work()
    line.send(batches[3])
    line.work()
    codes = [0, 0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [code for code, _, _ in line.answers()] == codes
    line.send(batches[2])
    line.send(batches[3])
    line.work()
    assert [code for code, _, _ in line.answers()][4:] == [0, 0]
    assert len(line.values()) == 4


def test_the_frame_of_a_waiting_batch_is_not_held(line: Line) -> None:
    """It may be one of the few large receive buffers that all connections share."""
    frame = bytearray(batch_of([b"v"], Codec.GZIP))
    partition = line.harness.partition("t")
    appends = line.harness.broker.services.appends
    view = memoryview(frame)
    line.harness.call(lambda: appends.recompress(partition, view, -1, "", lambda outcome: None))
    view.release()
    frame.append(0)  # impossible while there is a view
    line.work()
    assert line.values() == [b"v"]


def test_a_partition_that_is_not_led_here_refuses_at_once(line: Line) -> None:
    line.harness.partition("t").is_leader = False
    line.send(batch_of([b"v"], Codec.GZIP))
    assert (len(line.pool), line.answers()[0][0]) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    line.harness.partition("t").is_leader = True


def test_a_node_that_stops_refuses_what_waits(line: Line) -> None:
    for _ in range(2):
        line.send(batch_of([b"v"], Codec.GZIP))
    line.queue.stop()
    line.work()
    assert [code for code, _, _ in line.answers()] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_bug_is_answered(line: Line, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> bytearray:
        raise ZeroDivisionError

    monkeypatch.setattr(recompression, "recompress", fail)
    line.send(batch_of([b"v"], Codec.GZIP))
    line.work()
    assert line.answers()[0][0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "bug" in caplog.text
    assert not line.queue.queued_bytes


def test_batches_of_other_doors_are_recompressed_too(harness: Harness) -> None:
    """Those that a node writes for itself, such as dead letters, or appends for a client of another node."""
    harness.create_topic("t", compression_type="gzip")
    router = harness.broker.services.router
    caller = node_caller(NodeId(1))

    async def both() -> list[Offset]:
        return await asyncio.gather(*(router.append(caller, "t", 0, batch_of([value])) for value in (b"a", b"b")))

    assert harness.run(both()) == [0, 1]
    log = harness.partition("t").log
    data = bytes(log.read(Offset(0), 1 << 20, log.end_offset) or b"")
    assert [header.codec for _, header in iter_batches(data)] == [Codec.GZIP, Codec.GZIP]


def test_log_append_time(harness: Harness) -> None:
    line = Line(harness, compression_type="lz4", message_timestamp_type="LogAppendTime")
    line.send(batch_of([b"v"], Codec.GZIP))
    line.work()
    header = read_header(line.stored()[0])
    assert (header.codec, header.is_log_append_time) == (Codec.LZ4, True)
    assert header.max_timestamp >= harness.clock.wall_ms() - 60_000


def test_counters(line: Line) -> None:
    line.send(batch_of([b"v"], Codec.GZIP))
    line.send(batch_of([b"v"], Codec.ZSTD))

    def counters() -> list[int]:
        return [sample.value for sample in line.harness.broker.services.counters.read("drmq_recompress")]

    assert counters()[0] == 0
    assert counters()[1] > 0
    line.work()
    assert counters() == [1, 0]
