"""A few large receive buffers that are reused.

A fresh megabyte costs hundreds of page faults before its first byte is received, which is more than receiving it.
Frames of up to a megabyte are therefore received into buffers of a small pool. A frame stays in use as views of its
buffer, for example in the queue of the writer thread, so a buffer is free when there are no more views of it. Python
can tell: a bytearray with views refuses to change its size.
"""

from __future__ import annotations

from collections import deque

BUFFER_SIZE = 1_114_112
"""A megabyte, up to which clients fill a request, and some room for its header."""

_COUNT_MAX = 16


class BufferPool:
    """Provides free buffers. Used by one event loop; grows to its limit on demand."""

    def __init__(self, count_max: int = _COUNT_MAX) -> None:
        self._buffers: deque[bytearray] = deque()
        self._count_max = count_max

    def take(self) -> bytearray | None:
        """A free buffer of `BUFFER_SIZE`, or None if all are in use. It still has its old content.

        The caller must create a view at once: without a view, the buffer counts as free.
        """
        for _ in range(len(self._buffers)):
            buffer = self._buffers[0]
            self._buffers.rotate(-1)
            if not _is_viewed(buffer):
                return buffer
        if len(self._buffers) == self._count_max:
            return None
        buffer = bytearray(BUFFER_SIZE)
        self._buffers.append(buffer)
        return buffer


def _is_viewed(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False
