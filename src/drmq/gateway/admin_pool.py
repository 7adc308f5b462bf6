"""Runs the blocking administration client on a few threads, so that the event loop never waits for a node.

Each thread has a client of its own, because a client belongs to one thread. Calls that find all threads busy wait, up
to a limit.

A client finds the other nodes by those that it was given. Threads, and with them clients, begin when they are needed,
perhaps long after the nodes that the gateway was given are gone. So the pool knows all nodes that the cluster has
named, and a client begins with all of them.

A change is known first to the controller that carried it out. After a change, all clients therefore ask that node
first: who creates a topic and asks for it through the same gateway finds it.
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
        self._changes: tuple[int, Address | None] = (0, None)
        """The number of changes, and the node that carried out the last one."""
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
                self._executor, lambda: context.run(lambda: self._call(action))
            )
        finally:
            self._waiting -= 1

    @property
    def waiting(self) -> int:
        """Calls that run or wait."""
        return self._waiting

    def _call(self, action: Callable[[Admin], T]) -> T:
        admin = self._admin()
        count, changed_at = self._changes
        if changed_at is not None and self._local.changes != count:
            self._local.changes = count
            admin.ask_first(changed_at)
        try:
            return action(admin)
        finally:
            changed_at = admin.take_changed_at()
            if changed_at is not None:
                self._changes = self._changes[0] + 1, changed_at

    def _admin(self) -> Admin:
        admin: Admin | None = getattr(self._local, "admin", None)
        bootstrap = self.bootstrap
        if admin is None or self._local.bootstrap != bootstrap:
            if admin is not None:
                admin.close()
            admin = Admin(bootstrap, client_id="drmq-gateway", timeout_s=self._timeout_s)
            self._local.admin, self._local.bootstrap, self._local.changes = admin, bootstrap, 0
            self._admins[threading.get_ident()] = admin
        return admin

    async def close(self) -> None:
        """Wait for running calls and close all clients."""
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        for admin in self._admins.values():
            admin.close()
