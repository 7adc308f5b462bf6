"""A consumer that reads at a position of its own, for asyncio: librdkafka blocks, so a thread calls it."""

from __future__ import annotations

import asyncio
import time as clock
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from drmq.client.aio.consumer import Consumer
from drmq.client.codecs import CodecName, Decoding
from drmq.client.errors import Closed
from drmq.client.messages import Message, ReadMessage
from drmq.client.reader import Offsets, Reader, Start, Time

T = TypeVar("T")
R = TypeVar("R")

_STEP_S = 0.1
"""How long the thread may go on after a task was cancelled."""


class SingleConsumer(Consumer[T]):
    """A consumer in single mode. `Consumer(servers, mode="single")` makes one. It has a thread, which ends with it."""

    def __init__(
        self,
        bootstrap: str,
        group: str | None = None,
        *,
        mode: Literal["single"] = "single",
        codec: CodecName | Decoding[T] = "bytes",
        timeout: float = 10.0,
        client_id: str = "drmq",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._new_reader: Callable[[], Reader] = lambda: Reader(
            bootstrap, group, codec=codec, timeout_s=timeout, client_id=client_id, properties=properties
        )
        self._opened: Reader | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Start the thread of this consumer. `async with` does it."""
        if self._is_closed:
            raise Closed("The consumer is closed")
        if self._opened is None:
            self._opened = self._new_reader()
            self._thread = ThreadPoolExecutor(1, "drmq-reader")

    @property
    def _reader(self) -> Reader:
        if self._opened is None or self._is_closed:
            raise Closed("The consumer is closed, or not open yet: use `async with`")
        return self._opened

    async def _run(self, function: Callable[..., R], *arguments: Any) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def subscribe(
        self,
        topic: str,
        start: Start | None = None,
        *,
        offset: Offsets | None = None,
        time: Time | None = None,
        partitions: Iterable[int] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Read a topic too: from its start or end, an offset (of each partition, or by partition), or a time.

        Without a position, it is the offset that was committed for the group, or else the start. The topic need not
        exist yet, and partitions that are added later are read from their start.
        """
        await self._run(self._reader.subscribe, topic, start, offset, time, partitions, timeout)

    async def seek(
        self,
        topic: str,
        start: Start | None = None,
        *,
        offset: Offsets | None = None,
        time: Time | None = None,
        partition: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Go on reading at another position: in one partition, or in all that are read."""
        await self._run(self._reader.seek, topic, start, offset, time, partition, timeout)

    async def poll(self, max: int = 500, timeout: float = 1.0) -> list[Message[T]]:
        """Up to `max` messages as soon as there are any; none if there are none for `timeout` seconds."""
        deadline_s = clock.monotonic() + timeout
        while True:
            left_s = deadline_s - clock.monotonic()
            found: list[Message[T]] = []
            found += await self._run(self._reader.poll, max, min(_STEP_S, left_s) if left_s > 0 else 0.0, ReadMessage)
            if found or left_s <= _STEP_S:
                return found

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        """Messages one after the other, for ever."""
        while True:
            for message in await self.poll():
                yield message

    async def commit(self, topic: str, offset: int, partition: int = 0, *, timeout: float | None = None) -> None:
        """Keep the *next* offset to read under the name of the group."""
        await self._run(self._reader.commit, topic, offset, partition, timeout)

    async def committed(self, topic: str, partition: int = 0, *, timeout: float | None = None) -> int | None:
        """The offset that was committed last for the group; None if there is none."""
        return await self._run(self._reader.committed, topic, partition, timeout)

    async def close(self, timeout: float | None = None) -> None:
        if self._opened is None or self._is_closed:
            return
        self._is_closed = True
        assert self._thread is not None
        try:
            await self._run(self._opened.close)
        finally:
            self._thread.shutdown()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
