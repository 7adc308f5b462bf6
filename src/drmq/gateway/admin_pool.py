"""Runs the blocking administration client on a few threads, so that the event loop never waits for a node.

Each thread has a client of its own, because a client belongs to one thread. Calls that find all threads busy wait, up
to a limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from drmq.client import Admin
from drmq.gateway.problems import ProblemError

T = TypeVar("T")

THREADS: Final = 8
WAITING_MAX: Final = 256


class AdminPool:
    """Administration clients of one cluster. Used on the event loop."""

    def __init__(self, bootstrap: str, timeout_s: float = 15.0) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._admins: list[Admin] = []
        self._executor = ThreadPoolExecutor(THREADS, "admin")
        self._waiting = 0

    async def run(self, action: Callable[[Admin], T]) -> T:
        """Call `action` with a client. Raises what it raises, and `ProblemError` if too many calls wait."""
        if self._waiting >= WAITING_MAX:
            raise ProblemError(503, "too many requests wait for the cluster", advice="Try again in a moment.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: action(self._admin()))
        finally:
            self._waiting -= 1

    def _admin(self) -> Admin:
        admin: Admin | None = getattr(self._local, "admin", None)
        if admin is None:
            admin = self._local.admin = Admin(self._bootstrap, client_id="drmq-gateway", timeout_s=self._timeout_s)
            self._admins.append(admin)
        return admin

    async def close(self) -> None:
        """Wait for running calls and close all clients."""
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        for admin in self._admins:
            admin.close()
