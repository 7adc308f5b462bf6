"""Streams of records: what waits for slow clients is limited, and every record comes once."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.columnar import walk as columnar_walk
from drmq.gateway import fetching
from drmq.gateway.fetching import StreamMemory, TopicLeaders, TopicReader
from drmq.gateway.problems import ProblemError
from drmq.model import Offset
from drmq.records import Codec, Record, decompress, encode_batch, read_header
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
    return cast("Any", SimpleNamespace(memory=StreamMemory(), link=lambda node_id: nullcontext()))


class Broker:
    """A leader of partition 0. At the end of the log it waits for ever."""

    def __init__(self, *batches: bytes) -> None:
        self._batches = batches
        self.wanted: list[tuple[int, int]] = []
        """The offset and the most bytes of each request."""

    async def ask(
        self, link: object, topic: object, positions: dict[int, int], bytes_max: int, wait_ms: int
    ) -> list[FetchResponsePartition]:
        self.wanted.append((positions[0], bytes_max))
        await asyncio.sleep(0)
        left = [batch for batch in self._batches if read_header(batch).next_offset > positions[0]]
        if not left:
            await asyncio.Event().wait()
        found = left[:1]
        while len(found) < len(left) and len(b"".join(found)) + len(left[len(found)]) <= bytes_max:
            found.append(left[len(found)])
        return [FetchResponsePartition(partition_index=0, high_watermark=0, records=b"".join(found))]


def reading(reader: TopicReader) -> asyncio.Task[None]:
    return asyncio.ensure_future(reader._read(1, TopicLeaders("jobs", bytes(16), {0: 1}), [0]))


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


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
        last: list[int] = []
        while 4_095 not in last:
            last = await offsets_of(reader)
        await putting
        assert len(last) <= 128

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


def incompressible_batches(count: int) -> list[bytes]:
    """Of 64 records and 1 MiB each, not compressed."""
    values = [bytes(16_384)] * 64
    return [a_batch(*values, base=64 * at, codec=Codec.NONE) for at in range(count)]


def test_answers_of_brokers_count_as_records_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these streams has an answer of its own, of which 1 MiB is decoded."""

    async def main() -> None:
        fetcher = a_fetcher()
        reader = a_reader(fetcher, 8 * MIB)
        task = reading(reader)
        await settled()
        assert reader._queued_bytes >= 8 * MIB
        assert fetcher.memory.held_bytes > reader._queued_bytes + 7 * MIB
        await ended(task)
        assert fetcher.memory.held_bytes == reader._queued_bytes
        reader.close()
        assert fetcher.memory.held_bytes == 0

    broker = Broker(*incompressible_batches(20))
    monkeypatch.setattr(fetching, "ask", broker.ask)
    asyncio.run(main())


@pytest.mark.parametrize("limit", ["HELD_BYTES_MAX", "LARGE_HELD_BYTES_MAX"])
def test_answers_of_brokers_do_not_wait_for_slow_clients_if_memory_is_needed(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the first limit each is given up after a moment, beyond the second one at once."""
    monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 8 * MIB)
    if limit == "HELD_BYTES_MAX":
        monkeypatch.setattr(fetching, "KEPT_S", 0)
    else:
        monkeypatch.setattr(fetching, "KEPT_S", 60)
        monkeypatch.setattr(fetching, "LARGE_HELD_BYTES_MAX", 8 * MIB)

    async def main() -> None:
        fetcher = a_fetcher()
        readers = [a_reader(fetcher, 8 * MIB) for _ in range(30)]
        tracemalloc.start()
        try:
            tasks = [reading(reader) for reader in readers]
            await settled(200)
            current = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        waiting = sum(reader._queued_bytes for reader in readers)
        assert all(reader._queued_bytes for reader in readers)
        kept = 0 if limit == "HELD_BYTES_MAX" else 8 * fetching.OPEN_BATCHES_MAX * MIB
        assert current < waiting + kept + 8 * MIB
        assert fetcher.memory.held_bytes <= waiting + kept + 8 * MIB
        await ended(*tasks)

    broker = Broker(*incompressible_batches(20))
    monkeypatch.setattr(fetching, "ask", broker.ask)
    asyncio.run(main())


@pytest.mark.parametrize("full", [False, True])
def test_what_is_left_of_an_answer_is_requested_again(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small answers while memory is needed, and no record is missing or comes twice."""
    monkeypatch.setattr(fetching, "KEPT_S", 0)

    async def main() -> None:
        fetcher = a_fetcher()
        fetcher.memory.held_bytes = fetching.LARGE_HELD_BYTES_MAX if full else fetching.HELD_BYTES_MAX
        reader = a_reader(fetcher, 8 * MIB)
        task = reading(reader)
        found: list[int] = []
        while len(found) < 5 * 64:
            await settled()
            found += await offsets_of(reader)
        assert found == list(range(5 * 64))
        await ended(task)

    broker = Broker(*incompressible_batches(5))
    monkeypatch.setattr(fetching, "ask", broker.ask)
    asyncio.run(main())
    assert {size for _, size in broker.wanted} == {fetching.SMALL_BYTES}
    assert len(broker.wanted) < (5 * 8 if full else 5 * 2) + 5
