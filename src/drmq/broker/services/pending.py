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

    # Defaults of the class: most objects need few of them, and there is one for each request.
    is_done = False
    """Whether the result is there, or not needed any more."""
    _result: R | None = None
    _error: BaseException | None = None
    _callback: Callable[[R | None, BaseException | None], None] | None = None

    waits = True
    """Whether it may take long, so that it must be cancelled when nothing waits for its result any more."""

    def then(self, callback: Callable[[R | None, BaseException | None], None]) -> None:
        """Call `callback` once with the result or the exception; now, if it is there. Not called if it is cancelled."""
        if self.is_done:
            callback(self._result, self._error)
        else:
            self._callback = callback

    def cancel(self) -> None:
        """The result is not needed any more."""
        self.is_done = True
        self._callback = None

    def _resolve(self, result: R) -> None:
        self._result = result
        self._end()

    def _reject(self, error: BaseException) -> None:
        self._error = error
        self._end()

    def _end(self) -> None:
        self.is_done = True
        # The callback may refer to this object. Cycles would leave the records of an answer to the collector.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self._result, self._error)

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
