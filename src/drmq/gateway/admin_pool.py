"""Runs the blocking administration client on a few threads, so that the event loop never waits for a node.

Each thread has a client of its own, because a client belongs to one thread. Calls that find all threads busy wait, up
to a limit.

A client finds the other nodes by those that it was given. Threads, and with them clients, begin when they are needed,
perhaps long after the nodes that the gateway was given are gone. So the pool knows all nodes that the cluster has
named, and a client begins with all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

from drmq.client import Address, Admin
from drmq.gateway.problems import ProblemError

T = TypeVar("T")

THREADS: Final = 8
WAITING_MAX: Final = 256


class AdminPool:
    """Administration clients of one cluster. Used on the event loop."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self._given = bootstrap
        self.bootstrap = bootstrap
        """The nodes that were given and those that the cluster has named, for any client that begins now."""
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._admins: dict[int, Admin] = {}
        """By thread."""
        self._executor = ThreadPoolExecutor(THREADS, "admin")
        self._waiting = 0

    def learn(self, nodes: Iterable[Address]) -> None:
        """The cluster has these nodes now, whether they serve or not."""
        self.bootstrap = ",".join(dict.fromkeys([*self._given.split(","), *sorted(map(str, nodes))]))

    async def run(self, action: Callable[[Admin], T]) -> T:
        """Call `action` with a client. Raises what it raises, and `ProblemError` if too many calls wait."""
        if self._waiting >= WAITING_MAX:
            raise ProblemError(503, "too many requests wait for the cluster", advice="Try again in a moment.")
        self._waiting += 1
        try:
            # The thread gets the id of the request, which is part of what it sends to nodes.
            context = copy_context()
            return await asyncio.get_running_loop().run_in_executor(
                self._executor, lambda: context.run(lambda: action(self._admin()))
            )
        finally:
            self._waiting -= 1

    @property
    def waiting(self) -> int:
        """Calls that run or wait."""
        return self._waiting

    def _admin(self) -> Admin:
        admin: Admin | None = getattr(self._local, "admin", None)
        bootstrap = self.bootstrap
        if admin is None or self._local.bootstrap != bootstrap:
            if admin is not None:
                admin.close()
            admin = Admin(bootstrap, client_id="drmq-gateway", timeout_s=self._timeout_s)
            self._local.admin, self._local.bootstrap = admin, bootstrap
            self._admins[threading.get_ident()] = admin
        return admin

    async def close(self) -> None:
        """Wait for running calls and close all clients."""
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        for admin in self._admins.values():
            admin.close()
