"""A snapshot that a replica receives from its leader: in memory, and in a file in case of a restart.

The parts are put together in memory, because a state is checked and installed as a whole. Each part but the last is
also written to an `IncomingFile` before it is acknowledged, so that a node that restarts during the transfer of a large
snapshot continues where it was. The last part needs no file: the complete snapshot is checked and installed at once,
and if a crash comes first, that part is sent again. So a snapshot that fits into one message needs no file at all.

A complete snapshot is checked and decoded on another thread, which takes seconds for a large state; the event loop
receives the decoded state. Meanwhile another snapshot may arrive, or entries that make this one unnecessary. So after
decoding, the caller must check whether these bytes are still the current ones.

Losing the file costs only time. A disk that refuses it is therefore no reason for the replica to fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct

from drmq.model import NodeId
from drmq.raft import (
    ChunkToSave,
    LogIndex,
    ProtocolError,
    SnapshotMeta,
    SnapshotReceiving,
    Term,
    configuration_from_bytes,
    configuration_to_bytes,
)
from drmq.storage import IncomingFile
from drmq.telemetry.system_errors import in_words

log = logging.getLogger("drmq.broker")

_DESCRIPTION = Struct(">qqqII")
"""Sender, index, term, and the sizes of the configuration and of the driver's data, which follow."""

Job = Callable[[], None]
"""A function to run on the writer thread."""


class IncomingSnapshot:
    """How much of a snapshot a replica has received. Used on the event loop; the file belongs to the writer thread."""

    def __init__(self, name: str, file: IncomingFile | None) -> None:
        self._name = name
        self._file = file
        self._sender = NodeId(-1)
        self._meta: SnapshotMeta | None = None
        self._data = bytearray()
        self._whole: bytes | None = None
        self._decoded: object | None = None

    @property
    def receiving(self) -> SnapshotReceiving | None:
        """What consensus must know about the received bytes when it starts or restarts."""
        if self._meta is None or self._whole is not None:
            return None
        return SnapshotReceiving(self._sender, self._meta, received=len(self._data))

    def load(self, installed: LogIndex) -> None:
        """Load what an earlier process has received of a snapshot beyond `installed`. Blocks."""
        found = self._file.load() if self._file is not None else None
        if self._file is None or found is None:
            return
        described = _decode(found.description)
        if described is None or described[1].index <= installed:
            self._file.remove()
            return
        self._sender, self._meta = described
        self._data = found.data
        log.info(
            "%s: %d bytes of a snapshot from node %d were kept over the restart",
            self._name,
            len(self._data),
            self._sender,
        )

    def take(self, chunk: ChunkToSave) -> Job | None:
        """Add a part. Returns what the writer thread must do before the part is acknowledged."""
        if chunk.offset == 0:
            self._begin(chunk.sender, chunk.meta)
        if (self._sender, self._meta, len(self._data)) != (chunk.sender, chunk.meta, chunk.offset):
            return None
        self._data += chunk.data
        if chunk.done:
            self._whole, self._data = bytes(self._data), bytearray()
        file = self._file
        if chunk.done or file is None:
            return None
        description = _encode(chunk.sender, chunk.meta)

        def keep() -> None:
            try:
                file.keep(description, chunk.offset, chunk.data)
            except OSError as error:
                log.warning(
                    "%s: a snapshot that is being received is kept in memory only: %s",
                    self._name,
                    in_words(error),
                    extra={"repeat_key": f"incoming {self._name}"},
                )

        return keep

    def _begin(self, sender: NodeId, meta: SnapshotMeta | None) -> None:
        self._sender, self._meta, self._data = sender, meta, bytearray()
        self._whole = self._decoded = None

    def whole(self, meta: SnapshotMeta) -> bytes | None:
        """The bytes of that snapshot once it is complete; the same object every time."""
        return self._whole if self._meta == meta else None

    def accept(self, decoded: object) -> None:
        """Record that the complete snapshot is intact, and its decoded state."""
        assert self._whole is not None, self._meta
        self._decoded = decoded

    def accepted(self, meta: SnapshotMeta) -> tuple[bytes, object]:
        """The bytes of a snapshot that is intact, and its decoded state."""
        assert self._meta == meta, (self._meta, meta)
        assert self._whole is not None, meta
        assert self._decoded is not None, meta
        return self._whole, self._decoded

    def is_overtaken(self, commit: LogIndex) -> bool:
        """Whether parts are held of a snapshot that a log committed up to `commit` no longer needs."""
        return self._meta is not None and self._meta.index <= commit

    def forget(self) -> Job:
        """Free the memory. Returns what the writer thread must do with the file."""
        self._begin(NodeId(-1), None)
        return self._file.remove if self._file is not None else lambda: None


def _encode(sender: NodeId, meta: SnapshotMeta) -> bytes:
    configuration = configuration_to_bytes(meta.configuration)
    sizes = len(configuration), len(meta.data)
    return _DESCRIPTION.pack(sender, meta.index, meta.term, *sizes) + configuration + meta.data


def _decode(description: bytes) -> tuple[NodeId, SnapshotMeta] | None:
    if len(description) < _DESCRIPTION.size:
        return None
    sender, index, term, configuration_size, data_size = _DESCRIPTION.unpack_from(description)
    end = _DESCRIPTION.size + configuration_size
    if len(description) != end + data_size:
        return None
    try:
        configuration = configuration_from_bytes(description[_DESCRIPTION.size : end])
    except ProtocolError:
        return None
    return NodeId(sender), SnapshotMeta(LogIndex(index), Term(term), configuration, description[end:])
