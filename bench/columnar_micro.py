"""Micro-benchmark of the columnar decoder, without a broker: batches in memory to columns.

    python -m bench.columnar_micro [--megabytes 64] [--repeat 5]

Ratios, because they travel between machines: the compiled decoder beside its twin in Python, beside a
compiled client that makes an object per record (aiokafka's reader, with a loop that keeps key, value, offset and
time, which is the least that a job on top of a client does), and beside a plain copy of the same bytes
before compression. All of them check the checksum, but the copy. Times are of the processor, and the best of
several turns counts, since disturbance only ever adds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from bench.payloads import make_payloads
from drmq.columnar import iter_columns, pure
from drmq.columnar.implementation import choose
from drmq.columnar.outcome import Builder
from drmq.columnar.walk import BYTES_MAX
from drmq.model import Offset
from drmq.records import Codec, Record, encode_batch, iter_batches

BATCH_SIZE_BYTES = 256 * 1024
DECOMPRESSED_SIZE_MAX = 64 * 2**20


def make_log(record_size: int, megabytes: int, codec: Codec) -> tuple[bytes, int]:
    """A log of about this size before compression, and how many records it has."""
    values = make_payloads(record_size)
    if codec != Codec.NONE:
        # Random bytes do not compress. Hexadecimal digits do, to a good half.
        values = [value.hex().encode()[:record_size] for value in values]
    per_batch = max(BATCH_SIZE_BYTES // record_size, 1)
    log, offset = bytearray(), 0
    while offset * record_size < megabytes * 2**20:
        records = [
            Record(Offset(n), 1_700_000_000_000 + n, b"%08d" % (n % 10_000), values[n % len(values)])
            for n in range(offset, offset + per_batch)
        ]
        log += encode_batch(records, base_offset=Offset(offset), codec=codec)
        offset += per_batch
    return bytes(log), offset


def read_columns(log: bytes, builder: type[Builder]) -> int:
    pieces = iter_columns(
        log, start_offset=0, end_offset=2**62, decompressed_size_max=DECOMPRESSED_SIZE_MAX, builder=builder
    )
    return sum(columns.row_count for columns in pieces)


def read_objects(log: bytes, reader: Callable[[bytes], Any]) -> int:
    count = 0
    for position, header in iter_batches(log):
        batch = reader(log[position : position + header.size])
        assert batch.validate_crc()
        # Per batch, as a job would hand them on; all at once would measure the garbage collector.
        rows = [(record.key, record.value, record.offset, record.timestamp) for record in batch]
        count += len(rows)
    return count


def copy(log: bytes) -> int:
    # In pieces, as the decoder does it: one large copy would mostly measure page faults.
    view = memoryview(log)
    return sum(len(bytearray(view[start : start + BYTES_MAX])) for start in range(0, len(view), BYTES_MAX))


def best_seconds(work: Callable[[], int], expected: int, repeat: int) -> float:
    seconds = []
    for _ in range(repeat):
        started = time.process_time()
        assert work() == expected
        seconds.append(time.process_time() - started)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64, help="size of the log before compression")
    parser.add_argument("--repeat", type=int, default=5, help="turns, of which the best counts")
    arguments = parser.parse_args()
    # Only here: it comes with the tools for development.
    from aiokafka.record.default_records import DefaultRecordBatch

    compiled = choose("compiled")[1]
    print(f"{'record':>8} {'codec':>6} {'compiled':>14} {'x pure':>8} {'x objects':>10} {'of a copy':>10}")
    for record_size in (100, 1024):
        plain, _ = make_log(record_size, arguments.megabytes, Codec.NONE)
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            log, count = make_log(record_size, arguments.megabytes, codec)
            ours = best_seconds(lambda log=log: read_columns(log, compiled), count, arguments.repeat)  # type: ignore[misc]
            twin = best_seconds(lambda log=log: read_columns(log, pure.Builder), count, 1)  # type: ignore[misc]
            objects = best_seconds(
                lambda log=log: read_objects(log, DefaultRecordBatch),  # type: ignore[misc]
                count,
                max(arguments.repeat // 2, 1),
            )
            copied = best_seconds(lambda log=plain: copy(log), len(plain), arguments.repeat)  # type: ignore[misc]
            print(
                f"{record_size:>6} B {codec.name.lower():>6} {count / ours / 1e6:>6.2f} M rows/s"
                f" {twin / ours:>8.1f} {objects / ours:>10.1f} {copied / ours:>10.2f}"
            )


if __name__ == "__main__":
    main()
