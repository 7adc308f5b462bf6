"""The state that is derived from a partition's log, and how it is stored, transferred and rebuilt.

A message partition has the table of its producers: the last batches that each one wrote. It is rebuilt from the headers
of the batches, starting with the newest of its snapshots. The snapshot at the start of the log (`base`) is kept as long
as the log starts there, because a new replica needs it before it can follow the log.

A partition of a state machine has the machine's state. Its snapshot is the state at some index, and the log before it
is removed. If the disk cannot return them, the state of the machine is undefined: it is not used, and its replica
fails, until it has been loaded again.

A snapshot from a leader replaces log and state together. Several files change, so the whole snapshot is written first,
as `install`: if the node crashes meanwhile, opening the partition starts again from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from drmq.broker.partitions.log_store import Snapshots
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.replication.entry_log import decode_offset, encode_offset
from drmq.model import DrmqError, Offset, UnknownFormat
from drmq.raft import IndexRange, LogIndex, SnapshotMeta, Term, configuration_from_bytes, configuration_to_bytes
from drmq.records import BatchHeader, Record, check_replicated_batch, decode_batch, encode_batch, iter_batches
from drmq.storage import LedgerBase, Log, LogCorrupt, Snapshot, StorageError

if TYPE_CHECKING:
    from drmq.broker.partitions.partition import Partition

KeyValue = tuple[bytes, bytes | None]

PRODUCERS_SNAPSHOT = "producers"
BASE_SNAPSHOT = "base"
STATE_SNAPSHOT = "state"
INSTALL_SNAPSHOT = "install"

_META = Struct(">qqqI")
_READ_SIZE = 1024 * 1024
_RECORDS_PER_BATCH = 1_000
_DECOMPRESSED_MAX = 1 << 30


class StateUnreadable(DrmqError):
    """The broker's own state cannot be read, so it must not start: it would otherwise start as a new broker."""


_UNREADABLE = (LogCorrupt, StateUnreadable, OSError, UnknownFormat)
"""What reading a machine's state may raise because of the disk, or because a later release wrote it."""


class InstallationInDoubt(StorageError):
    """A received state could not be stored for certain, but the next start may find it nevertheless."""


# ---- snapshots with their position in the log ---------------------------------------------------


def keep_for_installation(snapshots: Snapshots, meta: SnapshotMeta, data: bytes) -> None:
    """Store a received state, from which a start completes an installation that a crash interrupted.

    If that fails, no file may remain: entries may be acknowledged next, and the next start would replace them with it.
    """
    try:
        snapshots.save(INSTALL_SNAPSHOT, decode_offset(meta.data), pack_snapshot(meta, data))
    except OSError as error:
        try:
            snapshots.remove_after(INSTALL_SNAPSHOT, Offset(-1))
        except OSError:
            raise InstallationInDoubt(f"a received state was stored in part: {error.strerror}") from error
        raise


def pack_snapshot(meta: SnapshotMeta, body: bytes) -> bytes:
    """A state together with its position in the log: they are always stored together."""
    configuration = configuration_to_bytes(meta.configuration)
    return _META.pack(meta.index, meta.term, decode_offset(meta.data), len(configuration)) + configuration + body


def unpack_snapshot(payload: bytes) -> tuple[SnapshotMeta, bytes]:
    index, term, offset, size = _META.unpack_from(payload)
    end = _META.size + size
    configuration = configuration_from_bytes(payload[_META.size : end])
    return SnapshotMeta(LogIndex(index), Term(term), configuration, encode_offset(Offset(offset))), payload[end:]


def base_of(meta: SnapshotMeta) -> LedgerBase:
    """The base of a log that begins directly after a snapshot."""
    return LedgerBase(meta.index, meta.term, decode_offset(meta.data), configuration_to_bytes(meta.configuration))


# ---- message partitions -------------------------------------------------------------------------


