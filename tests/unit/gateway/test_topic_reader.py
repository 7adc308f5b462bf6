"""Streams of records: what waits for slow clients is limited, and every record comes once."""

from __future__ import annotations

import asyncio
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.columnar import walk as columnar_walk
from drmq.gateway import fetching
from drmq.gateway.fetching import StreamMemory, TopicReader
from drmq.gateway.problems import ProblemError
from drmq.model import Offset
from drmq.records import Codec, Record, decompress, encode_batch
from drmq.wire.messages.fetch import FetchResponsePartition

MIB = 1_048_576


def a_batch(*values: bytes, base: int = 0, codec: Codec = Codec.SNAPPY) -> bytes:
    records = [Record(Offset(base + at), 0, None, value) for at, value in enumerate(values)]
    return bytes(encode_batch(records, base_offset=Offset(base), codec=codec))


def a_part(*values: bytes, codec: Codec = Codec.SNAPPY) -> FetchResponsePartition:
    records = a_batch(*values, codec=codec)
    return FetchResponsePartition(partition_index=0, high_watermark=len(values), records=records)


def a_reader(fetcher: Any, bytes_max: int) -> TopicReader:
    return TopicReader(fetcher, "jobs", {0: 0}, ends=None, finds_new=False, records_max=10_000, bytes_max=bytes_max)


def a_fetcher() -> Any:
    return cast("Any", SimpleNamespace(memory=StreamMemory()))


async def settled(turns: int = 50) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def offsets_of(reader: TopicReader) -> list[int]:
    chunk = await reader.next_chunk()
    assert chunk is not None
    return chunk.columns.offsets.cast("B").cast("q").tolist()


def counted_decompressions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size of each batch that is decompressed from now on."""
    found: list[int] = []

    def counted(*arguments: Any) -> Any:
        body = decompress(*arguments)
        found.append(len(body))
        return body

    monkeypatch.setattr(columnar_walk, "decompress", counted)
    return found


async def read_all(reader: TopicReader, part: FetchResponsePartition, count: int) -> None:
    """As a client that reads at once."""
    putting = asyncio.ensure_future(reader._put_all([part]))
    found: list[int] = []
    while len(found) < count:
        found += await offsets_of(reader)
    await putting
    assert found == list(range(count))


@pytest.mark.parametrize("bytes_max", [1_000, 65_536, MIB])
@pytest.mark.parametrize("held_bytes", [0, fetching.HELD_BYTES_MAX])
def test_a_batch_is_decompressed_once_for_a_client_that_reads(
    held_bytes: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the pieces are, and also if slow clients use up the memory."""

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.memory.held_bytes = held_bytes
        await read_all(a_reader(fetcher, bytes_max), part, 8_192)
        assert fetcher.memory.open_batches == 0

    part = a_part(*[bytes(1_024)] * 8_192)
    monkeypatch.setattr(fetching, "KEPT_S", 60)
    decompressed = counted_decompressions(monkeypatch)
    asyncio.run(main())
    assert len(decompressed) == 1


