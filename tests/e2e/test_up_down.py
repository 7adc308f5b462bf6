"""`drmq up` and `drmq down` with real processes. Every process that a test starts is ended by its id."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drmq.server.processes import process_is_ours
from support.polling import eventually


def drmq(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "drmq", *arguments],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )


def node(directory: Path) -> dict[str, Any]:
    """The only node in `cluster.json`."""
    (found,) = json.loads((directory / "cluster.json").read_text())["nodes"]
    assert found["data_dir"] == "node-1/data"
    assert found.keys() >= {"id", "pid", "kafka", "host", "port", "peer_port", "data_dir", "log"}
    assert found["kafka"] == f"{found['host']}:{found['port']}"
    assert found["peer_port"] is None
    return dict(found)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """An empty place; what still runs there at the end is stopped."""
    place = tmp_path / "cluster"
    yield place
    if (place / "cluster.json").exists():
        drmq("down", "--data-dir", str(place), "--force", "--timeout", "20")


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    """Also one that is not UTF-8, where Python would not print it."""
    place = tmp_path / os.fsdecode(b"y\xff")
    chosen = ("--data-dir", str(place))
    try:
        done = drmq("up", *chosen, "--port", "0", PYTHONIOENCODING="utf-8:strict")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"drmq down --data-dir {place}" in done.stdout.replace("'", "")
        listed = drmq("node", "ls", *chosen, PYTHONIOENCODING="utf-8:strict")
        assert listed.returncode == 0, listed.stderr
        done = drmq("down", *chosen, PYTHONIOENCODING="utf-8:strict")
        assert done.returncode == 0, done.stderr
    finally:
        drmq("down", *chosen, "--force", "--timeout", "20")


def test_up_serves_and_down_stops(directory: Path) -> None:
    """When `up` returns, the node answers; when `down` returns, it is gone and has stopped cleanly."""
    done = drmq("up", "--nodes", "1", "--data-dir", str(directory), "--port", "0")
    assert done.returncode == 0, done.stderr
    started = node(directory)
    assert f"drmq topic create orders -b {started['kafka']}" in done.stdout
    assert f"  export DRMQ_BOOTSTRAP={started['kafka']}\n" in done.stdout
    assert started["id"] == 1
    assert drmq("topic", "create", "t", "-b", started["kafka"]).returncode == 0
    done = drmq("down", "--data-dir", str(directory))
    assert (done.returncode, done.stdout) == (0, f"Node 1 (pid {started['pid']}) stopped.\n")
    assert not process_is_ours(started["pid"], directory / "node-1" / "data")
    assert node(directory) == started | {"pid": None}
    assert drmq("status", "-b", started["kafka"]).returncode == 2
    assert (directory / "node-1" / "server.log").stat().st_size > 0


def test_second_up_changes_nothing(directory: Path) -> None:
    """What runs goes on running."""
    drmq("up", "--data-dir", str(directory), "--port", "0")
    started = node(directory)
    done = drmq("up", "--data-dir", str(directory), "--port", "0")
    assert done.returncode == 0, done.stderr
    assert "was already running" in done.stdout
    assert node(directory) == started


def test_up_after_a_crash_goes_on_with_the_same_data_and_port(directory: Path) -> None:
    """SIGKILL, then `up`: same address, same records."""
    drmq("up", "--data-dir", str(directory), "--port", "0")
    first = node(directory)
    done = drmq("produce", "t", "-v", "kept", "-b", first["kafka"])
    assert done.returncode == 0, done.stderr
    os.kill(first["pid"], signal.SIGKILL)
    done = drmq("up", "--data-dir", str(directory))
    assert done.returncode == 0, done.stderr
    second = node(directory)
    assert f"drmq topic ls -b {second['kafka']}" in done.stdout
    assert "topic create" not in done.stdout
    said = [
        line
        for line in (directory / "node-1" / "server.log").read_text().splitlines()
        if "shutdown was not clean" in line
    ]
    assert len(said) == 1
    assert re.search(r": [1-9]\d* of \d+ logs were not closed cleanly, [1-9]\d* bytes checked, 0 cut", said[0])
    assert second["kafka"] == first["kafka"]
    assert second["pid"] != first["pid"]
    assert drmq("consume", "t", "-b", second["kafka"]).stdout == "kept\n"


def test_moved_directory_works_where_it_is(directory: Path, tmp_path: Path) -> None:
    """The same topics at the same port, and nothing is made at the old place."""
    old = tmp_path / "old"
    assert drmq("up", "--data-dir", str(old), "--port", "0").returncode == 0
    address = node(old)["kafka"]
    assert drmq("produce", "t", "-v", "kept", "-b", address).returncode == 0
    assert drmq("down", "--data-dir", str(old)).returncode == 0
    old.rename(directory)
    done = drmq("up", "--data-dir", str(directory))
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"note: {directory} was {old} before. Its nodes use the data in {directory}.\n"
    assert node(directory)["kafka"] == address
    assert drmq("consume", "t", "-b", address).stdout == "kept\n"
    assert not old.exists()


def test_directory_that_is_moved_while_its_node_runs(directory: Path, tmp_path: Path) -> None:
    """The node makes no new one at the old place: what it acknowledged there would be lost with the next start."""
    old = tmp_path / "old"
    try:
        assert drmq("up", "--data-dir", str(old), "--port", "0").returncode == 0
        address = node(old)["kafka"]
        assert drmq("produce", "t", "-v", "before", "-b", address).returncode == 0
        old.rename(directory)
        refused = drmq("topic", "create", "new", "-b", address)
        assert refused.returncode == 1
        assert "the data directory was moved or removed while its node runs" in refused.stderr
        assert drmq("produce", "t", "-p", "0", "-v", "after", "-b", address).returncode == 0
        assert drmq("down", "--data-dir", str(directory)).returncode == 0
        assert not old.exists()
        assert drmq("up", "--data-dir", str(directory)).returncode == 0
        assert drmq("consume", "t", "-b", address).stdout.split() == ["before", "after"]
        assert drmq("produce", "new", "-v", "x", "-b", address).returncode == 0
    finally:
        drmq("down", "--data-dir", str(directory), "--force")


def test_copied_directory_is_a_cluster_of_its_own(directory: Path, tmp_path: Path) -> None:
    """Beside its running original: another port, its own data; what is deleted and stopped there is so only there."""
    copy = tmp_path / "copy"
    try:
        drmq("up", "--data-dir", str(directory), "--port", "0")
        address = node(directory)["kafka"]
        assert drmq("produce", "t", "-v", "kept", "-b", address).returncode == 0
        assert drmq("down", "--data-dir", str(directory)).returncode == 0
        shutil.copytree(directory, copy)
        assert drmq("up", "--data-dir", str(directory)).returncode == 0
        # As if it had been copied while the original ran: with its process id.
        shutil.copy(directory / "cluster.json", copy / "cluster.json")
        assert drmq("down", "--data-dir", str(copy)).stdout == "Node 1 was not running.\n"
        done = drmq("up", "--data-dir", str(copy))
        assert done.returncode == 0, done.stderr
        assert f"{copy} is a copy of {directory}." in done.stderr
        other = node(copy)["kafka"]
        assert other != address
        assert drmq("consume", "t", "-b", other).stdout == "kept\n"
        assert drmq("topic", "delete", "t", "--yes", "-b", other).returncode == 0
        assert drmq("down", "--data-dir", str(copy)).returncode == 0
        assert drmq("consume", "t", "-b", address).stdout == "kept\n"
    finally:
        drmq("down", "--data-dir", str(copy), "--force")


def test_down_twice_and_down_of_nothing(directory: Path, tmp_path: Path) -> None:
    """Stopping what is stopped succeeds; a directory that `up` never made is an error."""
    drmq("up", "--data-dir", str(directory), "--port", "0")
    drmq("down", "--data-dir", str(directory))
    done = drmq("down", "--data-dir", str(directory))
    assert (done.returncode, done.stdout) == (0, "Node 1 was not running.\n")
    done = drmq("down", "--data-dir", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "There is no local cluster" in done.stderr
    assert not (tmp_path / "nothing").exists()


def test_port_in_use(directory: Path) -> None:
    """Refused with the address and the way out; nothing was started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = drmq("up", "--data-dir", str(directory), "--port", str(port))
    assert done.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "--port" in done.stderr
    assert not directory.exists()


