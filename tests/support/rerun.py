"""Runs pytest, and runs what failed with real processes once more, alone: a test that then passes is flaky.

Tests with processes share the machine with whatever else runs there. If one fails in a whole run, the question is
whether the code is wrong or the test cannot stand a busy machine. So each such test is tried again, by itself. If it
fails again, the run fails. If it passes, the run goes on, and the test is written to a file of flaky tests, which
`make test` shows in its last lines: a flaky test is a bug, and somebody has to see it.

All other tests start no node, and no process but one that ends by itself, so they are never run again. Neither is a
run with many failures: those have a cause.

As a program: `rerun.py --flaky FILE ARGUMENT...` with arguments for pytest, or `rerun.py --flaky FILE --report STATUS`
for the last lines of a run that ended with that status.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SPARK = "tests/spark/"
WITHOUT_SPARK = (
    "tests/e2e/",
    "tests/conformance/",
    "tests/browser/",
    # These start a node or a process too, or wait on sockets in real time, but have their place beside others.
    "tests/test_packaging.py",
    "tests/unit/spark/test_view.py",
    "tests/unit/support/test_answers.py",
    "tests/unit/transport/",
)
PLACES = (*WITHOUT_SPARK, SPARK)
"""Where the tests with real processes are. `tests/test_tidy.py` checks that no other test starts a node."""
WORKER_SESSIONS = "PYTEST_WORKER_SESSIONS"
"""The environment variable with which each worker of pytest gets a session of its own. Nodes warn of unknown names that
begin with DRMQ_, so this one does not."""
RERUN_MAX = 10
FAILED = 1
"""pytest's exit status if tests failed. Others say that it could not even run them all."""


def run_pytest(arguments: Sequence[str], log: Path | None = None) -> tuple[int, list[str]]:
    """Run it as a process of its own; its exit status, and the ids of the tests that failed."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
        if log is None:
            status = subprocess.run(command, check=False).returncode
        else:
            with log.open("ab") as output:
                status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        found = Path(cache) / "v/cache/lastfailed"
        return status, sorted(json.loads(found.read_text())) if found.exists() else []


def run_with_second_chance(arguments: Sequence[str], flaky: Path) -> int:
    """Run pytest, and again what may be flaky; what is, is added to the file. The exit status of the whole."""
    sys.stdout.flush()
    status, failed = run_pytest(arguments)
    if status != FAILED or not failed or not all(test.startswith(PLACES) for test in failed):
        return status
    if len(failed) > RERUN_MAX:
        print(f"{len(failed)} tests failed, which is too many to be chance: none is run again")
        return status
    print(f"\nRunning what failed once more, alone: {' '.join(failed)}", flush=True)
    again, failed_again = run_pytest(["-q", "-p", "no:xdist", *failed])
    passed = [test for test in failed if test not in failed_again] if again in (0, FAILED) else []
    flaky.parent.mkdir(parents=True, exist_ok=True)
    with flaky.open("a") as file:
        file.writelines(f"{test}\n" for test in passed)
    print(*(f"FLAKY {test}" for test in passed), sep="\n", flush=True)
    return again


def report(flaky: Path, status: int) -> str:
    """The last lines of a run."""
    found = flaky.read_text().splitlines() if flaky.exists() else []
    lines = ["", "All tests passed." if status == 0 else f"FAILED, with exit status {status}: see above."]
    if found:
        which = "1 test is flaky: it" if len(found) == 1 else f"{len(found)} tests are flaky: each"
        lines.append(f"{which} failed, and passed when it was run again, alone. Mend it ({flaky} has the list):")
        lines += [f"  FLAKY {test}" for test in found]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    assert words[0] == "--flaky", words
    flaky = Path(words[1])
    if words[2] == "--report":
        print(report(flaky, int(words[3])))
        return int(words[3])
    return run_with_second_chance(words[2:], flaky)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
