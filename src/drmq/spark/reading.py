"""One task: reads a range and passes it to Spark as Arrow batches.

A worker process runs many tasks, one after the other, so connections are kept between them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from drmq.records import InvalidBatch
from drmq.spark.errors import FetchFailed
from drmq.spark.fetching import Fetcher
from drmq.spark.offsets import Range
from drmq.spark.options import ReadOptions
from drmq.spark.table import TableShape

_fetchers: dict[tuple[object, ...], Fetcher] = {}
"""By process, cluster and settings. The process is part of the key because Spark forks its workers."""


def read_range(options: ReadOptions, schema: Any, part: Range | None) -> Iterator[Any]:
    """Arrow batches of all records of a range. None stands for a query without anything to read."""
    if part is None:
        return
    shape = TableShape(options.table, schema, options.filter)
    try:
        fetching = fetcher_of(options).read(
            part, fail_on_data_loss=options.fail_on_data_loss, fail_on_recreated=options.fail_on_recreated
        )
        for fetched in fetching:
            yield from shape.batches(part, fetched)
    except InvalidBatch as error:
        raise FetchFailed(
            f"Records of partition {part.partition} of `{part.topic}` are damaged: {error}. Check the broker's files "
            "with `drmq log verify`. The option `filter` can exclude these offsets."
        ) from None


def close_fetchers() -> None:
    """Close the connections that are kept."""
    while _fetchers:
        _fetchers.popitem()[1].close()


def fetcher_of(options: ReadOptions) -> Fetcher:
    """The fetcher of this process for these options."""
    settings = (options.bootstrap, options.client_id, options.timeout_s, options.read_committed, options.fetch_bytes)
    key = (os.getpid(), *settings)
    if key not in _fetchers:
        close_fetchers()
        _fetchers[key] = Fetcher(
            options.bootstrap,
            client_id=options.client_id,
            timeout_s=options.timeout_s,
            read_committed=options.read_committed,
            fetch_bytes=options.fetch_bytes,
        )
    return _fetchers[key]
