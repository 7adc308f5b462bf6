"""Frames: how the bytes on a connection between nodes are divided and checked, and received without copying large ones.

    size        u32     of all that follows
    crc         u32     CRC-32C of all that follows it, starting with the size
    head size   u32
    head                one byte with the type of the frame, then the fields of that type
    payload             the data that the head describes: batches, a chunk of a snapshot, a request

The checksum also covers the payload. Batches have their own checksum, but it does not include their offset and epoch,
which must not change either. The cost is small: for a megabyte, a small part of the time it takes to receive it.

`FrameReceiver` works like `drmq.transport.connection`: one shared buffer for all connections that are between frames,
memory that grows with the bytes received and not with the announced length, and pooled buffers for large frames. A
frame that may be kept is never a view of the shared buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from drmq.transport.buffers import BUFFER_SIZE, BufferPool
from drmq.transport.connection import Buffer
from drmq.wire import ProtocolError

PREFIX_SIZE = 4
_PREFIX = Struct(">I")
_CHECK = Struct(">II")
_CHECK_SIZE = _CHECK.size
_CRC_SIZE = 4
_FRAME_SIZE_MIN = _CHECK_SIZE + 1
_WHOLE_PREFIX = Struct(">III")
_HEAD_SIZE = Struct(">I")

ENVELOPE_SIZE = PREFIX_SIZE + _FRAME_SIZE_MIN
"""The size of a frame without its head and payload."""

_PARTIAL_SIZE_MIN = 4_096
_LARGE_FRAME_SIZE = 65_536


class FrameType(IntEnum):
    """The types of frames. The numbers are sent, so they never change."""

    HELLO = 1
    REFUSAL = 2
    NODE_HEARTBEAT = 3
    MESSAGES = 4
    NOTICES = 5
    REQUEST = 6
    ANSWER = 7


class Frame(NamedTuple):
    """A received frame with a valid checksum. Head and payload are views of the receive buffer."""

    type: int
    head: memoryview
    payload: memoryview


def encode_frame(frame_type: FrameType, head: bytes, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Encode a frame as buffers to be written in order. The payload is not copied, so it must not change."""
    head_size = 1 + len(head)
    size = _CHECK_SIZE + head_size + sum(map(len, payload))
    start = bytes((frame_type,)) + head
    crc = crc32c(start, crc32c(_HEAD_SIZE.pack(head_size), size))
    for buffer in payload:
        crc = crc32c(buffer, crc)
    return [_WHOLE_PREFIX.pack(size, crc, head_size) + start, *payload]


def parse_frame(frame: memoryview) -> Frame:
    """Parse a frame from its bytes, without the size prefix. Raises `ProtocolError`."""
    if len(frame) < _FRAME_SIZE_MIN:
        raise ProtocolError(f"a frame of {len(frame)} bytes is too short")
    crc, head_size = _CHECK.unpack_from(frame)
    if crc32c(frame[_CRC_SIZE:], len(frame)) != crc:
        raise ProtocolError(f"a frame of {len(frame)} bytes is damaged: its checksum is wrong")
    head_end = _CHECK_SIZE + head_size
    if not _FRAME_SIZE_MIN <= head_end <= len(frame):
        raise ProtocolError(f"a frame of {len(frame)} bytes cannot have a head of {head_size}")
    return Frame(frame[_CHECK_SIZE], frame[_FRAME_SIZE_MIN:head_end], frame[head_end:])


class FrameReceiver:
    """The receiving side of one connection: provides the buffer for incoming bytes, and returns complete frames."""

    __slots__ = (
        "_expects_large",
        "_filled",
        "_partial",
        "_pool",
        "_pooled",
        "_shared",
        "_size",
        "frame_bytes_max",
        "may_keep",
    )

    def __init__(self, shared: memoryview, pool: BufferPool, frame_bytes_max: int) -> None:
        self._shared = shared
        self._pool = pool
        self.frame_bytes_max = frame_bytes_max
        """The largest frame, without its size prefix. May change between frames."""
        self.may_keep = True
        """Whether frames outlive their handling. If not, small ones are views of the shared buffer."""
        self._partial: bytearray | None = None
        self._pooled: memoryview | None = None
        self._filled = 0
        self._size = 0
        """The size of the frame that is being received, with its prefix; 0 while it is not known."""
        self._expects_large = False

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has been received in part."""
        return self._partial is not None or self._pooled is not None

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes. Only valid until `take_frames`."""
        if self._pooled is not None:
            return self._pooled[self._filled :]
        partial = self._partial
        if partial is None:
            # Only the beginning of a large frame goes into the shared buffer; the rest goes directly to its own buffer.
            return self._shared[:_PARTIAL_SIZE_MIN] if self._expects_large else self._shared
        if self._filled == len(partial):
            # The buffer cannot grow when bytes arrive, because the event loop still has a view of it then.
            partial.extend(bytes(min(max(len(partial), _PARTIAL_SIZE_MIN), self._size - len(partial))))
        return memoryview(partial)[self._filled :]

    def take_frames(self, received: int) -> Iterator[memoryview]:
        """The frames that are complete with these bytes, without their prefix. Raises `ProtocolError`.

        Each must be handled before the next one is taken, and all before the next bytes are received.
        """
        if self._pooled is None and self._partial is None:
            yield from self._cut_frames(self._shared[:received])
            return
        self._filled += received
        if self._pooled is not None:
            if self._filled == self._size:
                frame = self._pooled[PREFIX_SIZE:]
                self._forget_partial()
                yield frame
            return
        assert self._partial is not None
        if not self._size:
            if self._filled < PREFIX_SIZE:
                return
            self._size = self._read_size(memoryview(self._partial), 0)
        if self._filled == self._size:
            frame = memoryview(self._partial)[PREFIX_SIZE:]
            self._forget_partial()
            yield frame

    def _cut_frames(self, view: memoryview) -> Iterator[memoryview]:
        position, end = 0, len(view)
        while end - position >= PREFIX_SIZE:
            stop = position + self._read_size(view, position)
            if stop > end:
                break
            frame = view[position + PREFIX_SIZE : stop]
            position = stop
            yield memoryview(bytearray(frame)) if self.may_keep else frame
        if position < end:
            self._start_partial(view[position:])

    def _read_size(self, view: memoryview, position: int) -> int:
        (size,) = _PREFIX.unpack_from(view, position)
        if not _FRAME_SIZE_MIN <= size <= self.frame_bytes_max:
            raise ProtocolError(f"a frame has {size} bytes; allowed are {_FRAME_SIZE_MIN} to {self.frame_bytes_max}")
        return PREFIX_SIZE + int(size)

    def _start_partial(self, rest: memoryview) -> None:
        self._filled = len(rest)
        if self._filled < PREFIX_SIZE:
            self._partial = bytearray(PREFIX_SIZE)
            self._partial[: self._filled] = rest
            return
        size = self._size = self._read_size(rest, 0)
        self._expects_large = size > _LARGE_FRAME_SIZE
        buffer = self._pool.take() if self._expects_large and size <= BUFFER_SIZE else None
        if buffer is not None:
            self._pooled = memoryview(buffer)[:size]
            self._pooled[: self._filled] = rest
            return
        # Not longer than the frame, so that it gets no bytes of the next one.
        self._partial = bytearray(min(size, max(_PARTIAL_SIZE_MIN, self._filled)))
        self._partial[: self._filled] = rest

    def _forget_partial(self) -> None:
        self._partial = None
        self._pooled = None
        self._filled = 0
        self._size = 0
