"""One TCP connection between two nodes, from either end: frames in and out, without their meaning.

Frames that are sent in one turn of the event loop are written together at its end. Nothing here ever waits: a sender
checks `has_room` first, and drops what there is no room for.

An error in a frame, or in the code that handles it, closes this connection and no other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from typing import Protocol, cast

from drmq.model import DrmqError, GroupId
from drmq.telemetry.system_errors import in_words
from drmq.transport.buffers import BufferPool
from drmq.transport.connection import Buffer
from drmq.transport.peers.frames import Frame, FrameReceiver, FrameType, parse_frame
from drmq.transport.peers.hello import HELLO_FRAME_BYTES_MAX
from drmq.transport.peers.messages import ConnectionKind, PeerMessage
from drmq.transport.peers.options import PeerOptions
from drmq.transport.peers.outbox import Outbox

log = logging.getLogger("drmq.transport.peers")

_SHARED_BUFFER_SIZE = 262_144
_JOINED_SIZE_MAX = 32_768
"""Up to this size, frames are copied into one buffer, which costs less than many small ones."""
_BUFFERS_AT_ONCE_MAX = 512
"""Buffers in one system call. The limit of the operating system is often 1,024."""
_LINGER_S = 0.5
"""How long a connection that is being closed may take to send its buffered data."""
_KEEPALIVE_S = 15
_KEEPALIVE_COUNT = 3


class Streams:
    """What all connections of one network share: the receive buffers, and the set of connections."""

    def __init__(self, options: PeerOptions) -> None:
        self.options = options
        self.shared = memoryview(bytearray(_SHARED_BUFFER_SIZE))
        self.pool = BufferPool()
        self.open: set[Stream] = set()
        self.unflushed: set[Stream] = set()
        """Connections with data to write at the end of the turn."""
        self.invalid_count = 0
        """How often a connection was closed because of what was received."""
        self.is_cut = False
        """Whether everything that is sent or received is lost, as by a cut network. For experiments only."""

    async def wait_closed(self, timeout_s: float) -> bool:
        """Wait until all connections are closed; False if some are not closed in time."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        # Polling, because this waits only once, for many connections: an event for each would not be worth it.
        while self.open and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return not self.open


class StreamOwner(Protocol):
    """The owner of a connection."""

    def on_connected(self, stream: Stream) -> None: ...

    def on_frame(self, stream: Stream, frame: Frame) -> None:
        """Handle one frame. A `DrmqError` closes the connection, and so does a bug."""

    def on_lost(self, stream: Stream, reason: str) -> None:
        """The connection has ended. Called once for each `on_connected`."""


