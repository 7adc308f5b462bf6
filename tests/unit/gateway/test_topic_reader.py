"""Streams of records: what waits for slow clients is limited, and every record comes once."""

from __future__ import annotations

import asyncio
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.gateway import fetching
from drmq.gateway.fetching import TopicReader
from drmq.gateway.problems import ProblemError
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch
from drmq.wire.messages.fetch import FetchResponsePartition

MIB = 1_048_576


def a_part(*values: bytes) -> FetchResponsePartition:
    records = [Record(Offset(at), 0, None, value) for at, value in enumerate(values)]
    batch = encode_batch(records, base_offset=Offset(0), codec=Codec.SNAPPY)
    return FetchResponsePartition(partition_index=0, high_watermark=len(values), records=bytes(batch))


def a_reader(fetcher: Any, bytes_max: int) -> TopicReader:
    return TopicReader(fetcher, "jobs", {0: 0}, ends=None, finds_new=False, records_max=10_000, bytes_max=bytes_max)


def a_fetcher() -> Any:
    return cast("Any", SimpleNamespace(held_bytes=0))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def offsets_of(reader: TopicReader) -> list[int]:
    chunk = await reader.next_chunk()
    assert chunk is not None
    return chunk.columns.offsets.cast("B").cast("q").tolist()


def test_no_batch_stays_decompressed_for_a_client_that_does_not_read() -> None:
    """Each of these streams has a few small pieces waiting, of a batch that decompresses to 8 MiB."""
    part = a_part(*[bytes(4_096)] * 2_048)

    async def main() -> None:
        fetcher = a_fetcher()
        readers = [a_reader(fetcher, 16_384) for _ in range(10)]
        tracemalloc.start()
        try:
            tasks = [asyncio.ensure_future(reader._put(part)) for reader in readers]
            await settled()
            assert not any(task.done() for task in tasks), "all wait for their clients"
            current = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        for task in tasks:
            task.cancel()
        assert current < 8 * MIB, "less than one batch"

    asyncio.run(main())


@pytest.mark.parametrize("has_room", [True, False])
def test_a_client_gets_every_record_once(has_room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if each piece has to wait for it."""
    if not has_room:
        monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 0)
    values = [bytes(1_000)] * 1_000 + [bytes(MIB)] + [b"small"] * 500

    async def main() -> None:
        fetcher = a_fetcher()
        reader = a_reader(fetcher, 65_536)
        putting = asyncio.ensure_future(reader._put(a_part(*values)))
        found: list[int] = []
        while len(found) < len(values):
            found += await offsets_of(reader)
        await putting
        assert found == list(range(len(values)))
        assert fetcher.held_bytes > 0, "the last piece is being written"
        reader.close()
        assert fetcher.held_bytes == 0

    asyncio.run(main())


def test_what_waits_for_the_clients_of_all_streams_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit each stream gets a small piece, so slow clients do not stop others."""
    monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 4 * MIB)
    part = a_part(*[bytes(4_096)] * 2_048)

    async def main() -> None:
        fetcher = a_fetcher()
        readers = [a_reader(fetcher, MIB) for _ in range(20)]
        tasks = [asyncio.ensure_future(reader._put(part)) for reader in readers]
        await settled()
        assert 4 * MIB <= fetcher.held_bytes < 8 * MIB
        for reader in readers:
            assert (await offsets_of(reader))[0] == 0
        for task, reader in zip(tasks, readers, strict=True):
            task.cancel()
            reader.close()
        assert fetcher.held_bytes == 0

    asyncio.run(main())


def test_a_stream_ends_at_a_large_record_if_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LARGE_HELD_BYTES_MAX", 2 * MIB)

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.held_bytes = 3 * MIB
        with pytest.raises(ProblemError) as caught:
            await a_reader(fetcher, MIB)._put(a_part(bytes(MIB)))
        assert caught.value.problem.retriable
        assert fetcher.held_bytes == 3 * MIB
        await a_reader(fetcher, MIB)._put(a_part(b"small"))

    asyncio.run(main())


def test_a_stream_of_small_records_goes_on_if_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of 10,000 tiny records take more memory than a record that counts as large."""
    monkeypatch.setattr(fetching, "LARGE_HELD_BYTES_MAX", 2 * MIB)

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.held_bytes = 3 * MIB
        reader = a_reader(fetcher, MIB)
        await reader._put(a_part(*[b"tiny"] * 10_000))
        assert len(await offsets_of(reader)) == 10_000

    asyncio.run(main())
