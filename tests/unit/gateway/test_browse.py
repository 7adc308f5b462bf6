"""Looking at records: what a page needs of memory, whatever the batches decompress to, and that nothing is left out."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drmq.client import Bounds
from drmq.columnar import Columns, iter_columns
from drmq.gateway import decoding
from drmq.gateway.browse import Browser, decode_cursor
from drmq.gateway.problems import ProblemError
from drmq.gateway.types import RecordPage
from drmq.model import Offset, TopicPartition
from drmq.records import Buffer, Codec, Record, encode_batch, iter_batches, iter_records

MIB = 1_048_576


def a_batch(base: int, values: list[bytes], codec: Codec = Codec.SNAPPY) -> bytes:
    records = [Record(Offset(base + at), 1_000 + base + at, None, value) for at, value in enumerate(values)]
    return bytes(encode_batch(records, base_offset=Offset(base), codec=codec))


class Log:
    """Stands for an administrator whose topic has these batches in every partition."""

    def __init__(self, batches: list[bytes], partitions: int = 1) -> None:
        self.records = SimpleNamespace(batches=self._batches)
        self._headers = [(next(iter(iter_batches(batch)))[1], batch) for batch in batches]
        end = self._headers[-1][0].next_offset
        self.bounds = {TopicPartition("jobs", index): Bounds(0, end) for index in range(partitions)}
        self.starts = dict.fromkeys(range(partitions), 0)
        self.ends = dict.fromkeys(range(partitions), int(end))
        self.asked = 0

    def _batches(self, place: TopicPartition, offset: int, bytes_max: int) -> Buffer:
        self.asked += 1
        found = b""
        for header, batch in self._headers:
            if header.next_offset > offset and (not found or len(found) + len(batch) <= bytes_max):
                found += batch
        return found


def look(
    log: Log, order: str, limit: int = 50, at: dict[int, int] | None = None, wanted: Callable[[], bool] = lambda: True
) -> RecordPage:
    browser = Browser(cast("Any", log), "jobs", lambda record: True, limit, wanted)
    if order == "newest":
        return browser.newest_first(log.ends if at is None else at, log.bounds)
    return browser.oldest_first(log.starts if at is None else at, log.bounds)


def all_offsets(log: Log, order: str, limit: int = 50) -> list[int]:
    found: list[int] = []
    page = look(log, order, limit)
    while True:
        found += [each.offset for each in page.items]
        if page.next is None:
            return found
        page = look(log, order, limit, decode_cursor(page.next).at)


@pytest.fixture(autouse=True)
def _much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drmq.gateway.browse.SCAN_SECONDS_MAX", 600.0)


@pytest.fixture
def peak() -> Any:
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_calls_at_the_same_time_need_the_memory_of_one_batch(
    order: str, peak: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these batches has less than 1 MiB and decompresses to 16 MiB: all calls together decompress one at a
    time, and keep some of its records."""
    batch = a_batch(0, [bytes(4_096)] * 4_096)
    assert len(batch) < MIB
    log = Log([batch], partitions=4)
    open_now = most = 0

    def counted(*args: Any, **options: Any) -> Iterator[Columns]:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        yield from iter_columns(*args, **options)

    def closed(exact: Iterator[Record], columns: Columns) -> Iterator[Record]:
        nonlocal open_now
        open_now -= 1
        return rows(exact, columns)

    rows = decoding._rows
    monkeypatch.setattr(decoding, "iter_columns", counted)
    monkeypatch.setattr(decoding, "_rows", closed)
    with ThreadPoolExecutor(6) as threads:
        pages = list(threads.map(lambda _: look(log, order), range(6)))
    assert all(len(page.items) == 50 for page in pages)
    assert most == 1
    # One batch takes 16 MiB, and each of six calls keeps up to 1 MiB of each of four partitions. Decoded as a whole,
    # they would take 6 x 4 x 16 MiB.
    assert peak() < 96 * MIB


def test_large_records_do_not_fill_the_memory_with_a_window(peak: Callable[[], int]) -> None:
    """The newest records of a partition are kept as far as they fit, not all of a window."""
    log = Log([a_batch(base, [bytes(2 * MIB)]) for base in range(40)])
    page = look(log, "newest", 40)
    assert [each.offset for each in page.items][:3] == [39, 38, 37]
    assert peak() < 48 * MIB
    assert all_offsets(log, "newest", 50) == list(range(39, -1, -1))


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_pages_have_every_record_once(order: str, codec: Codec) -> None:
    """Whatever is left of a batch when a piece of it has been read is read with the next one."""
    values = [bytes(100)] * 3_000 + [bytes(3 * MIB)] + [b"small"] * 2_000
    log = Log([a_batch(0, values, codec), a_batch(len(values), [b"last"], codec)])
    expected = list(range(len(values) + 1))
    assert all_offsets(log, order, 1_000) == (expected if order == "oldest" else expected[::-1])


