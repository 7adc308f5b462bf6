"""The records that arrive in a topic, for people who watch it.

One reader for each topic serves all who watch. Once a second it asks where the partitions end, and reads the records of
those that have grown: the last ones only, if more came than a person can read. The rest is counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from drmq.client import LATEST, Admin, ClientError
from drmq.gateway.admin_pool import AdminPool
from drmq.gateway.decoding import each_record
from drmq.gateway.problems import BUG, ProblemError
from drmq.gateway.record_text import describe, shown_size
from drmq.gateway.types import RecordView
from drmq.model import TopicPartition
from drmq.records import Buffer, InvalidBatch, iter_batches

log = logging.getLogger("drmq.gateway")

INTERVAL_S: Final = 1.0
RECORDS_MAX: Final = 200
"""In one second."""
BYTES_MAX: Final = 1_048_576
"""Of keys, values and headers that are shown in one second."""
_FETCH_BYTES: Final = 1_048_576

Ends = dict[TopicPartition, int]


@dataclass(slots=True)
class Arrived:
    """What came within one second, the oldest first, and how many records of it are not shown."""

    records: list[RecordView]
    missed: int


OnArrived = Callable[["Arrived | ClientError | ProblemError"], None]


class Tail:
    """The reader of one topic. Lives on the event loop; runs while anyone listens."""

    def __init__(self, admins: AdminPool, topic: str) -> None:
        self._admins = admins
        self._topic = topic
        self._listeners: set[OnArrived] = set()
        self._ends: Ends | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not self._listeners

    def listen(self, listener: OnArrived) -> None:
        self._listeners.add(listener)
        if self._task is None:
            self._ends = None
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"tail-{self._topic}")

    def leave(self, listener: OnArrived) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                found = await self._admins.run(self._look)
            except (ClientError, ProblemError) as error:
                self._tell(error)
            except Exception:
                log.exception("watching topic %s failed on a bug", self._topic)
                self._tell(ProblemError(500, BUG))
            else:
                if found is not None and (found.records or found.missed):
                    self._tell(found)
            # A look that takes long is followed by a longer pause.
            elapsed_s = time.monotonic() - began_s
            await asyncio.sleep(max(INTERVAL_S - elapsed_s, elapsed_s, 0.1))

    def _tell(self, news: Arrived | ClientError | ProblemError) -> None:
        for listener in list(self._listeners):
            listener(news)

    def _look(self, admin: Admin) -> Arrived | None:
        """What came since the last look; None for the first one."""
        topic = admin.topics.describe(self._topic)
        led = [TopicPartition(topic.name, each.index) for each in topic.partitions if each.leader is not None]
        ends = {place: at.offset for place, at in admin.topics.offsets(dict.fromkeys(led, LATEST)).items()}
        before, self._ends = self._ends, {**(self._ends or {}), **ends}
        if before is None:
            return None
        # A partition that was added is read from its start, and one that lost its tail from where it ends now.
        grown = {place: (before.get(place, 0), end) for place, end in ends.items() if end > before.get(place, 0)}
        total = sum(end - start for start, end in grown.values())
        records: list[RecordView] = []
        for place, (start, end) in grown.items():
            share = end - start if total <= RECORDS_MAX else max(1, RECORDS_MAX * (end - start) // total)
            records += _read(admin, place, max(start, end - share), end)
        records.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
        shown: list[RecordView] = []
        size = 0
        for record in reversed(records[-RECORDS_MAX:]):
            size += shown_size(record)
            if size > BYTES_MAX and shown:
                break
            shown.append(record)
        shown.reverse()
        return Arrived(shown, max(0, total - len(shown)))


def _read(admin: Admin, place: TopicPartition, start: int, end: int) -> list[RecordView]:
    """The records from `start` to `end`, as far as one request brings them."""
    try:
        data = admin.records.batches(place, start, _FETCH_BYTES)
    except ClientError:
        return []  # retention was faster, or its leader is lost: they count as missed
    found: list[RecordView] = []
    with suppress(InvalidBatch):  # what follows bytes that are no batch cannot be found
        for position, header in iter_batches(data):
            if header.base_offset >= end:
                break
            if not header.is_control:
                found += _shown(place.partition, data[position : position + header.size], start, end)
    return found


def _shown(partition: int, batch: Buffer, start: int, end: int) -> list[RecordView]:
    """The records of a batch; none if it cannot be read."""
    try:
        return each_record(batch, start, end, lambda record: describe(partition, record))
    except InvalidBatch:
        return []
