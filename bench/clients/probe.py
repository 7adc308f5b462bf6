"""What the programs that sit through failovers have in common.

A probe writes without pause and is asked, over its standard input, how long it took after a
moment until a write that began later was acknowledged, or what was the longest time without
an acknowledgement. Moments are those of `perf_counter`, which on Linux is one clock for all processes.

    after 1234.5          answered by {"seconds": 1.2}, or null if nothing is acknowledged in time
    gap 1234.5 1236.0     answered by {"seconds": 0.1, "failed": 2}: the longest gap, and what failed so far
    end                   answered by {"acknowledged": 1000, "failed": 2}, and the probe ends
"""

import json
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

ANSWER_SECONDS_MAX = 60.0
RECENT_COUNT_MAX = 10_000


@dataclass(frozen=True)
class ProbeTask:
    """What a probe writes, and where."""

    ports: tuple[int, ...]
    topic: str
    record_size: int
    records_per_second: float
    is_eager: bool = False
    """Retry and look for the leader every 50 ms, instead of what the client library does by itself."""


EAGER_PAUSE_SECONDS = 0.05


class Acknowledgements:
    """What was acknowledged and when; asked by the thread that reads standard input."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failed = 0
        self.is_ended = False
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_COUNT_MAX)
        self._change = threading.Condition()
        self._is_watched = False

    def add(self, begun_at: float) -> None:
        """A write that began at `begun_at` is acknowledged now."""
        with self._change:
            self.acknowledged += 1
            self._recent.append((begun_at, time.perf_counter()))
            if self.acknowledged == 1:
                print("ready", flush=True)
            if self._is_watched:
                self._change.notify()

    def answer(self) -> None:
        """Answer requests until asked to stop. Only this thread waits."""
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "end":
                break
            if word == "gap":
                begin_at, end_at = map(float, rest.split())
                print(json.dumps({"seconds": self._gap(begin_at, end_at), "failed": self.failed}), flush=True)
            else:
                print(json.dumps({"seconds": self._wait_after(float(rest))}), flush=True)
        self.is_ended = True

    def totals(self) -> None:
        """The last line of a probe."""
        print(json.dumps({"acknowledged": self.acknowledged, "failed": self.failed}), flush=True)

    def _gap(self, begin_at: float, end_at: float) -> float:
        with self._change:
            times = [acknowledged_at for _, acknowledged_at in self._recent]
        return longest_gap(times, begin_at, end_at)

    def _wait_after(self, moment: float) -> float | None:
        deadline = moment + ANSWER_SECONDS_MAX
        with self._change:
            self._is_watched = True
            while True:
                for begun_at, acknowledged_at in self._recent:
                    if begun_at >= moment:
                        self._is_watched = False
                        return acknowledged_at - moment
                if not self._change.wait(max(0.0, deadline - time.perf_counter())):
                    return None


def longest_gap(times: list[float], begin_at: float, end_at: float) -> float:
    """The longest time between two acknowledgements, of those gaps that touch the time from `begin_at` to `end_at`.

    `times` are in order. What is not over is as long as it is known to be: before the first to `begin_at`, after the
    last to `end_at`.
    """
    edges = [begin_at, end_at]
    if times:
        edges = [min(begin_at, times[0]), *times, max(end_at, times[-1])]
    gaps = (later - earlier for earlier, later in pairwise(edges) if later > begin_at and earlier < end_at)
    return max(gaps, default=0.0)


def begin() -> tuple[ProbeTask, Acknowledgements]:
    """The task of the command line, and the reporting of acknowledgements."""
    task = ProbeTask(**json.loads(sys.argv[1]))
    acknowledgements = Acknowledgements()
    threading.Thread(target=acknowledgements.answer, daemon=True).start()
    return task, acknowledgements
