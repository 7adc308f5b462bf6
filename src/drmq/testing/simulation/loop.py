"""An event loop without sockets, threads or a clock of its own: the world's clock drives it.

Each simulated process has one. A *turn* runs all ready callbacks, as in any event loop, and is one event of the world;
between two turns anything may happen elsewhere. The loop of a paused process has no turns, and that of a dead process
never has any again, whatever is still scheduled on it.

Usually no time passes within a turn. On a machine that is short of processor time each unit of work costs some
(`charge`): the loop's clock advances during the turn, and the next turn begins when the work is done.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from drmq.testing.simulation.world import SECOND, World

if TYPE_CHECKING:
    from drmq.testing.simulation.streams import SimulatedServer

T = TypeVar("T")

_TURN_US_MAX = 40
"""The maximum delay until a process handles its ready callbacks."""


def _close_what_never_ran(value: object) -> None:
    """Close a coroutine that never ran, and its arguments that are such coroutines."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        arguments = [] if value.cr_frame is None else list(value.cr_frame.f_locals.values())
        value.close()
        for argument in arguments:
            _close_what_never_ran(argument)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one process."""

    def __init__(self, world: World, name: str, after_turn: Callable[[], None]) -> None:
        self._world = world
        self._random = world.random
        self._name = name
        self._turn_event = f"turn {name}"
        self._timer_event = f"timer {name}"
        self._after_turn = after_turn
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._armed_us: int | None = None
        self._turn_is_due = False
        self._busy_until_us = 0
        self.busy_us = 0
        """What the present turn has cost so far."""
        self.unit_us = 0
        """What a unit of work costs."""
        self.is_paused = False
        self.is_dead = False
        self._left: list[asyncio.Task[Any]] = []
        """Tasks that had not ended when the process did."""
        self.halts: Callable[[], bool] = lambda: False
        """Checked after every callback: whether the machine has just lost power."""
        self.executor: Executor
        self.listen: Callable[[Callable[[], asyncio.BaseProtocol], str, int], SimulatedServer]

    # ---- time -----------------------------------------------------------------------------------

    def time(self) -> float:
        return (self._world.now_us + self.busy_us) / SECOND

    def charge(self) -> None:
        """A unit of work is done in this turn: a message is handled or sent, or something is done for a replica."""
        self.busy_us += self.unit_us

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._turn_is_due:
            self._wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        due_us = max(int(when * SECOND + 0.5), self._world.now_us)
        self._timer_count += 1
        heappush(self._timers, (due_us, self._timer_count, handle))
        if self._armed_us is None or due_us < self._armed_us:
            self._arm(due_us)
        return handle

    def _arm(self, due_us: int) -> None:
        self._armed_us = due_us
        self._world.later(due_us - self._world.now_us, self._timer_event, lambda: self._on_due(due_us))

    def _on_due(self, due_us: int) -> None:
        if self._armed_us != due_us or self.is_dead or self.is_paused:
            return
        self._armed_us = None
        self.turn()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap and is skipped when it is due."""

    def _wake(self) -> None:
        if self.is_dead or self.is_paused:
            return
        self._turn_is_due = True
        self._world.later(self._random.randrange(_TURN_US_MAX), self._turn_event, self.turn)

    def turn(self) -> None:
        """Run the ready callbacks."""
        if self._has_ended() or self.is_paused:
            return
        self._turn_is_due = True
        ready, timers, now_us = self._ready, self._timers, self._world.now_us
        if now_us < self._busy_until_us:
            self._world.later(self._busy_until_us - now_us, self._turn_event, self.turn)
            return
        while timers and timers[0][0] <= now_us:
            handle: asyncio.Handle = heappop(timers)[2]
            if not handle._cancelled:
                ready.append(handle)
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if self._has_ended():
                        break
        finally:
            events._set_running_loop(None)
            self._busy_until_us, self.busy_us = now_us + self.busy_us, 0
        self._turn_is_due = False
        self._after_turn()
        if self._has_ended():
            return
        if ready:
            self._wake()
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if timers and (self._armed_us is None or timers[0][0] < self._armed_us):
            self._arm(timers[0][0])

    def _has_ended(self) -> bool:
        return self.is_dead or self.halts()

    # ---- lifecycle -----------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the process (as SIGSTOP, a long garbage collection, or a migrating virtual machine)."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._turn_is_due = False
        self._armed_us = None
        self._wake()

    def die(self) -> None:
        """The process has ended. No callback runs any more."""
        self.is_dead = True
        # Python would close them when it collects them, at any time, and so run code of a dead process. Some have no
        # other reference than the callback that is cleared below.
        self._left = list(asyncio.all_tasks(self))
        self._ready.clear()
        self._timers.clear()
        self._world.dead_loops.append(self)
        # Python warns about a coroutine that never ran, and at any time: when nothing refers to it any more.
        for task in self._left:
            _close_what_never_ran(task.get_coro())

    def bury(self) -> None:
        """Close what the process left, after the run. What that code does has no effect any more."""
        left, self._left = self._left, []
        events._set_running_loop(self)
        try:
            for task in left:
                coroutine = task.get_coro()
                if inspect.iscoroutine(coroutine):
                    with suppress(RuntimeError):
                        coroutine.close()
        finally:
            events._set_running_loop(None)

    # ---- the interface of an asyncio loop ------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        return asyncio.wrap_future((executor or self.executor).submit(func, *args), loop=self)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> SimulatedServer:
        return self.listen(protocol_factory, host, port)

    def remove_reader(self, fd: object) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback or a task failed without being awaited, which should never happen."""
        error = context.get("exception")
        if self.is_dead or self.halts() or error is None or not isinstance(error, Exception):
            return
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f" ({trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})"
        self._world.break_rule("no-bug", f"{self._name}: {context.get('message')}: {error!r}{where}")
