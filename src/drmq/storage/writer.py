"""The writer thread: it makes every change to every log of a data directory, in the order of the requests.

A sync takes a few hundred microseconds, whether it covers one batch or a thousand. So the event loop only queues, and
one thread works in cycles: take everything that is queued, append it log by log, make it durable, report. While a sync
runs, the work for the next cycle accumulates: the slower the disk, the larger the groups (group commit). Small amounts
are made durable by one sync of the `journal` for all logs; large ones by a sync of each changed log, several in
parallel on a few helper threads, because the disk overlaps them. Work for the journal (logs to be synced, files to be
lengthened) is done by background threads; a cycle waits for it only if the journal would otherwise be full.

The thread reports through `WriterEvents`, called on the writer thread or a helper, for many logs at once if possible,
so that few wake-ups of the event loop carry all results.

If an append fails, or another step that later appends depend on (`run_step`), everything queued after it for the same
log no longer fits. The writer therefore reports the failure once, and drops all batches for that log until the owner
has seen the report, has gone back to `log.end_offset`, and calls `resume(log)`. That call is queued like the batches,
so it separates those queued before it from those after it.

A failure of one log does not affect other logs. An unexpected exception (a bug) stops the writer, is reported through
`on_crashed`, and fails everything that is queued, so the thread never ends silently.

The queue has no limit here, because the event loop cannot wait: `queued_bytes` tells the event loop when to stop
reading from clients. A simulator calls `run_cycle` itself instead of `start`, with `sync_threads=1`, so that the same
seed gives the same order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter_ns
from typing import Any, Protocol, TypeAlias, TypeVar

from drmq.model import Offset
from drmq.model.counters import Histogram
from drmq.records import BatchHeader, Buffer
from drmq.storage.errors import LogFenced, StorageError, WriterStopped
from drmq.storage.files import BackgroundSync
from drmq.storage.journal import Journal
from drmq.storage.log import Log

T = TypeVar("T")
LOGS_PER_SYNC_MAX = 4096
"""Logs that are appended to before they are made durable. Each of them needs an open file meanwhile."""
SYNC_THREADS = 4
"""Logs that are synced at the same time. Measured: 16 files take 2.6 ms one by one, 1.0 ms by four."""


class WriterEvents(Protocol):
    """The writer's reports, on its own thread or a helper's. An implementation passes them to the event loop."""

    def on_written(self, results: list[tuple[Log, Offset]]) -> None:
        """These logs were appended to up to these end offsets, not durably. Only for logs where that was requested."""

    def on_flushed(self, results: list[tuple[Log, Offset]]) -> None:
        """These logs are durable up to these offsets."""

    def on_failed(self, log: Log, error: StorageError, end_offset: Offset) -> None:
        """Nothing queued for `log` from `end_offset` on was kept, and nothing more will be until `resume(log)`."""

    def on_crashed(self, error: BaseException) -> None:
        """The writer stopped because of a bug; nothing that is queued will be written."""


class _Job:
    """A function to run on the thread, with a future for its result."""

    __slots__ = ("function", "future", "is_step", "log")

    def __init__(self, log: Log, function: Callable[[], object], is_step: bool = False) -> None:
        self.log = log
        self.function = function
        self.is_step = is_step
        self.future: Future[Any] = Future()

    def do(self) -> None:
        if self.future.set_running_or_notify_cancel():
            try:
                result = self.function()
            except Exception as error:  # noqa: BLE001 - raised to the caller through the future
                self.future.set_exception(error)
            else:
                self.future.set_result(result)

    def fail(self, error: StorageError) -> None:
        if not self.future.done() and (self.future.running() or self.future.set_running_or_notify_cancel()):
            self.future.set_exception(error)


_Batch: TypeAlias = tuple[Log, BatchHeader, Buffer, bool]
_STOP = None
_Item: TypeAlias = _Batch | _Job | None


class Writer:
    """One thread that owns the logs of a data directory. Only one other thread may call `submit` and `run`."""

    def __init__(self, events: WriterEvents, sync_threads: int = SYNC_THREADS, name: str = "drmq-writer") -> None:
        self._events = events
        self.journal: Journal | None = None
        """Makes small appends durable. Set before `start`, or not at all."""
        self.logs_per_sync_max = LOGS_PER_SYNC_MAX
        """Set before `start` if fewer files may be open."""
        self._queue: deque[_Item] = deque()
        self._bell: tuple[int, int] | None = None  # both ends of a pipe, while the thread runs
        self._is_listening = False
        self._hold_count = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._sync_threads = sync_threads
        self._pool: ThreadPoolExecutor | None = None
        self._background: ThreadPoolExecutor | None = None
        self._syncing: dict[Log, BackgroundSync] = {}  # started, and not yet known to have ended
        self._background_error: BaseException | None = None
        self.cycle_count = self.failure_count = 0
        self.sync_durations_us = Histogram()
        """How long each cycle took to make its appends durable."""
        self._submitted_bytes = 0  # counted by the submitter
        self._taken_bytes = 0  # counted by the writer
        self._done_bytes = 0  # of this cycle, written and possibly not synced
        self._counting = threading.Lock()
        self._failed: set[Log] = set()
        self._dirty: dict[Log, Offset] = {}  # what was flushed before this cycle's appends
        self._wants_written: dict[Log, None] = {}
        self._is_stopping = False
        self._crash: BaseException | None = None

    # The submitter's side

    @property
    def queued_bytes(self) -> int:
        """The size of the batches that are queued or being written."""
        return self._submitted_bytes - self._taken_bytes

    @property
    def has_work(self) -> bool:
        """Whether anything is queued."""
        return bool(self._queue)

    def start(self) -> None:
        """Start the thread."""
        self._bell = os.pipe()
        self._thread.start()

    def hold(self) -> None:
        """Do not wake the thread until `release`: more is about to be queued, and one sync shall cover all of it."""
        self._hold_count += 1

    def release(self) -> None:
        """Wake the thread if anything was queued since `hold`."""
        self._hold_count -= 1
        if self._queue:
            self._ring()

    def _put(self, item: _Item) -> None:
        self._queue.append(item)
        self._ring()

    def _ring(self) -> None:
        """Wake the thread if it sleeps.

        Uses a system call during which this thread releases the interpreter lock: a thread that is woken often runs at
        once, in place of the one that woke it. With one of Python's own locks, the waking thread would still hold the
        interpreter lock, so that neither could continue.
        """
        if self._is_listening and not self._hold_count:
            self._is_listening = False
            assert self._bell is not None
            os.write(self._bell[1], b"!")

    def submit(self, log: Log, header: BatchHeader, batch: Buffer, wants_written: bool = False) -> None:
        """Queue a stamped batch. With `wants_written`, `on_written` reports before the sync that it is in the log."""
        if self._is_stopping:
            raise self._stopped()
        self._submitted_bytes += len(batch)
        self._put((log, header, batch, wants_written))

    def run(self, log: Log, function: Callable[[], T]) -> Future[T]:
        """Run `function` on the writer thread, after everything queued earlier for `log` is appended and synced.

        The future receives its result or exception.
        """
        return self._queue_job(_Job(log, function))

    def run_step(self, log: Log, function: Callable[[], T]) -> Future[T]:
        """Like `run`, for a change that later requests for `log` depend on, as they depend on an append.

        If it raises, those are dropped until `resume(log)`; if an earlier step or append has failed, it is not run.
        """
        return self._queue_job(_Job(log, function, is_step=True))

    def _queue_job(self, job: _Job) -> Future[Any]:
        if self._is_stopping:
            job.fail(self._stopped())
        else:
            self._put(job)
        return job.future

    def resume(self, log: Log) -> None:
        """Accept batches again for a log whose failure was reported."""
        self._put(_Job(log, lambda: self._failed.discard(log)))

    def stop(self) -> None:
        """Finish everything that is queued, end the thread and wait for that."""
        if not self._is_stopping:
            self._is_stopping = True
            self._hold_count = 0
            self._put(_STOP)
        if self._thread.ident is not None:
            self._thread.join()
        for pool in (self._pool, self._background):
            if pool is not None:
                pool.shutdown()
        if self._bell is not None:
            for end in self._bell:
                os.close(end)
            self._bell = None

    def _stopped(self) -> WriterStopped:
        error = WriterStopped("the writer has stopped and accepts no more work")
        error.__cause__ = self._crash
        return error

    # The thread's side

    def _run(self) -> None:
        while self.run_cycle(wait=True):
            pass

    def run_cycle(self, wait: bool = False) -> bool:
        """Do everything that is queued; with `wait`, first wait for work. Returns False once the writer is stopped."""
        items: list[_Item] = []
        try:
            self._take(items, wait)
            return self._work(items)
        except BaseException as error:  # noqa: BLE001 - the outermost frame of the thread
            self._on_crash(error, items)
            return False

    def _take(self, items: list[_Item], wait: bool) -> None:
        """Move everything that is queued now to `items`."""
        if wait:
            self._listen()
        queue = self._queue
        try:
            while True:
                items.append(queue.popleft())
        except IndexError:
            return

    def _listen(self) -> None:
        """Sleep until something is queued."""
        assert self._bell is not None
        while not self._queue:
            self._is_listening = True
            # Checked again, because an item that was queued before the flag was set has written no byte to the pipe.
            # Anything queued from now on leaves a byte in the pipe; at worst it wakes the thread once for nothing.
            if not self._queue:
                os.read(self._bell[0], 64)
            self._is_listening = False

    def _work(self, items: list[_Item]) -> bool:
        """Run one cycle. Jobs, and items queued after them for the same log, run after the sync of everything else.

        A job may take long (removing large files, for example), and acknowledgements that do not depend on it must not
        wait for it. Jobs of different logs are independent, and mostly wait for a sync of their own (an election of
        many partitions at once), so the helpers share them.
        """
        if not any(isinstance(item, _Job) for item in items):
            return self._do(items)
        now: list[_Item] = []
        later: dict[Log, list[_Item]] = {}
        goes_on = True
        for item in items:
            if isinstance(item, _Job):
                later.setdefault(item.log, []).append(item)
            elif item is _STOP:
                goes_on = False
            elif item[0] in later:
                later[item[0]].append(item)
            else:
                now.append(item)
        self._do(now)
        rest, part = list(later.values()), self.logs_per_sync_max
        for start in range(0, len(rest), part):
            self._share(rest[start : start + part], self._do_quietly)
            self._report()
        return goes_on

    def _share(self, work: list[T], function: Callable[[T], object]) -> None:
        """Do all of the work, some of it on helper threads."""
        rest = iter(work)

        def do_some() -> None:
            # Several threads take items from one iterator: under the interpreter lock each item goes to exactly one.
            for piece in rest:
                function(piece)

        helpers = min(len(work), self._sync_threads) - 1
        if helpers <= 0:
            do_some()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._sync_threads - 1, "drmq-sync")
        futures = [self._pool.submit(do_some) for _ in range(helpers)]
        do_some()
        for future in futures:
            future.result()

    def _do(self, items: list[_Item]) -> bool:
        """Append, report, sync, report."""
        goes_on = True
        for part in self._parts(items):
            goes_on = self._do_quietly(part) and goes_on
            self._report()
        return goes_on

    def _parts(self, items: list[_Item]) -> list[list[_Item]]:
        """The items in parts that do not concern too many logs. Usually this is one part."""
        most = self.logs_per_sync_max
        if len(items) <= most or len({item[0] for item in items if isinstance(item, tuple)}) <= most:
            return [items]
        parts: list[list[_Item]] = [[]]
        logs: set[Log] = set()
        for item in items:
            if isinstance(item, tuple) and item[0] not in logs:
                if len(logs) == most:
                    parts.append([])
                    logs.clear()
                logs.add(item[0])
            parts[-1].append(item)
        return parts

    def _do_quietly(self, items: list[_Item]) -> bool:
        """Append batches and run jobs, without syncing or reporting at the end."""
        goes_on = True
        pending: dict[Log, list[tuple[BatchHeader, Buffer]]] = {}
        taken_bytes = 0
        for item in items:
            if isinstance(item, tuple):
                log, header, batch, wants_written = item
                batches = pending.get(log)
                if batches is None:
                    batches = pending[log] = []
                batches.append((header, batch))
                taken_bytes += len(batch)
                if wants_written:
                    self._wants_written[log] = None
            elif item is not _STOP:
                if item.log in pending:
                    self._append(item.log, pending.pop(item.log))
                if item.log in self._dirty:
                    self._flush_one(item.log)
                self._do_job(item)
            else:
                goes_on = False
        for log, batches in pending.items():
            self._append(log, batches)
        with self._counting:
            self._done_bytes += taken_bytes
        return goes_on

    def _report(self) -> None:
        """Report what was written, sync, and report what is durable."""
        if self._wants_written:
            written = [(log, log.end_offset) for log in self._wants_written]
            self._wants_written.clear()
            self._events.on_written(written)
        self._flush()
        self._taken_bytes += self._done_bytes
        self._done_bytes = 0

    def _do_job(self, job: _Job) -> None:
        if job.is_step and job.log in self._failed:
            job.fail(StorageError(f"{job.log.name}: not done, because an earlier change of this log has failed"))
            return
        job.do()
        if job.is_step and not job.future.cancelled() and job.future.exception() is not None:
            self._failed.add(job.log)

    def _append(self, log: Log, batches: list[tuple[BatchHeader, Buffer]]) -> None:
        if log in self._failed:
            return
        self._dirty.setdefault(log, log.flushed_offset)
        try:
            log.append(batches)
        except StorageError as error:
            self._on_failure(log, error)

    def _on_failure(self, log: Log, error: StorageError) -> None:
        self._failed.add(log)
        self.failure_count += 1
        # A fenced log keeps what was flushed. Batches that were only written may or may not be there.
        self._events.on_failed(log, error, log.flushed_offset if log.is_fenced else log.end_offset)

    def _flush_one(self, log: Log) -> None:
        """Sync a log before its next job, and report. Other threads may do the same for other logs."""
        flushed_before = self._dirty.pop(log)
        if log.is_fenced:
            return
        try:
            log.flush()
        except StorageError as error:
            self._on_failure(log, error)
        else:
            if log.flushed_offset > flushed_before:
                self._events.on_flushed([(log, log.flushed_offset)])

    def _flush(self) -> None:
        """Make durable what was appended, and report it."""
        self._end_syncs()
        dirty, self._dirty = self._dirty, {}
        logs = [log for log in dirty if not log.is_fenced]
        if not logs:
            return
        failures: list[tuple[Log, StorageError]] = []
        began_ns = perf_counter_ns()
        if self.journal is None or not self.journal.take(logs):
            failures = self._sync_logs(logs)
        self.cycle_count += 1
        self.sync_durations_us.add((perf_counter_ns() - began_ns) // 1_000)
        # The last append may have failed, so that nothing new is durable.
        results = [(log, log.flushed_offset) for log in logs if log.flushed_offset > dirty[log]]
        if results:
            self._events.on_flushed(results)
        if self.journal is not None:
            failures += self._tend(self.journal)
        for log, error in failures:
            self._on_failure(log, error)

    def _tend(self, journal: Journal) -> list[tuple[Log, StorageError]]:
        """Start the background work that the journal needs, or do it now if it falls behind; returns the failures."""
        failures: list[tuple[Log, StorageError]] = []
        due = journal.due(self._sync_threads)
        if journal.is_pressed:
            failures = self._sync_logs(due)
        else:
            for log in due:
                sync = log.begin_sync()
                if sync is not None:
                    self._syncing[log] = sync
                    self._do_in_background(partial(self._sync_behind, log, sync))
        lengthen = journal.begin_lengthening()
        if lengthen is not None:
            self._do_in_background(lengthen)
        if self._sync_threads == 1:
            self._end_syncs()
        return failures

    def _do_in_background(self, work: Callable[[], None]) -> None:
        if self._sync_threads == 1:
            work()
            return
        if self._background is None:
            self._background = ThreadPoolExecutor(self._sync_threads, "drmq-background")
        self._background.submit(self._work_in_background, work)

    def _work_in_background(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a bug, which stops the writer
            self._background_error = error

    def _sync_behind(self, log: Log, sync: BackgroundSync) -> None:
        sync.run()
        if sync.has_failed:
            # Queue an empty job: the writer may be idle, and must report the failure.
            self._put(_Job(log, lambda: None))

    def _end_syncs(self) -> None:
        """Handle the background syncs that have ended."""
        if self._background_error is not None:
            raise self._background_error
        for log, sync in [(log, sync) for log, sync in self._syncing.items() if sync.is_done]:
            del self._syncing[log]
            try:
                log.end_sync()
            except StorageError as error:
                self._on_failure(log, error)
                continue
            if sync.has_failed and log not in self._failed:
                # The failure was raised to another caller that had to sync the log, perhaps to a job, which does not
                # report it.
                self._on_failure(log, LogFenced(log.name, "sync failed in the background"))

    def _sync_logs(self, logs: list[Log]) -> list[tuple[Log, StorageError]]:
        """Sync the logs' own files; returns the failures."""
        failures: list[tuple[Log, StorageError]] = []

        def sync(log: Log) -> None:
            try:
                log.sync()
            except StorageError as error:
                failures.append((log, error))

        self._share(logs, sync)
        return failures

    def _on_crash(self, error: BaseException, items: list[_Item]) -> None:
        """Fail everything that is queued now or later."""
        self._crash = error
        self._is_stopping = True
        self._take(items, wait=False)
        for item in items:
            if isinstance(item, _Job):
                item.fail(self._stopped())
        self._events.on_crashed(error)
