"""A client in another language: Node, with a client that is made from the same .proto files at run time."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.grpc_client import GATEWAY, grpc_address
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "tests" / "grpc_node"
COUNT = 200


def node_tools() -> Any:
    """How the dashboard finds Node and its packages."""
    folder = ROOT / "dashboard"
    spec = importlib.util.spec_from_file_location("dashboard_tool", folder / "tool.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))  # it imports its neighbours
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


@pytest.fixture(scope="module")
def node() -> str:
    tools = node_tools()
    found = tools.system_node() or tools.packaged_node()
    if found is None:
        pytest.skip("there is no Node of 20.19 or later, and none can be installed from PyPI")
    tools.HERE = CLIENT
    if not tools.install(found):
        pytest.skip("the packages of tests/grpc_node cannot be installed with npm")
    return str(found)


def test_a_program_in_node_produces_and_takes_work(node: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", env=GATEWAY) as broker:
        eventually(lambda: "serves gRPC" in broker.log_text())
        command = [node, "worker.mjs", grpc_address(broker), str(ROOT / "proto"), "jobs", "crew", str(COUNT)]
        done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["appended"] == COUNT
    assert found["confirmed"] == COUNT + 1, "each once, and the one that was refused"
    assert found["refused"] == 0
    assert found["seen"] == {str(number): [1, 2] if number == 0 else [1] for number in range(COUNT)}
    assert found["headers"] == COUNT + 1
    assert found["held_max"] <= 20, "not more than there are credits"
    assert found["member_id"]
