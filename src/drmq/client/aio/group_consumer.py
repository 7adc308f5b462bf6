"""A consumer that shares the work of a group, for asyncio."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Literal, Self, TypeVar

from drmq.client.aio.consumer import Consumer
from drmq.client.aio.leased_message import LeasedMessage
from drmq.client.codecs import CodecName, Decoding, decoder_of
from drmq.client.errors import ClientError, Closed, LeaseLost
from drmq.client.leases import LeaseSession, SessionOptions, Start

T = TypeVar("T")

log = logging.getLogger("drmq.client")


class GroupConsumer(Consumer[T]):
    """A consumer in group mode. `Consumer(servers, group)` makes one. It belongs to the event loop that enters it."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        mode: Literal["group"] = "group",
        codec: CodecName | Decoding[T] = "bytes",
        start: Start | None = None,
        prefetch: int = 2_000,
        renew_for: float = 1_800.0,
        timeout: float = 10.0,
        client_id: str = "drmq",
    ) -> None:
        self._options = SessionOptions(bootstrap, group, client_id, prefetch, renew_for, start)
        self._decode = decoder_of(codec)
        self._timeout_s = timeout
        self._topics: frozenset[str] = frozenset()
        self._opened: LeaseSession | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Start the tasks of this consumer. `async with` does it."""
        if self._is_closed:
            raise Closed("The consumer is closed")
        if self._opened is None:
            self._opened = LeaseSession(self._options)
            self._opened.buffer.decode = self._decode
            self._opened.buffer.timeout_s = self._timeout_s
            self._opened.start()

    @property
    def session(self) -> LeaseSession:
        """The part that both twins share."""
        if self._opened is None or self._is_closed:
            raise Closed("The consumer is closed, or not open yet: use `async with`")
        return self._opened

    @property
    def group(self) -> str:
        return self._options.group

    @property
    def member_id(self) -> str:
        """The id of this consumer in its group. No two have the same."""
        return self.session.member_id

    async def subscribe(self, *topics: str, timeout: float | None = None) -> None:
        """Work on these topics too, and on their partitions that are added later. A topic need not exist yet.

        Returns when the group has a position in them: whatever is sent from now on will be delivered.
        """
        if not topics:
            raise ValueError("no topic is named")
        self._topics |= frozenset(topics)
        await self.session.subscribe(self._topics, self._seconds(timeout))

    async def unsubscribe(self, *topics: str) -> None:
        """Take no more messages of these topics. What is held of them can still be settled."""
        self._topics -= frozenset(topics)
        self.session.follow(self._topics)

    async def poll(self, max: int = 500, timeout: float = 1.0) -> list[LeasedMessage[T]]:
        """Up to `max` messages as soon as there are any; none if there are none for `timeout` seconds."""
        return await self.session.take_waiting(max, timeout, LeasedMessage)

    async def __aiter__(self) -> AsyncIterator[LeasedMessage[T]]:
        """Messages one by one, for ever."""
        while True:
            # One at a time: what waits here could be worked on by another consumer.
            for message in await self.poll(1, self._timeout_s):
                yield message

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was settled with `wait=False` is confirmed. Raises `LeaseLost` if some was not."""
        session = self.session
        await session.flush(self._seconds(timeout))
        lost = session.take_lost()
        if lost:
            raise LeaseLost(lost)

    async def close(self, timeout: float | None = None) -> None:
        """Give back what is held, flush, leave the group, and end the tasks of this consumer.

        Raises what `flush` would raise, also then everything is closed.
        """
        if self._is_closed or self._opened is None:
            return
        self._is_closed = True
        await self._opened.close(self._seconds(timeout))
        lost = self._opened.take_lost()
        if lost:
            raise LeaseLost(lost)

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout_s if timeout is None else timeout

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ClientError as failure:
            if kind is None:
                raise
            # The exception of the block is the one to report.
            log.warning("closing the consumer of group %s: %s", self.group, failure)
