"""Workers: run a function over the messages of a queue, several at a time, until the process is asked to end.

    @drmq.worker("orders", group="billing", concurrency=8, timeout=60)
    def charge(message: drmq.LeasedMessage[bytes]) -> None:
        ...

    charge.run("localhost:9092")

The function is called with the message. If it returns, the message is accepted; if it raises or takes too long, the
message is released and comes again after a backoff; after the last attempt it goes to the dead letters. A plain
function runs in one of `concurrency` threads, a coroutine function as a task.

On SIGTERM and SIGINT, and after `stop`, a worker takes no more messages, and waits for those that it works on. What is
not done after the grace period is given back: tasks are cancelled; a thread cannot be, so its function goes on until
the process ends, and another worker gets its message meanwhile. A second signal ends the grace period.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from drmq.client.aio.group_consumer import GroupConsumer
from drmq.client.aio.leased_message import LeasedMessage as AsyncMessage
from drmq.client.blocking.leased_message import LeasedMessage
from drmq.client.blocking.loop_thread import new_event_loop
from drmq.client.codecs import CodecName, Decoding
from drmq.client.errors import ClientError, LostRun
from drmq.client.leases import LeaseSession, Start
from drmq.client.leases.batch import ACCEPTED, GIVEN_BACK, REJECTED, RELEASED, LeasedBatch
from drmq.client.messages import DELAY_S_MAX, LeasedData
from drmq.client.traces import continue_trace

log = logging.getLogger("drmq.worker")

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_BOOTSTRAP = "localhost:9092"
_POLL_S = 1.0
_CALL_TIMEOUT_S = 10.0
"""How long a worker waits for its cluster when it starts and when it ends."""

Handler = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How many seconds a message waits after a failed attempt: `initial`, then `factor` times longer each time."""

    initial: float
    factor: float = 2.0
    maximum: float = 3_600.0
    jitter: float = 0.2
    """The share of the wait that is random, so that messages that failed together do not return together."""

    def __post_init__(self) -> None:
        if self.initial < 0 or self.factor < 1 or not 0 <= self.maximum <= DELAY_S_MAX or not 0 <= self.jitter <= 1:
            raise ValueError(f"{self}: waits must not be negative, become shorter, or exceed {DELAY_S_MAX} s")

    def delay(self, attempt: int, chance: float) -> float:
        """The wait after so many attempts; `chance` is from 0 to 1."""
        wait = min(self.initial * self.factor ** min(attempt - 1, 100), self.maximum)
        return wait * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works. `worker` has the meaning of each."""

    topics: tuple[str, ...]
    group: str
    bootstrap: str | None = None
    concurrency: int = 1
    timeout: float | None = None
    retries: int | None = None
    backoff: Backoff | None = None
    reject_on: tuple[type[Exception], ...] = ()
    grace: float = 25.0
    codec: CodecName | Decoding[Any] = "bytes"
    start: Start | None = None
    prefetch: int | None = None

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError("no topic is named")
        if self.concurrency < 1:
            raise ValueError(f"concurrency is {self.concurrency}, and must be at least 1")


class Worker(Generic[T, R]):
    """A function with a queue. Calling it calls the function, so that it can be tested without a broker."""

    def __init__(self, function: Callable[[T], R], options: WorkerOptions) -> None:
        self.function = function
        self.options = options
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._running: _Run | None = None
        self._lock = threading.Lock()

    def __call__(self, message: T) -> R:
        return self.function(message)

    def run(
        self, bootstrap: str | None = None, *, concurrency: int | None = None, timeout: float = _CALL_TIMEOUT_S
    ) -> None:
        """Work until SIGTERM, SIGINT or `stop`. Raises `drmq.Error` if the cluster is not reached within `timeout`.

        The servers are those that are given here, in DRMQ_BOOTSTRAP, or in the decorator, or `localhost:9092`.
        """
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self.run_async(bootstrap, concurrency=concurrency, timeout=timeout, signals=True))

    async def run_async(
        self,
        bootstrap: str | None = None,
        *,
        concurrency: int | None = None,
        timeout: float = _CALL_TIMEOUT_S,  # noqa: ASYNC109  # the same as in `run`
        signals: bool = False,
    ) -> None:
        """The same in an event loop, which keeps its own signal handlers unless `signals` is set."""
        servers = bootstrap or os.environ.get("DRMQ_BOOTSTRAP") or self.options.bootstrap or DEFAULT_BOOTSTRAP
        run = _Run(self.function, self.options, concurrency or self.options.concurrency, self.__name__)
        with self._lock:
            if self._running is not None:
                raise RuntimeError(f"worker {self.__name__} runs already")
            self._running = run
        try:
            await run.work(servers, timeout, signals)
        finally:
            with self._lock:
                self._running = None

    def stop(self) -> None:
        """End `run` as the first SIGTERM does. May be called from any thread."""
        with self._lock:
            if self._running is not None:
                self._running.stop()


class _Run:
    """One run of a worker."""

    def __init__(self, function: Handler, options: WorkerOptions, concurrency: int, name: str) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # whether an object with `__call__` is a coroutine function
        )
        self._options = options
        self._concurrency = concurrency
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._stops = asyncio.Event()
        self._hurries = asyncio.Event()
        self._working: dict[asyncio.Task[None], LeasedData[Any]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._busy_count = 0
        """Functions that run, also those whose message is settled already because they took too long."""
        self._free = asyncio.Event()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stops.set)

    def _on_signal(self) -> None:
        if self._stops.is_set():
            self._hurries.set()
        self._stops.set()

    async def work(self, bootstrap: str, timeout_s: float, signals: bool) -> None:
        options = self._options
        prefetch = 2 * self._concurrency if options.prefetch is None else options.prefetch
        consumer: GroupConsumer[Any] = GroupConsumer(
            bootstrap,
            options.group,
            codec=options.codec,
            start=options.start,
            prefetch=prefetch,
            timeout=timeout_s,
            client_id=f"drmq-worker-{self._name}",
        )
        restore = self._handle_signals() if signals else None
        if not self._is_async:
            self._threads = ThreadPoolExecutor(self._concurrency, f"drmq-worker-{self._name}")
        try:
            async with consumer:
                consumer.session.on_lost = self._on_lost
                await self._subscribe(consumer)
                log.info("worker %s takes %s as %s", self._name, ", ".join(options.topics), options.group)
                try:
                    await self._take(consumer.session)
                finally:
                    await self._finish()
        finally:
            if self._threads is not None:
                # Threads that are still busy end with the process.
                self._threads.shutdown(wait=not self._busy_count, cancel_futures=True)
            if restore is not None:
                restore()
        log.info("worker %s has ended", self._name)

    async def _subscribe(self, consumer: GroupConsumer[Any]) -> None:
        subscribing = asyncio.ensure_future(consumer.subscribe(*self._options.topics))
        stopping = asyncio.ensure_future(self._stops.wait())
        try:
            await asyncio.wait((subscribing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if subscribing.done():
                await subscribing
        finally:
            for task in (subscribing, stopping):
                task.cancel()
            await asyncio.gather(subscribing, stopping, return_exceptions=True)

    def _handle_signals(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            self._loop.add_signal_handler(number, self._on_signal)

        def restore() -> None:
            for number, handler in before.items():
                self._loop.remove_signal_handler(number)
                signal.signal(number, handler)

        return restore

    def _on_lost(self, lost: LostRun) -> None:
        log.warning("worker %s: too late, so it will be delivered again: %s", self._name, lost)

    # ---- taking ---------------------------------------------------------------------------------

    async def _take(self, session: LeaseSession) -> None:
        kind: type[LeasedData[Any]] = AsyncMessage if self._is_async else LeasedMessage
        make = cast("Callable[[LeasedBatch, int, int], LeasedData[Any]]", kind)
        stopping = asyncio.ensure_future(self._stops.wait())
        try:
            while not self._stops.is_set():
                room = self._concurrency - self._busy_count
                if not room:
                    self._free.clear()
                    await _first(stopping, asyncio.ensure_future(self._free.wait()))
                    continue
                found = session.buffer.take(room, make)
                if not found:
                    taking = asyncio.ensure_future(session.take_waiting(room, _POLL_S, make))
                    await _first(stopping, taking)
                    # A task that was cancelled may have taken messages: they are held, and closing gives them back.
                    found = taking.result() if taking.done() and not taking.cancelled() else []
                for message in found:
                    self._begin(message)
        finally:
            stopping.cancel()

    def _begin(self, message: LeasedData[Any]) -> None:
        self._busy_count += 1
        task = self._loop.create_task(self._handle(message))
        self._working[task] = message
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._working[task]
        if not task.cancelled() and task.exception() is not None:
            log.error("worker %s has failed", self._name, exc_info=task.exception())

    def _end_one(self) -> None:
        self._busy_count -= 1
        self._free.set()

    async def _finish(self) -> None:
        """Wait for what runs, and give back what does not end in time."""
        hurrying = asyncio.ensure_future(self._hurries.wait())
        deadline_s = self._loop.time() + self._options.grace
        try:
            while (self._working or self._busy_count) and not hurrying.done():
                left_s = deadline_s - self._loop.time()
                if left_s <= 0:
                    break
                self._free.clear()
                freeing = asyncio.ensure_future(self._free.wait())
                await asyncio.wait(
                    (freeing, hurrying, *self._working), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
                )
                freeing.cancel()
        finally:
            hurrying.cancel()
            if self._working:
                log.warning("worker %s gives back %d messages that it works on", self._name, len(self._working))
            tasks = list(self._working)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- one message ----------------------------------------------------------------------------

    async def _handle(self, message: LeasedData[Any]) -> None:
        try:
            async with asyncio.timeout(self._options.timeout) as limit:
                await self._call(message)
        except asyncio.CancelledError:
            self._settle(message, GIVEN_BACK)
            raise
        except Exception as error:  # noqa: BLE001  # whatever the function raises means that the message has failed
            if limit.expired() and isinstance(error, TimeoutError):
                self._fail(message, error, f"took longer than {self._options.timeout:g} s", None)
            else:
                self._fail(message, error, "failed", error)
        else:
            self._settle(message, ACCEPTED)

    async def _call(self, message: LeasedData[Any]) -> None:
        if self._is_async:
            try:
                with continue_trace(message):
                    await cast("Awaitable[Any]", self._function(message))
            finally:
                self._end_one()
            return
        assert self._threads is not None
        running = self._threads.submit(self._in_thread, message)
        running.add_done_callback(self._on_thread_done)
        await asyncio.wrap_future(running)

    def _in_thread(self, message: LeasedData[Any]) -> None:
        with continue_trace(message):
            self._function(message)

    def _on_thread_done(self, _: Any) -> None:
        # After the grace period the loop may be gone before the function is.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end_one)

    def _fail(self, message: LeasedData[Any], error: Exception, what: str, shown: Exception | None) -> None:
        options = self._options
        last = options.retries is not None and message.attempt > options.retries
        if isinstance(error, options.reject_on) or last:
            what += " and is rejected"
            log.error("worker %s: %r %s at attempt %d", self._name, message, what, message.attempt, exc_info=shown)
            self._settle(message, REJECTED)
            return
        log.warning("worker %s: %r %s at attempt %d", self._name, message, what, message.attempt, exc_info=shown)
        delay = None if options.backoff is None else options.backoff.delay(message.attempt, random.random())
        self._settle(message, RELEASED, delay)

    def _settle(self, message: LeasedData[Any], letter: int, delay: float | None = None) -> None:
        """Settle a message, unless the function has."""
        if not message.is_held and not message.is_lost:
            return
        try:
            message.settle_later(letter, delay)
        except ClientError as error:
            log.warning("worker %s: %s", self._name, error)


async def _first(stopping: asyncio.Future[Any], other: asyncio.Future[Any]) -> None:
    """Wait for one of two, and cancel the second if it is not done."""
    try:
        await asyncio.wait((stopping, other), return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not other.done():
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)


def worker(
    *topics: str,
    group: str,
    bootstrap: str | None = None,
    concurrency: int = 1,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | Backoff | None = None,
    reject_on: Sequence[type[Exception]] = (),
    grace: float = 25.0,
    codec: CodecName | Decoding[Any] = "bytes",
    start: Start | None = None,
    prefetch: int | None = None,
) -> Callable[[Callable[[T], R]], Worker[T, R]]:
    """Make a worker of a function or a coroutine function, which is called with one message at a time.

    - `bootstrap`: the servers, unless DRMQ_BOOTSTRAP or `run` name others.
    - `concurrency`: how many messages are worked on at a time.
    - `timeout`: seconds for one message. After that it has failed. A thread still runs to its end.
    - `retries`: how often a message is tried again, if that is less than the group allows. Then it is rejected.
    - `backoff`: the wait after a failed attempt, in seconds or as a `Backoff`; None for that of the group.
    - `reject_on`: exceptions after which trying again is useless. The message is rejected.
    - `grace`: how many seconds `run` waits for messages that are worked on, once it is asked to end.
    - `codec`, `start`, `prefetch`: as in `drmq.Consumer`; `prefetch` is twice the concurrency by default.
    """
    waits = Backoff(float(backoff)) if isinstance(backoff, (int, float)) else backoff
    options = WorkerOptions(
        topics, group, bootstrap, concurrency, timeout, retries, waits, tuple(reject_on), grace, codec, start, prefetch
    )

    def decorate(function: Callable[[T], R]) -> Worker[T, R]:
        return Worker(function, options)

    return decorate
