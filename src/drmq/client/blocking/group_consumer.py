"""A consumer that shares the work of a group: each message is leased to one consumer at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Literal, Self, TypeVar

from drmq.client.blocking.consumer import Consumer
from drmq.client.blocking.leased_message import LeasedMessage
from drmq.client.blocking.loop_thread import LoopThread
from drmq.client.blocking.termination import Termination
from drmq.client.codecs import CodecName, Decoding, decoder_of
from drmq.client.errors import ClientError, Closed, LeaseLost
from drmq.client.leases import LeaseSession, SessionOptions, Start

T = TypeVar("T")

log = logging.getLogger("drmq.client")


class GroupConsumer(Consumer[T]):
    """A consumer in group mode. `Consumer(servers, group)` makes one. Its methods may be called from any thread."""

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
        decode = decoder_of(codec)
        options = SessionOptions(bootstrap, group, client_id, prefetch, renew_for, start)
        self._timeout_s = timeout
        self._topics: frozenset[str] = frozenset()
        self._is_closed = False
        self._termination = Termination()
        self._thread = LoopThread("drmq-consumer")
        try:
            self._session = self._thread.call(_start(options))
        except BaseException:
            self._thread.close()
            raise
        self._session.buffer.decode = decode
        self._session.buffer.timeout_s = timeout

    @property
    def group(self) -> str:
        return self._session.group

    @property
    def member_id(self) -> str:
        """The id of this consumer in its group. No two have the same."""
        return self._session.member_id

    def subscribe(self, *topics: str, timeout: float | None = None) -> None:
        """Work on these topics too, and on their partitions that are added later. A topic need not exist yet.

        Returns when the group has a position in them: whatever is sent from now on will be delivered.
        """
        self._check_open()
        if not topics:
            raise ValueError("no topic is named")
        self._topics |= frozenset(topics)
        self._thread.call(self._session.subscribe(self._topics, self._seconds(timeout)))

    def unsubscribe(self, *topics: str) -> None:
        """Take no more messages of these topics. What is held of them can still be settled."""
        self._check_open()
        self._topics -= frozenset(topics)
        self._thread.call(_follow(self._session, self._topics))

    def poll(self, max: int = 500, timeout: float = 1.0) -> list[LeasedMessage[T]]:
        """Up to `max` messages as soon as there are any; none if there are none for `timeout` seconds."""
        return self._session.buffer.take_blocking(max, timeout, LeasedMessage)

    def __iter__(self) -> Iterator[LeasedMessage[T]]:
        """Messages one by one, for ever."""
        while True:
            # One at a time: what waits here could be worked on by another consumer.
            yield from self._session.buffer.take_blocking(1, self._timeout_s, LeasedMessage)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was settled with `wait=False` is confirmed. Raises `LeaseLost` if some was not."""
        self._check_open()
        self._thread.call(self._session.flush(self._seconds(timeout)))
        lost = self._session.take_lost()
        if lost:
            raise LeaseLost(lost)

    def close(self, timeout: float | None = None) -> None:
        """Give back what is held, flush, leave the group, and end the thread of this consumer.

        Raises what `flush` would raise, also then everything is closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.call(self._session.close(self._seconds(timeout)))
        finally:
            self._thread.close()
        lost = self._session.take_lost()
        if lost:
            raise LeaseLost(lost)

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout_s if timeout is None else timeout

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("The consumer is closed")

    def __enter__(self) -> Self:
        self._check_open()
        self._termination.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ClientError as failure:
            if kind is None:
                raise
            # The exception of the block is the one to report.
            log.warning("closing the consumer of group %s: %s", self.group, failure)
        finally:
            self._termination.end()


async def _start(options: SessionOptions) -> LeaseSession:
    session = LeaseSession(options)
    session.start()
    return session


async def _follow(session: LeaseSession, topics: frozenset[str]) -> None:
    session.follow(topics)
