"""Passes reports from the writer thread to the event loop, with one wake-up per report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from drmq.broker.partitions.partition_table import PartitionTable
from drmq.model import Offset
from drmq.storage import Log, StorageError


class WriterBridge:
    """Passes the writer's events to the partition table on the event loop. Implements `storage.WriterEvents`."""

    def __init__(self, on_crashed: Callable[[BaseException], None]) -> None:
        self._on_crashed = on_crashed
        self._loop: asyncio.AbstractEventLoop
        self._table: PartitionTable

    def attach(self, loop: asyncio.AbstractEventLoop, table: PartitionTable) -> None:
        """Set the receiver of the reports, before the writer starts."""
        self._loop = loop
        self._table = table

    def on_written(self, results: list[tuple[Log, Offset]]) -> None:
        self._loop.call_soon_threadsafe(self._table.on_written, results)

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
        self._loop.call_soon_threadsafe(self._table.on_flushed, results)

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
        self._loop.call_soon_threadsafe(self._table.on_failed, log, error, end_offset)

    def on_crashed(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._on_crashed, error)