def test_a_page_ends_when_what_it_shows_is_large(peak: Callable[[], int]) -> None:
    """A thousand large values would be an answer of 64 MiB. The page is shorter, and the next one goes on."""
    log = Log([a_batch(base, [b"x" * 65_536] * 10) for base in range(0, 500, 10)])
    page = look(log, "oldest", 1_000)
    assert 100 <= len(page.items) < 200
    assert not page.done
    assert peak() < 48 * MIB
    assert all_offsets(log, "oldest", 1_000) == list(range(500))


def test_heads_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of many partitions needs the next record of each of them."""
    monkeypatch.setattr("drmq.gateway.browse.HELD_BYTES_MAX", 10 * MIB)
    log = Log([a_batch(0, [bytes(3 * MIB)])], partitions=4)
    for order in ("newest", "oldest"):
        with pytest.raises(ProblemError) as caught:
            look(log, order)
        assert caught.value.problem.status == 422
        assert "partition" in (caught.value.problem.advice or "")
    log = Log([a_batch(0, [bytes(3 * MIB)]), a_batch(1, [bytes(3 * MIB)])], partitions=3)
    assert len(look(log, "oldest").items) == 6, "what was shown counts no more"


def test_a_batch_that_cannot_be_read_is_told_when_it_is_reached() -> None:
    bad = bytearray(a_batch(1, [b"bad"]))
    bad[-1] ^= 1
    log = Log([a_batch(0, [b"good"]), bytes(bad)])
    assert [each.offset for each in look(log, "oldest", 1).items] == [0]
    with pytest.raises(ProblemError) as caught:
        look(log, "oldest", 2)
    assert caught.value.problem.status == 422


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_call_ends_when_nobody_wants_it(order: str) -> None:
    """The client has gone: what is left of its work is not done."""
    log = Log([a_batch(base, [b"x"]) for base in range(500)])
    wanted = threading.Event()
    look(log, order, 500, wanted=wanted.is_set)
    assert log.asked <= 2


def test_a_page_that_takes_too_long_goes_on_at_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that cannot be read in time is given up for its newest record: each call brings the reader further."""
    log = Log([a_batch(base, [bytes(600 * 1024)], Codec.NONE) for base in range(5)])
    # Each request for records takes a second.
    monkeypatch.setattr("drmq.gateway.browse.time", SimpleNamespace(monotonic=lambda: float(log.asked)))
    monkeypatch.setattr("drmq.gateway.browse.SCAN_SECONDS_MAX", 2.0)
    at, found = log.ends, []
    for _ in range(10):
        page = look(log, "newest", 50, at)
        found += [each.offset for each in page.items]
        if page.next is None:
            break
        at = decode_cursor(page.next).at
    assert found == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_times_far_in_the_future_are_shown_as_they_are(order: str) -> None:
    """Nanoseconds for example: in microseconds they do not fit into 64 bits, and one was shown as 1970."""
    times = [1_000, 1_700_000_000_000_000_000, 2**63 - 1]
    records = [Record(Offset(at), when, None, b"x") for at, when in enumerate(times)]
    page = look(Log([bytes(encode_batch(records, base_offset=Offset(0)))]), order)
    assert sorted(each.timestamp_ms for each in page.items) == times


def test_a_batch_of_such_times_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each piece, which would take a thousand times as long for a batch of a million records."""
    parsed = 0

    def counted(batch: Buffer, **options: Any) -> Iterator[Record]:
        nonlocal parsed
        parsed += 1
        return iter_records(batch, **options)

    monkeypatch.setattr(decoding, "iter_records", counted)
    records = [Record(Offset(at), 10**18 + at if at % 2 else 0, None, b"x") for at in range(5_000)]
    batch = bytes(encode_batch(records, base_offset=Offset(0)))
    assert decoding.each_record(batch, 100, 4_900, lambda record: record.timestamp) == [
        record.timestamp for record in records[100:4_900]
    ]
    assert parsed == 1
