"""Runs the tests with real processes again and again on a machine without time to spare; lists what failed how often.

Beside them run processes that burn CPU, each in a session of its own, and so is each worker of pytest: a scheduler that
shares the CPU between sessions then gives each as much as a broker. A test that needs a quiet machine fails here sooner
or later. The list at the end should be empty; the output of each round with failures is in `build/flaky`.

As a program: `flaky.py --rounds 20 --burners 8 [--workers 2] [ARGUMENT...]` with arguments for pytest, or else all
tests with processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.rerun import FAILED, SPARK, WITHOUT_SPARK, WORKER_SESSIONS, run_pytest

BURN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
"""Ends by itself when its parent is gone, however that ended."""
OUTPUT = Path("build/flaky")


@contextlib.contextmanager
def burners(count: int) -> Iterator[None]:
    """So many processes that burn CPU, until the end of the block."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            running.append(subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True))
        yield
    finally:
        for burner in running:
            burner.kill()
        for burner in running:
            burner.wait()


def parts(workers: int, chosen: list[str]) -> dict[str, list[str]]:
    """The runs of pytest that make a round, by name. Spark's tests share one session, so they have no workers."""
    if chosen:
        return {"chosen": ["-q", *chosen]}
    with_workers = ["-q", "-n", str(workers), "--dist", "worksteal", *WITHOUT_SPARK]
    return {"tests": with_workers, "spark": ["-q", SPARK]}


def run_part(round_number: int, name: str, arguments: list[str]) -> list[str]:
    """What failed."""
    log = OUTPUT / f"round-{round_number}-{name}.log"
    log.unlink(missing_ok=True)
    status, failed = run_pytest(arguments, log)
    return failed if status in (0, FAILED) else [f"pytest ended with {status}: {log}"]


def main(words: list[str]) -> int:
    """The exit status: whether anything failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--burners", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options, chosen = parser.parse_known_args(words)
    counts: Counter[str] = Counter()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    os.environ[WORKER_SESSIONS] = "1"
    done = 0
    with burners(options.burners), contextlib.suppress(KeyboardInterrupt):
        for number in range(1, options.rounds + 1):
            began = time.monotonic()
            # One after the other: Spark gives a new Python process ten seconds to connect, whatever else is running.
            wanted = parts(options.workers, chosen)
            failed = [test for name, arguments in wanted.items() for test in run_part(number, name, arguments)]
            counts.update(failed)
            done = number
            print(
                f"round {number}: {len(failed)} failed, {time.monotonic() - began:.0f} s",
                *failed,
                sep="\n  ",
                flush=True,
            )
    print(f"\n{done} rounds beside {options.burners} processes that burn CPU: {len(counts)} tests failed")
    for test, count in counts.most_common():
        print(f"{count:4d}  {test}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
