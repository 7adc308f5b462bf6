"""Fuzz the readers of record batches: bytes in, a value or `InvalidBatch` out.

    python fuzz/fuzz_records.py [--count 20000] [--seed 0]

Every case starts from a good batch, damages it, and repairs length and checksum, so that the
damage reaches the decompressor and the parser. A batch that still opens must keep the promises
of `drmq.records.record`, and survive being written and read again. Anything else that happens
is a bug: the case is printed as hex, and its seed replays it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time

from drmq.model import Offset
from drmq.records import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    Codec,
    InvalidBatch,
    Record,
    check_batch,
    compress,
    decode_batch,
    encode_batch,
    find_timestamp,
    iter_batches,
    read_header,
)
from drmq.records.header import HEADER, stamp_crc

SIZE_MAX = 100_000
CASE_SECONDS_MAX = 2.0
INTERESTING = (0, 1, 2, 0x0F, 0x7F, 0x80, 0xFE, 0xFF)


def good_batch(rng: random.Random) -> bytearray:
    base = rng.choice([0, 5, 2**40])
    records = [
        Record(
            Offset(base + number * rng.choice([1, 1, 2])),
            rng.choice([-1, 0, 1_700_000_000_000 + number]),
            rng.choice([None, b"", b"key-%d" % number]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(200)), b"abc" * rng.randrange(300)]),
            tuple((rng.choice(["", "h", "größe"]), rng.choice([None, b"", b"x"])) for _ in range(rng.randrange(3))),
        )
        for number in range(rng.randint(1, 8))
    ]
    records.sort(key=lambda record: record.offset)
    unique = {record.offset: record for record in records}
    return encode_batch(unique.values(), base_offset=Offset(base), codec=rng.choice(list(Codec)))


def damage(data: bytearray, rng: random.Random, start: int) -> None:
    """One to four edits of `data` from `start` on: bytes set, runs deleted, repeated or inserted."""
    for _ in range(rng.randint(1, 4)):
        if len(data) <= start:
            return
        at = rng.randrange(start, len(data))
        run = rng.randrange(1, 12)
        kind = rng.randrange(6)
        if kind <= 2:
            data[at] = rng.choice([*INTERESTING, rng.randrange(256)])
        elif kind == 3:
            del data[at : at + run]
        elif kind == 4:
            data[at:at] = data[at : at + run]
        else:
            data[at:at] = rng.randbytes(run)


def make_case(rng: random.Random) -> bytearray:
    batch = good_batch(rng)
    kind = rng.randrange(4)
    if kind == 0:  # damage anywhere, nothing repaired
        damage(batch, rng, 0)
        return batch
    if kind == 1:  # damage to the records before they are compressed
        header = read_header(batch)
        plain = encode_batch(decode_batch(batch, decompressed_size_max=SIZE_MAX), base_offset=header.base_offset)
        body = plain[HEADER_SIZE:]
        damage(body, rng, 0)
        batch[HEADER_SIZE:] = compress(header.codec, body)
    else:
        damage(batch, rng, HEADER_SIZE if kind == 2 else 21)
    if len(batch) >= HEADER_SIZE:
        header = read_header(batch)._replace(length=len(batch) - LENGTH_OVERHEAD)
        HEADER.pack_into(batch, 0, *header)
        stamp_crc(batch)
    return batch


def check_case(batch: bytearray) -> bool:
    """Whether the batch could be read; raises if a promise is broken."""
    for walk in (lambda: check_batch(batch), lambda: list(iter_batches(batch))):
        with contextlib.suppress(InvalidBatch):
            walk()
    try:
        records = decode_batch(batch, decompressed_size_max=SIZE_MAX)
    except InvalidBatch:
        with contextlib.suppress(InvalidBatch):
            find_timestamp(batch, 2**62, SIZE_MAX)
        return False
    header = read_header(batch)
    offsets = [record.offset for record in records]
    assert len(records) == header.record_count
    assert offsets == sorted(set(offsets))
    assert not offsets or header.base_offset <= offsets[0] <= offsets[-1] < header.next_offset
    for wanted in (-(2**63), 0, 1_700_000_000_002, 2**63 - 1):
        expected = next(((r.offset, r.timestamp) for r in records if r.timestamp >= wanted), None)
        assert find_timestamp(batch, wanted, SIZE_MAX) == expected
    times = [record.timestamp for record in records]
    if times and max(times) - times[0] < 2**63 and min(times) - times[0] >= -(2**63):
        again = encode_batch(records, base_offset=header.base_offset)
        assert decode_batch(again, decompressed_size_max=SIZE_MAX) == records
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case; each next case counts up")
    arguments = parser.parse_args()
    readable, slowest = 0, 0.0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        batch = make_case(random.Random(seed))
        started = time.perf_counter()
        try:
            readable += check_case(batch)
            seconds = time.perf_counter() - started
            assert seconds < CASE_SECONDS_MAX, f"took {seconds:.1f} s"
        except BaseException:
            sys.stderr.write(f"seed {seed}: {batch.hex()}\n")
            raise
        slowest = max(slowest, seconds)
    sys.stdout.write(f"{arguments.count} cases, {readable} readable, slowest {slowest * 1000:.1f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
