"""Dead letters that are done, and the redrives that move the others back to their origins, exactly once.

A letter *waits* while it is in the log of its topic, in no run of `done`, and in no batch that is under way. So letters
wait without costing anything, and a redrive of all of them ends as one run.

A redrive moves letters in batches to the partitions they came from, in the name of a producer id of its own. Three
records frame each batch: `BatchIntended` before it is appended, with the letters and the numbers (epoch and sequence)
that it will have; then it is appended; then `BatchEnded`. A node that takes over in between finds the batch among
`Redrive.batches` and appends the same batch with the same numbers: its origin recognises the repetition. That works
because a batch is a function of its letters and of its record, there is one batch at a time for each origin, and a
sequence number is used for one batch only: a batch that was given up ends its epoch.

The letters that belong to a redrive are those that were there when it began (`ends`). Otherwise a letter whose record
fails again would be moved again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from drmq.leases.letters import Letters, Numbers, Redrive, size_of
from drmq.leases.queue_key import QueueKey, redrive_key
from drmq.leases.ranges import Ranges
from drmq.leases.records import LeaseRecord, LogTrimmed, QueueRemoved
from drmq.leases.redrive_messages import (
    BatchAllowed,
    DescribeLetters,
    EndBatch,
    EndRedrive,
    IntendBatch,
    LettersView,
    NoteProgress,
    Purged,
    PurgeLetters,
    RedriveBegun,
    RedriveDone,
    RedriveRefusal,
    RedriveRefused,
    RedriveRequest,
    RedriveResponse,
    RedriveView,
    StartRedrive,
    StopRedrive,
)
from drmq.leases.redrive_records import (
    BatchEnded,
    BatchIntended,
    LettersPurged,
    LettersSnapshot,
    RedriveEnded,
    RedriveStarted,
    RedriveState,
    RedriveStopping,
    Runs,
    SavedBatch,
)
from drmq.model import TopicId

DONE_RUNS_MAX = 100_000
"""Runs of letters that are done, for each topic. A filter that picks every second letter makes as many."""
_SEQUENCE_LIMIT = 2**31
_EPOCH_MAX = 32_767

Decision = tuple[tuple[LeaseRecord, ...], RedriveResponse]


class Redrives:
    """The dead letters of all topics of a shard. Owned by the shard."""

    def __init__(self) -> None:
        self.topics: dict[TopicId, Letters] = {}
        self.running: dict[TopicId, None] = {}
        """Topics with a redrive that runs."""

    # ---- replicated state -----------------------------------------------------------------------

    def replay(self, record: LeaseRecord) -> None:
        """Apply the next record of the log. Any sequence of records is accepted."""
        topic_id = record.key.topic_id
        if isinstance(record, QueueRemoved):
            self.topics.pop(topic_id, None)
        elif isinstance(record, LettersSnapshot):
            self.topics[topic_id] = Letters.restore(record)
        else:
            self._replay_in(self.topics.setdefault(topic_id, Letters(topic_id)), record)
        letters = self.topics.get(topic_id)
        if letters is not None and letters.running is not None:
            self.running[topic_id] = None
        else:
            self.running.pop(topic_id, None)

    def _replay_in(self, letters: Letters, record: LeaseRecord) -> None:
        key = record.key
        match record:
            case RedriveStarted():
                letters.redrive = Redrive(record)
                letters.last_number = record.number
            case LettersPurged():
                letters.purged += letters.add_done(key.partition, record.runs)
            case LogTrimmed():
                done = letters.done.get(key.partition)
                if done is not None:
                    done.cut(0, record.start - 1)
            case _:
                if letters.redrive is not None:
                    _replay_in(letters, letters.redrive, key, record)

    def snapshot(self) -> Iterable[LeaseRecord]:
        return [letters.snapshot() for letters in self.topics.values()]

    def become_leader(self) -> None:
        """What a redrive left aside was known to the leader before, and is counted again."""
        for topic_id in self.running:
            redrive = self.topics[topic_id].running
            assert redrive is not None
            redrive.skipped = redrive.failed = 0
            redrive.reason = ""

    def removals(self, topic_ids: Iterable[TopicId]) -> list[QueueKey]:
        """The keys of deleted topics."""
        return [redrive_key(topic_id) for topic_id in topic_ids if topic_id in self.topics]

    # ---- requests -------------------------------------------------------------------------------

    def handle(self, request: RedriveRequest, wall_ms: int) -> Decision:
        """Decide about a request: its records and its answer."""
        letters = self.topics.get(request.topic_id) or Letters(request.topic_id)
        match request:
            case StartRedrive():
                return _start(letters, request, wall_ms)
            case IntendBatch():
                return _intend(letters, request, wall_ms)
            case EndBatch():
                return _end_batch(letters, request)
            case NoteProgress():
                return _note(letters, request)
            case EndRedrive():
                return _end(letters, request, wall_ms)
            case StopRedrive():
                running = letters.running
                if running is None:
                    return _refused(RedriveRefusal.NOT_RUNNING)
                is_new = running.state is RedriveState.RUNNING
                return (RedriveStopping(redrive_key(request.topic_id)),) if is_new else (), RedriveDone()
            case PurgeLetters():
                return _purge(letters, request)
            case DescribeLetters():
                return (), _view(letters)


def _replay_in(letters: Letters, redrive: Redrive, key: QueueKey, record: LeaseRecord) -> None:
    match record:
        case BatchIntended():
            redrive.batches[record.origin] = SavedBatch(key.partition, *record[1:])
        case BatchEnded():
            batch = redrive.batches.pop(record.origin, None)
            if batch is None:
                return
            if record.is_done:
                redrive.redriven += letters.add_done(batch.partition, batch.runs)
            following = (batch.sequence + size_of(batch.runs)) % _SEQUENCE_LIMIT
            redrive.sequences[record.origin] = (
                Numbers(batch.epoch + 1, 0) if record.new_epoch else Numbers(batch.epoch, following)
            )
        case RedriveStopping():
            redrive.state = RedriveState.STOPPING
        case RedriveEnded():
            redrive.state = record.state
            redrive.ended_ms = record.ended_ms
            redrive.skipped = record.skipped
            redrive.failed = record.failed
            redrive.reason = record.reason
            redrive.sequences = {}
            redrive.batches = {}


def _refused(refusal: RedriveRefusal) -> Decision:
    return (), RedriveRefused(refusal)


def _is_ascending(runs: Runs) -> bool:
    return (
        bool(runs)
        and runs[0][0] >= 0
        and all(first <= last for first, last in runs)
        and all(before[1] < after[0] for before, after in pairwise(runs))
    )


def _numbered(letters: Letters, number: int) -> Redrive | None:
    """The redrive that runs, if it has this number. A node that drove an earlier one has nothing to say."""
    running = letters.running
    return running if running is not None and running.started.number == number else None


def _start(letters: Letters, request: StartRedrive, wall_ms: int) -> Decision:
    last = letters.redrive
    if last is not None and last.started.producer_id == request.producer_id:
        return (), RedriveBegun(last.started.number)  # the answer to the first attempt was lost
    if letters.running is not None:
        return _refused(RedriveRefusal.RUNNING)
    number = letters.last_number + 1
    started = RedriveStarted(
        redrive_key(request.topic_id),
        number,
        request.producer_id,
        request.count_max,
        wall_ms,
        tuple(end for _, end in request.bounds),
        request.filter,
        bytes.fromhex(request.caller),
    )
    trims = [_trim(letters, partition, start) for partition, (start, _) in enumerate(request.bounds)]
    return (*(trim for each in trims for trim in each), started), RedriveBegun(number)


def _trim(letters: Letters, partition: int, log_start: int) -> tuple[LogTrimmed, ...]:
    done = letters.done.get(partition)
    first = None if done is None else done.first
    if first is None or first >= log_start:
        return ()
    return (LogTrimmed(redrive_key(letters.topic_id, partition), log_start),)


def _intend(letters: Letters, request: IntendBatch, wall_ms: int) -> Decision:
    redrive = _numbered(letters, request.number)
    if redrive is None:
        return _refused(RedriveRefusal.NOT_RUNNING)
    if redrive.state is RedriveState.STOPPING:
        return _refused(RedriveRefusal.STOPPING)
    if request.origin in redrive.batches:
        return _refused(RedriveRefusal.BUSY)
    ends, runs = redrive.started.ends, request.runs
    if not _is_ascending(runs) or request.partition >= len(ends) or runs[-1][1] >= ends[request.partition]:
        return _refused(RedriveRefusal.INVALID)
    if not letters.are_waiting(request.partition, runs):
        return _refused(RedriveRefusal.NOT_WAITING)
    if redrive.left is not None and size_of(runs) > redrive.left:
        return _refused(RedriveRefusal.ENOUGH)
    epoch, sequence = redrive.next_for(request.origin)
    if epoch > _EPOCH_MAX or _is_scattered(letters, len(runs)):
        return _refused(RedriveRefusal.TOO_SCATTERED)
    record = BatchIntended(
        redrive_key(request.topic_id, request.partition),
        request.origin,
        epoch,
        sequence,
        request.from_offset,
        wall_ms,
        runs,
    )
    return (record,), BatchAllowed(redrive.started.producer_id, epoch, sequence, wall_ms)


def _is_scattered(letters: Letters, more: int) -> bool:
    return sum(map(len, letters.done.values())) + more > DONE_RUNS_MAX


def _end_batch(letters: Letters, request: EndBatch) -> Decision:
    redrive = _numbered(letters, request.number)
    batch = None if redrive is None else redrive.batches.get(request.origin)
    if batch is None:
        return (), RedriveDone()  # it has ended already
    key = redrive_key(request.topic_id, batch.partition)
    return (BatchEnded(key, request.origin, request.is_done, request.new_epoch),), RedriveDone()


def _note(letters: Letters, request: NoteProgress) -> Decision:
    redrive = _numbered(letters, request.number)
    if redrive is not None:
        redrive.skipped, redrive.failed, redrive.reason = request.skipped, request.failed, request.reason
    return (), RedriveDone()


def _end(letters: Letters, request: EndRedrive, wall_ms: int) -> Decision:
    redrive = _numbered(letters, request.number)
    if redrive is None:
        return (), RedriveDone()
    if redrive.batches:
        return _refused(RedriveRefusal.BUSY)
    state = RedriveState.STOPPED if redrive.state is RedriveState.STOPPING else RedriveState.FINISHED
    key = redrive_key(request.topic_id)
    return (RedriveEnded(key, state, wall_ms, request.skipped, request.failed, request.reason),), RedriveDone()


def _purge(letters: Letters, request: PurgeLetters) -> Decision:
    if letters.running is not None:
        return _refused(RedriveRefusal.RUNNING)
    if not _is_ascending(request.runs):
        return _refused(RedriveRefusal.INVALID)
    if _is_scattered(letters, len(request.runs)):
        return _refused(RedriveRefusal.TOO_SCATTERED)
    done = letters.done.get(request.partition, Ranges())
    known = sum(piece.size for first, last in request.runs for piece in done.find(first, last))
    purged = LettersPurged(redrive_key(request.topic_id, request.partition), request.runs)
    return (*_trim(letters, request.partition, request.log_start), purged), Purged(size_of(request.runs) - known)


def _view(letters: Letters) -> LettersView:
    redrive = letters.redrive
    view = None
    if redrive is not None:
        started = redrive.started
        view = RedriveView(
            started.number,
            redrive.state,
            started.started_ms,
            redrive.ended_ms,
            started.count_max,
            started.filter,
            redrive.redriven,
            redrive.skipped,
            redrive.failed,
            redrive.reason,
            tuple(redrive.open_runs().items()),
        )
    return LettersView(letters.done_runs(), letters.purged, view)
