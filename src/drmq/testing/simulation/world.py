"""The only clock and the only source of randomness: everything in a simulation is an event here.

An event has a time, a name and a function. The earliest one runs next; of two at the same time, the one that was
scheduled first. Nothing else determines the order, so the seed determines everything. The hash of all times and names
shows whether two runs were identical.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drmq.testing.simulation.loop import SimulatedLoop

MS = 1_000
"""Microseconds, the unit of virtual time, in a millisecond."""
SECOND = 1_000_000

_STORY_LINES = 2_000
_STAMP = Struct(">QI")


class Violation(Exception):
    """An invariant does not hold. `rule` is its name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(rule, text)
        self.rule = rule
        self.text = text

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class World:
    """Virtual time, the scheduled events, and the story so far."""

    def __init__(self, seed: int, on_line: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_us = 0
        self.counts: Counter[str] = Counter()
        """How often each kind of event happened, and other counts."""
        self._events: list[tuple[int, int, str, Callable[[], object]]] = []
        self._sequence = 0
        self._hash = blake2b(digest_size=8)
        self._names: dict[str, int] = {}
        self._story: deque[str] = deque(maxlen=_STORY_LINES)
        self._on_line = on_line
        self.dead_loops: list[SimulatedLoop] = []
        """The loops of processes that have ended, with what they left."""
        self.broken: Violation | None = None
        """The first violation. It is stored here because code under test may swallow exceptions."""

    def later(self, delay_us: int, name: str, event: Callable[[], object]) -> None:
        """Schedule an event after a delay."""
        self._sequence += 1
        heappush(self._events, (self.now_us + (delay_us if delay_us > 0 else 0), self._sequence, name, event))

    def repeat(self, name: str, every_us: int, event: Callable[[], object]) -> None:
        """Schedule an event repeatedly, at random times that are `every_us` apart on average."""

        def again() -> None:
            event()
            self.repeat(name, every_us, event)

        self.later(1 + int(self.random.expovariate(1 / every_us)), name, again)

    def step(self) -> None:
        """Run the next event."""
        self.now_us, _, name, event = heappop(self._events)
        self.counts[name] += 1
        number = self._names.setdefault(name, len(self._names))
        self._hash.update(_STAMP.pack(self.now_us, number))
        event()
        if self.broken is not None:
            raise self.broken

    def run_until(self, time_us: int) -> None:
        events = self._events
        while events and events[0][0] <= time_us:
            self.step()
        self.now_us = max(self.now_us, time_us)

    def mark(self, text: str) -> None:
        """Make the hash depend on something that is not an event."""
        self._hash.update(text.encode())

    @property
    def event_count(self) -> int:
        """The number of events scheduled so far."""
        return self._sequence

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    # ---- the story ------------------------------------------------------------------------------

    @property
    def is_printed(self) -> bool:
        """Whether the story is printed while it happens."""
        return self._on_line is not None

    def say(self, who: str, text: str) -> None:
        line = f"{self.now_us / SECOND:10.6f} {who:>8}  {text}"
        self._story.append(line)
        if self._on_line is not None:
            self._on_line(line)

    @property
    def story(self) -> list[str]:
        """The last lines of what happened."""
        return list(self._story)

    def break_rule(self, rule: str, text: str) -> None:
        """Record a violation. The run ends after the current event."""
        if self.broken is None:
            self.broken = Violation(rule, text)
            self.say("!!!", str(self.broken))

    def require(self, holds: bool, rule: str, text: str) -> None:
        if not holds:
            self.break_rule(rule, text)
