"""How long a peer has been silent, and how long it may be.

A busy peer sends its heartbeats late. Whoever takes it for dead adds to what keeps it busy: elections, greetings, and
everything that it missed. So the limit follows the pauses that were seen between its messages: it is a multiple of the
longest recent one, between a floor, which is the configured timeout, and a ceiling. A pause that turned out not to be
the end of the peer counts too, as far as the limit then was, so a limit that was too short grows with each mistake.

Time in which this process itself did not run is not silence of the peer (`forgive`): what it sent may not be read yet.
"""

from __future__ import annotations

_PAUSES = 3
"""How many times the longest recent pause a peer may be silent."""
_DECAY = 0.1
"""How much the longest pause shrinks per second: one of a second is forgotten after ten."""
_NEVER = float("-inf")
CEILING = 10
"""How many times longer than configured a timeout may become."""


class Silence:
    """The silence of one peer. Times are seconds of the event loop."""

    __slots__ = ("_floor_s", "_heard_at", "_pause_s")

    def __init__(self, floor_s: float) -> None:
        self._floor_s = floor_s
        self._heard_at = _NEVER
        self._pause_s = 0.0

    @property
    def limit_s(self) -> float:
        """After this much silence, the peer is considered down."""
        return min(max(self._floor_s, _PAUSES * self._pause_s), CEILING * self._floor_s)

    def length_s(self, now: float) -> float:
        return now - self._heard_at

    def is_too_long(self, now: float) -> bool:
        return now - self._heard_at > self.limit_s

    def on_heard(self, now: float) -> None:
        """Something was received from the peer."""
        pause_s = 0.0 if self._heard_at == _NEVER else now - self._heard_at
        if pause_s > self._pause_s:
            self._pause_s = min(pause_s, self.limit_s)
        else:
            self._pause_s -= _DECAY * pause_s
        self._heard_at = now

    def on_started(self, now: float) -> None:
        """The peer has a new process. How slow the last one was says nothing about it."""
        self._heard_at = now
        self._pause_s = 0.0

    def forgive(self, late_s: float, now: float) -> None:
        """Do not count `late_s` against the peer: this process did not run then."""
        self._heard_at = min(self._heard_at + late_s, now)
