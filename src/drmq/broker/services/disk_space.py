"""How much space the file system of the data directory has.

A disk that hangs lets the call for it hang, too. So a thread asks, when somebody reads the counters and the last answer
is old, and the counters have the last answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from drmq.model.counters import Sample
from drmq.telemetry.system_errors import in_words

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

INTERVAL_MS: Final = 5_000


class DiskSpace:
    """The last answer of the file system, and the next one when it is asked for. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._last: tuple[int, int] | None = None
        self._not_before_ms = 0
        self._task: asyncio.Task[None] | None = None

    def samples(self) -> Iterator[Sample]:
        """Nothing before the first answer, and for a node without a disk."""
        if self._last is not None and self._last[0] >= 0:
            total_bytes, free_bytes = self._last
            yield Sample("drmq_disk_total_bytes", total_bytes)
            yield Sample("drmq_disk_free_bytes", free_bytes)

    def refresh(self) -> None:
        """Somebody reads the counters: ask again if the last answer is old."""
        if self._task is None and self._broker.clock.monotonic_ms() >= self._not_before_ms:
            self._task = asyncio.get_running_loop().create_task(self._ask())

    def stop(self) -> None:
        """The node stops."""
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        try:
            self._last = await self._broker.blocking(self._broker.store.disk_bytes)
        except OSError as error:
            log.warning("the file system does not tell its free space: %s", in_words(error))
        finally:
            self._not_before_ms = self._broker.clock.monotonic_ms() + INTERVAL_MS
            self._task = None
