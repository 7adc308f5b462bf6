"""The data that waits to be written to one connection: messages combined into frames.

A thousand groups that tick together send a thousand small messages to the same peer. They share a frame, and with it
one checksum and one pass through the event loop. A frame is closed when it is large enough: a receiver that keeps one
small payload keeps the whole frame in which it arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.model import GroupId
from drmq.transport.connection import Buffer
from drmq.transport.peers.codec import encode_message
from drmq.transport.peers.frames import ENVELOPE_SIZE, PREFIX_SIZE, FrameType, encode_frame
from drmq.transport.peers.messages import PeerMessage

FRAME_BYTES_TARGET = 65_536


class Outbox:
    """Frames in the order in which they are sent. Belongs to one connection, and is discarded with it.

    `size_bytes` is the size of what `take` would return, without the envelope of a frame that is not closed yet.
    """

    __slots__ = ("_buffers", "_frame_bytes_max", "_heads", "_open_bytes", "_payload", "_target_bytes", "size_bytes")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._target_bytes = min(FRAME_BYTES_TARGET, frame_bytes_max - ENVELOPE_SIZE)
        self._buffers: list[Buffer] = []
        self._heads: list[bytes] = []
        self._payload: list[Buffer] = []
        self._open_bytes = 0
        self.size_bytes = 0

    def add_message(self, group: GroupId, message: PeerMessage) -> bool:
        """Add a message; False if it is larger than the largest frame."""
        head, payload = encode_message(group, message)
        size = len(head) + sum(map(len, payload)) if payload else len(head)
        if not self.fits(size):
            return False
        if self._heads and self._open_bytes + size > self._target_bytes:
            self._close_frame()
        self._heads.append(head)
        self._payload += payload
        self._open_bytes += size
        self.size_bytes += size
        return True

    def add_frame(self, frame_type: FrameType, head: bytes, payload: Sequence[Buffer] = ()) -> bool:
        """Add a whole frame after the messages that were added before; False if it is larger than the largest frame."""
        size = len(head) + sum(map(len, payload))
        if not self.fits(size):
            return False
        if self._heads:
            self._close_frame()
        self._buffers += encode_frame(frame_type, head, payload)
        self.size_bytes += ENVELOPE_SIZE + size
        return True

    def fits(self, size_bytes: int) -> bool:
        """Whether a frame with a head and payload of this size is allowed."""
        return ENVELOPE_SIZE - PREFIX_SIZE + size_bytes <= self._frame_bytes_max

    def take(self) -> list[Buffer]:
        """Remove and return everything, to be written."""
        if self._heads:
            self._close_frame()
        buffers, self._buffers, self.size_bytes = self._buffers, [], 0
        return buffers

    def _close_frame(self) -> None:
        self._buffers += encode_frame(FrameType.MESSAGES, b"".join(self._heads), self._payload)
        self._heads, self._payload, self._open_bytes = [], [], 0
        self.size_bytes += ENVELOPE_SIZE
