"""Searches by time share the node: one decompression at a time, and turns by caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pytest

from drmq.broker.services.lookups import _FALSE_MAX, MAX_TIMESTAMP, Lookups
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch, read_header
from drmq.records.header import HEADER, stamp_crc
from support.broker_harness import Harness

T = TypeVar("T")


@pytest.mark.parametrize(("codec", "at_once"), [(Codec.ZSTD, 1), (Codec.GZIP, 1), (Codec.NONE, 5)])
def test_one_batch_is_decompressed_at_a_time(codec: Codec, at_once: int) -> None:
    """A small batch may take as much memory as the limit allows, so there is one limit for the node."""
    batch = encode_batch([Record(Offset(index), index, None, b"v") for index in range(9)], codec=codec)
    running = most = 0

    async def blocking(function: Callable[[], T]) -> T:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return function()

    async def scenario() -> list[Any]:
        lookups = Lookups(cast(Any, None), cast(Any, blocking), asyncio.Lock(), 1_000)
        return await asyncio.gather(*(lookups._find_in(batch, 4) for _ in range(5)))

    assert asyncio.run(scenario()) == [(4, 4)] * 5
    assert most == at_once


def test_another_caller_does_not_wait_for_all_searches_of_one(harness: Harness) -> None:
    """One caller has ten searches in progress. Another one gets its answer when two of them have ended at most."""
    harness.create_topic("orders")
    batch = encode_batch([Record(Offset(0), 1_000, None, b"v")], codec=Codec.GZIP)
    harness.append("orders", memoryview(batch))
    lookups = harness.broker.services.lookups
    order: list[str] = []

    async def search(caller: str) -> None:
        assert (await lookups.find_offset("orders", 0, 5, caller=caller))[:2] == (0, 1_000)
        order.append(caller)

    async def scenario() -> None:
        await asyncio.gather(*(search("greedy") for _ in range(10)), search("modest"))

    harness.run(scenario())
    assert order.index("modest") <= 3


def claiming(timestamp: int, claimed: int) -> memoryview:
    """A batch whose header says that it has a newer record than it has."""
    batch = encode_batch([Record(Offset(0), timestamp, None, b"v")])
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(max_timestamp=claimed))
    stamp_crc(batch)
    return memoryview(batch)


def test_a_false_time_in_a_header_does_not_end_a_search(harness: Harness) -> None:
    """A producer may send any time there. The records of others behind its batch are found all the same."""
    harness.create_topic("orders")
    harness.append("orders", claiming(1_000, 9_000))
    for timestamp in (2_000, 3_000):
        harness.append("orders", memoryview(encode_batch([Record(Offset(0), timestamp, None, b"v")])))
    lookups = harness.broker.services.lookups

    def find(timestamp: int) -> tuple[int, int]:
        return harness.run(lookups.find_offset("orders", 0, timestamp))[:2]

    assert [find(timestamp) for timestamp in (500, 1_500, 2_500)] == [(0, 1_000), (1, 2_000), (2, 3_000)]
    assert find(3_500) == (-1, -1)
    # The largest time: what the header claims, rather than nothing.
    assert find(MAX_TIMESTAMP) == (0, 9_000)


def test_a_search_ends_after_some_false_times_and_misses_nothing(harness: Harness) -> None:
    harness.create_topic("orders")
    for _ in range(3 * _FALSE_MAX):
        harness.append("orders", claiming(1_000, 9_000))
    harness.append("orders", memoryview(encode_batch([Record(Offset(0), 2_000, None, b"v")])))
    found = harness.run(harness.broker.services.lookups.find_offset("orders", 0, 1_500))
    assert found[:2] == (_FALSE_MAX, 1_500)
