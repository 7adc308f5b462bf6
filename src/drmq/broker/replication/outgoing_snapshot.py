"""A snapshot that a leader sends to followers: read once, on another thread, and kept in memory while it is sent.

A part is a slice of a state whose checksum covers all of it, so the file is read as a whole. This is done once for all
parts and all followers, on another thread, and the content stays in memory until it is no longer sent: the transfers
are complete, another snapshot has replaced it, this node is no longer the leader, or no part was requested for a while
because the follower failed.

The leaders of a node share one *cache*, which limits that memory: one file is read at a time, and none while the cache
is full. Further requests wait in a queue. Evicting others instead would mean to read every file again for every part as
soon as more snapshots are sent than fit.

A part for a learner is sent when the learner's turn comes (`learner_catch_up`). A turn is requested when the part is in
memory, so that no turn is blocked by a disk.

Always true: every snapshot in the queue has a part to send; the cache counts exactly what its leaders hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING

from drmq.broker.replication.replica_ports import ReplicaHost, ReplicaOwner
from drmq.model import NodeId, node_of
from drmq.raft import ChunkWanted, SnapshotMeta
from drmq.storage import StorageError
from drmq.telemetry.system_errors import in_words

if TYPE_CHECKING:
    from drmq.broker.replication.replica import Replica

log = logging.getLogger("drmq.broker")

HELD_BYTES_MAX = 64 * 1024 * 1024
"""If less than this is held, the next file is still read. So a node may hold this much, and one more snapshot."""
IDLE_S = 10.0
"""How long a snapshot is kept without a request for a part. A working follower is offered it again much earlier."""


class SnapshotCache:
    """The snapshots that all leaders of a node hold in memory. Used on the event loop."""

    def __init__(self, pool: Executor, bytes_max: int = HELD_BYTES_MAX) -> None:
        self.pool = pool
        """For all work on complete snapshots, here and where one is received."""
        self.held_bytes = 0
        self._bytes_max = bytes_max
        self._row: dict[OutgoingSnapshot, None] = {}
        self._is_reading = False

    def ask(self, outgoing: OutgoingSnapshot) -> None:
        """Queue a snapshot to be read."""
        self._row[outgoing] = None
        self._go_on()

    def leave(self, outgoing: OutgoingSnapshot) -> None:
        self._row.pop(outgoing, None)

    def on_read(self, size_bytes: int) -> None:
        """A read has ended, and this much of it is held."""
        self._is_reading = False
        self.held_bytes += size_bytes
        self._go_on()

    def on_dropped(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._go_on()

    def _go_on(self) -> None:
        if self._row and not self._is_reading and self.held_bytes < self._bytes_max:
            outgoing = next(iter(self._row))
            del self._row[outgoing]
            self._is_reading = True
            outgoing.read()


class OutgoingSnapshot:
    """The snapshot that one leader sends, and the parts that its followers wait for. Used on the event loop."""

    def __init__(self, replica: Replica, host: ReplicaHost, owner: ReplicaOwner, cache: SnapshotCache) -> None:
        self._replica = replica
        self._host = host
        self._owner = owner
        self._cache = cache
        self._wanted: dict[NodeId, ChunkWanted] = {}
        """Parts that were not sent yet: consensus requests one at a time for each follower."""
        self._meta: SnapshotMeta | None = None
        """The snapshot that is held, or about to be read."""
        self._body: bytes | None = None
        self._asks = 0
        """How many parts were requested so far."""

    def want(self, wanted: ChunkWanted) -> None:
        """Send a part as soon as it is in memory."""
        if wanted.meta != self._replica.entries.snapshot:
            self._refuse(wanted)
            return
        if wanted.meta != self._meta:
            self.drop()
            self._meta = wanted.meta
            self._cache.ask(self)
        self._asks += 1
        self._wanted[wanted.target] = wanted
        if self._body is not None:
            self._bring(wanted.target)

    def _bring(self, target: NodeId) -> None:
        if self._replica.takes_turns(target):
            self._host.catch_up.ask(self._replica, target)
        else:
            self.send(target)

    def send(self, target: NodeId) -> None:
        """Send a follower the part that it waits for, if there is one and it is in memory."""
        node = self._replica.node
        if node is None or self._body is None or target not in self._wanted:
            return
        wanted = self._wanted.pop(target)
        end = wanted.offset + wanted.size_bytes_max
        part = self._body[wanted.offset : end]
        node.send_snapshot_chunk(target, wanted.meta.snapshot_id, wanted.offset, part, end >= len(self._body))
        self._host.mark_dirty(self._replica)

    def _refuse(self, wanted: ChunkWanted) -> None:
        if self._replica.node is not None:
            self._replica.node.on_snapshot_unavailable(wanted.target, wanted.meta.snapshot_id)
            self._host.mark_dirty(self._replica)

    def drop_if_over(self) -> None:
        """Free the memory if the snapshot is no longer sent."""
        if self._meta is None:
            return
        node = self._replica.node
        transfers = () if node is None else node.progress().values()
        is_sent = any(peer.snapshot_received_bytes is not None for peer in transfers)
        if not is_sent or self._meta != self._replica.entries.snapshot:
            self.drop()

    def drop(self) -> None:
        """Free everything. Followers that still need a part of this snapshot, or of the next, ask again."""
        body, self._meta, self._body = self._body, None, None
        wanted, self._wanted = self._wanted, {}
        self._cache.leave(self)
        if body is not None:
            self._cache.on_dropped(len(body))
        for each in wanted.values():
            self._refuse(each)

    # ---- reading --------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the file, because the cache has chosen this snapshot from its queue."""
        meta = self._meta
        assert meta is not None
        asked = self._cache.pool.submit(self._owner.snapshot_bytes, meta)
        asked.add_done_callback(lambda done: self._call_on_loop(self._on_read, meta, done))

    def _call_on_loop(self, work: Callable[..., object], *arguments: object) -> None:
        self._host.call_on_loop(self._host.guard, self._replica, work, *arguments)

    def _on_read(self, meta: SnapshotMeta, done: Future[bytes | None]) -> None:
        if done.cancelled() or meta != self._meta or self._body is not None:
            self._cache.on_read(0)  # The node stops, or the snapshot is no longer needed.
            return
        self._cache.leave(self)
        error = done.exception()
        body = done.result() if error is None else None
        if body is not None:
            self._body = body
            self._cache.on_read(len(body))
            self._look_later()
            for target in list(self._wanted):
                self._bring(target)
            return
        self._cache.on_read(0)
        if error is not None:
            if not isinstance(error, StorageError | OSError):
                raise error
            # It will be requested again. One file that cannot be read is no reason to step down.
            name, targets = self._replica.log.name, ", ".join(str(node_of(target)) for target in self._wanted)
            repeat = {"repeat_key": f"no snapshot {name}"}
            log.error(
                "%s: cannot read the snapshot that node %s needs: %s", name, targets, in_words(error), extra=repeat
            )
        self.drop()

    def _look_later(self) -> None:
        self._host.call_later(IDLE_S, self._drop_if_idle, self._body, self._asks)

    def _drop_if_idle(self, body: bytes, asks: int) -> None:
        if self._body is body:
            if self._asks == asks and not self._wanted:
                self.drop()
            else:
                self._look_later()
