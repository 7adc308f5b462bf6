"""A group member that runs in a thread, for the clients that are Python libraries.

These libraries must be polled, and closed, by one thread. The thread belongs to the member: the subclass's `_run`
opens the client, polls until `_stopping` is set, and closes it again.
"""

import threading
from abc import abstractmethod
from collections.abc import Iterable

from support.clients.base import KafkaFailure, Member, Partition, Received
from support.polling import PATIENCE_S


class ThreadedMember(Member):
    """Owns its thread; what the thread reports is read under the lock."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._assigned: frozenset[Partition] = frozenset()
        self._assignment_count = 0
        self._received: list[Received] = []
        self._failure: KafkaFailure | None = None
        self._crash: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded_run, name=name, daemon=True)

    def start(self) -> "ThreadedMember":
        self._thread.start()
        return self

    @abstractmethod
    def _run(self) -> None: ...

    def _guarded_run(self) -> None:
        try:
            self._run()
        except KafkaFailure as failure:
            with self._lock:
                self._failure = failure
        except BaseException as crash:  # noqa: BLE001 - handed to the test by `leave`
            with self._lock:
                self._crash = crash
        finally:
            with self._lock:
                self._assigned = frozenset()

    def _own(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            self._assigned = frozenset(partitions)
            self._assignment_count += 1

    def _own_more(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            self._assigned |= frozenset(partitions)
            self._assignment_count += 1

    def _disown(self, partitions: Iterable[Partition]) -> None:
        with self._lock:
            self._assigned -= frozenset(partitions)

    def _read(self, records: Iterable[Received]) -> None:
        with self._lock:
            self._received.extend(records)

    def assigned(self) -> frozenset[Partition]:
        with self._lock:
            return self._assigned

    def assignment_count(self) -> int:
        with self._lock:
            return self._assignment_count

    def received(self) -> list[Received]:
        with self._lock:
            return list(self._received)

    def failure(self) -> KafkaFailure | None:
        with self._lock:
            return self._failure

    def leave(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"
        if self._crash is not None:
            raise self._crash
