"""Fetch: whole batches from an offset on, now or when they come."""

from __future__ import annotations

import pytest

from drmq.broker import Partition
from drmq.broker.services.reads import Read, ReadResult, Wanted
from drmq.model import ErrorCode, Offset
from drmq.records import decode_batch, iter_batches
from drmq.wire import ApiKey
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness, versions


def request(
    harness: Harness,
    *offsets: int,
    topic: str = "t",
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
) -> FetchRequest:
    """A request for the partitions 0, 1, ... of a topic, at these offsets."""
    known = harness.broker.catalog.topics.get(topic)
    entries = [
        FetchRequestPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=partition_bytes,
            current_leader_epoch=leader_epoch,
        )
        for index, offset in enumerate(offsets)
    ]
    topics = [FetchRequestTopic(topic, known.topic_id if known is not None else bytes(15) + b"\x09", entries)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
    )


def values(partition: object) -> list[bytes | None]:
    """The values of all records in a partition's part of an answer."""
    data = memoryview(getattr(partition, "records", None) or b"")
    found: list[bytes | None] = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        found += [record.value for record in decode_batch(batch, decompressed_size_max=1 << 20)]
    return found


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    harness.create_topic("t", 2)
    return KafkaHarness(harness)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_every_version_reads_what_is_there(harness: Harness, line: KafkaHarness, version: int) -> None:
    harness.produce("t", values=[b"one", b"two"])
    harness.produce("t", values=[b"three"])
    answered = line.ask(request(harness, 0), version).responses[0].partitions[0]
    assert (answered.error_code, answered.high_watermark) == (0, 3)
    assert values(answered) == [b"one", b"two", b"three"]


def test_an_offset_inside_a_batch_gets_the_whole_batch(harness: Harness, line: KafkaHarness) -> None:
    harness.produce("t", values=[b"one", b"two"])
    harness.produce("t", values=[b"three"])
    answered = line.ask(request(harness, 1), 12).responses[0].partitions[0]
    assert values(answered) == [b"one", b"two", b"three"]


def test_the_first_batch_is_whole_whatever_the_limits(harness: Harness, line: KafkaHarness) -> None:
    harness.produce("t", values=[b"x" * 5000])
    harness.produce("t", values=[b"y"])
    answered = line.ask(request(harness, 0, max_bytes=1, partition_bytes=1), 12).responses[0].partitions[0]
    assert values(answered) == [b"x" * 5000]


def test_the_limit_of_the_request_counts_over_partitions(harness: Harness, line: KafkaHarness) -> None:
    harness.produce("t", 0, values=[b"x" * 5000])
    harness.produce("t", 1, values=[b"y" * 5000])
    first, second = line.ask(request(harness, 0, 0, max_bytes=4000), 12).responses[0].partitions
    assert values(first) == [b"x" * 5000]
    assert values(second) == []
    assert second.high_watermark == 1


@pytest.mark.parametrize(("offset", "code"), [(-1, 1), (4, 1), (3, 0)])
def test_only_offsets_outside_the_log_are_out_of_range(
    harness: Harness, line: KafkaHarness, offset: int, code: int
) -> None:
    harness.produce("t", values=[b"a", b"b", b"c"])
    answered = line.ask(request(harness, offset), 12).responses[0].partitions[0]
    assert answered.error_code == code


def test_an_offset_below_the_start_is_out_of_range(harness: Harness, line: KafkaHarness) -> None:
    harness.produce("t", values=[b"a"])
    harness.produce("t", values=[b"b"])
    harness.run(harness.broker.services.lookups.delete_records(harness.partition("t"), Offset(1)))
    answered = line.ask(request(harness, 0), 12).responses[0].partitions[0]
    assert (answered.error_code, answered.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


@pytest.mark.parametrize(("version", "code"), [(12, 3), (13, 100)])
def test_an_unknown_topic(harness: Harness, line: KafkaHarness, version: int, code: int) -> None:
    answered = line.ask(request(harness, 0, topic="nowhere", wait_ms=60_000), version)
    assert answered.responses[0].partitions[0].error_code == code


@pytest.mark.parametrize(("epoch", "code"), [(0, 74), (1, 0), (2, 75)])
def test_a_wrong_leader_epoch_is_told(harness: Harness, line: KafkaHarness, epoch: int, code: int) -> None:
    answered = line.ask(request(harness, 0, leader_epoch=epoch), 12).responses[0].partitions[0]
    assert answered.error_code == code


def test_a_long_poll_waits_for_data(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, 0, 0, wait_ms=10_000), 12)
    assert line.answered() == 0
    harness.produce("t", 1, values=[b"news"])
    answered = line.answer().responses[0].partitions
    assert [values(partition) for partition in answered] == [[], [b"news"]]


def test_a_long_poll_ends_when_its_time_is_up(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, 0, wait_ms=10_000), 12)
    harness.advance(9_000)
    assert line.answered() == 0
    harness.advance(1_100)
    assert values(line.answer().responses[0].partitions[0]) == []


