"""A leased message for code that blocks."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from drmq.client.errors import ClientError, DeadlineExceeded
from drmq.client.leases.batch import ACCEPTED, GIVEN_BACK, HELD, REJECTED, RELEASED
from drmq.client.messages import LeasedData, delay_in_ms
from drmq.model import ErrorCode

T = TypeVar("T")


class LeasedMessage(LeasedData[T]):
    """A message that is leased to this consumer, which renews the lease until the message is settled.

    As a context manager it is accepted at the end of the block; after an exception it is released, and given back if
    the program is about to end (Ctrl-C, SystemExit). What the block has settled itself stays as it is.

    By default the methods wait until a broker has answered, and raise `LeaseLost` if the lease had ended. With
    `wait=False` they return at once, many outcomes go with one request, and `Consumer.flush` reports what was lost.
    """

    __slots__ = ()

    def ack(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work is done."""
        if wait:
            self._settle(ACCEPTED, timeout)
        else:
            self._batch.buffer.settle(self._batch, self._row, ACCEPTED)

    def nack(self, delay: float | None = None, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work failed: deliver it again, after `delay` seconds or the backoff of the group.

        After the last attempt that the group allows, it goes to the dead letters instead.
        """
        if wait:
            self._settle(RELEASED, timeout, None if delay is None else delay_in_ms(delay))
        else:
            self.settle_later(RELEASED, delay)

    def give_back(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work was not tried: deliver it to another consumer at once. This delivery does not count."""
        if wait:
            self._settle(GIVEN_BACK, timeout)
        else:
            self.settle_later(GIVEN_BACK)

    def reject(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """The work can never succeed: to the dead letters."""
        if wait:
            self._settle(REJECTED, timeout)
        else:
            self.settle_later(REJECTED)

    def extend(self, *, timeout: float | None = None) -> None:
        """Renew the lease now, and learn whether it still holds. Raises `LeaseLost`."""
        waiter: Future[None] = Future()
        self._batch.buffer.renew(self._batch, self._row, waiter)
        self._wait(waiter, timeout, "renewing the lease")

    def _settle(self, letter: int, timeout: float | None, delay_ms: int | None = None) -> None:
        waiter: Future[None] = Future()
        self._batch.buffer.settle_waiting(self._batch, self._row, letter, waiter, delay_ms)
        self._wait(waiter, timeout, "settling")

    def _wait(self, waiter: Future[None], timeout: float | None, doing: str) -> None:
        timeout_s = self._batch.buffer.timeout_s if timeout is None else timeout
        try:
            waiter.result(timeout_s)
        except TimeoutError:
            raise no_answer(self, timeout_s, doing) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            if self._batch.states[self._row] == HELD or self.is_lost:
                self.ack()
            return
        # The exception of the block is the one to report.
        with suppress(ClientError):
            if self._batch.states[self._row] != HELD:
                return
            if issubclass(kind, Exception):
                self.nack(wait=False)
            else:
                self.give_back(wait=False)


def no_answer(message: LeasedData[T], timeout_s: float, doing: str) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"No response within {timeout_s:g} s while {doing} {message.topic}-{message.partition} offset {message.offset}",
        code=ErrorCode.REQUEST_TIMED_OUT,
        retriable=True,
        advice="The consumer goes on trying until it is closed. The message may be delivered again.",
    )