class Stream(asyncio.BufferedProtocol):
    """The protocol object of one socket. Until `accept` sets its kind, only small frames are allowed."""

    def __init__(self, owner: StreamOwner, streams: Streams) -> None:
        self._owner = owner
        self._streams = streams
        self._options = streams.options
        self._receiver = FrameReceiver(streams.shared, streams.pool, HELLO_FRAME_BYTES_MAX)
        self._outbox = Outbox(HELLO_FRAME_BYTES_MAX)
        self._loop: asyncio.AbstractEventLoop
        self._transport: asyncio.Transport | None = None
        self._flush_is_due = False
        self._file = -1
        """The socket's descriptor, to write to directly; -1 if there is none, or on a system without `writev`."""
        self._reason: str | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._handed_bytes = 0
        self._taken_bytes = 0
        self._taken_at = 0.0
        self._received_bytes = 0
        self._received_bytes_seen = 0
        self._received_at = 0.0
        self.is_closed = False
        self.address = "?"

    def accept(self, kind: ConnectionKind, *, is_small: bool = False) -> None:
        """End the greeting: the limits of the connection's kind apply from now on, or still those of a greeting."""
        frame_bytes_max = HELLO_FRAME_BYTES_MAX if is_small else self._options.frame_bytes_max(kind)
        self._receiver.frame_bytes_max = frame_bytes_max
        # Frames on a heartbeat connection are decoded to values at once. The others carry bytes that may be kept.
        self._receiver.may_keep = kind is not ConnectionKind.HEARTBEAT
        self.flush()
        self._outbox = Outbox(frame_bytes_max)

    # ---- lifecycle ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        # uvloop's transports have the methods without the base class, so there is nothing to assert.
        transport = self._transport = cast(asyncio.Transport, transport)
        self._streams.open.add(self)
        self._taken_at = self._received_at = self._loop.time()
        address = transport.get_extra_info("peername")
        self.address = f"{address[0]}:{address[1]}" if address else "?"
        connected = transport.get_extra_info("socket")
        _tune(connected)
        if connected is not None and hasattr(os, "writev"):
            self._file = connected.fileno()
        self._owner.on_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._streams.open.discard(self)
        if self._linger is not None:
            self._linger.cancel()
        reason = self._reason or (f"the connection broke: {in_words(exc)}" if exc else "the peer closed the connection")
        self._owner.on_lost(self, reason)

    def eof_received(self) -> bool:
        return False

    def abort(self, reason: str) -> None:
        """End the connection now, without sending what is buffered."""
        if not self.is_closed and self._transport is not None:
            self.is_closed = True
            self._reason = self._reason or reason
            self._transport.abort()

    def close(self, reason: str) -> None:
        """End the connection once the buffered data is sent, or soon in any case. Received data is ignored."""
        if not self.is_closed and self._transport is not None:
            self.flush()
            self.is_closed = True
            self._reason = self._reason or reason
            self._transport.close()
            self._linger = self._loop.call_later(_LINGER_S, self._transport.abort)

    # ---- receiving ------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._received_bytes += nbytes
        if self.is_closed or self._streams.is_cut:
            return
        try:
            for frame in self._receiver.take_frames(nbytes):
                self._owner.on_frame(self, parse_frame(frame))
                if self._is_over():
                    return
        except DrmqError as error:
            self._streams.invalid_count += 1
            # One key for all: a peer that sends invalid frames for hours must not fill the log.
            repeat = {"repeat_key": "closed a peer's connection"}
            log.warning("closed the connection with %s: %s", self.address, error, extra=repeat)
            self.abort(f"closed because of a received frame: {error}")
        except Exception:  # no exception from handling a frame may reach the event loop
            repeat = {"repeat_key": "a bug in handling a peer's frame"}
            log.exception("closed the connection with %s because of a bug", self.address, extra=repeat)
            self.abort("closed because of a bug in this node")

    def _is_over(self) -> bool:
        """A method, because mypy does not see that handling a frame may close the connection."""
        return self.is_closed

    # ---- sending --------------------------------------------------------------------------------

    @property
    def writes_directly(self) -> bool:
        """Whether data bypasses the loop's transport and is written to the socket, as long as the socket accepts it."""
        return self._file >= 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes that this process has not been able to write to the socket yet."""
        if self._transport is None or self.is_closed:
            return 0
        return self._outbox.size_bytes + self._transport.get_write_buffer_size()

    @property
    def has_room(self) -> bool:
        """Whether more may be sent. If not, the caller must drop it."""
        return not self.is_closed and self.buffered_bytes < self._options.buffered_bytes_max

    def send_message(self, group: GroupId, message: PeerMessage) -> bool:
        """Send a message with the others of this turn; False if it is larger than the largest frame."""
        if not self._outbox.add_message(group, message):
            return False
        self._flush_soon()
        return True

    def send_frame(self, frame_type: FrameType, head: bytes = b"", payload: Sequence[Buffer] = ()) -> bool:
        """Send a frame after what was sent before; False if it is larger than the largest frame."""
        if not self._outbox.add_frame(frame_type, head, payload):
            return False
        self._flush_soon()
        return True

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._streams.unflushed.add(self)
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Pass everything to the socket."""
        self._flush_is_due = False
        self._streams.unflushed.discard(self)
        if self.is_closed or self._transport is None:
            return
        size = self._outbox.size_bytes
        if not size:
            return
        buffers = self._outbox.take()
        if self._streams.is_cut:
            return
        self._handed_bytes += size
        if size <= _JOINED_SIZE_MAX:
            buffers = [b"".join(buffers)]
        rest = buffers
        if self.writes_directly and not self._transport.is_closing() and not self._transport.get_write_buffer_size():
            rest = _without(buffers, self._write_now(buffers))
        if rest:
            self._transport.writelines(rest)

    def _write_now(self, buffers: Sequence[Buffer]) -> int:
        """Write what the socket accepts at once, and return the number of bytes.

        The loop's own transport would hold the interpreter lock during the write. In the kernel, a write may let the
        receiver run in place of this process, and the writer thread, which has to sync the same batches, would have to
        wait for that.
        """
        try:
            return os.writev(self._file, buffers[:_BUFFERS_AT_ONCE_MAX])
        except OSError:
            # The socket is full or broken. The transport then waits, or gets the error.
            return 0

    # ---- time -----------------------------------------------------------------------------------

    def forgive(self, late_s: float, now: float) -> None:
        """Do not count `late_s` as a stall: this process did not run then."""
        self._taken_at = min(self._taken_at + late_s, now)
        self._received_at = min(self._received_at + late_s, now)

    def end_if_stalled(self, now: float) -> None:
        """Close the connection if data is waiting but makes no progress, in either direction."""
        if self.is_closed or self._transport is None:
            return
        stall_s = self._options.stall_timeout_ms / 1_000
        unsent_bytes = self._transport.get_write_buffer_size()
        taken_bytes = self._handed_bytes - unsent_bytes
        if not unsent_bytes or taken_bytes != self._taken_bytes:
            self._taken_bytes, self._taken_at = taken_bytes, now
        elif now - self._taken_at > stall_s:
            self.abort(f"the peer has read none of {unsent_bytes} waiting bytes for {stall_s:g} s")
            return
        if not self._receiver.is_inside_frame or self._received_bytes != self._received_bytes_seen:
            self._received_bytes_seen, self._received_at = self._received_bytes, now
        elif now - self._received_at > stall_s:
            self.abort(f"the rest of a frame was not received for {stall_s:g} s")


def _without(buffers: Sequence[Buffer], size_bytes: int) -> list[Buffer]:
    """The rest of the buffers after the first `size_bytes` bytes."""
    for position, buffer in enumerate(buffers):
        if size_bytes < len(buffer):
            return [memoryview(buffer)[size_bytes:] if size_bytes else buffer, *buffers[position + 1 :]]
        size_bytes -= len(buffer)
    return []


def _tune(connected: socket.socket | None) -> None:
    """Send small frames at once, and detect a peer whose machine is gone. None for a test's loop without sockets."""
    if connected is None:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_COUNT)
