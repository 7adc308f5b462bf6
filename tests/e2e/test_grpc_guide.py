"""The program of the guide about gRPC does what the guide says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.grpc_client import GATEWAY, grpc_address
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "grpc.md"
DEFAULT_ADDRESS = "localhost:9193"


def test_the_worker_of_the_guide_takes_its_hundred_messages(tmp_path: Path) -> None:
    program = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)[0]
    assert DEFAULT_ADDRESS in program
    with BrokerProcess(tmp_path / "data", env=GATEWAY) as broker:
        eventually(lambda: "serves gRPC" in broker.log_text())
        # The gateway has just been started: the guide's reader does not connect in its first moment.
        program = program.replace(
            f'insecure_channel("{DEFAULT_ADDRESS}")', f'insecure_channel("{grpc_address(broker)}")'
        )
        waits = "\ngrpc.channel_ready_future(channel).result(60)\nrecords = "
        program = program.replace("\nrecords = ", waits, 1)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False
        )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"working on job {number}" for number in range(100))
