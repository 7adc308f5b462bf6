"""Pages of dead letters: a client cannot fill the memory of a node with them, and no letter is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from drmq.broker.services.caller import Caller, node_caller
from drmq.broker.services.redrive import service
from drmq.broker.services.redrive.letter_pages import PLAIN_BYTES_MAX, page_of
from drmq.model import ErrorCode, Offset
from drmq.records import Codec, Record, encode_batch, iter_batches, iter_records
from drmq.records.header import HEADER_SIZE, stamp_crc
from drmq.wire.messages.redrive import RedriveAction, RedriveRequest
from support.broker_harness import NODE, Harness

DLQ = "dlq.billing"
HEADERS = tuple(
    (f"__dlq.errors.{name}", value) for name, value in [("topic", b"orders"), ("partition", b"0"), ("offset", b"0")]
)
MIB = 1 << 20


def batch(first: int, values: Sequence[bytes], codec: Codec = Codec.ZSTD, *, strangers: bool = False) -> bytearray:
    """Letters with these values."""
    said = () if strangers else HEADERS
    records = [Record(Offset(first + index), 0, None, value, said) for index, value in enumerate(values)]
    return encode_batch(records, base_offset=Offset(first), codec=codec)


def broken(first: int, count: int) -> bytearray:
    """A batch with a right checksum that does not decompress."""
    made = batch(first, [b"x"] * count)
    made[HEADER_SIZE:] = bytes(len(made) - HEADER_SIZE)
    stamp_crc(made)
    return made


def create(harness: Harness) -> None:
    harness.create_topic("orders")
    harness.create_topic(DLQ, errors_deadletterqueue_group_enable="true")


def caller(address: str) -> Caller:
    return node_caller(NODE)._replace(address=address)


def ask(harness: Harness, action: RedriveAction, **fields: Any) -> Any:
    answer = harness.ask(RedriveRequest(action, DLQ, **fields))
    assert answer.error_code == 0, answer.error_message
    return answer


# ---- where a page ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [1, 700, 2_000, 20_000, PLAIN_BYTES_MAX])
def test_pages_have_every_record_once(bytes_max: int) -> None:
    """Wherever the pages end: between batches, inside of one, or inside of one that cannot be read."""
    data = bytes(
        batch(0, [bytes(1_000)] * 20)
        + batch(20, [b"note"] * 30, strangers=True)
        + batch(50, [b"plain"] * 7, Codec.NONE)
        + broken(57, 40)
        + batch(97, [bytes(5_000), b"last"])
    )
    letters: list[int] = []
    strangers: list[int] = []
    offset = 3
    while offset < 99:
        page = page_of(data, 0, offset, MIB, bytes_max)
        assert page.next_offset > offset
        found = [letter.offset for letter in page.letters]
        assert all(offset <= each < page.next_offset for each in (*found, *page.strangers))
        letters += found
        strangers += page.strangers
        # A letter counts 512 bytes besides its own, and what is no letter 64.
        size = sum(len(letter.record.value or b"") + 512 for letter in page.letters[:-1])
        assert size + 64 * len(page.strangers[1:]) <= bytes_max
        offset = page.next_offset
    assert letters == [*range(3, 20), *range(50, 57), 97, 98]
    assert strangers == [*range(20, 50), *range(57, 97)]


def test_a_page_ends_after_some_decompressed_bytes() -> None:
    """Also if nothing of them is kept: many small batches can take as long and as much as one that is large."""
    values = [bytes(MIB)] * 3
    data = b"".join(bytes(batch(first, values)) for first in range(0, 30, 3))
    page = page_of(data, 0, 2, 256 * MIB)
    assert [letter.offset for letter in page.letters] == [2, 3, 4, 5, 6, 7, 8]
    assert (page.next_offset, page.plain_bytes // MIB) == (9, 9)
    page = page_of(b"".join(bytes(broken(first, 1)) for first in range(9)), 0, 0, 256 * MIB)
    assert (page.next_offset, page.strangers) == (1, [0]), "nobody knows what it has taken"


def test_a_page_ends_inside_a_batch_that_is_larger() -> None:
    data = bytes(batch(0, [bytes(MIB)] * 20))
    sizes = []
    offset = 0
    while offset < 20:
        page = page_of(data, 0, offset, 256 * MIB)
        sizes.append(len(page.letters))
        offset = page.next_offset
    assert sizes == [8, 8, 4]


# ---- the budget of the node ----------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.NONE])
def test_letters_are_decompressed_when_no_other_batch_of_the_node_is(harness: Harness, codec: Codec) -> None:
    """`decompressed_bytes_max` is the limit of the node. Letters that are not compressed do not wait."""
    create(harness)
    harness.append(DLQ, memoryview(batch(0, [b"a", b"b"], codec)))
    services = harness.broker.services

    async def scenario() -> None:
        async with services.decompressing:
            reading = asyncio.ensure_future(services.letter_pages.read(caller("a"), DLQ, 0, 0))
            await asyncio.wait([reading], timeout=0.1 if codec else 10)
            assert reading.done() == (codec is Codec.NONE)
        assert [letter.record.value for letter in (await reading).letters] == [b"a", b"b"]

    harness.run(scenario())


def test_another_caller_does_not_wait_for_all_pages_of_one(harness: Harness) -> None:
    """One address asks for ten pages at once. Another one gets its page when two of them are read at most."""
    create(harness)
    harness.append(DLQ, memoryview(batch(0, [b"a", b"b"])))
    pages = harness.broker.services.letter_pages
    order: list[str] = []

    async def read(address: str) -> None:
        await pages.read(caller(address), DLQ, 0, 0)
        order.append(address)

    async def scenario() -> None:
        await asyncio.gather(*(read("greedy") for _ in range(10)), read("modest"))

    harness.run(scenario())
    assert order.index("modest") <= 2


# ---- those who read pages ------------------------------------------------------------------------


@pytest.fixture
def large(harness: Harness) -> Harness:
    """A node with 20 letters in one batch, which has more than two pages."""
    create(harness)
    harness.append(DLQ, memoryview(batch(0, [bytes([index]) * MIB for index in range(20)])))
    return harness


def moved(harness: Harness) -> list[int]:
    found = harness.run(harness.broker.services.router.read(caller(""), "orders", 0, Offset(0), 1 << 24))
    data = bytes(found.data)
    return [
        (record.value or b"")[0]
        for position, header in iter_batches(data)
        for record in iter_records(data[position : position + header.size], decompressed_size_max=1 << 26)
    ]


def test_all_letters_of_a_large_batch_are_moved(large: Harness) -> None:
    ask(large, RedriveAction.START)
    for _ in range(200):
        large.advance(500)
        answer = ask(large, RedriveAction.STATUS)
        if answer.ended_ms > 0:
            break
    assert (answer.redriven_count, answer.failed_count, answer.reason) == (20, 0, "")
    assert moved(large) == list(range(20))


def test_all_letters_of_a_large_batch_are_counted_and_purged(large: Harness) -> None:
    assert ask(large, RedriveAction.LIST).matched_count == 20
    ends = ask(large, RedriveAction.STATUS, count_max=1).letters
    assert [letter.value[0] for letter in ends] == [0, 19]
    purged = ask(large, RedriveAction.PURGE, filter='{"reason": ""}')
    assert (purged.matched_count, purged.partitions[0].waiting_count) == (20, 0)


def test_a_request_ends_after_some_decompressed_bytes(large: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is decompressed again for each of its pages. The client goes on from where the answer ends."""
    monkeypatch.setattr(service, "_REQUEST_BYTES_MAX", 25 * MIB)
    first = ask(large, RedriveAction.LIST)
    assert (first.matched_count, first.next_partition, first.next_offset) == (16, 0, 16)
    second = ask(large, RedriveAction.LIST, from_partition=0, from_offset=16)
    assert (second.matched_count, second.next_partition) == (4, -1)


def test_letters_of_an_ordinary_topic_are_not_looked_for(harness: Harness) -> None:
    """Its records are no letters, and to read them takes as much as to read letters."""
    harness.create_topic("orders")
    harness.produce("orders")
    refused = harness.ask(RedriveRequest(RedriveAction.STATUS, "orders", count_max=1))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert harness.ask(RedriveRequest(RedriveAction.STATUS, "orders")).partitions[0].waiting_count == 1
