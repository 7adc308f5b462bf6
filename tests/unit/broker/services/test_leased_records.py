"""Reading leased records: what is read is what was leased, and few bytes more."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from drmq.broker.services import leased_records
from drmq.broker.services.leased_records import CutBatch, Found, LeasedRecords
from drmq.leases import Delivery
from drmq.model import Offset
from drmq.records import (
    HEADER_SIZE,
    Codec,
    Record,
    batch_is_intact,
    encode_batch,
    iter_batches,
    iter_records,
    read_header,
)
from support.broker_harness import Harness

TOPIC = "orders"


class Reader:
    """A partition with batches of some sizes, and reads of it."""

    def __init__(self, harness: Harness, *counts: int, codec: Codec = Codec.NONE, value_size: int = 100) -> None:
        self.harness = harness
        harness.create_topic(TOPIC)
        self.partition = harness.partition(TOPIC)
        self.records = LeasedRecords(harness.broker)
        self.values: dict[int, bytes] = {}
        for count in counts:
            begin = len(self.values)
            values = {begin + n: f"{begin + n}".encode().ljust(value_size + n % 7, b".") for n in range(count)}
            batch = encode_batch(
                [Record(Offset(n), harness.clock.wall_ms(), b"k", value) for n, value in enumerate(values.values())],
                codec=codec,
            )
            harness.append(TOPIC, memoryview(bytearray(batch)))
            self.values |= values

    def read(self, *runs: tuple[int, int], bytes_max: int = 1 << 20) -> Found:
        found = self.records.read(self.partition, [Delivery(*run, 1) for run in runs], bytes_max)
        return found if isinstance(found, Found) else self.harness.run(found)

    def check(self, found: Found) -> list[int]:
        """The offsets in what was read, all of which have their values; everything that was leased is among them."""
        offsets: list[int] = []
        for data in found.records:
            for position, header in iter_batches(data):
                batch = memoryview(data)[position : position + header.size]
                assert batch_is_intact(batch)
                for record in iter_records(batch, decompressed_size_max=1 << 20):
                    assert record.value == self.values[record.offset]
                    offsets.append(record.offset)
        assert all(before < after for before, after in pairwise(offsets)), "each record once, in order"
        assert {n for each in found.read for n in range(each.first, each.last + 1)} <= set(offsets)
        assert found.size == sum(map(len, found.records))
        return offsets


@pytest.mark.parametrize("run", [(0, 0), (0, 3), (7, 9), (39, 49), (98, 99)])
def test_a_small_part_of_a_batch_is_cut_out(harness: Harness, run: tuple[int, int]) -> None:
    reader = Reader(harness, 100)
    found = reader.read(run)
    assert reader.check(found) == list(range(run[0], run[1] + 1))
    assert found.size < 200 * (run[1] - run[0] + 2)
    assert found.read == (Delivery(*run, 1),)
    assert not found.unread


def test_half_of_a_batch_or_more_is_read_whole(harness: Harness) -> None:
    reader = Reader(harness, 100)
    assert reader.check(reader.read((0, 49))) == list(range(100))


def test_small_batches_are_read_whole(harness: Harness) -> None:
    reader = Reader(harness, 4, value_size=10)
    assert reader.check(reader.read((1, 1))) == [0, 1, 2, 3]


def test_compressed_batches_are_read_whole(harness: Harness) -> None:
    reader = Reader(harness, 100, codec=Codec.ZSTD, value_size=3_000)
    assert reader.check(reader.read((1, 1))) == list(range(100))


def test_several_runs_in_one_batch_are_one_piece(harness: Harness) -> None:
    reader = Reader(harness, 100)
    found = reader.read((3, 3), (7, 8), (12, 12))
    assert reader.check(found) == list(range(3, 13))
    assert len(found.records) == 1


def test_runs_over_many_batches(harness: Harness) -> None:
    reader = Reader(harness, 100, 100, 100)
    assert reader.check(reader.read((95, 205))) == [*range(95, 200), *range(200, 206)]


def test_what_does_not_fit_is_unread(harness: Harness) -> None:
    reader = Reader(harness, 10, 10, 10, value_size=1_000)
    found = reader.read((0, 4), (8, 29), bytes_max=12_000)
    reader.check(found)
    assert found.read == (Delivery(0, 4, 1), Delivery(8, 19, 1))
    assert found.unread == (Delivery(20, 29, 1),)


def test_one_batch_is_read_even_if_it_is_larger_than_the_limit(harness: Harness) -> None:
    reader = Reader(harness, 10, 10, value_size=1_000)
    found = reader.read((0, 19), bytes_max=1)
    assert found.read == (Delivery(0, 9, 1),)
    assert found.unread == (Delivery(10, 19, 1),)


def test_records_that_are_gone_are_unread(harness: Harness) -> None:
    reader = Reader(harness, 10, 10)
    harness.run(harness.broker.services.lookups.delete_records(reader.partition, Offset(10)))
    found = reader.read((5, 6), (12, 13))
    assert not found.records
    assert found.unread == (Delivery(5, 6, 1), Delivery(12, 13, 1))


def test_a_partition_that_is_not_led_any_more_is_not_read(harness: Harness) -> None:
    reader = Reader(harness, 100)
    reader.read((0, 3))
    reader.partition.is_serving = False
    assert reader.read((4, 5)).unread == (Delivery(4, 5, 1),)


def test_random_runs_are_read_as_they_are(harness: Harness) -> None:
    """Against the values, whichever batches are cut, kept or read again."""
    random = Random(7)
    reader = Reader(harness, *[random.choice((1, 3, 40, 200)) for _ in range(12)])
    for _ in range(200):
        runs: list[tuple[int, int]] = []
        at = random.randrange(len(reader.values))
        while at < len(reader.values) and len(runs) < 5:
            last = min(at + random.choice((0, 1, 7, 60)), len(reader.values) - 1)
            runs.append((at, last))
            at = last + 1 + random.choice((0, 1, 5, 100))
        found = reader.read(*runs, bytes_max=random.choice((1, 5_000, 1 << 20)))
        reader.check(found)
        together = sorted((*found.read, *found.unread))
        offsets = [n for each in together for n in range(each.first, each.last + 1)]
        assert offsets == [n for first, last in runs for n in range(first, last + 1)]


def test_the_batches_that_are_kept_are_limited(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased_records, "_KEPT_BYTES_MAX", 30_000)
    records = LeasedRecords(harness.broker)
    for name in ("a", "b", "c", "d"):
        harness.create_topic(name)
        harness.produce(name, values=[bytes(100)] * 100)
        records.read(harness.partition(name), [Delivery(0, 0, 1)], 1 << 20)
    assert len(records._kept) == 2
    assert records._kept_bytes == sum(len(each.batch) for each in records._kept.values()) <= 30_000


@pytest.mark.parametrize("damage", [b"\x01", b"\xff\xff\xff\xff\x7f", b"\x80"])
def test_a_batch_that_is_not_what_it_says_is_sent_whole(damage: bytes) -> None:
    """Clients check it themselves. To cut it must neither fail nor loop."""
    batch = bytearray(encode_batch([Record(Offset(n), 1, None, bytes(50)) for n in range(100)]))
    batch[HEADER_SIZE : HEADER_SIZE + len(damage)] = damage
    if damage == b"\x80":
        batch[HEADER_SIZE:] = damage * (len(batch) - HEADER_SIZE)
    cut = CutBatch(bytes(batch), read_header(batch))
    assert bytes(cut.cut(3, 5)) == bytes(batch)