def load_producers(log: Log, snapshots: Snapshots, end: Offset, now_ms: int) -> ProducerTable:
    """The producer table as of `end`, the log's end: the newest snapshot, and the headers after it.

    The time of those batches is not stored, so their producers count as seen now.
    """
    # A snapshot beyond the end describes batches that were lost. It is removed before other batches get their offsets.
    snapshots.remove_after(PRODUCERS_SNAPSHOT, end)
    found = snapshots.load_latest(PRODUCERS_SNAPSHOT, not_after=end)
    base = snapshots.load_latest(BASE_SNAPSHOT, not_after=end)
    if base is not None and (found is None or base.offset > found.offset):
        found = Snapshot(base.offset, unpack_snapshot(base.payload)[1])
    table = ProducerTable() if found is None else ProducerTable.from_bytes(found.payload)
    start = log.start_offset if found is None else max(found.offset, log.start_offset)
    for header, _ in log.headers(start, end):
        if header.base_offset >= start:
            table.apply(header, now_ms)
    return table


class MessageState:
    """The producers of a message partition."""

    is_current = True

    def __init__(self, log: Log, snapshots: Snapshots, seen_ms: Callable[[], int]) -> None:
        self.log = log
        self.snapshots = snapshots
        self._seen_ms = seen_ms

    def reload(self, end_offset: Offset) -> object:
        return load_producers(self.log, self.snapshots, end_offset, self._seen_ms())

    def on_appended(self, partition: Partition, headers: Sequence[BatchHeader]) -> None:
        # Their time matters on a follower too: if it considered its producers idle and forgot them, it would take a
        # retry for a new batch once it is leader.
        now_ms = self._seen_ms()
        for header in headers:
            if header.producer_id >= 0:
                partition.producers.apply(header, now_ms)

    def on_reloaded(self, partition: Partition, reloaded: object) -> None:
        assert isinstance(reloaded, ProducerTable)
        partition.producers = reloaded

    def on_leadership(self, partition: Partition) -> None:
        return

    def on_committed(self, partition: Partition, committed: IndexRange) -> None:
        partition.replica.on_applied(LogIndex(committed.end - 1))

    def snapshot_bytes(self, meta: SnapshotMeta) -> bytes | None:
        offset = decode_offset(meta.data)
        stored = self.snapshots.load_latest(BASE_SNAPSHOT, not_after=offset)
        if stored is None:
            return b"" if offset == 0 else None
        found, body = unpack_snapshot(stored.payload)
        return body if found == meta else None

    def decode_snapshot(self, meta: SnapshotMeta, data: bytes) -> object | None:
        try:
            return ProducerTable.from_bytes(data)
        except UnknownFormat:
            raise
        except Exception:  # noqa: BLE001 - bytes from a peer, which may be invalid in any way
            return None

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        keep_for_installation(self.snapshots, meta, data)

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        offset = decode_offset(meta.data)
        self.snapshots.remove_after(PRODUCERS_SNAPSHOT, Offset(-1))
        # Later ones belong to the log that was replaced. Two are kept, and this must be one of them.
        self.snapshots.remove_after(BASE_SNAPSHOT, offset)
        self.snapshots.save(BASE_SNAPSHOT, offset, pack_snapshot(meta, data))
        self.snapshots.remove_after(INSTALL_SNAPSHOT, Offset(-1))


# ---- partitions of state machines ---------------------------------------------------------------


