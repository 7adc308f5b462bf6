"""Record values that no codec and no file system can shrink, made before any clock starts."""

import random

POOL_COUNT = 1024
"""Distinct values: enough that a 100 KB window never repeats, few enough to stay in memory."""


def make_payloads(record_size: int, count: int = POOL_COUNT) -> list[bytes]:
    """The same `count` random values on every run, so that runs compare."""
    source = random.Random(20)
    return [source.randbytes(record_size) for _ in range(count)]
