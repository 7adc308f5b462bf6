"""Messages between the event loop and the application: taken and settled from any thread.

Whatever arrives waits here until the application takes it. The application settles messages by changing their state,
and the event loop is woken to send it. It is woken once for any number of changes, because that costs more
than a change.

The lock guards the buffer and the states of all messages of the session.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, TypeVar

from drmq.client.errors import ClientError, Closed, LeaseLost, LostRun
from drmq.client.leases.batch import DONE, HELD, TO_WANTED, WANTED, LeasedBatch, Span, Waiter
from drmq.client.leases.prefetch import Prefetch

M = TypeVar("M")

CHANGES_MAX = 250
"""Messages that are settled before the broker is told at once."""
_CHANGES_MAX_WAITING = 32
"""The same, if the application waits for messages. Each request costs the group a sync."""


class MessageBuffer:
    """The messages of one session that are leased and not taken yet, and how to settle those that are."""

    def __init__(self, prefetch: Prefetch, wake: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.prefetch = prefetch
        self._wake_loop = wake
        """Calls `take_changes` on the event loop soon. May be called from any thread."""
        self._arrived = threading.Condition(self.lock)
        self._spans: deque[Span] = deque()
        self.count = 0
        self.waited_for = 0
        """Messages that callers wait for."""
        self._is_woken = False
        self._is_urgent = False
        self._changed_count = 0
        """Messages that were settled since the event loop was told that it is urgent, without a caller that waits."""
        self.is_closed = False
        self.failure: Callable[[], ClientError | None] = lambda: None
        """Why no message can come."""
        self.decode: Callable[[bytes], Any] | None = None
        """Makes the value of a message from its bytes."""
        self.timeout_s = 10.0
        """The default of calls of messages."""

    # ---- taking ---------------------------------------------------------------------------------

    def take(self, count_max: int, make: Callable[[LeasedBatch, int, int], M]) -> list[M]:
        """Up to so many messages, made from batch, row and attempt."""
        with self.lock:
            return self._take(count_max, make)

    def take_blocking(self, count_max: int, timeout_s: float, make: Callable[[LeasedBatch, int, int], M]) -> list[M]:
        """The same, and waits for the first one. Must not be called on the event loop."""
        with self.lock:
            if not self._spans and timeout_s > 0 and not self.is_closed:
                self.waited_for += count_max
                self._wake()
                try:
                    self._arrived.wait_for(lambda: self._spans or self.is_closed, timeout_s)
                finally:
                    self.waited_for -= count_max
            found = self._take(count_max, make)
        if not found:
            self.check()
        return found

    def expect(self, count: int) -> None:
        """So many more messages are waited for, or fewer."""
        with self.lock:
            self.waited_for += count
            if count > 0:
                self._wake()

    def _take(self, count_max: int, make: Callable[[LeasedBatch, int, int], M]) -> list[M]:
        found: list[M] = []
        while self._spans and len(found) < count_max:
            batch, start, end, attempt = self._spans[0]
            stop = min(end, start + count_max - len(found))
            batch.states[start:stop] = b"H" * (stop - start)
            found += [make(batch, row, attempt) for row in range(start, stop)]
            if stop == end:
                self._spans.popleft()
            else:
                self._spans[0] = Span(batch, stop, end, attempt)
        if found:
            self.count -= len(found)
            self.prefetch.on_taken(len(found), self.count, monotonic())
            if self.prefetch.room(self.count, self.waited_for):
                self._wake()
        return found

    def check(self) -> None:
        """Raise if no message can come."""
        failure = self.failure()
        if failure is not None:
            raise failure
        if self.is_closed:
            raise Closed("The consumer is closed")

    # ---- settling -------------------------------------------------------------------------------

    def settle(self, batch: LeasedBatch, row: int, letter: int) -> None:
        """Settle a message with a letter of `batch.WANTED`. The broker is told soon. Raises `LeaseLost`."""
        with self.lock:
            if batch.states[row] != HELD:
                self._refuse(batch, row, letter)
                return
            batch.states[row] = letter
            self._changed_count += 1
            if not self._is_woken:
                self._wake()

    def release(self, batch: LeasedBatch, row: int, letter: int, delay_ms: int) -> None:
        """Like `settle`, for a release that waits so long."""
        with self.lock:
            if batch.states[row] != HELD:
                self._refuse(batch, row, letter)
                return
            batch.delays[row] = delay_ms
            batch.states[row] = letter
            self._wake()

    def settle_waiting(
        self, batch: LeasedBatch, row: int, letter: int, waiter: Waiter, delay_ms: int | None = None
    ) -> None:
        """Settle a message that is held. `waiter` gets the answer of the broker. Raises `LeaseLost`."""
        with self.lock:
            if batch.states[row] == HELD:
                if delay_ms is not None:
                    batch.delays[row] = delay_ms
                batch.states[row] = letter
            elif self._refuse(batch, row, letter) in DONE:
                waiter.set_result(None)
                return
            batch.waiters[row] = waiter
            self._is_urgent = True
            self._wake()

    def renew(self, batch: LeasedBatch, row: int, waiter: Waiter) -> None:
        """Renew the leases of a batch now. `waiter` gets the answer for this row. Raises `LeaseLost`."""
        with self.lock:
            if batch.states[row] != HELD:
                self._refuse(batch, row, HELD)
                raise ClientError(f"{_place(batch, row)} is settled already, so its lease has ended")
            batch.renews = True
            batch.renew_waiters[row] = waiter
            self._is_urgent = True
            self._wake()

    def _refuse(self, batch: LeasedBatch, row: int, letter: int) -> int:
        """The state of a message that is not held, if it is settled in the same way. Otherwise raises."""
        state = batch.states[row]
        outcome = TO_WANTED[state]
        if outcome == letter:
            return state
        if outcome in WANTED:
            raise ClientError(f"{_place(batch, row)} is settled already, in another way")
        offset = batch.offsets[row]
        raise LeaseLost((LostRun(batch.topic, batch.partition, offset, offset, "its lease has run out"),))

    def _wake(self) -> None:
        """Let the event loop look at what has changed. Called with the lock."""
        if not self._is_woken:
            self._is_woken = True
            self._wake_loop()

    # ---- the event loop -------------------------------------------------------------------------

    def take_changes(self) -> bool:
        """From now on, a change wakes the event loop again. Returns whether the broker is to be told at once.

        It is if a caller waits for an answer, and if many messages were settled: the group may lease only so many at a
        time. An application that waits for messages settles nothing more to go with them, so then fewer are many.
        """
        with self.lock:
            self._is_woken = False
            many = CHANGES_MAX if self.count or not self.waited_for else _CHANGES_MAX_WAITING
            is_urgent = self._is_urgent or self._changed_count >= many
            if is_urgent:
                self._is_urgent = False
                self._changed_count = 0
        return is_urgent

    def put(self, spans: Iterable[Span]) -> None:
        """Add messages. Called with the lock."""
        for span in spans:
            self._spans.append(span)
            self.count += span.end_row - span.start_row
        self._arrived.notify_all()

    def drop(self, batch: LeasedBatch) -> None:
        """Remove the messages of a batch. Called with the lock."""
        kept = [span for span in self._spans if span.batch is not batch]
        self._spans = deque(kept)
        self.count = sum(span.end_row - span.start_row for span in kept)

    def close(self) -> None:
        """Remove all messages, and wake all that wait. Called with the lock."""
        self.is_closed = True
        self._spans.clear()
        self.count = 0
        self._arrived.notify_all()


def _place(batch: LeasedBatch, row: int) -> str:
    return f"{batch.topic}-{batch.partition} offset {batch.offsets[row]}"
