"""A node that has a cluster of its own and is told to be part of another says so, and does not serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from drmq.server.ports import free_ports
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
