"""Dead letters: which records of a run are read at a time, and what a letter says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from drmq.broker.services.dead_letters import DeadLetters, _headers, _records_of
from drmq.leases import DeadRecord, QueueKey, Reason
from drmq.leases.queue import Death
from drmq.model import ApiError, Offset, TopicId
from drmq.records import Codec, Record, encode_batch
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
    records, end = _records_of(batches(4, 4, 4, codec=codec), run_of(2, 8), 1 << 20)
    assert [record.offset for record in records] == [2, 3, 4, 5, 6, 7, 8]
    assert end == 9


def test_a_long_run_is_read_in_parts_and_nothing_is_left_out() -> None:
    data, run, seen = batches(*[50] * 6), run_of(0, 299), list[int]()
    while run.first <= run.last:
        records, end = _records_of(data, run, 1 << 20)
        seen += [record.offset for record in records]
        assert end > run.first
        run = run._replace(first=end)
    assert seen == list(range(300))


def test_large_records_go_one_by_one() -> None:
    data = batches(3, value=bytes(200_000))
    records, end = _records_of(data, run_of(0, 2), 1 << 20)
    assert ([record.offset for record in records], end) == ([0], 1)


def test_offsets_without_a_record_are_passed_over() -> None:
    """Otherwise a run that a compacted log no longer has would never end."""
    assert _records_of(b"", run_of(5, 9), 1 << 20) == ([], 6)
    records, end = _records_of(batches(4), run_of(2, 9), 1 << 20)
    assert ([record.offset for record in records], end) == ([2, 3], 4)


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
        assert ([record.offset for record in records], end) == ([1, 2], 3)

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
    assert dict(_headers("orders", run_of(7, 7), record)) == {
        "trace": b"1",
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"2",
        "__dlq.errors.offset": b"7",
        "__dlq.errors.group": b"billing",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"it failed as often as the group allows",
        "__dlq.errors.first.failure.ms": b"1000",
        "__dlq.errors.last.failure.ms": b"2000",
    }
