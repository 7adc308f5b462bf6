"""A leased message for asyncio."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from drmq.client.blocking.leased_message import no_answer
from drmq.client.errors import ClientError
from drmq.client.leases.batch import ACCEPTED, GIVEN_BACK, HELD, REJECTED, RELEASED
from drmq.client.messages import LeasedData, delay_in_ms

T = TypeVar("T")


class LeasedMessage(LeasedData[T]):
    """A message that is leased to this consumer, which renews the lease until the message is settled.

    As an asynchronous context manager it is accepted at the end of the block; after an exception it is released, and
    given back if the task is cancelled. What the block has settled itself stays as it is.

    By default the methods wait until a broker has answered, and raise `LeaseLost` if the lease had ended. With
    `wait=False` they return at once, many outcomes go with one request, and `Consumer.flush` reports what was lost.
    """

    __slots__ = ()

    async def ack(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work is done."""
        if wait:
            await self._settle(ACCEPTED, timeout)
        else:
            self._batch.buffer.settle(self._batch, self._row, ACCEPTED)

    async def nack(self, delay: float | None = None, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work failed: deliver it again, after `delay` seconds or the backoff of the group.

        After the last attempt that the group allows, it goes to the dead letters instead.
        """
        if wait:
            await self._settle(RELEASED, timeout, None if delay is None else delay_in_ms(delay))
        else:
            self.settle_later(RELEASED, delay)

    async def give_back(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work was not tried: deliver it to another consumer at once. This delivery does not count."""
        if wait:
            await self._settle(GIVEN_BACK, timeout)
        else:
            self.settle_later(GIVEN_BACK)

    async def reject(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work can never succeed: to the dead letters."""
        if wait:
            await self._settle(REJECTED, timeout)
        else:
            self.settle_later(REJECTED)

    async def extend(self, *, timeout: float | None = None) -> None:
        """Renew the lease now, and learn whether it still holds. Raises `LeaseLost`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batch.buffer.renew(self._batch, self._row, waiter)
        await self._wait(waiter, timeout, "renewing the lease")

    async def _settle(self, letter: int, timeout: float | None, delay_ms: int | None = None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batch.buffer.settle_waiting(self._batch, self._row, letter, waiter, delay_ms)
        await self._wait(waiter, timeout, "settling")

    async def _wait(self, waiter: asyncio.Future[None], timeout: float | None, doing: str) -> None:
        timeout_s = self._batch.buffer.timeout_s if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise no_answer(self, timeout_s, doing) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            if self._batch.states[self._row] == HELD or self.is_lost:
                await self.ack()
            return
        # The exception of the block is the one to report.
        with suppress(ClientError):
            if self._batch.states[self._row] != HELD:
                return
            if issubclass(kind, Exception):
                await self.nack(wait=False)
            else:
                await self.give_back(wait=False)
