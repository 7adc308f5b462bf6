"""A broker without sockets, on an event loop whose time a test can advance.

    harness = Harness()
    response = harness.ask(HeartbeatRequest(...), version=3)
    harness.advance(30_000)

Requests and responses pass through the wire codec, so that a handler sees exactly the fields of its version, and its
responses can really be sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TypeVar, cast

from drmq.broker import (
    Broker,
    BrokerOptions,
    DiskLogs,
    GroupShardCoordinator,
    ListenerOptions,
    LogStore,
    MemoryLogs,
    Partition,
)
from drmq.broker.coordination.internal_topics import InternalTopic
from drmq.broker.services.caller import ANONYMOUS, Caller
from drmq.catalog import Topic
from drmq.kafka.context import Context, Parked
from drmq.model import ErrorCode, NodeId, Offset
from drmq.storage import DataDirectory
from drmq.testing.files import FakeFiles
from drmq.transport import Connection
from drmq.wire import APIS, ApiKey, decode, encode
from drmq.wire.fields import spec_of
from drmq.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from drmq.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.batches import a_batch

T = TypeVar("T")

NODE = NodeId(1)
DATA_DIRECTORY = "/data"
WALL_START_MS = 1_700_000_000_000


class TurnableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time can be advanced."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class LoopClock:
    """Both clocks of a broker, driven by the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._start = loop.time()
        self.ahead_ms = ahead_ms
        """By how much the wall clock is wrong."""

    def monotonic_ms(self) -> int:
        return int((self._loop.time() - self._start) * 1000)

    def wall_ms(self) -> int:
        return WALL_START_MS + self.monotonic_ms() + self.ahead_ms


