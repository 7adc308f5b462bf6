"""A real broker inside a test, with its own thread, event loop and free port, removed at the end.

    with drmq.testing.Broker() as broker:
        topic = broker.create_topic(partitions=3)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

`async with` works too, without blocking the event loop of the test. It is the same broker that `drmq server` runs, in
memory by default, so that a test leaves nothing behind. With `storage="disk"` it stores its data in a temporary
directory that is removed afterwards; with `data_dir`, in a directory of the test, which is kept and can be opened by a
second `Broker`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from drmq.broker import BrokerOptions
from drmq.server.config import ServerConfig
from drmq.server.node import Node, new_event_loop, open_store
from drmq.testing.arguments import check_directory, check_number, check_options
from drmq.testing.topics import create_topic

_START_TIMEOUT_S = 30.0
_PORT_MAX = 65535


class Broker:
    """One node in a thread of this process. Use it as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        *,
        storage: Literal["memory", "disk"] = "memory",
        data_dir: str | Path | None = None,
        port: int = 0,
        options: BrokerOptions | None = None,
    ) -> None:
        if storage not in ("memory", "disk"):
            raise ValueError(f"storage is {storage!r}, and must be 'memory' or 'disk'")
        check_number("port", port, 0, _PORT_MAX)
        check_options(options)
        check_directory(data_dir)
        self._memory = storage == "memory" and data_dir is None
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._port = port
        self._options = options or BrokerOptions()
        self._temporary: Path | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self.bootstrap_servers = ""
        """The address for Kafka clients: `host:port`."""

    @property
    def node(self) -> Node:
        """The node itself, for tests that inspect it. Use it only on its own event loop."""
        assert self._node is not None, "the broker is not running"
        return self._node

    def start(self) -> Self:
        """Start serving. Returns when clients can connect."""
        if self._thread is not None:
            raise RuntimeError("the broker is already running")
        data_dir = self._data_dir
        if data_dir is None:
            data_dir = self._temporary = Path(tempfile.mkdtemp(prefix="drmq-test-"))
        config = ServerConfig(port=self._port, data_dir=data_dir, broker=self._options)
        self._ready.clear()
        self._thread = threading.Thread(target=self._run, args=(config,), name="drmq-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {_START_TIMEOUT_S:.0f} s")
        failure = self._take_failure()
        if failure is not None:
            self.stop()
            raise failure
        return self

    def _take_failure(self) -> BaseException | None:
        """The exception that ended the thread; returned once."""
        failure, self._failure = self._failure, None
        return failure

    def stop(self) -> None:
        """Stop cleanly and remove temporary data."""
        if self._thread is not None:
            if self._loop is not None and self._stop is not None and self._thread.is_alive():
                # After a failure the loop may be closed while its thread still exists.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, configs: Mapping[str, str | int] | None = None
    ) -> str:
        """Create a topic and return its name. Without a name it gets one that no other topic has."""
        if self._thread is None:
            raise RuntimeError("the broker is not running")
        return create_topic(self.bootstrap_servers, name, partitions=partitions, configs=configs)

    def _run(self, config: ServerConfig) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve(config))
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits in `start`
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, config: ServerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        node = self._node = Node(config, open_store(config, memory=self._memory))
        host, port = await node.start()
        self.bootstrap_servers = f"{host}:{port}"
        self._ready.set()
        await self._stop.wait()
        await node.stop()
