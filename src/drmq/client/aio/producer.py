"""A producer for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from drmq.client.codecs import CodecName, Encoding
from drmq.client.errors import ClientError, Closed
from drmq.client.messages import SendResult
from drmq.client.sender import HeadersToSend, ProducerOptions, Sender, repeatable

T = TypeVar("T")

_FULL_WAIT_S = 0.005


class Producer(Generic[T]):
    """Sends messages. A message counts as sent when it is on the disks of a majority of its replicas.

    The same as `drmq.Producer`, for one event loop. Use it with `async with`.
    """

    @overload
    def __init__(
        self: Producer[bytes], bootstrap: str, *, codec: Literal["bytes"] = ..., **options: Unpack[ProducerOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[str], bootstrap: str, *, codec: Literal["text"], **options: Unpack[ProducerOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Producer[Any], bootstrap: str, *, codec: Literal["json"], **options: Unpack[ProducerOptions]
    ) -> None: ...
    @overload
    def __init__(self, bootstrap: str, *, codec: Encoding[T], **options: Unpack[ProducerOptions]) -> None: ...

    def __init__(
        self,
        bootstrap: str,
        *,
        codec: CodecName | Encoding[Any] = "bytes",
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._new_sender: Callable[[], Sender] = lambda: Sender(bootstrap, codec, options)
        self._opened: Sender | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Start the thread of this producer. `async with` does it."""
        if self._is_closed:
            raise Closed("The producer is closed")
        if self._opened is None:
            self._opened = self._new_sender()

    @property
    def sender(self) -> Sender:
        """The part that both twins share."""
        if self._opened is None or self._is_closed:
            raise Closed("The producer is closed, or not open yet: use `async with`")
        return self._opened

    async def send(
        self,
        topic: str,
        value: T | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersToSend | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, and wait until it is stored. Raises `drmq.Error`.

        After `DeadlineExceeded`, and if the task is cancelled, it is not known whether it was stored.
        """
        sending = await self.submit(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        timeout_s = self.sender.timeout_s + 5.0 if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout_s):
                return await sending
        except TimeoutError:
            raise self.sender.too_late(f"sending to topic `{topic}`", timeout_s) from None

    async def submit(
        self,
        topic: str,
        value: T | None,
        *,
        key: bytes | str | None = None,
        headers: HeadersToSend | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send a message without waiting: its future has the result. Waits only while the producer has no room."""
        sender, headers = self.sender, repeatable(headers)
        deadline_s = time.monotonic() + sender.timeout_s
        while True:
            sending = sender.offer(topic, value, key, headers, partition, timestamp)
            if sending is not None:
                return asyncio.wrap_future(sending)
            if time.monotonic() > deadline_s:
                raise sender.too_late("waiting for room in the queue of the producer", sender.timeout_s)
            await asyncio.sleep(_FULL_WAIT_S)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every message so far is stored or has failed; the futures say which. Raises `DeadlineExceeded`."""
        sender = self.sender
        with ThreadPoolExecutor(1, "drmq-flush") as thread:
            timeout_s = sender.timeout_s if timeout is None else timeout
            await asyncio.get_running_loop().run_in_executor(thread, sender.flush, timeout_s)
        # The futures of asyncio learn of it by callbacks, which run next.
        await asyncio.sleep(0)

    async def close(self, timeout: float | None = None) -> None:
        """Flush, and end everything that this producer has started. Raises `DeadlineExceeded`."""
        if self._opened is None or self._is_closed:
            return
        self._is_closed = True
        with ThreadPoolExecutor(1, "drmq-close") as thread:
            timeout_s = self._opened.timeout_s if timeout is None else timeout
            await asyncio.get_running_loop().run_in_executor(thread, self._opened.close, timeout_s)
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if kind is None:
                raise
