"""Sending many records for one caller: one answer when the last record is stored or has failed.

A future for each record would cost more than the record. Here librdkafka's callbacks fill in a list of results, on the
thread of the producer, and the event loop is woken once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from drmq.client import ClientError
from drmq.client.messages import SendResult
from drmq.client.sender import Sender, delivery_error

_FULL_WAIT_S = 0.005


class RecordToSend(NamedTuple):
    """A record of a caller."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int | None
    timestamp_ms: int | None


class Appending:
    """Records on their way to one topic. Created on the event loop."""

    def __init__(self, sender: Sender, topic: str, count: int) -> None:
        self._sender = sender
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        self._left = count
        self._results: list[SendResult | ClientError | None] = [None] * count

    async def send(self, records: Sequence[RecordToSend]) -> None:
        """Hand all records to the producer. Waits only while its queue is full. Raises `DeadlineExceeded`."""
        sender, topic = self._sender, self._topic
        deadline_s = time.monotonic() + sender.timeout_s
        for index, record in enumerate(records):
            on_delivery = partial(self._on_delivery, index)
            try:
                while not sender.offer_to(on_delivery, topic, *record):
                    if time.monotonic() > deadline_s:
                        raise sender.too_late("waiting for room in the queue of the producer", sender.timeout_s)
                    await asyncio.sleep(_FULL_WAIT_S)
            except ClientError as error:
                self._put(index, error)

    async def results(self) -> list[SendResult | ClientError]:
        """Of all records, in their order, once all are known."""
        await self._done
        return [each for each in self._results if each is not None]

    def _on_delivery(self, index: int, error: Any, message: Any) -> None:
        if error is not None:
            self._put(index, delivery_error(error, message, self._topic))
        else:
            partition, offset, (_, timestamp) = message.partition(), message.offset(), message.timestamp()
            self._put(index, SendResult(self._topic, partition, offset, timestamp))

    def _put(self, index: int, result: SendResult | ClientError) -> None:
        with self._lock:
            self._results[index] = result
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)
