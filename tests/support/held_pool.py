"""A pool whose work is done when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class HeldPool(Executor):
    """Keeps what is handed in until `run`."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []

    def __len__(self) -> int:
        """How much waits."""
        return len(self._waiting)

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = function(*arguments, **named)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for the future
                future.set_exception(error)
            else:
                future.set_result(result)

        self._waiting.append(work)
        return future

    def run(self) -> None:
        """Do the waiting work, in order."""
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            work()
