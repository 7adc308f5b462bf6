"""A node that has a cluster of its own and is told to be part of another says so, and does not serve. Nor does one that
comes back with an older copy of its disk: it has forgotten what it promised.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drmq.server.ports import free_ports
from support.cluster import ClusterProcesses
from support.polling import eventually
from support.ports import HOST
from support.processes import BrokerProcess


@pytest.mark.parametrize("theirs", ["up before", "up later"])
def test_a_node_of_another_cluster_does_not_serve(tmp_path: Path, theirs: str) -> None:
    ports = free_ports(HOST, 2, (0, 1000))
    with BrokerProcess(tmp_path / "wanted", ports[0], node_id=1) as alone:
        assert alone.terminate() == 0
    with BrokerProcess(tmp_path / "mine", ports[1], node_id=2) as alone:
        assert alone.terminate() == 0
    wanted = BrokerProcess(tmp_path / "wanted", ports[0], ["--peer-port", str(ports[0] + 1000)], node_id=1)
    mine = BrokerProcess(tmp_path / "mine", ports[1], ["--peers", f"1:{HOST}:{ports[0]}"], node_id=2)
    first, second = (wanted, mine) if theirs == "up before" else (mine, wanted)
    try:
        first.start().wait_ready()
        second.start()
        eventually(mine.exit_status, lambda status: status is not None, what="the end of the node")
        assert mine.exit_status() == 1
        said = mine.log_text()
        assert "start with an empty data directory" in said
        assert "Traceback" not in said
        wanted.wait_ready()
    finally:
        for process in (wanted, mine):
            if process.running:
                process.kill()


def test_a_node_alone_that_others_join_goes_on(tmp_path: Path) -> None:
    """Told of nodes that are new: they join it, and nothing is wrong."""
    ports = free_ports(HOST, 2, (0, 1000))
    with BrokerProcess(tmp_path / "old", ports[0], node_id=1) as alone:
        assert alone.terminate() == 0
    old = BrokerProcess(tmp_path / "old", ports[0], ["--peers", f"2:{HOST}:{ports[1]}"], node_id=1)
    new = BrokerProcess(tmp_path / "new", ports[1], ["--peers", f"1:{HOST}:{ports[0]}"], node_id=2)
    try:
        for process in (old, new):
            process.start()
        for process in (old, new):
            process.wait_ready()
        assert old.running
    finally:
        for process in (old, new):
            if process.running:
                process.kill()


def test_an_older_copy_of_a_data_directory_is_refused(tmp_path: Path) -> None:
    """The node ends and says why. With an empty directory it is taken in."""
    with ClusterProcesses(tmp_path, 3) as cluster:
        node = cluster[3]
        assert node.terminate() == 0
        shutil.copytree(node.data_dir, tmp_path / "copy")
        node.start().wait_ready()
        cluster.wait_healthy()
        node.kill()
        node.wipe()
        (tmp_path / "copy").rename(node.data_dir)
        node.start()
        eventually(node.exit_status, lambda status: status is not None, what="the end of the node")
        assert node.exit_status() == 1
        said = node.log_text()
        assert "node 3 has an older copy of its data directory" in said
        assert "Traceback" not in said
        node.wipe()
        node.start().wait_ready()
        cluster.wait_healthy()
