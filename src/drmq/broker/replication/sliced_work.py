"""Long work on the event loop, in slices: whatever else is ready gets its turn between two of them.

Work that looks at every replica of a node takes as long as the node has replicas. Done in one callback, it would delay
heartbeats and clients; on a machine that is short of processor time by so much that other nodes consider this one down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

SLICE_S = 0.005
"""About how long a slice takes."""


class SlicedWork:
    """Pieces of work that run one after the other. A piece is an iterator, each step of which is short."""

    def __init__(self) -> None:
        self._pieces: deque[Iterator[None]] = deque()

    @property
    def is_busy(self) -> bool:
        return bool(self._pieces)

    def add(self, steps: Iterator[None]) -> None:
        """Do a piece of work after those before it. Its first slice runs at once if there are none."""
        self._pieces.append(steps)
        if len(self._pieces) == 1:
            self._run()

    def clear(self) -> None:
        self._pieces.clear()

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + SLICE_S
        piece = self._pieces[0]
        is_over = True
        try:
            for _ in piece:
                if loop.time() >= end:
                    is_over = False
                    break
        finally:
            # After a bug in a piece, which the loop reports, the others must not wait for ever.
            if is_over and self._pieces:
                self._pieces.popleft()
            if self._pieces:
                loop.call_soon(self._run)
