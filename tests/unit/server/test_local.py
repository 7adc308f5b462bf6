"""The file of a local cluster, and whose processes it may touch. Starting and stopping is in `e2e/test_up_down.py`."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from drmq.model.address import Address
from drmq.server.local import LocalCluster
from drmq.server.local_nodes import LocalError, LocalNode
from drmq.server.ports import PortTaken
from drmq.server.processes import log_tail, process_is_ours


def test_cluster_file_has_the_documented_form(tmp_path: Path) -> None:
    """Other programs read it: ids, process ids, addresses as host:port."""
    cluster = LocalCluster(tmp_path)
    alone = LocalNode(1, 42, Address("127.0.0.1", 9092), tmp_path / "node-1" / "data")
    joined = LocalNode(
        2, None, Address("::1", 9093), tmp_path / "node-2" / "data", 10093, founder=False, config=tmp_path / "c.toml"
    )
    cluster.write([alone, joined])
    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "version": 1,
        "nodes": [
            {
                "id": 1,
                "pid": 42,
                "kafka": "127.0.0.1:9092",
                "host": "127.0.0.1",
                "port": 9092,
                "peer_port": None,
                "data_dir": str(tmp_path / "node-1" / "data"),
                "log": str(tmp_path / "node-1" / "server.log"),
                "founder": True,
                "config": None,
            },
            {
                "id": 2,
                "pid": None,
                "kafka": "[::1]:9093",
                "host": "::1",
                "port": 9093,
                "peer_port": 10093,
                "data_dir": str(tmp_path / "node-2" / "data"),
                "log": str(tmp_path / "node-2" / "server.log"),
                "founder": False,
                "config": str(tmp_path / "c.toml"),
            },
        ],
    }
    assert cluster.read() == [alone, joined]
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_file_of_an_earlier_version(tmp_path: Path) -> None:
    """What it does not say is as it was then: one node, alone."""
    (tmp_path / "cluster.json").write_text(
        '{"nodes": [{"id": 1, "pid": null, "kafka": "127.0.0.1:9092", "data_dir": "/data"}]}'
    )
    assert LocalCluster(tmp_path).read() == [LocalNode(1, None, Address("127.0.0.1", 9092), Path("/data"))]


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
    assert [outcome for _, outcome in cluster.stop()] == ["not running"]
    assert cluster.read()[0].pid is None


def test_port_in_use_starts_nothing(tmp_path: Path) -> None:
    """The error comes before any process, and leaves no file behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortTaken, match="Address already in use"):
        LocalCluster(tmp_path).up(1, "127.0.0.1", taken.getsockname()[1])
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
    assert "cannot be read" in log_tail(tmp_path / "missing")


# ---- processes that look like nodes --------------------------------------------------------------

OBEDIENT = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


