"""Two releases side by side: a cluster is upgraded node by node under load, can go back until the upgrade is finalized,
and refuses the older release afterwards.

The older release is the commit before there were feature levels, taken from the repository's history and run from a
directory of its own; what both need is installed. Where the history is not there (a shallow clone, a source archive)
the test says so and is skipped. `tests/unit/broker/cluster/test_two_releases.py` and the recorded bytes in the unit
tests need no history.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drmq.client import Admin, Refused
from drmq.server.cli import main
from support.cluster import ClusterProcesses, NodeProcess
from support.cluster_load import Load
from support.polling import eventually
from support.raw_client import RawClient, RequestFailed

OLDER_COMMIT = "2fdfadc588f36e7e2f89230d2228cee549028bf5"
"""The last one whose nodes know of no feature levels."""
HEALTHY_S = 150.0
ROOT = Path(__file__).parents[2]
TRIMMED = "trimmed"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the older release's code is."""
    directory = tmp_path_factory.mktemp("older")
    try:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", OLDER_COMMIT, "src"], capture_output=True, check=True, timeout=60
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the history of this repository is not here, and with it the older release: {error}")
    subprocess.run(["tar", "x", "-C", str(directory)], input=archive.stdout, check=True, timeout=60)
    return directory / "src"


def run_with(node: NodeProcess, code: Path | None) -> None:
    """Which release the node's next process runs; None for ours."""
    if code is None:
        node.env.pop("PYTHONPATH", None)
    else:
        node.env["PYTHONPATH"] = os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


def change_release(cluster: ClusterProcesses, load: Load, node_id: int, code: Path | None) -> None:
    """Stop a node in order, and start it with the other release; then everybody must be served again."""
    node = cluster[node_id]
    assert node.terminate() == 0, node.log_text()[-2_000:]
    run_with(node, code)
    node.start().wait_ready(HEALTHY_S)
    cluster.wait_healthy(HEALTHY_S)
    load.wait_all_served(HEALTHY_S)


def trim(cluster: ClusterProcesses, before: int) -> None:
    """Have the first records of a topic removed, by an own entry of its replica group, on all replicas."""

    def attempt() -> bool:
        try:
            with RawClient(cluster[cluster.leader_of(TRIMMED)].bootstrap) as client:
                while client.produce(TRIMMED, [b"value"] * 10) < before:
                    continue
                return client.delete_records(TRIMMED, before) == before
        except (RequestFailed, OSError):
            return False  # the leader has just changed

    eventually(attempt, bool, timeout_s=HEALTHY_S, what="a trim")


def features_of(cluster: ClusterProcesses, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["cluster", "features", "-b", cluster.bootstrap, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_cluster_is_upgraded_under_load_and_can_go_back_until_that_is_finalized(
    older: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that was acknowledged is lost or doubled, and groups keep what they have committed."""
    environment = {"DRMQ_RETENTION_CHECK_INTERVAL_MS": "500"}
    cluster = ClusterProcesses(tmp_path, env=environment)
    for node in cluster.nodes.values():
        run_with(node, older)
    with cluster:
        load = Load(cluster, pause_s=0.01)
        try:
            cluster.create_topic(TRIMMED, 1)
            load.wait_all_served(HEALTHY_S)
            for node_id in (1, 2):
                change_release(cluster, load, node_id, None)
                trim(cluster, node_id * 10)
            assert main(["cluster", "upgrade", "-b", cluster.bootstrap, "--finalize", "--yes"]) != 0
            assert "node 3 runs a release that does not support it" in capsys.readouterr().err
            change_release(cluster, load, 3, None)
            # Back and forth: nothing was written that the older release cannot read.
            change_release(cluster, load, 2, older)
            trim(cluster, 30)
            change_release(cluster, load, 2, None)
            assert features_of(cluster, capsys)["to_finalize"]["metadata.version"] == 4
            assert main(["cluster", "upgrade", "-b", cluster.bootstrap, "--finalize", "--yes"]) == 0
            assert "Finalized: metadata.version 4" in capsys.readouterr().out
            check_finalized(cluster, capsys)
            trim(cluster, 40)
            load.wait_all_served(HEALTHY_S)
            change_release(cluster, load, 1, None)
            check_a_fresh_node_of_the_older_release_is_refused(cluster, older, tmp_path)
        except BaseException:
            load.abandon()
            raise
        verdict = load.judge(acks_min=500)
        assert verdict.passed, str(verdict)
    check_the_older_release_does_not_start(cluster, older)


def check_finalized(cluster: ClusterProcesses, capsys: pytest.CaptureFixture[str]) -> None:
    """Every node says so, any Kafka client can ask for it, and there is no way back."""
    for node in cluster.nodes.values():
        with Admin(node.bootstrap, timeout_s=60.0) as admin:
            eventually(
                lambda admin=admin, node=node: [  # type: ignore[misc]
                    admin.features.of(broker, 60.0) for broker in admin.brokers.all() if broker.node_id == node.node_id
                ],
                lambda found: [each.finalized["metadata.version"] for each in found if each is not None] == [4],
                what=f"the level on node {node.node_id}",
            )
            with pytest.raises(Refused, match="cannot go back"):
                admin.features.finalize({"metadata.version": 1})
    found = features_of(cluster, capsys)
    assert found["to_finalize"] == {}
    assert found["obstacle"] is None


def check_a_fresh_node_of_the_older_release_is_refused(cluster: ClusterProcesses, older: Path, path: Path) -> None:
    node = NodeProcess(4, path / "node-4", cluster.network, [1, 2, 3, 4])
    run_with(node, older)
    node.start()
    reason = "has finalized level 4 of metadata.version, and it supports 1; start it with a release"
    try:
        # It goes on trying: its release ends only for reasons that it knows.
        eventually(node.log_text, lambda said: reason in said, timeout_s=HEALTHY_S, what="the node is told why")
    finally:
        node.kill()
    with Admin(cluster.bootstrap, timeout_s=60.0) as admin:
        assert node.node_id not in {broker.node_id for broker in admin.brokers.all()}


def check_the_older_release_does_not_start(cluster: ClusterProcesses, older: Path) -> None:
    """On the data of any node, with a clear text and without a trace of its insides."""
    for node in cluster.nodes.values():
        before = len(node.log_text())
        run_with(node, older)
        node.start()
        try:
            eventually(
                node.exit_status, lambda status: status is not None, timeout_s=HEALTHY_S, what="the refused node ends"
            )
        finally:
            if node.running:
                node.kill()
        said = node.log_text()[before:]
        assert node.exit_status() != 0, said
        assert "has format version 4, and this DRMQ knows versions up to 3" in said
        assert "Traceback" not in said
