"""Whose processes a local cluster may touch. Starting and stopping is in `test_up_down.py`."""

import os
import shutil
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
from drmq.server.local_nodes import LocalError, LocalNode, plan_nodes
from drmq.server.ports import PortTaken
from drmq.server.processes import log_tail, process_is_ours, process_names


def test_process_of_someone_else_is_not_ours(tmp_path: Path) -> None:
    """A process id that was reused, a dead process, and a server of another directory are left alone."""
    command = [sys.executable, "-c", "input()", "drmq", "server", "--data-dir", "/elsewhere"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert not process_is_ours(process.pid, tmp_path)
        assert not process_is_ours(os.getpid(), tmp_path)
        process.communicate(b"\n")
        assert not process_is_ours(process.pid, Path("/elsewhere"))


def locker(data_dir: Path, named: Path) -> "subprocess.Popen[bytes]":
    """A process that looks like a node: it has locked `data_dir`, and names a directory in its command line."""
    data_dir.mkdir(parents=True, exist_ok=True)
    program = f"lock = open({str(data_dir / 'lock')!r}, 'w'); print(flush=True); input()"
    command = [sys.executable, "-c", program, "drmq", "--data-dir", str(named)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_lock_tells_whose_process_it_is(tmp_path: Path) -> None:
    """Not the path in its command line: the directory may have been moved, and a copy may be where it was."""
    old, new = tmp_path / "old", tmp_path / "new"
    with locker(old, old) as process:
        assert process_is_ours(process.pid, old)
        old.rename(new)
        assert process_is_ours(process.pid, new)
        assert not process_names(process.pid, new)
        shutil.copytree(new, old)
        assert not process_is_ours(process.pid, old)
        assert not process_names(process.pid, new)
        assert process_is_ours(process.pid, new)
        process.communicate(b"\n")


def test_another_path_to_the_same_directory_is_the_same_directory(tmp_path: Path) -> None:
    """A cluster that was started through a link is not taken for one that was moved."""
    real = tmp_path / "real"
    (real / "node-1" / "data").mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    with locker(real / "node-1" / "data", tmp_path / "link" / "node-1" / "data") as process:
        node = LocalNode(1, process.pid, Address("127.0.0.1", 1), real / "node-1" / "data")
        assert node.is_running()
        assert not node.is_displaced()
        process.communicate(b"\n")


def test_copied_cluster_leaves_the_processes_of_its_original_alone(tmp_path: Path) -> None:
    """The copy has their process ids; to it they are strangers."""
    original, copy = LocalCluster(tmp_path / "original"), LocalCluster(tmp_path / "copy")
    data_dir = original.directory / "node-1" / "data"
    with locker(data_dir, data_dir) as process:
        original.write([LocalNode(1, process.pid, Address("127.0.0.1", 1), data_dir)])
        shutil.copytree(original.directory, copy.directory)
        assert original.read()[0].state() == "running"
        assert copy.read()[0].state() == "stopped"
        assert [outcome for _, outcome in copy.stop(at_once=True)] == ["not running"]
        assert process.poll() is None
        process.communicate(b"\n")


def test_copied_cluster_does_not_start_beside_its_original(tmp_path: Path) -> None:
    """Its nodes know the addresses of the original's nodes, and would take them for their own peers."""
    original = LocalCluster(tmp_path / "original")
    original.directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        nodes = plan_nodes(original.directory, {}, [1, 2], "127.0.0.1", 0)
        nodes[2] = replace(nodes[2], peer_port=port)
        original.write(list(nodes.values()))
        copy = LocalCluster(tmp_path / "copy")
        shutil.copytree(original.directory, copy.directory)
        for act in (lambda: copy.up(1), lambda: copy.start(1)):
            with pytest.raises(LocalError, match=f"copy of the cluster in .*127.0.0.1:{port}, the address of node 2"):
                act()
    assert not (copy.directory / "node-1").exists()


def test_node_that_runs_in_a_moved_directory_must_be_restarted(tmp_path: Path) -> None:
    """It would make the old directory again."""
    old = LocalCluster(tmp_path / "old")
    data_dir = old.directory / "node-1" / "data"
    with locker(data_dir, data_dir) as process:
        old.write([LocalNode(1, process.pid, Address("127.0.0.1", 1), data_dir)])
        new = LocalCluster(old.directory.rename(tmp_path / "new"))
        with pytest.raises(LocalError, match=f"was running when its directory was moved: .* files in {data_dir}\\."):
            new.up(None)
        process.communicate(b"\n")
    assert not old.directory.exists()


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
