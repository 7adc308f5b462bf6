"""The data directory of a node: its lock, its identity, and the location of each log in it.

    lock                 flock while a broker runs; holds its process id
    drmq.json            format version, node id, directory id, the journal's secret; cluster id and incarnation once
                         they are known
    journal-0, -1        the latest appends of all logs (`journal`)
    topics/<name>.<id>/<partition>/     one log each; <name> is shortened to 80 characters, <id> identifies the topic
    internal/<name>/<partition>/        logs that belong to no topic
    *.deleted            logs whose removal was decided and not finished

A directory whose description cannot be read is refused and never treated as new: a node that lost its identity would
vote and answer under a wrong one. Nothing is removed because it is unknown. Only files that were renamed to `.deleted`
by a decision are removed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from drmq.model import NodeId, TopicId
from drmq.storage.errors import (
    DirectoryLocked,
    DirectoryMismatch,
    DirectoryRefused,
    DirectoryTooNew,
    DirectoryUnreadable,
    InvalidName,
)
from drmq.storage.files import OS_FILES, Files, OpenFile, make_directories, remove_tree, replace_file, sync_ancestors

FORMAT_VERSION = 4
"""Version 4 marks a directory that releases before feature levels cannot read. Its files are those of version 3; the
number keeps such a release from starting on it."""
_FIRST_VERSION = 3
"""The version of a new directory. Version 3 added the journal. A DRMQ that does not know it would ignore appends that
are only there."""
_OLDEST_VERSION = 2
DELETED_SUFFIX = ".deleted"
LOST_SUFFIX = ".lost"
_START = Struct(">QI")
_FIELDS = {"node_id", "directory_id", "cluster_id", "incarnation"}
_NAME_SHOWN_MAX = 80
_NAME_PATTERN = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPIC_DIRECTORY = re.compile(r"(?P<name>[a-zA-Z0-9._-]{1,80})\.(?P<id>[0-9a-f]{32})")


class LogLocation(NamedTuple):
    """A log found in the data directory. The id identifies the topic; the name may be shortened."""

    shown_name: str
    topic_id: TopicId
    partition: int
    path: str


def check_name(name: str) -> str:
    """Return `name` if it may become part of a path, else raise `InvalidName`."""
    if not _NAME_PATTERN.fullmatch(name) or name in (".", ".."):
        raise InvalidName(f"{name!r} is not a valid name: use 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


class DataDirectory:
    """The locked data directory of this process."""

    def __init__(
        self,
        path: str,
        node_id: NodeId,
        cluster_id: str | None = None,
        files: Files = OS_FILES,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
        new_secret: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        """Lock the directory and check that it belongs to this node, or initialise it if it is new and empty.

        A new directory belongs to no cluster until `identify` is called, unless `cluster_id` is given. An existing one
        is refused if it belongs to another cluster. `new_id` creates the id of a new directory, and `new_secret` its
        secret. Raises a `DirectoryRefused`.
        """
        self.path = path.rstrip("/") or "/"
        self.node_id = node_id
        self._files = files
        self._new_id = new_id
        self._new_secret = new_secret
        self.directory_id = ""
        self.journal_secret = ""
        """Never leaves this node. Clients know the directory id, so with that alone they could forge journal
        records."""
        self.cluster_id: str | None = None
        self.incarnation = 0
        self._format_version = _FIRST_VERSION
        self.starts = 0
        """How many processes have used the directory, including this one."""
        make_directories(files, self.path)
        self._lock = self._take_lock()
        try:
            self._identify(cluster_id)
            self.starts = self._count_start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock, so that another process can use the directory."""
        self._lock = None

    def _take_lock(self) -> OpenFile | None:
        path = f"{self.path}/lock"
        try:
            lock = OpenFile(self._files, self._files.lock(path))
        except BlockingIOError:
            handle = OpenFile(self._files, self._files.open(path))
            owner = self._files.read(handle.handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise DirectoryLocked(
                f"{self.path} is in use by process {owner}; stop it first, or choose another data directory"
            ) from None
        self._files.truncate(lock.handle, 0)
        self._files.write(lock.handle, (b"%d\n" % os.getpid(),), 0)
        return lock

    # Identity

    def identify(self, cluster_id: str, incarnation: int) -> None:
        """Durably record the cluster that the directory belongs to, and the incarnation of its node."""
        assert self.cluster_id in (None, cluster_id), (self.cluster_id, cluster_id)
        if (self.cluster_id, self.incarnation) != (cluster_id, incarnation):
            self.cluster_id, self.incarnation = cluster_id, incarnation
            self._describe(f"{self.path}/drmq.json")

    def require_feature_levels(self) -> None:
        """Durably mark the directory, so that releases from before feature levels do not use it any more."""
        if self._format_version < FORMAT_VERSION:
            before, self._format_version = self._format_version, FORMAT_VERSION
            try:
                self._describe(f"{self.path}/drmq.json")
            except OSError:
                self._format_version = before
                raise

    def _identify(self, cluster_id: str | None) -> None:
        path = f"{self.path}/drmq.json"
        if not self._files.exists(path):
            others = [name for name in self._files.list(self.path) if name in ("topics", "internal")]
            if others:
                raise DirectoryUnreadable(
                    f"{path} is missing, but {self.path} holds data; restore the file, or start with an empty directory"
                )
            self.cluster_id = cluster_id
            self.directory_id = self._new_id()
            self.journal_secret = self._new_secret()
            self._describe(path)
            sync_ancestors(self._files, self.path)
            return
        handle = OpenFile(self._files, self._files.open(path))
        found = _decode_description(path, self._files.read(handle.handle, 1 << 16, 0))
        if found["node_id"] != self.node_id:
            raise DirectoryMismatch(
                f"{self.path} belongs to node {found['node_id']}, and this is node {self.node_id}; start this node "
                f"with node id {found['node_id']}, or choose another data directory"
            )
        if cluster_id is not None and found["cluster_id"] not in (None, cluster_id):
            raise DirectoryMismatch(
                f"{self.path} belongs to cluster {found['cluster_id']}, and this node to {cluster_id}; choose another "
                "data directory"
            )
        self.cluster_id = None if found["cluster_id"] is None else str(found["cluster_id"])
        self.directory_id = str(found["directory_id"])
        self.incarnation = int(str(found["incarnation"]))
        self.journal_secret = str(found.get("journal_secret", ""))
        self._format_version = max(_FIRST_VERSION, int(str(found["format_version"])))
        if found["format_version"] != self._format_version:
            self.journal_secret = self._new_secret()
            self._describe(path)

    def _count_start(self) -> int:
        """Durably increase the number of starts by one, and return it.

        Two slots are overwritten in turn, so that an interrupted write leaves the other one intact, and a full disk
        does not prevent a start.
        """
        path = f"{self.path}/starts"
        is_new = not self._files.exists(path)
        file = OpenFile(self._files, self._files.open(path, create=is_new))
        data = self._files.read(file.handle, 2 * _START.size, 0)
        found = [_START.unpack_from(data, at) for at in range(0, len(data) - _START.size + 1, _START.size)]
        count = 1 + max((number for number, checksum in found if checksum == _start_checksum(number)), default=0)
        record = _START.pack(count, _start_checksum(count))
        self._files.write(file.handle, (record,), count % 2 * _START.size)
        self._files.sync(file.handle)
        if is_new:
            self._files.sync_directory(self.path)
        return count

    def _describe(self, path: str) -> None:
        fields: dict[str, object] = {
            "format_version": self._format_version,
            "node_id": self.node_id,
            "directory_id": self.directory_id,
            "journal_secret": self.journal_secret,
            "cluster_id": self.cluster_id,
            "incarnation": self.incarnation,
        }
        fields["checksum"] = _checksum(fields)
        replace_file(self._files, path, json.dumps(fields, indent=2).encode() + b"\n")

    # Locations

    def topic_path(self, topic: str, topic_id: TopicId) -> str:
        """The directory of a topic's partitions."""
        assert len(topic_id) == 16, topic_id
        return f"{self.path}/topics/{check_name(topic)[:_NAME_SHOWN_MAX]}.{topic_id.hex()}"

    def log_path(self, topic: str, topic_id: TopicId, partition: int) -> str:
        """The directory of one partition's log."""
        assert partition >= 0, partition
        return f"{self.topic_path(topic, topic_id)}/{partition}"

    def internal_path(self, name: str, partition: int = 0) -> str:
        """The directory of a log that belongs to no topic."""
        assert partition >= 0, partition
        return f"{self.path}/internal/{check_name(name)}/{partition}"

    def scan(self) -> list[LogLocation]:
        """Every topic log in the directory. Anything that does not look like one is neither touched nor listed."""
        found = []
        topics = f"{self.path}/topics"
        for name in self._files.list(topics) if self._files.is_directory(topics) else []:
            match = _TOPIC_DIRECTORY.fullmatch(name)
            if match is None:
                continue
            topic_id = TopicId(bytes.fromhex(match["id"]))
            try:
                partitions = self._files.list(f"{topics}/{name}")
            except FileNotFoundError:
                continue  # Its topic is being deleted right now.
            for partition in partitions:
                path = f"{topics}/{name}/{partition}"
                if partition.isascii() and partition.isdigit() and self._files.is_directory(path):
                    found.append(LogLocation(match["name"], topic_id, int(partition), path))
        return sorted(found)

    def delete_topic(self, topic: str, topic_id: TopicId) -> None:
        """Remove a topic whose logs are closed: rename it in one atomic step, then free the space."""
        path = self.topic_path(topic, topic_id)
        if not self._files.is_directory(path):
            return
        aside = path + DELETED_SUFFIX
        if self._files.exists(aside):
            remove_tree(self._files, aside)
        self._files.rename(path, aside)
        self._files.sync_directory(os.path.dirname(path))
        remove_tree(self._files, aside)

    def set_log_aside(self, topic: str, topic_id: TopicId, partition: int) -> str:
        """Rename a closed log out of the way, in one step. It is removed with its topic, or by the next call."""
        path = self.log_path(topic, topic_id, partition)
        aside = path + LOST_SUFFIX
        if self._files.exists(aside):
            remove_tree(self._files, aside)
        self._files.rename(path, aside)
        self._files.sync_directory(os.path.dirname(path))
        return aside

    def remove_deleted(self) -> int:
        """Finish deletions that a crash interrupted. Returns how many there were."""
        return sum(self._remove_deleted(f"{self.path}/{name}", depth=2) for name in ("topics", "internal"))

    def _remove_deleted(self, path: str, depth: int) -> int:
        if not self._files.is_directory(path):
            return 0
        count = 0
        for name in self._files.list(path):
            child = f"{path}/{name}"
            if name.endswith(DELETED_SUFFIX) and self._files.is_directory(child):
                remove_tree(self._files, child)
                count += 1
            elif depth > 1:
                count += self._remove_deleted(child, depth - 1)
        return count

    def free_bytes(self) -> int:
        """Free space on this file system."""
        return self._files.free_bytes(self.path)


def _start_checksum(count: int) -> int:
    return crc32c(b"start" + count.to_bytes(8, "big"))


def _checksum(fields: dict[str, object]) -> int:
    """The checksum of the fields, independent of their order and of white space in the file."""
    return crc32c(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _decode_description(path: str, data: bytes) -> dict[str, object]:
    advice = "restore it from a backup, or start with an empty directory; nothing was changed"
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise DirectoryUnreadable(f"{path} is unreadable ({error}); {advice}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("format_version"), int):
        raise DirectoryUnreadable(f"{path} is not a description of a data directory; {advice}")
    if fields["format_version"] > FORMAT_VERSION:
        raise DirectoryTooNew(
            f"{path} has format version {fields['format_version']}, and this DRMQ knows versions up to "
            f"{FORMAT_VERSION}; use the version of DRMQ that wrote it, or a later one"
        )
    if fields["format_version"] < _OLDEST_VERSION:
        raise DirectoryUnreadable(
            f"{path} has format version {fields['format_version']}, of a DRMQ before it had clusters, which is no "
            "longer supported; start with an empty directory"
        )
    checksum = fields.pop("checksum", None)
    has_secret = "journal_secret" in fields or fields["format_version"] < _FIRST_VERSION
    if checksum != _checksum(fields) or not fields.keys() >= _FIELDS or not has_secret:
        raise DirectoryUnreadable(f"{path} is damaged: its checksum does not match; {advice}")
    return fields


__all__ = ["DataDirectory", "DirectoryRefused", "LogLocation", "check_name"]
