"""A short run of `fuzz/fuzz_port.py`, so that neither the broker nor the fuzzer gets rusty. `make fuzz` runs longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ_PORT = Path(__file__).parents[2] / "fuzz" / "fuzz_port.py"


@pytest.mark.parametrize("seed", [1, 2])
def test_broker_bears_damaged_frames(seed: int) -> None:
    """Thousands of damaged requests: a healthy client is served, memory is bounded, no exception is uncaught."""
    command = [sys.executable, str(FUZZ_PORT), "--count", "8000", "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", done.stdout)}
    # Requests that are all refused at the first byte, or a broker that does not answer, would show nothing.
    assert figures["frames"] >= 8_000
    assert figures["answers"] > 500, done.stdout
    assert figures["closed"] > 500, done.stdout
    assert figures["checks"] >= 8
