"""Fuzz the columnar decoder: both builders must say the same of any bytes, and agree with `drmq.records`.

    python fuzz/fuzz_columnar.py [--count 20000] [--seed 0]

Every case starts from a good log of one to three batches. One of them is damaged, in its records before
they are compressed or anywhere behind its checksum, and gets a fitting length and checksum again, so that the damage
reaches the parser. Range, limits, aborted transactions and columns are drawn too, and how much room the
builder is told to expect. A difference between the builders, in a row, a byte or a word of an error, is a bug; so is
any exception but `InvalidBatch`. The case is printed, and its seed replays it.

The compiled builder gets the log as the Spark source does: inside a Fetch answer, received into memory that
every answer shares. That memory is overwritten before the columns are looked at, so that a column which is a
view of it would differ. Where pyarrow is installed, it must find the columns valid.

Without a compiled decoder only the one in Python is compared with `drmq.records`, and the target says so.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from importlib.util import find_spec
from typing import Any

from drmq.client.connection import ReceiveMemory
from drmq.columnar import Columns, iter_columns
from drmq.columnar.arrow import record_batch
from drmq.columnar.columns import Parts
from drmq.columnar.implementation import choose
from drmq.columnar.outcome import Added, Batch, Bounds, Builder, Place
from drmq.model import ErrorCode, Offset, ProducerId
from drmq.records import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    Buffer,
    Codec,
    InvalidBatch,
    Record,
    compress,
    decode_batch,
    encode_batch,
    iter_batches,
    iter_records,
    read_header,
)
from drmq.records.header import HEADER, stamp_crc
from drmq.wire import ApiKey, read_response, write_response
from drmq.wire.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from fuzz_records import damage

SIZE_MAX = 500_000
LARGE_SIZE = 50_000
"""Of a value: two of them are more than the compiled builder treats as small, and get the room that it expects."""
FETCH_VERSION = 13
CASE_SECONDS_MAX = 2.0
INT64_MAX = 2**63 - 1
PRODUCERS = (-1, -1, 7, 8)
TIMES = (-1, 0, 1_700_000_000_000, INT64_MAX // 1000 + 1, 2**62)
NAMES = ("", "h", "größe", "名")
HAS_ARROW = find_spec("pyarrow") is not None

memory = ReceiveMemory(4 * 2**20)


def good_batch(rng: random.Random, base: int) -> bytearray:
    control, producer = rng.random() < 0.1, rng.choice(PRODUCERS)
    key = rng.choice([b"\0\0\0\0", b"\0\0\0\1"]) if control else None
    records, offset, start_time = [], base, rng.choice(TIMES)
    large = rng.randbytes(LARGE_SIZE) if rng.random() < 0.03 else b"abc" * rng.randrange(60)
    for number in range(rng.randrange(7)):
        records.append(
            Record(
                Offset(offset),
                start_time + number,
                key or rng.choice([None, b"", b"key-%d" % number]),
                rng.choice([None, b"", rng.randbytes(rng.randrange(30)), large]),
                tuple((rng.choice(NAMES), rng.choice([None, b"", b"x"])) for _ in range(rng.choice([0, 0, 1, 3]))),
            )
        )
        offset += rng.choice([1, 1, 1, 3])
    return encode_batch(
        records,
        base_offset=Offset(base),
        # Mostly plain: the codecs have a target of their own, and take most of the time.
        codec=rng.choice([Codec.NONE, Codec.NONE, Codec.NONE, *Codec]),
        producer_id=ProducerId(producer),
        producer_epoch=0,
        base_sequence=0,
        transactional=producer >= 0,
        control=control,
        log_append_time_ms=rng.choice([None, None, 5]),
        last_offset_delta=max(offset - 1, base) - base + rng.choice([0, 0, 2]),
    )


def damaged_batch(batch: bytearray, rng: random.Random) -> bytearray:
    header = read_header(batch)
    kind = rng.randrange(8)
    if kind == 0:  # anywhere, nothing repaired
        damage(batch, rng, 0)
        return batch
    if kind == 1:  # header and packed records
        damage(batch, rng, 21)
    elif header.codec == Codec.NONE:
        damage(batch, rng, HEADER_SIZE)
    else:
        plain = encode_batch(
            decode_batch(batch, decompressed_size_max=SIZE_MAX),
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
        )
        body = plain[HEADER_SIZE:]
        damage(body, rng, 0)
        batch[HEADER_SIZE:] = compress(header.codec, body)
    if len(batch) >= HEADER_SIZE:
        HEADER.pack_into(batch, 0, *read_header(batch)._replace(length=len(batch) - LENGTH_OVERHEAD))
        stamp_crc(batch)
    return batch


def make_case(rng: random.Random) -> tuple[bytes, dict[str, Any]]:
    log, base = bytearray(), rng.choice([0, 0, 5, 2**40])
    first = base
    count = rng.randint(1, 3)
    bad = rng.randrange(count) if rng.random() < 0.85 else None
    for index in range(count):
        batch = good_batch(rng, base)
        base = read_header(batch).next_offset + rng.choice([0, 0, 4])
        log += damaged_batch(batch, rng) if index == bad else batch
    if rng.random() < 0.1:
        del log[rng.randrange(len(log)) :]
    start = first + rng.choice([0, 0, 0, rng.randrange(12)])
    return bytes(log), {
        "start_offset": start,
        "end_offset": rng.choice([INT64_MAX, start + rng.randrange(15)]),
        "include_headers": rng.random() < 0.8,
        "want_key": rng.random() < 0.9,
        "want_value": rng.random() < 0.9,
        "rows_max": rng.choice([1, 2, 5, 1000]),
        "bytes_max": rng.choice([1, 40, 200, 2**20]),
        "aborted": rng.choice([[], [], [(7, first)], [(8, first + 3), (7, first + 1)]]),
    }


class Expecting:
    """A builder that expects this number of bytes, instead of about as many as the log has."""

    bytes_expected = 0
    builder: type[Builder]

    def __init__(self, want_key: bool, want_value: bool, include_headers: bool, /) -> None:
        self._builder = self.builder(want_key, want_value, include_headers)

    @property
    def row_count(self) -> int:
        return self._builder.row_count

    def add(self, body: Buffer, place: Place, batch: Batch, bounds: Bounds, /) -> Added:
        return self._builder.add(body, place, batch, bounds._replace(bytes_expected=self.bytes_expected))

    def finish(self) -> Parts:
        return self._builder.finish()


def received(log: bytes) -> memoryview:
    """The log as a client has it: a part of an answer, in the memory of all answers."""
    topic = FetchResponseTopic(topic_id=bytes(16), partitions=[FetchResponsePartition(records=log)])
    frame = write_response(ApiKey.FETCH, FETCH_VERSION, 1, FetchResponse(responses=[topic]))[4:]
    room = memory.take(len(frame))
    room[:] = frame
    _, answer = read_response(ApiKey.FETCH, FETCH_VERSION, room)
    assert isinstance(answer, FetchResponse)
    return memoryview(answer.responses[0].partitions[0].records or b"")


def run(
    builder: type[Builder], log: Buffer, options: dict[str, Any]
) -> tuple[list[Columns], tuple[ErrorCode, str] | None]:
    """All pieces, and the error that ended them."""
    pieces: list[Columns] = []
    try:
        for columns in iter_columns(log, decompressed_size_max=SIZE_MAX, builder=builder, **options):
            pieces.append(columns)
    except InvalidBatch as error:
        return pieces, (error.code, str(error))
    return pieces, None


def check_case(pure: type[Builder], compiled: type[Builder], log: bytes, options: dict[str, Any]) -> bool:
    """Whether the log could be read; raises if a promise is broken."""
    expected = run(pure, log, options)
    found = run(compiled, received(log), options)
    memory.take(len(log))[:] = b"\xff" * len(log)
    assert found == expected, (found, expected)
    pieces, error = found
    for columns in pieces:
        if HAS_ARROW:
            record_batch(columns, topic="t", partition=0, names=known_names(columns)).validate(full=True)
        assert columns.row_count <= options["rows_max"]
        assert options["start_offset"] <= columns.next_offset <= options["end_offset"]
    if error is None and not options["aborted"]:
        offsets = [offset for columns in pieces for offset in numbers(columns.offsets)]
        assert offsets == known_offsets(log, options["start_offset"], options["end_offset"])
    return error is None


def known_names(columns: Columns) -> list[str]:
    varying = [name for name in ("key", "value", "headers") if getattr(columns, name) is not None]
    return ["offset", "timestamp", "timestampType", *varying]


def numbers(view: memoryview) -> list[int]:
    return list(memoryview(bytes(view)).cast("q")) if len(view) else []


def known_offsets(log: bytes, start: int, end: int) -> list[int]:
    """What `drmq.records` finds, as far as the range reaches: the decoder looks at nothing behind it."""
    found: list[int] = []
    for position, header in iter_batches(log):
        if header.base_offset >= end or start == end:
            break
        if not header.is_control and header.next_offset > start:
            try:
                for record in iter_records(log[position : position + header.size], decompressed_size_max=SIZE_MAX):
                    if start <= record.offset < end:
                        found.append(record.offset)
            except InvalidBatch:
                assert header.next_offset > end
        if header.next_offset >= end:
            break
    return found


def expecting(builder: type[Builder], rng: random.Random) -> type[Builder]:
    """Mostly the builder itself, and sometimes one with an expectation that fits nothing."""
    wrong = rng.choice([None, None, None, 0, 1, 70_000, 2**20])
    if wrong is None:
        return builder
    return type("Expecting", (Expecting,), {"builder": builder, "bytes_expected": wrong})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case; each next case counts up")
    arguments = parser.parse_args()
    pure = choose("pure")[1]
    name, compiled = choose(None)
    if name == "pure":
        sys.stdout.write("no compiled decoder: only the one in Python is fuzzed\n")
    readable, slowest = 0, 0.0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        rng = random.Random(seed)
        log, options = make_case(rng)
        started = time.perf_counter()
        try:
            readable += check_case(pure, expecting(compiled, rng), log, options)
            seconds = time.perf_counter() - started
            assert seconds < CASE_SECONDS_MAX, f"took {seconds:.1f} s"
        except BaseException:
            sys.stderr.write(f"seed {seed}: {options} {log.hex()}\n")
            raise
        slowest = max(slowest, seconds)
    sys.stdout.write(f"{arguments.count} cases, {readable} readable, slowest {slowest * 1000:.1f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
