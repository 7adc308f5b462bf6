"""Dead letters: which records of a run are read at a time, and what a letter says."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from drmq.broker.services.dead_letters import DeadLetters, batch_of, copies_of
from drmq.broker.services.redrive.letters import (
    HISTORY_MAX,
    Letter,
    NotALetter,
    letter_headers,
    read_letter,
    redriven_record,
)
from drmq.leases import DeadRecord, QueueKey, Reason
from drmq.leases.queue import Death
from drmq.model import ApiError, LeaderEpoch, Offset, TopicId
from drmq.records import HEADER_SIZE, Codec, Record, decode_batch, encode_batch, stamp
from drmq.records.header import stamp_crc
from support.broker_harness import Harness

if TYPE_CHECKING:
    from drmq.broker.broker import Broker
    from drmq.broker.coordination.lease_groups import LeaseShardCoordinator

KEY = QueueKey("billing", TopicId(bytes(16)), 2)


def run_of(first: int, last: int) -> DeadRecord:
    return DeadRecord(KEY, first, last, Death(5, 1_000, 2_000, Reason.ATTEMPTS))


def batches(*sizes: int, value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    """Batches of so many records each, from offset 0 on."""
    found, offset = b"", 0
    for size in sizes:
        records = [Record(Offset(offset + number), 7, b"k", value, ()) for number in range(size)]
        found += bytes(encode_batch(records, base_offset=Offset(offset), codec=codec))
        offset += size
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_run_is_cut_out_of_its_batches(codec: Codec) -> None:
    copies, end = copies_of(batches(4, 4, 4, codec=codec), run_of(2, 8), 1 << 20)
    assert [copy.record.offset for copy in copies] == [2, 3, 4, 5, 6, 7, 8]
    assert end == 9


def test_a_long_run_is_read_in_parts_and_nothing_is_left_out() -> None:
    data, run, seen = batches(*[50] * 6), run_of(0, 299), list[int]()
    while run.first <= run.last:
        copies, end = copies_of(data, run, 1 << 20)
        seen += [copy.record.offset for copy in copies]
        assert end > run.first
        run = run._replace(first=end)
    assert seen == list(range(300))


def test_large_records_go_one_by_one() -> None:
    data = batches(3, value=bytes(200_000))
    copies, end = copies_of(data, run_of(0, 2), 1 << 20)
    assert ([copy.record.offset for copy in copies], end) == ([0], 1)


def test_offsets_without_a_record_are_passed_over() -> None:
    """Otherwise a run that a compacted log no longer has would never end."""
    assert copies_of(b"", run_of(5, 9), 1 << 20) == ([], 6)
    copies, end = copies_of(batches(4), run_of(2, 9), 1 << 20)
    assert ([copy.record.offset for copy in copies], end) == ([2, 3], 4)


def test_records_are_decompressed_when_no_other_batch_of_the_node_is(harness: Harness) -> None:
    """`decompressed_bytes_max` is the limit of the node."""
    topic = harness.create_topic("orders")
    harness.append("orders", memoryview(bytearray(batches(4, codec=Codec.ZSTD))))
    services, run = harness.broker.services, run_of(1, 2)
    run = run._replace(key=QueueKey("billing", topic.topic_id, 0))

    async def scenario() -> None:
        async with services.decompressing:
            reading = asyncio.ensure_future(services.dead_letters._read(topic, run))
            await asyncio.wait([reading], timeout=0.1)
            assert not reading.done()
        records, end = await reading
        assert ([copy.record.offset for copy in records], end) == ([1, 2], 3)

    harness.run(scenario())


def test_a_node_that_does_not_know_the_topic_yet_drops_nothing() -> None:
    """It may have just started. Only a topic that is known to be deleted has no letters."""
    catalog = SimpleNamespace(topics_by_id={}, deleted={})
    broker = SimpleNamespace(
        metadata=SimpleNamespace(committed_catalog=catalog),
        group_settings=SimpleNamespace(dead_letter_topic_of=lambda group: "dlq.billing"),
    )
    shard = SimpleNamespace(submit=lambda request, respond: respond(request))
    letters = DeadLetters(cast("Broker", broker))

    def bury() -> None:
        asyncio.run(letters._bury(cast("LeaseShardCoordinator", shard), run_of(5, 9)))

    with pytest.raises(ApiError, match="not known here yet"):
        bury()
    catalog.deleted[KEY.topic_id] = "orders"
    bury()


def test_a_letter_says_where_its_record_came_from_and_why() -> None:
    """Headers of an earlier death are replaced: a record may die again after it was brought back."""
    record = Record(Offset(7), 0, b"k", b"v", (("trace", b"1"), ("__dlq.errors.offset", b"99")))
    assert dict(letter_headers("orders", run_of(7, 7), record)) == {
        "trace": b"1",
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"2",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"billing",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"it failed as often as the group allows",
        "__dlq.errors.first.failure.ms": b"1000",
        "__dlq.errors.last.failure.ms": b"2000",
        "__dlq.errors.topic.id": bytes(16).hex().encode(),
        "__dlq.errors.timestamp": b"0",
    }


def test_what_cannot_be_decoded_has_a_letter_that_says_so() -> None:
    """Producers may send bytes that no consumer can read. They end as letters without content, and hold up nothing."""
    good, bad = batches(2), bytearray(batches(3, codec=Codec.ZSTD))
    bad[HEADER_SIZE + 4 :] = bytes(len(bad) - HEADER_SIZE - 4)
    stamp(bad, Offset(2), LeaderEpoch(0))
    stamp_crc(bad)
    copies, end = copies_of(good + bytes(bad), run_of(1, 4), 1 << 20)
    assert [copy.record.offset for copy in copies] == [1, 2, 3, 4]
    assert end == 5
    assert [bool(copy.fault) for copy in copies] == [False, True, True, True]
    letters = decode_batch(batch_of("orders", run_of(1, 4), copies, 1_000), decompressed_size_max=1 << 20)
    assert [read_letter(0, letter, Codec.NONE).has_record for letter in letters] == [True, False, False, False]
    assert "cannot be read" in read_letter(0, letters[3], Codec.NONE).reason


def test_letters_are_compressed_as_their_records_were() -> None:
    """A record that was small only because it was compressed makes a letter of about that size."""
    copies, _ = copies_of(batches(1, value=bytes(500_000), codec=Codec.ZSTD), run_of(0, 0), 1 << 20)
    batch = batch_of("orders", run_of(0, 0), copies, 1_000)
    assert len(batch) < 5_000
    [letter] = decode_batch(batch, decompressed_size_max=1 << 20)
    assert letter.value == bytes(500_000)


# ---- letters that become records again -------------------------------------------------------------


def letter_of(record: Record) -> Letter:
    letter = Record(Offset(3), 5, record.key, record.value, letter_headers("orders", run_of(7, 7), record))
    return read_letter(1, letter, Codec.NONE)


def test_a_record_that_is_moved_back_tells_its_history() -> None:
    """What the letter said is kept, also when the record fails again."""
    record = Record(Offset(7), 1, b"k", b"v", (("trace", b"1"),))
    once = redriven_record(letter_of(record), 0, 9_000)
    assert (once.key, once.value, once.timestamp) == (b"k", b"v", 9_000)
    assert [name for name, _ in once.headers] == ["trace", "__dlq.redrive.count", "__dlq.redrive.history"]
    twice = redriven_record(letter_of(once), 0, 9_500)
    headers = twice.headers
    assert [value for name, value in headers if name == "__dlq.redrive.count"] == [b"2"]
    history = [json.loads(value or b"") for name, value in headers if name == "__dlq.redrive.history"]
    assert [each["message"] for each in history] == ["it failed as often as the group allows"] * 2
    assert history[0]["offset"] == "7"
    for _ in range(20):
        twice = redriven_record(letter_of(twice), 0, 9_500)
    assert len(twice.headers) == 2 + HISTORY_MAX, "the history does not grow for ever"


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("__dlq.errors.topic", b"orders"),),
        (("__dlq.errors.topic", b"o"), ("__dlq.errors.partition", b"x"), ("__dlq.errors.offset", b"1")),
    ],
)
def test_what_is_no_letter_is_not_taken_for_one(headers: tuple[tuple[str, bytes], ...]) -> None:
    with pytest.raises(NotALetter):
        read_letter(0, Record(Offset(0), 0, None, b"v", headers), Codec.NONE)
