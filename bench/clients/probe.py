"""What the programs that sit through failovers have in common.

A probe writes without pause and is asked, over its standard input, how long it took after a
moment until a write that began later was acknowledged. Moments are those of `perf_counter`,
which on Linux is one clock for all processes.

    after 1234.5    answered by {"seconds": 1.2}, or null if nothing is acknowledged in time
    end             answered by {"acknowledged": 1000, "failed": 2}, and the probe ends
"""

import json
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

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
        """Answer questions until told to end. The thread of this is the only one that waits."""
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "end":
                break
            print(json.dumps({"seconds": self._wait_after(float(rest))}), flush=True)
        self.is_ended = True

    def totals(self) -> None:
        """The last line of a probe."""
        print(json.dumps({"acknowledged": self.acknowledged, "failed": self.failed}), flush=True)

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


def begin() -> tuple[ProbeTask, Acknowledgements]:
    """The task of the command line, and something to tell about acknowledgements."""
    task = ProbeTask(**json.loads(sys.argv[1]))
    acknowledgements = Acknowledgements()
    threading.Thread(target=acknowledgements.answer, daemon=True).start()
    return task, acknowledgements