def test_a_long_poll_waits_for_as_much_as_it_wants(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, 0, wait_ms=60_000, min_bytes=1_000), 12)
    # 61 bytes of header and some per record: eight such batches make a thousand bytes.
    for _ in range(7):
        harness.produce("t", values=[b"x" * 60])
    assert line.answered() == 0
    harness.produce("t", values=[b"x" * 60])
    assert len(values(line.answer().responses[0].partitions[0])) == 8


def test_a_commit_costs_the_parked_fetches_that_it_concerns(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node has thousands of parked fetches. Those of other partitions must not look at every commit, and those that
    want more must not read.
    """
    harness.create_topic("other")
    others = [KafkaHarness(harness) for _ in range(5)]
    for each in others:
        each.send(request(harness, 0, topic="other", wait_ms=60_000), 12)
    patient = KafkaHarness(harness)
    patient.send(request(harness, 0, wait_ms=60_000, min_bytes=100_000), 12)
    line.send(request(harness, 0, wait_ms=60_000), 12)
    looks: list[Partition] = []
    reads: list[Partition] = []
    on_progress, read_one = Read.on_progress, Read._read_one

    def look(read: Read, partition: Partition) -> None:
        looks.append(partition)
        on_progress(read, partition)

    def read(read: Read, entry: Wanted, partition: Partition, left: int, cached_only: bool) -> ReadResult:
        reads.append(partition)
        return read_one(read, entry, partition, left, cached_only)

    monkeypatch.setattr(Read, "on_progress", look)
    monkeypatch.setattr(Read, "_read_one", read)
    harness.produce("t")
    assert looks == [harness.partition("t")] * 2
    assert reads == [harness.partition("t")]
    assert [each.answered() for each in (line, patient, *others)] == [1] + [0] * 6


def test_a_parked_fetch_of_a_deleted_topic_is_answered(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, 0, wait_ms=60_000), 12)
    harness.run(harness.broker.topics.delete(harness.broker.catalog.topic("t")))
    assert line.answer().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_parked_fetch_leaves_nothing_behind_when_its_client_goes(harness: Harness, line: KafkaHarness) -> None:
    line.send(request(harness, 0, wait_ms=60_000), 12)
    line.paper.closed = True
    harness.call(lambda: line.server.on_close(line.connection))
    harness.produce("t", values=[b"x"])
    assert line.answered() == 0
    assert not harness.partition("t")._watchers


def test_nothing_above_the_high_watermark_is_seen(harness: Harness, line: KafkaHarness) -> None:
    harness.produce("t", values=[b"durable"])
    harness.produce("t", values=[b"written"])
    # As it is between the write and the sync.
    harness.partition("t").high_watermark = Offset(1)
    answered = line.ask(request(harness, 0), 12).responses[0].partitions[0]
    assert (values(answered), answered.high_watermark) == ([b"durable"], 1)
    beyond = line.ask(request(harness, 1), 12).responses[0].partitions[0]
    assert (values(beyond), beyond.error_code) == ([], 0)


def test_an_incremental_session_tells_only_news(harness: Harness, line: KafkaHarness) -> None:
    harness.produce("t", 0, values=[b"old"])
    first = line.ask(request(harness, 0, 0, session=(0, 0)), 12)
    assert first.session_id != 0
    assert len(first.responses[0].partitions) == 2
    quiet = line.ask(FetchRequest(max_bytes=1 << 20, session_id=first.session_id, session_epoch=1, min_bytes=1), 12)
    # Partition 0 still has its record for an offset that the client did not move.
    assert [partition.partition_index for partition in quiet.responses[0].partitions] == [0]
    harness.produce("t", 1, values=[b"new"])
    news = line.ask(FetchRequest(max_bytes=1 << 20, session_id=first.session_id, session_epoch=2), 12)
    assert {p.partition_index: values(p) for p in news.responses[0].partitions}[1] == [b"new"]
    lost = line.ask(FetchRequest(max_bytes=1 << 20, session_id=first.session_id, session_epoch=9), 12)
    assert lost.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_damage_found_by_a_read_is_told(harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    from drmq.storage import LogCorrupt

    harness.produce("t", values=[b"x"])

    def damaged(*_: object) -> None:
        raise LogCorrupt("segment", 0, 0, "a bit has flipped")

    monkeypatch.setattr(harness.partition("t").log, "read", damaged)
    answered = line.ask(request(harness, 0), 12).responses[0].partitions[0]
    assert answered.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_what_is_not_cached_is_read_on_a_thread(
    harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.produce("t", values=[b"cold"])
    log = harness.partition("t").log
    real = log.read

    def cold(offset: Offset, max_bytes: int, up_to: Offset, cached_only: bool = False) -> object:
        return None if cached_only else real(offset, max_bytes, up_to, cached_only)

    monkeypatch.setattr(log, "read", cold)
    line.send(request(harness, 0), 12)
    harness.run(harness.broker.blocking(lambda: None))
    for _ in range(100):
        if line.answered():
            break
        harness.settle()
    assert values(line.answer().responses[0].partitions[0]) == [b"cold"]
