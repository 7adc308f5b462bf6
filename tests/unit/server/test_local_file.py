"""`cluster.json`: its form, and what it says in a directory that was moved or copied."""

import json
import shutil
from pathlib import Path

import pytest

from drmq.model.address import Address
from drmq.server.local_file import ClusterFile, Origin
from drmq.server.local_nodes import LocalError, LocalNode


def node(directory: Path, node_id: int = 1) -> LocalNode:
    return LocalNode(node_id, None, Address("127.0.0.1", 9092), directory / f"node-{node_id}" / "data")


def old_file(directory: Path, data_dir: Path) -> ClusterFile:
    """A file of version 1 that names this data directory."""
    directory.mkdir(parents=True, exist_ok=True)
    entry = {"id": 1, "pid": 7, "kafka": "127.0.0.1:9092", "data_dir": str(data_dir), "config": "/etc/drmq.toml"}
    (directory / "cluster.json").write_text(json.dumps({"version": 1, "nodes": [entry]}))
    return ClusterFile(directory)


def test_documented_form(tmp_path: Path) -> None:
    """Other programs read it: ids, process ids, addresses as host:port, paths relative to the directory."""
    file = ClusterFile(tmp_path)
    alone = LocalNode(1, 42, Address("127.0.0.1", 9092), tmp_path / "node-1" / "data", config=Path("/etc/c.toml"))
    joined = LocalNode(
        2,
        None,
        Address("::1", 9093),
        tmp_path / "node-2" / "data",
        10093,
        founder=False,
        config=tmp_path / "c.toml",
        http_port=8081,
        grpc_port=9194,
        metrics_port=9645,
        lab=True,
    )
    file.write([alone, joined])
    found = tmp_path.stat()
    assert json.loads((tmp_path / "cluster.json").read_text()) == {
        "version": 2,
        "directory": {"path": str(tmp_path), "device": found.st_dev, "inode": found.st_ino},
        "nodes": [
            {
                "id": 1,
                "pid": 42,
                "kafka": "127.0.0.1:9092",
                "host": "127.0.0.1",
                "port": 9092,
                "peer_port": None,
                "http": None,
                "grpc": None,
                "metrics": None,
                "data_dir": "node-1/data",
                "log": "node-1/server.log",
                "founder": True,
                "lab": False,
                "config": "/etc/c.toml",
            },
            {
                "id": 2,
                "pid": None,
                "kafka": "[::1]:9093",
                "host": "::1",
                "port": 9093,
                "peer_port": 10093,
                "http": "[::1]:8081",
                "grpc": "[::1]:9194",
                "metrics": "[::1]:9645",
                "data_dir": "node-2/data",
                "log": "node-2/server.log",
                "founder": False,
                "lab": True,
                "config": "c.toml",
            },
        ],
    }
    assert file.read() == [alone, joined]
    assert file.origin() is None
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_no_file_is_no_nodes(tmp_path: Path) -> None:
    assert ClusterFile(tmp_path).read() == []
    assert ClusterFile(tmp_path).origin() is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"nodes": [{"id": 1}]}', '{"nodes": 5}', "[]"])
def test_broken_file_is_reported(tmp_path: Path, text: str) -> None:
    """A file that someone edited wrongly is an error with its path, not a traceback."""
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalError, match=r"cluster\.json"):
        ClusterFile(tmp_path).read()


def test_moved_directory_is_the_same_directory(tmp_path: Path) -> None:
    """Its paths are those of its new place, and stay so after it was written there."""
    (tmp_path / "old").mkdir()
    ClusterFile(tmp_path / "old").write([node(tmp_path / "old")])
    new = (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / "link").symlink_to(new)
    file = ClusterFile(new)
    assert file.read() == [node(new)]
    assert file.origin() == Origin(tmp_path / "old", is_copy=False)
    assert ClusterFile(tmp_path / "link").read() == [node(tmp_path / "link")]
    file.write(file.read(), settled=True)
    assert file.origin() is ClusterFile(tmp_path / "link").origin() is None
    # A directory that was moved, and then copied to where it was: the copy is at the old place, the original is not.
    shutil.copytree(new, tmp_path / "old")
    assert file.origin() is None
    assert ClusterFile(tmp_path / "old").origin() == Origin(new, is_copy=True)


def test_copy_is_a_copy_until_its_nodes_are_started(tmp_path: Path) -> None:
    """Stopping it before does not make it the owner of the original's ports."""
    (tmp_path / "original").mkdir()
    ClusterFile(tmp_path / "original").write([node(tmp_path / "original")])
    copy = ClusterFile(shutil.copytree(tmp_path / "original", tmp_path / "copy"))
    assert copy.read() == [node(tmp_path / "copy")]
    copy.write(copy.read())
    assert copy.origin() == Origin(tmp_path / "original", is_copy=True)
    copy.write(copy.read(), settled=True)
    assert copy.origin() is None
    assert ClusterFile(tmp_path / "original").origin() is None


def test_copy_without_its_original_is_as_good_as_moved(tmp_path: Path) -> None:
    """Moved to another file system, or restored elsewhere: nothing else has these nodes."""
    (tmp_path / "original").mkdir()
    ClusterFile(tmp_path / "original").write([node(tmp_path / "original")])
    copy = ClusterFile(shutil.copytree(tmp_path / "original", tmp_path / "copy"))
    shutil.rmtree(tmp_path / "original")
    assert copy.origin() == Origin(tmp_path / "original", is_copy=False)


def test_old_file_in_its_own_directory(tmp_path: Path) -> None:
    """Absolute paths that lead to where they should are no news; what the file does not say is as it was then."""
    file = old_file(tmp_path, tmp_path / "node-1" / "data")
    assert file.read() == [
        LocalNode(1, 7, Address("127.0.0.1", 9092), tmp_path / "node-1" / "data", config=Path("/etc/drmq.toml"))
    ]
    assert file.origin() is None


def test_old_file_of_another_directory_never_leads_there(tmp_path: Path) -> None:
    """After `mv` and after `cp -r`: the data is the one in this directory, and the difference is known."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    old_file(original, original / "node-1" / "data")
    (original / "node-1" / "data").mkdir(parents=True)
    shutil.copytree(original, copy)
    file = ClusterFile(copy)
    assert [found.data_dir for found in file.read()] == [copy / "node-1" / "data"]
    assert file.origin() == Origin(original, is_copy=True)
    file.write(file.read())
    assert file.origin() == Origin(original, is_copy=True)
    shutil.rmtree(original)
    assert file.origin() == Origin(original, is_copy=False)


def test_old_file_whose_data_is_elsewhere_is_refused(tmp_path: Path) -> None:
    """An empty node in place of one with data would look like the loss of all topics."""
    elsewhere = tmp_path / "disk" / "data"
    elsewhere.mkdir(parents=True)
    (elsewhere / "drmq.json").write_text("{}")
    file = old_file(tmp_path / "cluster", elsewhere)
    with pytest.raises(LocalError, match=f"names {elsewhere} as the data directory of node 1, and there is no data in"):
        file.read()


@pytest.mark.parametrize("path", ["/elsewhere/data", "../other/node-1/data", "node-1/../../data"])
def test_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    file = ClusterFile(tmp_path)
    file.write([node(tmp_path)])
    content = json.loads((tmp_path / "cluster.json").read_text())
    content["nodes"][0]["data_dir"] = path
    (tmp_path / "cluster.json").write_text(json.dumps(content))
    with pytest.raises(LocalError, match=f"names {path} as the data directory of node 1, which is not in"):
        file.read()
