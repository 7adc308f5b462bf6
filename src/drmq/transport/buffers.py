"""A few large receive buffers, used again and again.

A fresh megabyte costs hundreds of page faults before its first byte is received, which is more than
receiving it. Frames of up to a megabyte are therefore received into buffers of a small pool. A frame
goes on living as views into its buffer, in the queue of the writer thread for one, so a buffer
is free when no view of it is left. Python knows: a bytearray that someone views refuses to change
its size.
"""

from __future__ import annotations

from collections import deque

BUFFER_SIZE = 1_114_112
"""A megabyte, which is what clients fill a request up to, and some room for its head."""

_COUNT_MAX = 16


class BufferPool:
    """Hands out buffers that nobody uses. Made for one event loop; grows to its limit when first needed."""

    def __init__(self, count_max: int = _COUNT_MAX) -> None:
        self._buffers: deque[bytearray] = deque()
        self._count_max = count_max

    def take(self) -> bytearray | None:
        """A buffer of `BUFFER_SIZE` that is free, or None if all are in use. Its old content is still in it.

        The caller views it at once: without a view, it counts as free.
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
