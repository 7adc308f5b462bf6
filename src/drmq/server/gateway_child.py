"""The gateway of a node: a child process that serves HTTP and gRPC, started and watched by the node.

The node opens the listening socket for HTTP and hands it to the child. So the port is known and checked before the
child exists, and a page that connects while the child is being restarted waits instead of being refused.

grpcio cannot take over a socket: it opens its own. The node *reserves* the port instead, with a socket that is bound
and does not listen, and that lets only sockets of the same user bind the port too (SO_REUSEPORT). So nobody else gets
the port while the child is being restarted, and the child gets the same one again.

The child ends when its
standard input does, also if the node is killed. A crash of the child never touches the node: it is restarted after a
pause that grows while crashes follow each other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from drmq.model.address import Address
from drmq.server.ports import family
from drmq.telemetry.system_errors import in_words

log = logging.getLogger("drmq.server")

MISSING_PACKAGES: Final = 3
"""The exit code of a gateway whose packages are not installed: it is not started again."""
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 30.0
_LONG_RUN_S = 30.0
"""After a run of this length, the next pause is short again."""
_END_TIMEOUT_S = 5.0
_BACKLOG = 128


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket for the gateway. Raises `OSError`."""
    listener = socket.socket(family(host))
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def reserve_port(host: str, port: int) -> socket.socket:
    """A socket that keeps a port for the child, which binds it again. Raises `OSError` if somebody has the port."""
    with socket.socket(family(host)) as probe:
        # With SO_REUSEPORT two nodes of one user could share a port, and each would get some of the calls.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
    reserved = socket.socket(family(host))
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError:
        reserved.close()
        raise
    return reserved


class GatewayChild:
    """The child process and the task that watches it. Lives on the event loop of the node."""

    def __init__(
        self,
        node_id: int,
        node: Address,
        listener: socket.socket,
        grpc: socket.socket | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self._node_id = node_id
        self._node = node
        self._listener = listener
        self._grpc = grpc
        self._flags = flags
        self.port: int = listener.getsockname()[1]
        self.grpc_port: int | None = None if grpc is None else grpc.getsockname()[1]
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End the child."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._close()

    def _close(self) -> None:
        self._listener.close()
        if self._grpc is not None:
            self._grpc.close()

    async def _watch(self) -> None:
        pause_s = _PAUSE_MIN_S
        while True:
            began = time.monotonic()
            try:
                code = await self._run()
            except OSError as error:
                log.warning("the gateway cannot be started: %s", in_words(error), extra={"repeat_key": "gateway"})
                code = None
            if code == MISSING_PACKAGES:
                # Nothing will ever answer here: refuse connections, which would otherwise wait in the queue.
                self._close()
                return
            if time.monotonic() - began > _LONG_RUN_S:
                pause_s = _PAUSE_MIN_S
            if code is not None:
                log.warning("the gateway ended with code %d; it is started again in %.1f s", code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    async def _run(self) -> int:
        handle = self._listener.fileno()
        grpc = []
        if self._grpc is not None:
            host, port = self._grpc.getsockname()[:2]
            grpc = ["--host", host, "--grpc-port", str(port)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "drmq.gateway",
            "--bootstrap",
            str(self._node),
            "--node-id",
            str(self._node_id),
            "--listener",
            str(handle),
            *grpc,
            *self._flags,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(handle,),
        )
        return await self._process.wait()
