"""Micro-benchmarks of storage, without a broker: what an append, a sync, a read and an opening cost.

    python -m bench.storage_micro [directory]

Not a workload: numbers for whoever changes storage. Batches are 150 bytes or 1 MiB.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from struct import pack_into

from crc32c import crc32c

from drmq.model import Offset
from drmq.records import BatchHeader, read_header
from drmq.records.header import HEADER
from drmq.storage import Log, OsFiles, SegmentLog, StorageError, Writer

SMALL_COUNT = 20_000
LARGE_COUNT = 64


def batch(offset: int, size: int) -> tuple[BatchHeader, bytes]:
    data = bytearray(HEADER.pack(offset, size - 12, 0, 2, 0, 0, 0, 1, 1, -1, -1, -1, 1) + os.urandom(size - 61))
    pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return read_header(data), bytes(data)


def measure(what: str, count: int, work: Callable[[], object], cpu: bool = False) -> None:
    clock = time.process_time if cpu else time.perf_counter
    started = clock()
    work()
    seconds = clock() - started
    print(f"{what:62s} {seconds / count * 1e6:10.2f} us")


class NoEvents:
    def on_written(self, results: list[tuple[Log, Offset]]) -> None: ...
    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None: ...
    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
        raise error

    def on_crashed(self, error: BaseException) -> None:
        raise error


class NoSync(OsFiles):
    """For what storage costs beside the disk."""

    def sync(self, handle: int) -> None:
        return


def appends(directory: str, small: list[tuple[BatchHeader, bytes]], large: list[tuple[BatchHeader, bytes]]) -> None:
    def one_by_one(log: Log, batches: list[tuple[BatchHeader, bytes]]) -> None:
        for one in batches:
            log.append([one])

    def by_500(log: Log) -> None:
        for start in range(0, SMALL_COUNT, 500):
            log.append(small[start : start + 500])

    def synced(log: Log) -> None:
        for one in small[:300]:
            log.append([one])
            log.flush()

    def cycles(batch_count: int, per_cycle: int) -> None:
        log = SegmentLog(f"{directory}/cycle{per_cycle}", files=NoSync())
        writer = Writer(NoEvents())
        for start in range(0, batch_count, per_cycle):
            for header, data in small[start : start + per_cycle]:
                writer.submit(log, header, data)
            writer.run_cycle()

    by_500_log, single_log, large_log = (SegmentLog(f"{directory}/{name}") for name in ("small", "single", "large"))
    measure("append 150 B, 500 per call, no sync", SMALL_COUNT, lambda: by_500(by_500_log))
    measure("append 150 B, one per call, no sync", SMALL_COUNT, lambda: one_by_one(single_log, small))
    measure("append 1 MiB, no sync", LARGE_COUNT, lambda: one_by_one(large_log, large))
    measure("append 150 B and sync, one by one", 300, lambda: synced(SegmentLog(f"{directory}/synced")))
    measure(
        "submit and write 150 B, 200 per cycle, CPU without sync", SMALL_COUNT, lambda: cycles(SMALL_COUNT, 200), True
    )
    measure("submit and write 150 B, 1 per cycle, CPU without sync", 5000, lambda: cycles(5000, 1), True)
    by_500_log.close()
    large_log.close()
    single_log.close(clean=False)


def reads(directory: str) -> None:
    small, large = SegmentLog(f"{directory}/small"), SegmentLog(f"{directory}/large")
    end = small.flushed_offset

    def scattered(log: Log, count: int, spread: int, max_bytes: int, cached_only: bool) -> None:
        for number in range(count):
            assert log.read(Offset(number * 37 % spread), max_bytes, log.flushed_offset, cached_only)

    measure("read 1 MiB of 150 B batches, verified", 100, lambda: scattered(small, 100, 12_000, 1 << 20, False))
    measure("read one 1 MiB batch, verified", 200, lambda: scattered(large, 200, 60, 1 << 20, False))
    small.read(Offset(0), 1 << 30, end)
    for name, max_bytes in (("1 MiB", 1 << 20), ("64 KiB", 1 << 16), ("one", 1)):
        measure(
            f"read {name} of 150 B batches, hot",
            500,
            lambda max_bytes=max_bytes: scattered(small, 500, 12_000, max_bytes, True),  # type: ignore[misc]
        )
    measure("read one 1 MiB batch, hot", 300, lambda: scattered(large, 300, 60, 1 << 20, True))


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        small = [batch(number, 150) for number in range(SMALL_COUNT)]
        large = [batch(number, 1 << 20) for number in range(LARGE_COUNT)]
        appends(directory, small, large)
        reads(directory)
        measure("open after a clean close", 1, lambda: SegmentLog(f"{directory}/small"))
        measure(
            f"open after a crash, per 150 B batch of {SMALL_COUNT}",
            SMALL_COUNT,
            lambda: SegmentLog(f"{directory}/single"),
        )


if __name__ == "__main__":
    main()