class Draft(Protocol):
    """A state that is built separately from a machine's current state. One thread owns it until it is complete."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...


class Machine(Protocol):
    """A state machine: changes only by `replay`, can be replaced by a draft, and can be written as records."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...

    def draft(self) -> Draft:
        """An empty state, for the records of a snapshot. Called on any thread; reads nothing that the loop changes."""

    def become(self, draft: Draft) -> None:
        """Replace the whole state by a draft. Takes the same short time for a large state and for a small one."""

    def snapshot(self) -> Iterable[KeyValue]:
        """Records that reproduce the current state. The caller may consume them later, while the machine changes."""

    def on_lead(self) -> None:
        """Called when this node becomes leader. Everything committed has been replayed."""

    def on_follow(self) -> None:
        """Called when this node stops being leader. Waiting requests must be answered with an error."""

    def on_applied(self) -> None:
        """Called when the state is exactly what is committed. On a leader this is some time after it has decided."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A machine's stored snapshot, as bytes; None and empty if there is none yet."""

    snapshot: SnapshotMeta | None
    body: bytes


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A machine's snapshot, decoded and ready to replace the machine's state."""

    snapshot: SnapshotMeta | None
    draft: Draft


@dataclass(frozen=True, slots=True)
class _NotLoaded:
    error: Exception


class MachineState:
    """A state machine on a partition. The leader replays records when it appends them, followers when they commit.

    The leader's state is therefore ahead of what is committed, and every answer waits until its records commit. A
    leader that is deposed returns to the committed state, because its own decisions may never be committed.

    A failed read is not a bug. If the files are damaged, this copy is discarded and replaced. A temporary error fails
    the replica, which then restarts and loads the machine again. In both cases this node makes no decisions until then.
    """

    def __init__(self, log: Log, snapshots: Snapshots, machine: Machine) -> None:
        self.log = log
        self.snapshots = snapshots
        self.machine = machine
        self.applied_offset = Offset(0)
        self.applied_index = LogIndex(0)
        self._leads = False
        self._unreadable: Exception | None = None
        """The error of a failed read, until the machine is loaded again. While it is set, the state is undefined."""

    @property
    def is_current(self) -> bool:
        return self._unreadable is None

    def load(self) -> SnapshotMeta | None:
        """Load the machine from its newest snapshot. Blocks. The log after it is replayed as its entries commit."""
        stored = self._read_stored()
        self._take(self._replayed(stored))
        return stored.snapshot

    def _read_stored(self) -> _Stored:
        stored = self.snapshots.load_latest(STATE_SNAPSHOT)
        if self.log.start_offset > (0 if stored is None else stored.offset):
            raise StateUnreadable(
                f"{self.log.name} starts at offset {self.log.start_offset}, and no intact snapshot has the state up to "
                "there; restore its *.snapshot files from a backup, or remove this node's data directory and let it "
                "catch up from the other nodes"
            )
        return _Stored(None, b"") if stored is None else _Stored(*unpack_snapshot(stored.payload))

    def _replayed(self, stored: _Stored) -> _Loaded:
        draft = self.machine.draft()
        replay_batches(stored.body, draft.replay, Offset(0))
        return _Loaded(stored.snapshot, draft)

    def _take(self, loaded: _Loaded) -> None:
        self.machine.become(loaded.draft)
        meta = loaded.snapshot
        self.applied_offset = Offset(0) if meta is None else decode_offset(meta.data)
        self.applied_index = LogIndex(0) if meta is None else meta.index
        self._unreadable = None

    def replay_to(self, end: Offset) -> None:
        """Replay the log up to `end`, which is committed. Raises `_UNREADABLE`; part of it may be replayed then."""
        while self.applied_offset < end:
            data = self.log.read(self.applied_offset, _READ_SIZE, end)
            assert data, (self.log.name, self.applied_offset, end)
            self.applied_offset = replay_batches(data, self.machine.replay, self.applied_offset)

    def check_log(self) -> None:
        """Check that the log behind the snapshot, committed or not, has no records of a later release. Blocks.

        Raises `UnknownFormat`. Damage is found later, when the records are replayed.
        """
        end, offset, draft = self.log.end_offset, self.applied_offset, self.machine.draft()
        try:
            while offset < end and (data := self.log.read(offset, _READ_SIZE, end)):
                offset = replay_batches(data, draft.replay, offset)
        except (LogCorrupt, OSError):
            return

    def note_appended(self, next_offset: Offset) -> None:
        """Note that the leader has appended and replayed records of its own."""
        self.applied_offset = next_offset

    def on_committed(self, partition: Partition, committed: IndexRange) -> None:
        if not self.is_current:
            return  # the replica is about to fail
        try:
            self.replay_to(partition.high_watermark)
        except _UNREADABLE as error:
            self.discard(partition, error)
            return
        self.applied_index = LogIndex(committed.end - 1)
        partition.replica.on_applied(self.applied_index)
        if self.applied_offset == partition.high_watermark:
            self.machine.on_applied()

    def on_leadership(self, partition: Partition) -> None:
        if partition.is_serving and not self._leads:
            self._leads = True
            self.machine.on_lead()
        elif self._leads and not partition.is_serving:
            self._leads = False
            try:
                self._take_back(partition)
            except _UNREADABLE as error:
                self.discard(partition, error)
            finally:
                # Waiting requests must be answered with an error even if the disk fails.
                self.machine.on_follow()

    def _take_back(self, partition: Partition) -> None:
        """Undo the decisions that this node made as leader and that are not committed."""
        if self.applied_offset > partition.high_watermark:
            self.load()
            self.replay_to(partition.high_watermark)
            self.applied_index = LogIndex(0) if partition.replica.node is None else partition.replica.node.applied_index

    def discard(self, partition: Partition, error: Exception) -> None:
        """Mark the machine as unusable: its replica fails, and then restarts by loading the machine again."""
        self._unreadable = error
        partition.on_state_unreadable(error)

    def reload(self, end_offset: Offset) -> object:
        if self._unreadable is not None and not isinstance(self._unreadable, OSError):
            # Loading again would find the same damage.
            raise self._unreadable
        if self.is_current and self.applied_offset <= end_offset:
            # The log was truncated, but only after what the machine has replayed.
            return None
        try:
            return self._read_stored()
        except _UNREADABLE as error:
            return _NotLoaded(error)

    def on_appended(self, partition: Partition, headers: Sequence[BatchHeader]) -> None:
        return

    def on_reloaded(self, partition: Partition, reloaded: object) -> None:
        """Called when the log was truncated or replaced by a snapshot, or the replica restarts."""
        if isinstance(reloaded, _Stored):
            reloaded = self._replayed(reloaded)
        if isinstance(reloaded, _Loaded):
            self._take(reloaded)
            if self.applied_offset == partition.high_watermark:
                # Publish the state now: after the installation of a snapshot, the next commit may be a long time away.
                self.machine.on_applied()
        elif isinstance(reloaded, _NotLoaded):
            self.discard(partition, reloaded.error)

    def snapshot_bytes(self, meta: SnapshotMeta) -> bytes | None:
        stored = self.snapshots.load_latest(STATE_SNAPSHOT)
        if stored is None:
            return None
        found, body = unpack_snapshot(stored.payload)
        return body if found == meta else None

    def decode_snapshot(self, meta: SnapshotMeta, data: bytes) -> object | None:
        # Intact bytes that cannot be replayed are a bug, here or in the leader. Sending them again would not help.
        return self._replayed(_Stored(meta, data)) if _is_sound(data) else None

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        keep_for_installation(self.snapshots, meta, data)

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        self.snapshots.remove_after(STATE_SNAPSHOT, Offset(-1))
        self.snapshots.save(STATE_SNAPSHOT, decode_offset(meta.data), pack_snapshot(meta, data))
        self.snapshots.remove_after(INSTALL_SNAPSHOT, Offset(-1))


def _is_sound(data: bytes) -> bool:
    """Whether the data is a complete and undamaged sequence of batches."""
    end = 0
    try:
        for position, header in iter_batches(data):
            end = position + header.size
            check_replicated_batch(data[position:end])
        replay_batches(data, lambda key, value: None, Offset(0))
    except Exception:  # noqa: BLE001 - bytes from a peer, which may be invalid in any way
        return False
    return end == len(data)


def encode_state(records: Iterable[KeyValue]) -> bytes:
    """Encode all records of a machine as consecutive batches."""
    out = bytearray()
    chunk: list[Record] = []
    for key, value in records:
        chunk.append(Record(Offset(len(chunk)), 0, key, value))
        if len(chunk) == _RECORDS_PER_BATCH:
            out += encode_batch(chunk)
            chunk = []
    if chunk:
        out += encode_batch(chunk)
    return bytes(out)


def replay_batches(
    data: bytes | bytearray | memoryview, replay: Callable[[bytes, bytes | None], None], start: Offset
) -> Offset:
    """Replay the records from `start` on, and return the offset after the last batch."""
    view = memoryview(data)
    reached = start
    for position, header in iter_batches(view):
        for record in decode_batch(view[position : position + header.size], decompressed_size_max=_DECOMPRESSED_MAX):
            # A read that starts inside a batch returns the whole batch.
            if record.offset >= start:
                assert record.key is not None, (record.offset, "a state machine's record has a key")
                replay(record.key, record.value)
        reached = header.next_offset
    return reached
