"""How often the greetings of unknown nodes are answered.

An unknown node is one that is neither configured nor in the catalog. It may be about to join, so it is answered: it
learns whether this node belongs to a cluster, and may register. But any process that reaches the port can greet, and
with a new id each time. So each address gets a number of answers at once, and further ones at a slow rate. All other
connections of unknown nodes are closed without an answer. Nothing is kept of an unknown node but this count.
"""

from __future__ import annotations

from typing import Final

ANSWERS_MAX: Final = 64
"""Answers to one address at once. A node that joins needs four connections, and four more once it has joined."""

ANSWERS_PER_S: Final = 8.0
"""The rate of further answers to one address. A node that is refused dials once a second."""

CONNECTED_S: Final = 10.0
"""How long an unknown node may stay connected. One that is still trying to join dials again."""

CONNECTIONS_MAX: Final = 64
"""Open connections of unknown nodes."""

_ADDRESSES_MAX: Final = 1_024


class Strangers:
    """Counts the answers to unknown nodes, by the address that they dial from."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """By address: how many answers it may get now, and when that was computed."""

    def __len__(self) -> int:
        return len(self._left)

    def may_answer(self, host: str, now: float) -> bool:
        """Whether a greeting from this address is answered. If so, it is counted."""
        left, counted_at = self._left.pop(host, (float(ANSWERS_MAX), now))
        left = min(float(ANSWERS_MAX), left + (now - counted_at) * ANSWERS_PER_S)
        if len(self._left) >= _ADDRESSES_MAX:
            # The address that has been silent longest is the first: each is added again whenever it is counted.
            del self._left[next(iter(self._left))]
        is_answered = left >= 1
        self._left[host] = (left - 1 if is_answered else left, now)
        return is_answered
