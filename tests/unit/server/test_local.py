"""The file of a local cluster, and whose processes it may touch. Starting and stopping is in `e2e/test_up_down.py`."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drmq.model.address import Address
from drmq.server.local import LocalCluster, LocalError, LocalNode, log_tail, process_is_ours
from drmq.server.ports import PortTaken


def test_cluster_file_has_the_documented_form(tmp_path: Path) -> None:
    """Other programs read it: ids, process ids, addresses as host:port."""
    cluster = LocalCluster(tmp_path)
    node = LocalNode(1, 42, Address("127.0.0.1", 9092), tmp_path / "node-1" / "data")
    cluster.write([node])
    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "nodes": [{"id": 1, "pid": 42, "kafka": "127.0.0.1:9092", "data_dir": str(tmp_path / "node-1" / "data")}]
    }
    assert cluster.read() == [node]
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


@pytest.mark.parametrize("text", ["", "{", "{}", '{"nodes": [{"id": 1}]}', '{"nodes": 5}', "[]"])
def test_broken_cluster_file_is_reported(tmp_path: Path, text: str) -> None:
    """A file that someone edited wrongly is an error with its path, not a traceback."""
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalError, match=r"cluster\.json"):
        LocalCluster(tmp_path).read()


def test_process_of_someone_else_is_not_ours(tmp_path: Path) -> None:
    """A process id that was reused, a dead process, and a server of another directory are left alone."""
    command = [sys.executable, "-c", "input()", "drmq", "server", "--data-dir", "/elsewhere"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert not process_is_ours(process.pid, tmp_path)
        assert not process_is_ours(os.getpid(), tmp_path)
        process.communicate(b"\n")
        assert not process_is_ours(process.pid, Path("/elsewhere"))


def test_stale_process_id_is_not_running(tmp_path: Path) -> None:
    """Stopping what a crash has stopped already succeeds, and forgets the process id."""
    cluster = LocalCluster(tmp_path)
    cluster.write([LocalNode(1, os.getpid(), Address("127.0.0.1", 1), tmp_path / "node-1" / "data")])
    assert [outcome for _, outcome in cluster.stop(force=False)] == ["not running"]
    assert cluster.read()[0].pid is None


def test_port_in_use_starts_nothing(tmp_path: Path) -> None:
    """The error comes before any process, and leaves no file behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortTaken, match="Address already in use"):
        LocalCluster(tmp_path).start("127.0.0.1", taken.getsockname()[1], None)
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_failed_start_is_removed(tmp_path: Path) -> None:
    """Unless there was something before, or the node left something."""
    cluster = LocalCluster(tmp_path / "new" / "cluster")
    with cluster.locked():
        (cluster.directory / "node-1" / "data").mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []
    with cluster.locked():
        (cluster.directory / "node-1" / "data").mkdir(parents=True)
        (cluster.directory / "node-1" / "server.log").write_text("why")
    assert (cluster.directory / "node-1" / "server.log").exists()
    (tmp_path / "mine").mkdir()
    with LocalCluster(tmp_path / "mine").locked():
        pass
    assert (tmp_path / "mine").exists()


def test_tail_of_a_long_log(tmp_path: Path) -> None:
    """The last twenty lines, and where the rest is."""
    path = tmp_path / "server.log"
    path.write_text("".join(f"line {number}\n" for number in range(10_000)))
    lines = log_tail(path).splitlines()
    assert lines[0] == f"The end of {path}:"
    assert (len(lines), lines[-1]) == (21, "  line 9999")
    assert "no log" in log_tail(tmp_path / "missing")