class Harness:
    """A started broker, and a client that asks its handlers one by one."""

    def __init__(
        self,
        files: FakeFiles | None = None,
        options: BrokerOptions | None = None,
        store: LogStore | None = None,
        clock_ahead_ms: int = 0,
        internal_topics: Callable[[LoopClock], Sequence[InternalTopic]] = lambda clock: (),
    ) -> None:
        """A broker in memory, on a fake disk, or on a store of the test's own."""
        self.loop = TurnableLoop()
        self.clock = LoopClock(self.loop, clock_ahead_ms)
        self.files = files
        if files is not None:
            try:
                store = DiskLogs(DataDirectory(DATA_DIRECTORY, NODE, files=files), files)
            except BaseException:
                self.loop.close()
                raise
        self.store = store or MemoryLogs()
        self.broker = Broker(NODE, self.store, options, self.clock)
        for topic in internal_topics(self.clock):
            self.broker.internal_topics.add(topic)
        self.fatal: list[BaseException] = []
        self.broker.on_fatal = self.fatal.append
        self.parked: list[Parked] = []
        self._is_running = False
        try:
            self.run(self.broker.start())
            self.broker.advertised = ("localhost", 9092)
            self._join()
            self.settle()
        except BaseException:
            self._be_silent()
            self.broker._pools.shutdown()
            self.loop.close()
            raise
        self._is_running = True

    def _join(self) -> None:
        """Wait until the broker has joined, or cannot continue."""
        joining = self.loop.create_task(self.broker.join())
        while not joining.done():
            self.run(asyncio.wait([joining], timeout=0.01))
            if self.fatal:
                joining.cancel()
                self.run(asyncio.wait([joining]))
                raise self.fatal[0]
        joining.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the broker cleanly."""
        if self._is_running:
            self._is_running = False
            self.run(self.broker.stop())
            self.loop.close()

    def crash(self) -> None:
        """End the process at once, without saving or notifying anything. For a broker on `FakeFiles`."""
        assert self.files is not None
        self._be_silent()
        self.files.cut_power()
        self._is_running = False
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.broker.writer.stop()
        self.broker._pools.shutdown()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def _be_silent(self) -> None:
        """Ignore how the tasks of an ended process ended. Their messages would appear when they are collected,
        in the middle of whatever test comes next, and have no value; and a traceback that is written while that test
        parses source crashes CPython 3.11 (https://github.com/python/cpython/issues/106905).
        """
        self.loop.set_exception_handler(lambda loop, context: None)

    # ---- time -----------------------------------------------------------------------------------

    def run(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self.loop.run_until_complete(wait())

    def settle(self) -> None:
        """Let everything happen that needs no more time, the disk's work included."""

        async def turn() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                for partition in self.broker.partitions:
                    if partition.failure is None:
                        await self.broker.partitions.on_writer(partition, lambda: None)
            # These use threads of the pool as well.
            await asyncio.gather(*self.broker.maintenance._trims, return_exceptions=True)
            await asyncio.sleep(0)

        self.run(turn())

    def advance(self, ms: int) -> None:
        """Let time pass, and what is due happen."""
        self.loop.ahead_s += ms / 1000
        self.settle()

    def call(self, function: Callable[[], T]) -> T:
        """Call something on the loop."""

        async def calling() -> T:
            return function()

        result = self.run(calling())
        self.settle()
        return result

    @contextmanager
    def failing_shards(self, *shards: GroupShardCoordinator) -> Iterator[None]:
        """A stretch of time in which these shards, or all of them, cannot write to their logs."""
        with self.failing(*(shard.log.partition for shard in shards or self.broker.groups.shards.values())):
            yield

    @contextmanager
    def failing(self, *partitions: Partition) -> Iterator[None]:
        """A stretch of time in which the disk refuses these partitions. Then they begin again from what it holds."""
        for partition in partitions:
            partition.replica._restarting = True  # so that it does not by itself
            self.call(partial(partition.replica._fail, "the disk is gone", is_final=False))
        yield
        for partition in partitions:
            reloaded: Future[object] = Future()
            reloaded.set_result(partition.reload(partition.log.end_offset))
            self.call(partial(partition.replica._restart, reloaded))
            assert partition.is_serving, partition

    # ---- requests -------------------------------------------------------------------------------

    def send(
        self, request: object, version: int | None = None, *, client_id: str = "test", address: str = "127.0.0.1"
    ) -> asyncio.Future[Any]:
        """Hand a request to its handler, in the version given or the latest; its answer comes in time."""
        api = APIS[spec_of(type(request)).api_key]
        asked = api.version_max if version is None else version
        arrived = over_the_wire(request, asked)

        async def serve() -> Any:
            module = import_module(f"drmq.kafka.{ApiKey(api.key).name.lower()}")
            response = module.handle(self._context(asked, client_id, api.key.name, address), arrived)
            if isinstance(response, Awaitable):
                response = await response
            assert isinstance(response, api.response), response
            return over_the_wire(response, asked)

        task = self.loop.create_task(serve())
        self.settle()
        return task

    def ask(
        self, request: object, version: int | None = None, *, client_id: str = "test", address: str = "127.0.0.1"
    ) -> Any:
        """The answer to a request."""
        return self.run(self.send(request, version, client_id=client_id, address=address))

    def _context(self, version: int, client_id: str, api: str = "TEST", address: str = "127.0.0.1") -> Context:
        connection = SimpleNamespace(limits=ListenerOptions(), closed=False)
        return Context(
            self.broker,
            cast(Connection, connection),
            version,
            Caller(ANONYMOUS, client_id, address, "KAFKA"),
            api,
            self.parked.append,
        )

    # ---- things to ask about --------------------------------------------------------------------

    def create_topic(self, name: str, partition_count: int = 1, **configs: str) -> Topic:
        settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
        return self.run(self.broker.topics.create(name, self.broker.new_topic_id(), partition_count, settings))

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.broker.partitions.by_name(topic, index)

    def produce(self, topic: str, index: int = 0, values: Sequence[bytes] = (b"x",)) -> Offset:
        """Write one batch and wait until it is durable; its first offset."""
        offset, error = self.append(topic, a_batch(values, timestamp_ms=self.clock.wall_ms()), index)
        assert error is ErrorCode.NONE, error
        return offset

    def append(self, topic: str, batch: memoryview, index: int = 0) -> tuple[Offset, ErrorCode]:
        """Append a batch and wait for its fate: the offset it got, and whether it is durable."""
        partition = self.partition(topic, index)
        appended = partition.append(batch, self.clock.wall_ms())
        stored: asyncio.Future[ErrorCode] = self.loop.create_future()
        partition.when_durable(appended.next_offset, stored.set_result)
        return appended.base_offset, self.run(stored)

    def join(self, group_id: str, *, topics: Iterable[str] = (), instance_id: str | None = None) -> tuple[str, int]:
        """Become the only member of a group, with an assignment; the member id and the generation."""
        join = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", subscription(topics))],
        )
        joined = self.ask(join, 5)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            join.member_id = joined.member_id
            joined = self.ask(join, 5)
        assert joined.error_code == 0, ErrorCode(joined.error_code)
        assignments = [SyncGroupRequestAssignment(joined.member_id, b"everything")]
        synced = self.ask(
            SyncGroupRequest(group_id, joined.generation_id, joined.member_id, instance_id, assignments=assignments), 3
        )
        assert synced.error_code == 0, ErrorCode(synced.error_code)
        return joined.member_id, joined.generation_id


def over_the_wire(message: T, version: int) -> T:
    """The message as the other side gets it."""
    out = bytearray()
    encode(message, version, out)
    return decode(type(message), version, bytes(out))


def subscription(topics: Iterable[str]) -> bytes:
    """A consumer's subscription as the consumer protocol writes it (v0)."""
    names = [name.encode() for name in topics]
    out = (0).to_bytes(2, "big") + len(names).to_bytes(4, "big")
    for name in names:
        out += len(name).to_bytes(2, "big") + name
    return out + (-1).to_bytes(4, "big", signed=True)