def test_failed_start_shows_the_end_of_the_log(directory: Path) -> None:
    """What the node said before it ended is in the error, and the directory is as before."""
    done = drmq("up", "--data-dir", str(directory), "--port", "0", DRMQ_RETENTION_MS="soon")
    assert done.returncode == 1
    assert "exited at once with code 64" in done.stderr
    assert "variable DRMQ_RETENTION_MS" in done.stderr
    assert not (directory / "cluster.json").exists()


def test_settings_reach_the_node(directory: Path, tmp_path: Path) -> None:
    """A file given to `up` is the node's."""
    file = tmp_path / "node.toml"
    file.write_text("[broker]\nnum_partitions = 7\n")
    drmq("up", "--data-dir", str(directory), "--port", "0", "--config", str(file))
    done = drmq("topic", "create", "seven", "-b", node(directory)["kafka"])
    assert done.stdout == "Created topic `seven` with 7 partitions.\n"


def test_settings_are_remembered(directory: Path, tmp_path: Path) -> None:
    """A node that is started again has the file of the first time."""
    file = tmp_path / "node.toml"
    file.write_text("[broker]\nnum_partitions = 7\n")
    drmq("up", "--data-dir", str(directory), "--port", "0", "--config", str(file))
    os.kill(node(directory)["pid"], signal.SIGKILL)
    assert drmq("up", "--data-dir", str(directory)).returncode == 0
    done = drmq("topic", "create", "seven", "-b", node(directory)["kafka"])
    assert done.stdout == "Created topic `seven` with 7 partitions.\n"


def test_down_leaves_a_stranger_alone(directory: Path) -> None:
    """The process id of a crashed node may be someone else's by now."""
    drmq("up", "--data-dir", str(directory), "--port", "0")
    started = node(directory)
    os.kill(started["pid"], signal.SIGKILL)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        content = {"nodes": [started | {"pid": stranger.pid}]}
        (directory / "cluster.json").write_text(json.dumps(content))
        done = drmq("down", "--data-dir", str(directory))
        assert (done.returncode, done.stdout) == (0, "Node 1 was not running.\n")
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_two_ups_at_once_start_one_node(directory: Path) -> None:
    """The second waits for the first, and finds it running."""
    command = [sys.executable, "-m", "drmq", "up", "--data-dir", str(directory), "--port", "0", "-o", "json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    nodes = [json.loads(output)["nodes"][0] for output in outputs]
    assert sorted(found["started"] for found in nodes) == [False, True]
    assert nodes[0]["pid"] == nodes[1]["pid"] == node(directory)["pid"]


def test_node_outlives_the_terminal(directory: Path) -> None:
    """The node has a session of its own: what interrupts `up`'s group does not reach it."""
    drmq("up", "--data-dir", str(directory), "--port", "0")
    pid = node(directory)["pid"]
    assert os.getsid(pid) == pid
    assert eventually(lambda: process_is_ours(pid, directory / "node-1" / "data"))
