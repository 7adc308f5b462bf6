"""`cluster.json`: the nodes of a local cluster, and the directory that they belong to.

A directory may be moved or copied, so nothing in the file may lead out of it: paths are relative to the directory that
holds the file. The file also records where that directory was when it was written, and which one it was (device and
inode). From these, `origin` tells a moved directory from a copied one:

- The same place, or the same directory at another place (moved): everything in the file is still true.
- Another directory, while the one that was recorded still exists (a copy): the process ids are those of the original's
  nodes, and the ports may be in use by them. `local` keeps the two apart.

Version 1 had absolute paths and no record of its directory. Its paths are replaced by those in this directory; if the
data is somewhere else, the file is refused. Before version 1 there was no number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drmq.model.address import Address, split_address
from drmq.server.local_nodes import LocalError, LocalNode, data_directory

VERSION = 2
_ABSOLUTE_PATHS_VERSION = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a directory was when its file was written, if it is not there any more."""

    path: Path
    is_copy: bool
    """Whether the directory at `path` still exists, and this one is a copy of it."""


class ClusterFile:
    """The file of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "cluster.json"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def read(self) -> list[LocalNode]:
        """The nodes in the file, by id; empty if there is no file."""
        content = self._content()
        try:
            nodes = [self._from_json(node, content["version"]) for node in content["nodes"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(error) from None
        return sorted(nodes, key=lambda node: node.node_id)

    def origin(self) -> Origin | None:
        """Where this directory was before it was moved or copied; None if it is where its file says."""
        content = self._content()
        try:
            return self._origin(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(error) from None

    def write(self, nodes: Sequence[LocalNode], *, settled: bool = False) -> None:
        """Replace the file atomically. `settled`: from now on, the directory belongs where it is.

        Otherwise a copy stays recognisable as one until its nodes are started, even if it was stopped before.
        """
        before = self._recorded(self._content())
        content = {
            "version": VERSION,
            "directory": before if before and not settled else self._here(),
            "nodes": [self._to_json(node) for node in nodes],
        }
        temporary = self._path.with_suffix(".json.new")
        with temporary.open("w") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_text())
            # Files from before there were versions have the first one.
            content.setdefault("version", _ABSOLUTE_PATHS_VERSION)
            if content["version"] not in (_ABSOLUTE_PATHS_VERSION, VERSION):
                raise LocalError(
                    f"{self._path} has version {content['version']!r}, and this DRMQ knows version {VERSION}. "
                    "Use the version of DRMQ that wrote it."
                )
            if not isinstance(content["nodes"], list):
                raise ValueError("`nodes` is not a list")
        except FileNotFoundError:
            return {"version": VERSION, "nodes": []}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unreadable(error) from None
        return dict(content)

    def _unreadable(self, error: Exception) -> LocalError:
        return LocalError(f"{self._path} cannot be read ({error!r}). Correct or remove it.")

    # ---- moved and copied directories -----------------------------------------------------------

    def _recorded(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """The directory that the content was written for; None if it does not say."""
        if content.get("directory"):
            return dict(content["directory"])
        if content["version"] == _ABSOLUTE_PATHS_VERSION and content["nodes"]:
            # DIR/node-1/data
            return {"path": str(Path(content["nodes"][0]["data_dir"]).parent.parent), "device": None, "inode": None}
        return None

    def _here(self) -> dict[str, Any]:
        found = self._directory.stat()
        return {"path": str(self._directory.resolve()), "device": found.st_dev, "inode": found.st_ino}

    def _origin(self, content: Mapping[str, Any]) -> Origin | None:
        recorded = self._recorded(content)
        if recorded is None:
            return None
        here, path = self._directory.resolve(), Path(recorded["path"])
        found = here.stat()
        is_this = (found.st_dev, found.st_ino) == (recorded["device"], recorded["inode"])
        if path == here or (path.exists() and path.samefile(here)):
            return None
        return Origin(path, is_copy=not is_this and (path / "cluster.json").exists())

    # ---- entries --------------------------------------------------------------------------------

    def _to_json(self, node: LocalNode) -> dict[str, Any]:
        return {
            "id": node.node_id,
            "pid": node.pid,
            "kafka": str(node.kafka),
            "host": node.kafka.host,
            "port": node.kafka.port,
            "peer_port": node.peer_port,
            "http": None if node.http is None else str(node.http),
            "grpc": None if node.grpc is None else str(node.grpc),
            "metrics": None if node.metrics is None else str(node.metrics),
            "data_dir": str(node.data_dir.relative_to(self._directory)),
            "log": str(node.log_path.relative_to(self._directory)),
            "founder": node.founder,
            "lab": node.lab,
            "config": None if node.config is None else self._relative(node.config),
        }

    def _relative(self, path: Path) -> str:
        """A path in this directory moves with it. Others stay what they are."""
        return str(path.relative_to(self._directory) if path.is_relative_to(self._directory) else path)

    def _from_json(self, node: Mapping[str, Any], version: int) -> LocalNode:
        """A node from its entry. Defaults for entries of earlier versions: a single node without peers."""
        host, port = split_address(node["kafka"])
        if port is None:
            raise ValueError(f"no port in {node['kafka']!r}")
        node_id = int(node["id"])
        if version == _ABSOLUTE_PATHS_VERSION:
            data_dir = self._replaced(node_id, Path(node["data_dir"]))
        else:
            data_dir = self._inside(node_id, str(node["data_dir"]))
        return LocalNode(
            node_id=node_id,
            pid=node["pid"],
            kafka=Address(host, port),
            data_dir=data_dir,
            peer_port=node.get("peer_port"),
            founder=node.get("founder", True),
            config=self._directory / node["config"] if node.get("config") else None,
            http_port=split_address(node["http"])[1] if node.get("http") else None,
            grpc_port=split_address(node["grpc"])[1] if node.get("grpc") else None,
            metrics_port=split_address(node["metrics"])[1] if node.get("metrics") else None,
            lab=node.get("lab", False),
        )

    def _inside(self, node_id: int, data_dir: str) -> Path:
        relative = Path(os.path.normpath(data_dir))
        if relative.is_absolute() or relative.parts[:1] == ("..",):
            raise LocalError(
                f"{self._path} names {data_dir} as the data directory of node {node_id}, which is not in "
                f"{self._directory}. `drmq up` keeps all data in its directory: move it there, and write the path "
                "relative to it. `drmq server` runs a node on any directory."
            )
        return self._directory / relative

    def _replaced(self, node_id: int, written: Path) -> Path:
        """The data directory of a node in this directory, whatever absolute path the file has for it."""
        own = data_directory(self._directory, node_id)
        if written != own and not own.exists() and (written / "drmq.json").exists():
            # Starting with an empty directory would look like the loss of all topics.
            raise LocalError(
                f"{self._path} was written in another place: it names {written} as the data directory of node "
                f"{node_id}, and there is no data in {own}. Use the directory that has the data, or move the data "
                "here first."
            )
        return own
