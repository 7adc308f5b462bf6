"""A result that arrives later, by a callback: less than a future, for requests that are too many for futures.

A future calls back in the next turn of the event loop, by way of a handle and a context. This one calls its one
callback at once. It can also be awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Pending(Generic[R]):
    """A result, or the exception instead of it. Used on the event loop."""

    def __init__(self) -> None:
        self.is_done = False
        """Whether the result is there, or not needed any more."""
        self._result: R | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[R | None, BaseException | None], None] | None = None

    @property
    def waits(self) -> bool:
        """Whether it may take long, so that it must be cancelled when nothing waits for its result any more."""
        return True

    def then(self, callback: Callable[[R | None, BaseException | None], None]) -> None:
        """Call `callback` once with the result or the exception; now, if it is there. Not called if it is cancelled."""
        assert self._callback is None, "a result is taken once"
        self._callback = callback
        if self.is_done:
            callback(self._result, self._error)

    def cancel(self) -> None:
        """The result is not needed any more."""
        self.is_done = True

    def _resolve(self, result: R) -> None:
        self.is_done = True
        self._result = result
        if self._callback is not None:
            self._callback(result, None)

    def _reject(self, error: BaseException) -> None:
        self.is_done = True
        self._error = error
        if self._callback is not None:
            self._callback(None, error)

    def __await__(self) -> Generator[Any, None, R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def take(result: R | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        self.then(take)
        return future.__await__()
