"""`drmq node`: what is said of a start. Real nodes are started in `e2e/test_cluster_cli.py`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from drmq.model.address import Address
from drmq.server.cli import main
from drmq.server.local import LocalCluster
from drmq.server.local_nodes import LocalNode


class TroubledCluster(LocalCluster):
    """Its nodes start and serve, and the cluster stays unhealthy for longer than one waits."""

    def start(self, node_id: int, report: object = None) -> tuple[LocalNode, bool]:
        self.trouble = "1 partition has no leader"
        return replace(self.node(node_id), pid=42), True


def test_trouble_after_a_start_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `drmq up` tells it: whoever waited for a healthy cluster must hear that it is none."""
    LocalCluster(tmp_path).write([LocalNode(1, None, Address("127.0.0.1", 9), tmp_path / "node-1" / "data")])
    monkeypatch.setattr("drmq.server.local.LocalCluster", TroubledCluster)
    assert main(["node", "start", "1", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        "Node 1 serves at 127.0.0.1:9 (pid 42).\n"
        "It serves, but 1 partition has no leader. `drmq cluster health -b 127.0.0.1:9` shows more.\n"
    )
    assert main(["node", "start", "1", "--data-dir", str(tmp_path), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["trouble"] == "1 partition has no leader"
