"""What `drmq up` prints."""

from __future__ import annotations

from pathlib import Path

from drmq.model.address import Address
from drmq.server.cli.local import _next_steps
from drmq.server.local_nodes import LocalNode


def test_the_variable_names_all_nodes(tmp_path: Path) -> None:
    """So that commands work as long as one of the nodes does."""
    outcomes = [(LocalNode(number, 1, Address("127.0.0.1", number), tmp_path), "started") for number in (1, 2, 3)]
    steps = _next_steps(outcomes, tmp_path / "my cluster")
    assert "  export DRMQ_BOOTSTRAP=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3" in steps
    assert steps[-1] == f"  drmq down --data-dir '{tmp_path}/my cluster'"