@pytest.mark.parametrize("bytes_max", [1_000, 65_536, MIB])
@pytest.mark.parametrize("held_bytes", [0, fetching.HELD_BYTES_MAX])
def test_a_batch_that_is_not_kept_is_decompressed_once_for_each_megabyte(
    held_bytes: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other streams keep as many batches as are allowed."""

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.memory.held_bytes = held_bytes
        fetcher.memory.open_batches = fetching.OPEN_BATCHES_MAX
        await read_all(a_reader(fetcher, bytes_max), part, 8_192)
        assert fetcher.memory.open_batches == fetching.OPEN_BATCHES_MAX

    part = a_part(*[bytes(1_024)] * 8_192)
    decompressed = counted_decompressions(monkeypatch)
    asyncio.run(main())
    assert len(decompressed) <= 9


def test_a_few_batches_stay_decompressed_for_clients_that_may_read_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "KEPT_S", 60)
    part = a_part(*[bytes(4_096)] * 2_048)

    async def main() -> None:
        fetcher = a_fetcher()
        readers = [a_reader(fetcher, 16_384) for _ in range(20)]
        tracemalloc.start()
        try:
            tasks = [asyncio.ensure_future(reader._put_all([part])) for reader in readers]
            await settled()
            current = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert fetcher.memory.open_batches == fetching.OPEN_BATCHES_MAX
        assert 4 * 8 * MIB < current < 4 * 8 * MIB + 20 * 1.5 * MIB
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert fetcher.memory.open_batches == 0

    asyncio.run(main())


def test_other_work_is_done_between_the_pieces_of_a_batch() -> None:
    async def main() -> None:
        reader = a_reader(a_fetcher(), 65_536)
        putting = asyncio.ensure_future(reader._put_all([a_part(*[bytes(1_024)] * 900)]))
        turns = 0
        while not putting.done() and turns < 1_000:
            turns += 1
            await asyncio.sleep(0)
        assert 5 < turns < 1_000

    asyncio.run(main())


def test_pieces_become_small_in_the_middle_of_a_batch() -> None:
    """The memory is used up by others after the first piece."""

    async def main() -> None:
        fetcher = a_fetcher()
        reader = a_reader(fetcher, MIB)
        putting = asyncio.ensure_future(reader._put_all([a_part(*[bytes(1_024)] * 4_096)]))
        assert len(await offsets_of(reader)) > 1_000
        fetcher.memory.held_bytes += fetching.HELD_BYTES_MAX
        sizes = [len(await offsets_of(reader)) for _ in range(10)]
        assert sizes[-1] <= 128
        putting.cancel()

    asyncio.run(main())


@pytest.mark.parametrize(("bytes_max", "most"), [(1_000, MIB), (MIB, 4 * MIB), (8 * MIB, 8 * MIB)])
def test_what_waits_for_one_client_is_limited_in_bytes(bytes_max: int, most: int) -> None:
    async def main() -> None:
        reader = a_reader(a_fetcher(), bytes_max)
        putting = asyncio.ensure_future(reader._put_all([a_part(*[bytes(1_000)] * 20_000)]))
        await settled(200)
        assert most <= reader._queued_bytes <= most + 1.1 * bytes_max
        putting.cancel()

    asyncio.run(main())


def test_no_batch_stays_decompressed_for_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these streams has some small pieces waiting, of a batch that decompresses to 32 MiB."""
    monkeypatch.setattr(fetching, "KEPT_S", 0)
    part = a_part(*[bytes(4_096)] * 8_192)

    async def main() -> None:
        fetcher = a_fetcher()
        readers = [a_reader(fetcher, 16_384) for _ in range(10)]
        tracemalloc.start()
        try:
            tasks = [asyncio.ensure_future(reader._put_all([part])) for reader in readers]
            await settled()
            assert not any(task.done() for task in tasks), "all wait for their clients"
            current = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        for task in tasks:
            task.cancel()
        assert current < 16 * MIB, "less than one batch"

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
        putting = asyncio.ensure_future(reader._put_all([a_part(*values)]))
        found: list[int] = []
        while len(found) < len(values):
            found += await offsets_of(reader)
        await putting
        assert found == list(range(len(values)))
        assert fetcher.memory.held_bytes > 0, "the last piece is being written"
        reader.close()
        assert fetcher.memory.held_bytes == 0

    asyncio.run(main())


def test_what_waits_for_the_clients_of_all_streams_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit each stream gets a small piece, so slow clients do not stop others."""
    monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 4 * MIB)
    monkeypatch.setattr(fetching, "LARGE_HELD_BYTES_MAX", 5 * MIB)
    part = a_part(*[bytes(4_096)] * 2_048)

    async def main() -> None:
        fetcher = a_fetcher()
        readers = [a_reader(fetcher, MIB) for _ in range(20)]
        tasks = [asyncio.ensure_future(reader._put_all([part])) for reader in readers]
        await settled()
        assert 4 * MIB <= fetcher.memory.held_bytes < 8 * MIB
        for reader in readers:
            assert (await offsets_of(reader))[0] == 0
        for task, reader in zip(tasks, readers, strict=True):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            reader.close()
        assert fetcher.memory.held_bytes == 0

    asyncio.run(main())


def test_a_stream_ends_at_a_large_record_if_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LARGE_HELD_BYTES_MAX", 2 * MIB)

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.memory.held_bytes = 3 * MIB
        with pytest.raises(ProblemError) as caught:
            await a_reader(fetcher, MIB)._put_all([a_part(bytes(MIB))])
        assert caught.value.problem.retriable
        assert fetcher.memory.held_bytes == 3 * MIB
        await a_reader(fetcher, MIB)._put_all([a_part(b"small")])

    asyncio.run(main())


def test_a_stream_of_small_records_goes_on_if_the_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns of 10,000 tiny records take more memory than a record that counts as large."""
    monkeypatch.setattr(fetching, "LARGE_HELD_BYTES_MAX", 2 * MIB)

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.memory.held_bytes = 3 * MIB
        reader = a_reader(fetcher, MIB)
        await reader._put_all([a_part(*[b"tiny"] * 10_000)])
        assert len(await offsets_of(reader)) == 10_000

    asyncio.run(main())
