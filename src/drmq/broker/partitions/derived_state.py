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
    """A state that is built beside a machine's own. One thread owns it, and it is not visible before it is complete."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...


class Machine(Protocol):
    """A state machine: changes only by `replay`, and can be made anew and written down as records."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...

    def draft(self) -> Draft:
        """On any thread: an empty state, for the records of a snapshot. Reads nothing that the event loop changes."""

    def become(self, draft: Draft) -> None:
        """Be what a draft says, and nothing of before. The same short step for a large state and for a small one."""

    def snapshot(self) -> Iterable[KeyValue]:
        """Records that lead to what it is at this moment, whoever takes them one by one, and whenever."""

    def on_lead(self) -> None:
        """This node decides from now on. Everything committed has been replayed."""

    def on_follow(self) -> None:
        """Another node decides. Whoever waits for an answer must ask there."""

    def on_applied(self) -> None:
        """What is committed, and nothing else, is what the machine says. A leader's own decisions come here late."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A machine's snapshot, as bytes; none at all before the first one."""

    snapshot: SnapshotMeta | None
    body: bytes


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A machine's snapshot, ready to be what the machine is."""

    snapshot: SnapshotMeta | None
    draft: Draft


@dataclass(frozen=True, slots=True)
class _NotLoaded:
    error: Exception


class MachineState:
    """A state machine on a partition. The leader replays what it appends at once, everyone else what is committed.

    So the leader's state runs ahead of what is committed, and every answer waits for it. A leader that is deposed
    goes back to what is committed: its own decisions may never have been.

    A read that fails is no bug. After damage the copy is of no use and another one is made; the error of a moment fails
    the replica, which begins again by loading the machine anew. Either way nobody decides here meanwhile.
    """

    def __init__(self, log: Log, snapshots: Snapshots, machine: Machine) -> None:
        self.log = log
        self.snapshots = snapshots
        self.machine = machine
        self.applied_offset = Offset(0)
        self.applied_index = LogIndex(0)
        self._leads = False
        self._unreadable: Exception | None = None
        """Why the machine may be anything: from a read that failed until it is loaded again."""

    @property
    def is_current(self) -> bool:
        return self._unreadable is None

    def load(self) -> SnapshotMeta | None:
        """Make the machine what its newest snapshot says. Blocks. What follows in the log comes with its commit."""
        stored = self._read_stored()
        self._take(self._replayed(stored))
        return stored.snapshot

    def _read_stored(self) -> _Stored:
        stored = self.snapshots.load_latest(STATE_SNAPSHOT)
        if self.log.start_offset > (0 if stored is None else stored.offset):
            raise StateUnreadable(
                f"{self.log.name} starts at {self.log.start_offset}, and no sound snapshot holds what was before; "
                "restore its *.snapshot files from a backup, or remove this node's data directory and let it "
                "catch up from the others"
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
        """Replay the log up to `end`, which is committed. Raises what `_UNREADABLE` names, and is halfway then."""
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
        """The leader has appended and replayed records of its own."""
        self.applied_offset = next_offset

    def on_committed(self, partition: Partition, committed: IndexRange) -> None:
        if not self.is_current:
            return  # its replica is about to fail
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
                # Whoever waits here for an answer hears that he must ask elsewhere, whatever the disk does.
                self.machine.on_follow()

    def _take_back(self, partition: Partition) -> None:
        """Forget what this node has decided as a leader and is not committed."""
        if self.applied_offset > partition.high_watermark:
            self.load()
            self.replay_to(partition.high_watermark)
            self.applied_index = LogIndex(0) if partition.replica.node is None else partition.replica.node.applied_index

    def discard(self, partition: Partition, error: Exception) -> None:
        """The machine cannot be used any more: its replica fails, and begins again by loading the machine."""
        self._unreadable = error
        partition.on_state_unreadable(error)

    def reload(self, end_offset: Offset) -> object:
        if self._unreadable is not None and not isinstance(self._unreadable, OSError):
            # To begin again would be to find the same damage again.
            raise self._unreadable
        if self.is_current and self.applied_offset <= end_offset:
            # The log was cut where the machine has never been.
            return None
        try:
            return self._read_stored()
        except _UNREADABLE as error:
            return _NotLoaded(error)

    def on_appended(self, partition: Partition, headers: Sequence[BatchHeader]) -> None:
        return

    def on_reloaded(self, partition: Partition, reloaded: object) -> None:
        """The log was cut (which the state never saw), or replaced by a snapshot, or the replica begins again."""
        if isinstance(reloaded, _Stored):
            reloaded = self._replayed(reloaded)
        if isinstance(reloaded, _Loaded):
            self._take(reloaded)
            if self.applied_offset == partition.high_watermark:
                # Nothing has to be committed for others to see it: after an installation that may take its time.
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
        # Sound bytes that cannot be replayed are a bug, here or in the leader. Sent again they would be the same.
        return self._replayed(_Stored(meta, data)) if _is_sound(data) else None

    def save_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        keep_for_installation(self.snapshots, meta, data)

    def finish_snapshot(self, meta: SnapshotMeta, data: bytes) -> None:
        self.snapshots.remove_after(STATE_SNAPSHOT, Offset(-1))
        self.snapshots.save(STATE_SNAPSHOT, decode_offset(meta.data), pack_snapshot(meta, data))
        self.snapshots.remove_after(INSTALL_SNAPSHOT, Offset(-1))


def _is_sound(data: bytes) -> bool:
    """Whether these are the batches of a state, all of them and undamaged."""
    end = 0
    try:
        for position, header in iter_batches(data):
            end = position + header.size
            check_replicated_batch(data[position:end])
        replay_batches(data, lambda key, value: None, Offset(0))
    except Exception:  # noqa: BLE001 - bytes of a peer, which may be anything
        return False
    return end == len(data)


def encode_state(records: Iterable[KeyValue]) -> bytes:
    """All of a machine's records as consecutive batches."""
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
    """Replay the records from `start` on, and return the offset behind the last batch."""
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
