"""How a node comes into a cluster, whichever nodes it is told of, and what it is told when it is not let in."""

from __future__ import annotations

from pathlib import Path

from drmq.server.processes import EXIT_REMOVED
from support.cluster import ClusterProcesses, free_port_pair
from support.polling import eventually
from support.processes import BrokerProcess


def last_words(node: BrokerProcess, exit_code: int = 1) -> str:
    """The log of a node that the cluster refuses: its process must exit by itself, with this code."""
    before = len(node.log_text())
    node.start()
    try:
        eventually(node.exit_status, lambda status: status is not None, what=f"the end of node {node.node_id}")
    finally:
        if node.running:
            node.kill()
    said = node.log_text()[before:]
    assert node.exit_status() == exit_code, said
    assert "Traceback" not in said, said
    return said


def test_any_node_is_a_way_in(tmp_path: Path) -> None:
    """Also one that is not the controller: it passes on what the controller says, refusals too."""
    with ClusterProcesses(tmp_path, 3) as cluster:
        controller = cluster.controller()
        way_in = next(node_id for node_id in cluster.ids if node_id != controller)
        assert cluster.join([way_in]) == 4
        joining = cluster[4]

        peers = ["--peers", cluster.network.peer(way_in)]
        twin = BrokerProcess(tmp_path / "twin", free_port_pair([node.port for node in cluster.nodes.values()]), peers)
        twin.node_id = 4
        assert "node 4 runs already" in last_words(twin)
        assert "node 4 runs already" in cluster[way_in].log_text()

        # One that takes the place of another process is no twin of it.
        joining.kill()
        joining.wipe()
        joining.start().wait_ready()
        cluster.wait_healthy()

        cluster.remove(4)
        assert "node 4 was removed from the cluster" in last_words(joining, EXIT_REMOVED)

        member = cluster[way_in]
        assert member.terminate() == 0
        without_peers = BrokerProcess(member.data_dir, member.port, node_id=way_in)
        assert "start it with --peers or --peer-port" in last_words(without_peers)
        member.start().wait_ready()
        cluster.wait_healthy()


def test_data_of_another_cluster_with_the_same_ids_is_refused(tmp_path: Path) -> None:
    """It knows the ids of its peers, so they are no strangers; but all of them refuse it."""
    with ClusterProcesses(tmp_path / "other", 2) as other:
        other.stop()
    with ClusterProcesses(tmp_path / "cluster", 2) as cluster:
        node = cluster[2]
        assert node.terminate() == 0
        node.wipe()
        other[2].data_dir.rename(node.data_dir)
        said = last_words(node)
        assert "holds the data of another cluster" in said
        assert "empty data directory" in said