@contextmanager
def running(tmp_path: Path, *programs: str) -> Iterator[tuple[LocalCluster, list["subprocess.Popen[bytes]"]]]:
    """A cluster of processes that only look like nodes, from 1 on; those left at the end are ended."""
    cluster = LocalCluster(tmp_path)
    processes, nodes = [], []
    for node_id, program in enumerate(programs, start=1):
        data_dir = tmp_path / f"node-{node_id}" / "data"
        command = [sys.executable, "-c", program, "drmq", "--data-dir", str(data_dir)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        if program is STUBBORN:
            assert process.stdout is not None
            process.stdout.readline()
        processes.append(process)
        nodes.append(LocalNode(node_id, process.pid, Address("127.0.0.1", node_id), data_dir, 1000 + node_id))
    cluster.write(nodes)
    try:
        yield cluster, processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def reaped(process: "subprocess.Popen[bytes]") -> int:
    return process.wait(10)


def test_all_nodes_are_stopped_together(tmp_path: Path) -> None:
    """Those that end do; one that does not is killed after the time-out, and none waits for another."""
    with running(tmp_path, OBEDIENT, STUBBORN, OBEDIENT) as (cluster, processes):
        assert [outcome for _, outcome in cluster.stop(timeout_s=0.5)] == ["stopped", "killed", "stopped"]
        assert [reaped(process) for process in processes] == [-15, -9, -15]
        assert [node.pid for node in cluster.read()] == [None, None, None]


def test_stop_at_once_kills(tmp_path: Path) -> None:
    """Nobody is asked first."""
    with running(tmp_path, OBEDIENT, OBEDIENT) as (cluster, processes):
        assert [outcome for _, outcome in cluster.stop(at_once=True)] == ["killed", "killed"]
        assert [reaped(process) for process in processes] == [-9, -9]


def test_paused_node_can_be_stopped(tmp_path: Path) -> None:
    """It is woken, so that it hears of it."""
    with running(tmp_path, OBEDIENT, OBEDIENT) as (cluster, processes):
        assert cluster.pause(1)[1]
        assert cluster.pause(2)[1]
        cluster.stop_one(1, timeout_s=10)
        assert [outcome for _, outcome in cluster.stop(timeout_s=10)] == ["not running", "stopped"]
        assert [reaped(process) for process in processes] == [-15, -15]


def test_pause_and_resume(tmp_path: Path) -> None:
    """Each tells whether it changed anything."""
    with running(tmp_path, OBEDIENT, OBEDIENT) as (cluster, _):
        assert [node.state() for node in cluster.read()] == ["running", "running"]
        assert cluster.resume(2)[1] is False
        assert cluster.pause(2)[1] is True
        assert [node.state() for node in cluster.read()] == ["running", "paused"]
        assert cluster.pause(2)[1] is False
        assert cluster.resume(2)[1] is True
        assert [node.state() for node in cluster.read()] == ["running", "running"]


def test_kill_forgets_the_process(tmp_path: Path) -> None:
    """And what is not running cannot be killed, paused or resumed, with the command that starts it."""
    with running(tmp_path, STUBBORN, OBEDIENT) as (cluster, processes):
        assert cluster.stop_one(1, kill=True).pid == processes[0].pid
        assert reaped(processes[0]) == -9
        assert [node.pid for node in cluster.read()] == [None, processes[1].pid]
        for act in (cluster.pause, cluster.resume, cluster.stop_one):
            with pytest.raises(LocalError, match=r"Node 1 is not running\. `drmq node start 1"):
                act(1)


def test_node_that_does_not_stop_is_reported(tmp_path: Path) -> None:
    """A single one is not killed behind one's back: there is a command for that."""
    with running(tmp_path, STUBBORN) as (cluster, processes):
        began = time.monotonic()
        with pytest.raises(LocalError, match="drmq node kill 1"):
            cluster.stop_one(1, timeout_s=0.2)
        assert time.monotonic() - began >= 0.2
        assert cluster.read()[0].pid == processes[0].pid


def test_stranger_is_never_touched(tmp_path: Path) -> None:
    """The process id of a node that crashed may be someone else's by now."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        cluster = LocalCluster(tmp_path)
        cluster.write([LocalNode(1, stranger.pid, Address("127.0.0.1", 1), tmp_path / "node-1" / "data")])
        for act in (cluster.pause, cluster.resume, cluster.stop_one):
            with pytest.raises(LocalError, match="not running"):
                act(1)
        assert [outcome for _, outcome in cluster.stop(at_once=True)] == ["not running"]
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_unknown_node(tmp_path: Path) -> None:
    """With those that there are."""
    with running(tmp_path, OBEDIENT, OBEDIENT) as (cluster, _), pytest.raises(LocalError, match="Existing nodes: 1, 2"):
        cluster.pause(3)


def test_a_stopped_node_can_be_forgotten(tmp_path: Path) -> None:
    """Not one that runs; and never all of those by which the others find their cluster."""
    with running(tmp_path, OBEDIENT, OBEDIENT, OBEDIENT) as (cluster, _):
        cluster.write([replace(node, founder=node.node_id < 3) for node in cluster.read()])
        with pytest.raises(LocalError, match="drmq cluster remove 3"):
            cluster.forget(3)
        cluster.stop(at_once=True)
        kept = tmp_path / "node-3" / "data"
        kept.mkdir(parents=True)
        assert cluster.forget(3).node_id == 3
        assert kept.is_dir()
        with pytest.raises(LocalError, match="Existing nodes: 1, 2"):
            cluster.forget(3)
        cluster.forget(1)
        with pytest.raises(LocalError, match="it is the last founder"):
            cluster.forget(2)
        assert [node.node_id for node in cluster.read()] == [2]
