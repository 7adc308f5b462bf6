"""One client connection: receives bytes, passes frames on, and sends responses in the order of the requests.

The problem: thousands of connections, most idle, some hostile, and a few that send hundreds of megabytes a second, on
one event loop. Three ideas:

- **One shared receive buffer.** The loop reads one socket at a time and passes the bytes on before it reads the
  next, so all idle connections can use the same buffer. Only a connection in the middle of a frame owns memory, and the
  rest of that frame is received directly into its final place, from which it goes to the disk without another copy.
- **Memory grows with received bytes, not with announced lengths.** A frame's buffer doubles as bytes arrive; the length
  prefix only says where the frame ends. All partially received frames share one budget. Large frames use a few buffers
  that exist already.
- **Back-pressure instead of queues.** A connection is not read while it has too many open requests, while its responses
  are not read, or while the broker requests a pause. TCP does the rest.

Responses are sent in the order of the requests, because clients match them by order, each through the `Answer` that was
opened for its request. A request without a response opens none.

Invariants: while `_reasons` is set, the transport is not read and no frame is passed on; what was received before waits
in `_backlog`. `_filled <= len(_partial)`.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence, Sized
from enum import IntEnum
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from drmq.model.counters import Histogram
from drmq.transport.buffers import BUFFER_SIZE

if TYPE_CHECKING:
    from drmq.transport.limits import ListenerOptions
    from drmq.transport.listener import Listener

Buffer = bytes | bytearray | memoryview

_SIZE = Struct(">i")
_SIZE_AND_KEY = Struct(">ih")
_ESTABLISHED = 1
"""A state of a TCP connection, as Linux numbers them."""
_PREFIX = 4
_PREFIX_AND_KEY = 6
_FRAME_SIZE_MIN = 8
"""API key, version and correlation id: no request is shorter."""
_PARTIAL_SIZE_MIN = 4_096
_LARGE_FRAME_SIZE = 65_536
_WRITE_BUFFER_HIGH = 1_048_576
_JOINED_SIZE_MAX = 32_768
"""Small responses are joined: one buffer costs less than many."""
_COUNTED_SIZE_MIN = 16_384
"""Responses up to this size are counted only when the client does not read them."""
_PRODUCE_KEY = 0


class Pause(IntEnum):
    """Why a connection is not being read. Bits of an integer: a flag type would cost a microsecond at each check."""

    REQUESTS = 1
    ANSWERS = 2
    MEMORY = 4
    HANDLER = 8
    DISK = 16
    SHUTDOWN = 32
    ORDER = 64
    THROTTLE = 128
    RECOMPRESSION = 256


class FrameHandler(Protocol):
    """The receiver of a listener's frames."""

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request, without its length prefix. The handler may keep and change the frame."""

    def on_close(self, connection: Connection) -> None:
        """The connection is closed; requests that wait on its behalf can be dropped."""

    def on_slow(self, connection: Connection, request: object, seconds: float, is_answered: bool) -> None:
        """A request has waited long for its answer: called while it waits, and again when it is answered.

        It has waited for at least `seconds`, and up to a second more.

        `request` is what the handler left in `Connection.request`; if that was None, this is not called.
        """


class Stopwatch(NamedTuple):
    """Times one request: its duration is added to a histogram when its response is ready."""

    durations_us: Histogram
    began_ns: int


class Answer:
    """The position of one request's response in the order of the connection."""

    __slots__ = ("_connection", "_stopwatch", "buffers", "held_bytes", "is_slow", "request", "since")

    def __init__(self, connection: Connection, stopwatch: Stopwatch | None, since: float) -> None:
        self._connection = connection
        self._stopwatch = stopwatch
        self.request = connection.request
        self.since = since
        """When the request came, by the listener's clock, which is set once a second."""
        self.is_slow = False
        """The handler was told that this takes long."""
        self.buffers: Sequence[Buffer] | None = None
        self.held_bytes = 0
        """Its size, if it is ready and waits for an earlier one."""

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Provide the whole response, including its length prefix. It is sent after all earlier ones."""
        assert self.buffers is None, "a request is answered once"
        self.buffers = buffers
        if self._stopwatch is not None:
            durations_us, began_ns = self._stopwatch
            durations_us.add((perf_counter_ns() - began_ns) // 1_000)
        if self.is_slow:
            self._connection.report_slow(self, is_answered=True)
        self._connection.flush_answers(self)


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket. Owned by its listener; used on the listener's loop."""

    __slots__ = (
        "_answers",
        "_backlog",
        "_filled",
        "_frame_size",
        "_held_bytes",
        "_is_read",
        "_listener",
        "_out",
        "_out_bytes",
        "_partial",
        "_pooled",
        "_reasons",
        "_sends_large_frames",
        "_transport",
        "_writes",
        "_writes_bytes",
        "_writes_memory",
        "answers_blocked_since",
        "client_id",
        "closed",
        "frame_since",
        "last_active",
        "peer",
        "request",
        "software",
        "stopwatch",
        "unread_bytes",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._partial: bytearray | None = None
        self._pooled: memoryview | None = None
        self._sends_large_frames = False
        self._backlog: bytes | None = None
        self._filled = 0
        self._frame_size = 0
        self._reasons = 0
        self._is_read = True
        self._answers: deque[Answer] = deque()
        self._held_bytes = 0
        self.unread_bytes = 0
        """Bytes of responses that wait for the client or for an earlier response, as last counted by the listener.

        Exact if there are many. May be read from any thread.
        """
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._writes: deque[tuple[int, int]] = deque()
        """Size and memory of each write that is not known to be sent, from the first large one on."""
        self._writes_bytes = self._writes_memory = 0
        self.closed = False
        self.peer = "?"
        self.client_id = ""
        self.software = ""
        self.stopwatch: Stopwatch | None = None
        """Set by the handler for the request that it is about to answer; the next response takes it."""
        self.request: object = None
        """Set likewise: what identifies the request in the log, or None if it may take as long as it likes."""
        self.last_active = listener.now
        self.frame_since = 0.0
        self.answers_blocked_since = 0.0

    # ---- lifecycle ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without the base class, so there is nothing to assert.
        transport = self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH)
        self._listener.on_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._take_backlog()
        self._forget_partial()
        self._answers.clear()
        self.count_unread()
        self._listener.on_disconnected(self)

    def eof_received(self) -> bool:
        return False

    def close(self, reason: str | None = None) -> None:
        """Close the connection at once. `reason`, if given, is logged (rate-limited) and counted."""
        if self.closed or self._transport is None:
            return
        if reason is not None:
            self._listener.on_refused(self, reason)
        self.closed = True
        self._transport.abort()

    # ---- receiving ------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._pooled is not None:
            return self._pooled[self._filled :]
        partial = self._partial
        if partial is None:
            if self._sends_large_frames or self._listener.is_out_of_memory:
                # Read only the start of the next large frame here; the rest is received into its final place. Also read
                # little if there is no memory for the start of a frame, or for what is left over at a pause.
                return self._listener.shared_buffer[:_PARTIAL_SIZE_MIN]
            return self._listener.shared_buffer
        if self._filled == len(partial):
            # The buffer grows here and not when bytes arrive: there the event loop still holds it, and a bytearray
            # with a view cannot grow.
            growth = min(len(partial), self._frame_size - len(partial)) if self._frame_size else _PARTIAL_SIZE_MIN
            partial.extend(bytes(growth))
            self._listener.partial_bytes += growth
        return memoryview(partial)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        listener = self._listener
        self.last_active = listener.now
        listener.received_bytes += nbytes
        if self._pooled is not None:
            self._filled += nbytes
            if self._filled == self._frame_size:
                frame = self._pooled[_PREFIX:]
                self._forget_partial()
                self._listener.handler.on_frame(self, frame)
            return
        if self._partial is None:
            self._take_frames(self._listener.shared_buffer[:nbytes])
            return
        self._filled += nbytes
        if not self._frame_size and not self._read_frame_size():
            return
        if self._filled == self._frame_size:
            partial = self._partial
            self._forget_partial()
            self._listener.handler.on_frame(self, memoryview(partial)[_PREFIX:])
        elif self._filled == len(self._partial) and not self._listener.may_grow(self, self._filled):
            self.pause(Pause.MEMORY)

    def _take_frames(self, view: memoryview) -> None:
        """Split the shared buffer into whole frames, and keep the rest as a partial frame."""
        position, end = 0, len(view)
        on_frame = self._listener.handler.on_frame
        while end - position >= _PREFIX_AND_KEY:
            size, api_key = _SIZE_AND_KEY.unpack_from(view, position)
            if not self._size_is_allowed(size, api_key):
                return
            stop = position + _PREFIX + size
            if stop > end:
                break
            on_frame(self, memoryview(bytearray(view[position + _PREFIX : stop])))
            position = stop
            if self._reasons or self.closed:
                self._keep_backlog(bytes(view[position:]))
                return
        if position < end:
            self._start_partial(view[position:])

    def _keep_backlog(self, backlog: bytes) -> None:
        self._backlog = backlog
        self._listener.partial_bytes += len(backlog)

    def _take_backlog(self) -> bytes:
        backlog, self._backlog = self._backlog or b"", None
        self._listener.partial_bytes -= len(backlog)
        return backlog

    def _start_partial(self, rest: memoryview) -> None:
        self._filled = len(rest)
        self._frame_size = 0
        self.frame_since = self._listener.now
        self._partial = bytearray(max(_PARTIAL_SIZE_MIN, len(rest)))
        self._partial[: len(rest)] = rest
        self._read_frame_size()
        self._sends_large_frames = self._frame_size > _LARGE_FRAME_SIZE
        if self._sends_large_frames and self._frame_size <= BUFFER_SIZE:
            buffer = self._listener.buffers.take()
            if buffer is not None:
                self._pooled = memoryview(buffer)[: self._frame_size]
                self._pooled[: len(rest)] = rest
                self._partial = None
                return
        if self._frame_size and len(self._partial) > self._frame_size:
            # Receive no byte of the next frame into this one's buffer.
            del self._partial[self._frame_size :]
        elif not self._frame_size:
            del self._partial[_PREFIX_AND_KEY:]
        self._listener.partial_bytes += len(self._partial)

    def _read_frame_size(self) -> bool:
        """Once its first bytes are here, learn how long the frame is. False: not yet, or refused."""
        assert self._partial is not None
        if self._filled < _PREFIX_AND_KEY:
            if self._filled >= _PREFIX:
                # An invalid length is rejected now: the rest of the frame may never arrive.
                self._size_is_allowed(_SIZE.unpack_from(self._partial)[0], _PRODUCE_KEY)
            return False
        size, api_key = _SIZE_AND_KEY.unpack_from(self._partial)
        if not self._size_is_allowed(size, api_key):
            return False
        self._frame_size = size + _PREFIX
        return True

    def _size_is_allowed(self, size: int, api_key: int) -> bool:
        options = self._listener.options
        size_max = options.request_bytes_max if api_key == _PRODUCE_KEY else options.control_request_bytes_max
        if _FRAME_SIZE_MIN <= size <= size_max:
            return True
        self.close(f"a request of {size} bytes with api key {api_key}; allowed are {_FRAME_SIZE_MIN} to {size_max}")
        return False

    def _forget_partial(self) -> None:
        self._pooled = None
        self._filled = 0
        self._frame_size = 0
        self.frame_since = 0.0
        if self._partial is not None:
            self._listener.partial_bytes -= len(self._partial)
            self._partial = None
            self._listener.on_memory_freed(self)

    # ---- answering ------------------------------------------------------------------------------

    def open_answer(self) -> Answer:
        """Take the next position in the order of responses."""
        answer = Answer(self, self.stopwatch, self._listener.now)
        self._answers.append(answer)
        if len(self._answers) >= self._listener.options.requests_in_flight_max:
            self.pause(Pause.REQUESTS)
        return answer

    def look_for_slow(self, before: float) -> None:
        """Report the requests that came before this time and have no answer yet."""
        for answer in self._answers:
            if answer.since > before:
                return
            if answer.request is not None and answer.buffers is None and not answer.is_slow:
                answer.is_slow = True
                self.report_slow(answer, is_answered=False)

    def report_slow(self, answer: Answer, *, is_answered: bool) -> None:
        listener = self._listener
        seconds = listener.loop.time() - answer.since - listener.clock_error_s
        listener.handler.on_slow(self, answer.request, seconds, is_answered)

    def flush_answers(self, ready: Answer) -> None:
        """A response is ready: write it and those that waited for it, or keep it until all earlier ones are ready."""
        answers = self._answers
        if self.closed:
            return
        if answers[0] is not ready:
            self._hold(ready)
            return
        if not self._out:
            # One sync of the disk completes many requests: their responses are sent together, in one write.
            self._listener.write_soon(self)
        while answers:
            buffers = answers[0].buffers
            if buffers is None:
                break
            self._held_bytes -= answers.popleft().held_bytes
            self._out += buffers
            for buffer in buffers:
                self._out_bytes += len(buffer)
        if self._out_bytes > _WRITE_BUFFER_HIGH:
            # Enough to fill the socket: writing now shows whether the client reads fast enough.
            self.write_out()
        if self._reasons & Pause.REQUESTS and len(answers) <= self._listener.options.requests_in_flight_max // 2:
            self.resume(Pause.REQUESTS)
        if self._reasons & Pause.ORDER and self._held_bytes <= _WRITE_BUFFER_HIGH:
            self.resume(Pause.ORDER)
        if self._out_bytes > _COUNTED_SIZE_MIN or self.unread_bytes or self._reasons & Pause.ANSWERS:
            # At once, and not when it is written: before that, many others may get as much.
            self.count_unread()

    def _hold(self, answer: Answer) -> None:
        """Limit the memory for responses of a client that pipelines requests after one that takes long."""
        assert answer.buffers is not None
        answer.held_bytes = sum(map(len, answer.buffers))
        self._held_bytes += answer.held_bytes
        if self._held_bytes > _WRITE_BUFFER_HIGH:
            self.pause(Pause.ORDER)
        if self._held_bytes > _COUNTED_SIZE_MIN:
            self.count_unread()

    def count_unread(self) -> None:
        """Update `unread_bytes`, here and in the listener's sum."""
        unsent, writes = self.unsent_bytes, self._writes
        # The buffers of a write stay in memory, all of them, until the last byte of the last one is sent.
        while writes and self._writes_bytes - writes[0][0] >= unsent:
            size, memory = writes.popleft()
            self._writes_bytes -= size
            self._writes_memory -= memory
        unread = 0 if self.closed else self._held_bytes + self._out_bytes + max(unsent, self._writes_memory)
        self._listener.blocked_bytes += unread - self.unread_bytes
        self.unread_bytes = unread

    def write_out(self) -> None:
        """Write the collected responses to the socket."""
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if not out or self.closed or self._transport is None:
            return
        self._listener.sent_bytes += size
        if size > _JOINED_SIZE_MAX or self._writes:
            memory = sum(map(_memory_of, out))
            self._writes.append((size, memory))
            self._writes_bytes += size
            self._writes_memory += memory
        if size <= _JOINED_SIZE_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
            # asyncio's own `writelines` does not call `pause_writing` in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1
            # (CVE-2024-12254), so unread answers would neither stop reads nor time out. Setting the limits again does.
            if self._transport.get_write_buffer_size() > _WRITE_BUFFER_HIGH:
                self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH)
        if self.unread_bytes:
            self.count_unread()

    @property
    def limits(self) -> ListenerOptions:
        """The limits of the connection's listener."""
        return self._listener.options

    @property
    def is_busy(self) -> bool:
        """Whether a request waits for its response, or a response for the client."""
        return self.is_asked or bool(self._out) or self.unsent_bytes > 0

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has closed the connection. Nothing else tells while it is not read."""
        if self.closed or self._transport is None:
            return True
        found = self._transport.get_extra_info("socket")
        try:
            state: int = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except (AttributeError, OSError, ValueError):
            return False  # Not known: the system has no such option.
        return state != _ESTABLISHED

    @property
    def is_asked(self) -> bool:
        """Whether a request waits for its response."""
        return bool(self._answers) or bool(self._reasons & Pause.HANDLER)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not received yet."""
        return 0 if self._transport is None or self.closed else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        self.answers_blocked_since = self._listener.now
        self.count_unread()
        self.pause(Pause.ANSWERS)

    def resume_writing(self) -> None:
        self.answers_blocked_since = 0.0
        self.count_unread()
        self.resume(Pause.ANSWERS)

    # ---- flow -----------------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        self._reasons |= reason
        if self._is_read and not self.closed and self._transport is not None:
            self._is_read = False
            self._transport.pause_reading()

    def resume(self, reason: Pause) -> None:
        before = self._reasons
        self._reasons &= ~reason
        if before and not self._reasons:
            # Scheduled, because the caller may be in code that must not be re-entered.
            self._listener.loop.call_soon(self._continue_reading)

    def _is_held(self) -> bool:
        return bool(self._reasons) or self.closed

    def _continue_reading(self) -> None:
        """Handle what was received before the pause, then read again."""
        if self._is_held() or self._transport is None:
            return
        if self._backlog is not None:
            self._take_frames(memoryview(self._take_backlog()))
            self._listener.on_memory_freed(self)
            if self._is_held():
                return
        if not self._is_read:
            self._is_read = True
            self._transport.resume_reading()


def _memory_of(buffer: Buffer) -> int:
    """The bytes that a buffer keeps in memory. A view keeps all of what it is a part of."""
    return len(cast(Sized, buffer.obj)) if isinstance(buffer, memoryview) else len(buffer)
