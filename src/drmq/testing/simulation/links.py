"""The links between machines and their faults: cuts, also one-way, loss, delay, duplication, reordering."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drmq.testing.simulation.world import World


class Links:
    """Which machine reaches which, and how reliably. Machines are numbered; 0 stands for the clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_us_max = 400
        self.late = 0.0
        """The probability that a message takes far longer than the others, and is overtaken."""
        self.late_us_max = 0

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut

    @property
    def has_cuts(self) -> bool:
        return bool(self._cut)

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        self._cut.update(ways)

    def restore(self, ways: Iterable[tuple[int, int]] | None = None) -> None:
        """Restore these links, or all."""
        if ways is None:
            self._cut.clear()
        else:
            self._cut.difference_update(ways)

    def reset(self) -> None:
        """Remove all faults."""
        self.restore()
        self.loss = self.duplication = self.late = 0.0
        self.delay_us_max = 400

    def delay_us(self) -> int:
        """The delay of the next message."""
        random = self._random
        delay = 50 + random.randrange(self.delay_us_max)
        if self.late and random.random() < self.late:
            delay += random.randrange(self.late_us_max)
        return delay

    def carry(self, source: int, target: int, name: str, arrive: Callable[[], object], *, once: bool) -> None:
        """Send a datagram: it arrives once, or never, or, unless `once`, twice; not always in order."""
        random, world = self._random, self._world
        if (source, target) in self._cut or (self.loss and random.random() < self.loss):
            world.counts["lost"] += 1
            return

        def deliver() -> None:
            if (source, target) not in self._cut:
                arrive()

        world.later(self.delay_us(), name, deliver)
        if self.duplication and not once and random.random() < self.duplication:
            world.counts["doubled"] += 1
            world.later(self.delay_us(), name, deliver)
