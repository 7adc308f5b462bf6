"""The disk access of a node: a writer without a thread, and a pool without threads.

Both run the real code, as events of the world, after the delay of the disk. The writer's cycle is split in two: batches
are written first and synced some time later, and the world continues in between. In that window an acknowledgement
would be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, Protocol, TypeVar

from drmq.storage import Writer, WriterEvents
from drmq.storage.journal import (
    FORGOTTEN_NAME,
    JOURNAL_NAMES,
    counting_records,
    entries_by_log,
    read_forgotten,
    read_records,
    seed_of,
)
from drmq.testing.files import FakeFiles

T = TypeVar("T")
P = ParamSpec("P")


class Machine(Protocol):
    """What both need of their machine."""

    def disk_delay_us(self) -> int: ...

    def later(self, delay_us: int, name: str, event: Callable[[], object]) -> None:
        """As `World.later`; delayed while the process is paused, and dropped after it has died."""


class SimulatedWriter(Writer):
    """A writer whose cycles are events."""

    def __init__(self, events: WriterEvents, machine: Machine) -> None:
        super().__init__(events, sync_threads=1)
        self._machine = machine
        self._is_working = False
        self._holds_flush = False
        self.on_cycle: Callable[[], None] = lambda: None
        """Called after every sync, to check that the disk has what the writer reports."""

    def start(self) -> None:
        return

    def stop(self) -> None:
        """At the end of a clean shutdown: process the whole queue at once."""
        if not self._is_stopping:
            self._is_stopping = True
            self._holds_flush = False
            self.run_cycle()

    def _put(self, item: Any) -> None:
        super()._put(item)
        self._begin()

    def _begin(self) -> None:
        if not self._is_working:
            self._is_working = True
            self._machine.later(self._machine.disk_delay_us() // 4, "write", self._write)

    def _write(self) -> None:
        if self._is_stopping:
            return
        self._holds_flush = True
        self.run_cycle()
        self._holds_flush = False
        self._machine.later(self._machine.disk_delay_us(), "sync", self._sync)

    def _sync(self) -> None:
        if self._is_stopping:
            return
        self._guarded(super()._flush)
        self.on_cycle()
        self._is_working = False
        if self.has_work:
            self._begin()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - as in `run_cycle`, the outermost frame of the writer
            self._on_crash(error, [])

    def _work(self, items: list[Any]) -> bool:
        if not self._holds_flush:
            return super()._work(items)
        # Jobs run after the sync of everything that was queued before them; jobs at the front wait for nothing.
        has_batches = any(isinstance(item, tuple) for item in items)
        if has_batches and any(not isinstance(item, tuple) for item in items):
            self._holds_flush = False
            try:
                return super()._work(items)
            finally:
                self._holds_flush = True
        return self._do(items)

    def _flush(self) -> None:
        if not self._holds_flush:
            super()._flush()


class SimulatedPool(Executor):
    """A pool whose work runs as events."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - raised again by the future
                future.set_exception(error)
            else:
                future.set_result(result)

        self._machine.later(self._machine.disk_delay_us(), "pool", work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        return


def durable_log(files: FakeFiles, root: str, log: str) -> dict[str, bytearray]:
    """What a power cut would certainly leave of a log's files, including what recovery takes from the journal."""
    found = files.durable_files(log)
    beside = files.durable_files(root)
    if not found or "drmq.json" not in beside:
        return found
    seed = seed_of(json.loads(beside["drmq.json"])["journal_secret"])
    records = [
        record
        for file, name in enumerate(JOURNAL_NAMES)
        if name in beside
        for record in read_records(bytes(beside[name]), file, seed)
    ]
    counting, missing_count = counting_records(records)
    assert missing_count == 0, (log, missing_count)
    forgotten = read_forgotten(FORGOTTEN_NAME, bytes(beside[FORGOTTEN_NAME])) if FORGOTTEN_NAME in beside else {}
    for entry in entries_by_log(counting, forgotten).get(log.removeprefix(root + "/"), ()):
        name = f"{entry.segment:020d}.log"
        if name in found and entry.position <= len(found[name]):
            found[name] = bytearray(found[name])
            found[name][entry.position : entry.position + len(entry.data)] = entry.data
    return found


__all__ = ["Machine", "SimulatedPool", "SimulatedWriter", "durable_log"]
