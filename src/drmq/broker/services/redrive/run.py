"""One redrive, from its start or from where another node left it, to its end.

Each batch takes three steps, and a crash is possible after each: the intent is committed in the shard, the batch is
appended to its origin, the letters are marked as done (`leases.redrive` says why this moves each letter exactly once).
A run begins with the batches that it finds under way. For each it looks whether the batch is in its origin, because
the origin may have forgotten the producer since; if it is not there, the same batch is appended, and the origin
recognises the repetition if the first attempt arrives late. If letters of it are gone from their topic meanwhile, what
is left is appended with the same numbers. Then the origin refuses whichever of the two comes second, because they
overlap.

An origin that cannot be reached does not hold up the others: its letters are passed over, and tried again. A letter
whose origin does not exist any more, or refuses it, stays where it is, and the redrive says why.

The run knows its surroundings as a `World` only, so that a test can end it at every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from drmq.broker.cluster.membership import OutcomeOpen
from drmq.broker.services.redrive.letter_filter import LetterFilter
from drmq.broker.services.redrive.letters import Letter, redriven_record
from drmq.broker.services.router import RETRIED
from drmq.leases import (
    BatchAllowed,
    EndBatch,
    EndRedrive,
    IntendBatch,
    LeaseRequest,
    LeaseResponse,
    NoteProgress,
    Origin,
    RedriveRefusal,
    RedriveRefused,
    RedriveState,
    Runs,
    SavedBatch,
)
from drmq.leases.letters import Letters, Redrive, size_of
from drmq.model import ApiError, ErrorCode, ProducerId, TopicId
from drmq.records import encode_batch

BATCH_LETTERS_MAX: Final = 500
BATCH_BYTES_MAX: Final = 262_144
"""Letters in one batch, and bytes of their keys and values. At least one."""
REFUSED_MAX: Final = 1_000
"""Letters that their origins may refuse. Then the redrive ends: something is wrong with all of them."""
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 10.0
_REASONS_MAX: Final = 5
_REASON_LENGTH_MAX: Final = 300

_TEMPORARY: Final = RETRIED | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""An origin that answers so may take the batch later."""
_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Unmovable(Exception):
    """A letter that has nowhere to go; the text says why."""


class ShardLost(Exception):
    """Another node drives this redrive from now on."""


class Page(NamedTuple):
    """Some letters of a partition in their order, and the offset after them."""

    letters: Sequence[Letter]
    next_offset: int
    strangers: Sequence[int] = ()
    """The offsets of records among them that are no letters."""
    plain_bytes: int = 0
    """What was decompressed to read them."""


class World(Protocol):
    """What a run does to others. Every call may be the last one."""

    def letters(self) -> Letters:
        """What the shard knows about the topic. Raises `ShardLost`."""

    async def ask(self, request: LeaseRequest) -> LeaseResponse:
        """Ask the shard, and wait until its answer is committed. Raises `ShardLost`."""

    async def read(self, partition: int, offset: int) -> Page:
        """Letters from an offset on; none, and the start of the log, if it begins later. Raises `ApiError`."""

    def origin_of(self, letter: Letter) -> Origin:
        """Where a letter goes. Raises `Unmovable`."""

    async def end_of(self, origin: Origin) -> int:
        """The high watermark of an origin. Raises `ApiError`."""

    async def has_batch(self, batch: SavedBatch, producer_id: int) -> bool:
        """Whether a batch is in its origin. Raises `ApiError`."""

    async def append(self, batch: SavedBatch, producer_id: int, letters: Sequence[Letter]) -> int:
        """Append these letters to their origin; returns their base offset once committed. Raises `ApiError`."""

    async def pause(self, seconds: float) -> None: ...


class RedriveRun:
    """Drives one redrive. Created for each reign of a shard's leader."""

    def __init__(self, world: World, number: int, letter_filter: LetterFilter) -> None:
        self._world = world
        self._number = number
        self._filter = letter_filter
        self._ends: dict[Origin, int] = {}
        """By origin: an offset below which our next batch is not."""
        self._blocked: dict[Origin | int, str] = {}
        """Origins, and partitions of the letters, that could not be reached in this pass, and why."""
        self._refused: dict[tuple[int, int], str] = {}
        """Letters that their origin has refused, by partition and offset."""
        self._alone: set[tuple[int, int]] = set()
        """Letters of a batch that was refused. Each is tried by itself."""
        self._wants_pass = False
        """A batch was given up in this pass, and its letters are to be tried again."""
        self._obstacle = ""
        """Why the redrive ends before everything was tried."""
        self._skipped = 0
        self._reasons: dict[str, int] = {}
        self._noted: NoteProgress | None = None

    async def run(self) -> None:
        """Move everything that can be moved, and end the redrive. Raises `ShardLost`."""
        pause_s = PAUSE_S
        while True:
            self._blocked, self._wants_pass = {}, False
            before = self._redrive.redriven
            await self._finish_batches()
            if self._may_take:
                await self._pass()
            if not self._redrive.batches and (not self._may_take or not (self._blocked or self._wants_pass)):
                break
            pause_s = PAUSE_S if self._redrive.redriven > before else min(2 * pause_s, PAUSE_MAX_S)
            await self._world.pause(pause_s)
        failed, reason = self._left()
        await self._world.ask(EndRedrive(self._topic_id, self._number, self._skipped, failed, reason))

    # ---- state ----------------------------------------------------------------------------------

    @property
    def _letters(self) -> Letters:
        return self._world.letters()

    @property
    def _topic_id(self) -> TopicId:
        return self._letters.topic_id

    @property
    def _redrive(self) -> Redrive:
        redrive = self._letters.running
        if redrive is None or redrive.started.number != self._number:
            raise ShardLost
        return redrive

    @property
    def _may_take(self) -> bool:
        redrive = self._redrive
        is_enough = redrive.left is not None and redrive.left <= 0
        return redrive.state is RedriveState.RUNNING and not is_enough and not self._obstacle

    def _left(self) -> tuple[int, str]:
        """How many letters cannot be moved, and why."""
        counts = dict(self._reasons)
        failed = sum(counts.values())
        rows = sorted(counts.items(), key=lambda row: -row[1])[:_REASONS_MAX]
        texts = [f"{count} × {reason}" if count > 1 else reason for reason, count in rows]
        if len(counts) > _REASONS_MAX:
            texts.append(f"and {len(counts) - _REASONS_MAX} other reasons")
        if self._obstacle:
            texts.insert(0, self._obstacle)
        texts += [f"waiting: {reason}" for reason in list(self._blocked.values())[:1]]
        return failed, "; ".join(texts)[:_REASON_LENGTH_MAX]

    def _fail(self, reason: str) -> None:
        self._reasons[reason] = self._reasons.get(reason, 0) + 1

    async def _note(self) -> None:
        failed, reason = self._left()
        note = NoteProgress(self._topic_id, self._number, self._skipped, failed, reason)
        if note != self._noted:
            self._noted = note
            await self._world.ask(note)

    # ---- one pass over all letters ---------------------------------------------------------------

    async def _pass(self) -> None:
        self._skipped, self._reasons = 0, {}
        for partition, end in enumerate(self._redrive.started.ends):
            try:
                await self._pass_partition(partition, end)
            except ApiError as error:
                self._blocked[partition] = error.message
            if not self._may_take:
                break
        await self._note()

    async def _pass_partition(self, partition: int, end: int) -> None:
        offset = self._after_done(partition, 0)
        while offset < end and self._may_take:
            page = await self._world.read(partition, offset)
            assert page.next_offset > offset, page
            for stranger in page.strangers:
                if stranger < end and self._letters.are_waiting(partition, ((stranger, stranger),)):
                    self._fail("it is no dead letter")
            await self._move_page(partition, [letter for letter in page.letters if letter.offset < end])
            offset = self._after_done(partition, page.next_offset)
            await self._note()

    def _after_done(self, partition: int, offset: int) -> int:
        """The first offset from `offset` on that is not done."""
        done = self._letters.done.get(partition)
        found = done.find(offset, offset) if done is not None else ()
        if not found:
            return offset
        assert done is not None
        return next(last + 1 for first, last, _ in done if first <= offset <= last)

    async def _move_page(self, partition: int, letters: Sequence[Letter]) -> None:
        found: dict[Origin, list[Letter]] = {}
        known = self._letters
        for letter in letters:
            if not known.are_waiting(partition, ((letter.offset, letter.offset),)):
                continue
            if not self._filter.matches(letter):
                self._skipped += 1
                continue
            origin = self._origin_of(letter)
            if origin is not None:
                found.setdefault(origin, []).append(letter)
        for origin, group in found.items():
            for chunk in self._chunks(group):
                if origin in self._blocked or not self._may_take:
                    break
                await self._move(partition, origin, chunk)

    def _origin_of(self, letter: Letter) -> Origin | None:
        """Where a letter goes; None if it stays, for now or for good."""
        refused = self._refused.get((letter.partition, letter.offset))
        if refused is not None:
            self._fail(refused)
            return None
        if not letter.has_record:
            self._fail("the record was not copied, so there is nothing to move")
            return None
        try:
            return self._world.origin_of(letter)
        except Unmovable as reason:
            self._fail(str(reason))
            return None

    def _chunks(self, letters: Sequence[Letter]) -> Iterator[Sequence[Letter]]:
        chunk: list[Letter] = []
        size = 0
        for letter in letters:
            more = len(letter.record.key or b"") + len(letter.record.value or b"")
            is_alone = bool(self._alone) and (
                (letter.partition, letter.offset) in self._alone
                or (bool(chunk) and (chunk[-1].partition, chunk[-1].offset) in self._alone)
            )
            if chunk and (is_alone or len(chunk) >= BATCH_LETTERS_MAX or size + more > BATCH_BYTES_MAX):
                yield chunk
                chunk, size = [], 0
            chunk.append(letter)
            size += more
        if chunk:
            yield chunk

    # ---- one batch ------------------------------------------------------------------------------

    async def _move(self, partition: int, origin: Origin, letters: Sequence[Letter]) -> None:
        """Move some letters to their origin, or note why not."""
        left = self._redrive.left
        if left is not None:
            letters = letters[:left]
        try:
            from_offset = self._ends.get(origin)
            if from_offset is None:
                from_offset = self._ends[origin] = await self._world.end_of(origin)
        except ApiError as error:
            self._blocked[origin] = error.message
            return
        runs = runs_of([letter.offset for letter in letters])
        answer = await self._world.ask(IntendBatch(self._topic_id, self._number, partition, origin, from_offset, runs))
        if isinstance(answer, RedriveRefused):
            if answer.refusal in (RedriveRefusal.STOPPING, RedriveRefusal.NOT_RUNNING, RedriveRefusal.ENOUGH):
                return
            if answer.refusal in (RedriveRefusal.NOT_WAITING, RedriveRefusal.BUSY):
                # Under way already: the answer to an earlier request of this run was lost.
                self._blocked[origin] = answer.refusal.value
            else:
                self._obstacle = f"it cannot go on: {answer.refusal.value}"
            return
        assert isinstance(answer, BatchAllowed), answer
        batch = SavedBatch(partition, origin, answer.epoch, answer.sequence, from_offset, answer.at_ms, runs)
        await self._append(batch, letters)

    async def _finish_batches(self) -> None:
        """Finish the batches that are under way since before: of another node, or with an open outcome."""
        for batch in list(self._redrive.batches.values()):
            try:
                if await self._world.has_batch(batch, self._redrive.started.producer_id):
                    await self._end(batch, is_done=True)
                    continue
                letters = await self._read_again(batch)
            except ApiError as error:
                if error.code in _GONE:
                    await self._end(batch, is_done=False, new_epoch=True)
                else:
                    self._blocked[batch.origin] = error.message
                continue
            if letters:
                await self._append(batch, letters)
            else:
                # Retention has removed them, and the batch never arrived.
                await self._end(batch, is_done=False, new_epoch=True)

    async def _read_again(self, batch: SavedBatch) -> list[Letter]:
        """The letters of a batch that are still there."""
        found: list[Letter] = []
        wanted = [offset for first, last in batch.runs for offset in range(first, last + 1)]
        while wanted:
            page = await self._world.read(batch.partition, wanted[0])
            assert page.next_offset > wanted[0], page
            these = set(wanted)
            found += [letter for letter in page.letters if letter.offset in these]
            wanted = [offset for offset in wanted if offset >= page.next_offset]
        return found

    async def _append(self, batch: SavedBatch, letters: Sequence[Letter]) -> None:
        """Append a batch whose intent is committed, or what is left of it, and say what became of it."""
        is_whole = len(letters) == size_of(batch.runs)
        try:
            base_offset = await self._world.append(batch, self._redrive.started.producer_id, letters)
        except ApiError as error:
            await self._on_refused(batch, letters, is_whole, error)
            return
        self._ends[batch.origin] = base_offset + len(letters)
        await self._end(batch, is_done=True, new_epoch=not is_whole)

    async def _on_refused(self, batch: SavedBatch, letters: Sequence[Letter], is_whole: bool, error: ApiError) -> None:
        if isinstance(error, OutcomeOpen) or error.code in _TEMPORARY:
            self._blocked[batch.origin] = error.message
            return
        if error.code in _SEQUENCE and not is_whole:
            # What overlaps with it is the whole batch, which has arrived in the meantime.
            await self._end(batch, is_done=True, new_epoch=True)
            return
        places = [(letter.partition, letter.offset) for letter in letters]
        if error.code in _GONE or error.code in _SEQUENCE:
            self._blocked[batch.origin] = error.message
        elif len(letters) > 1:
            self._alone.update(places)
            self._wants_pass = True
        else:
            self._refused[places[0]] = error.message
            self._fail(error.message)
            if len(self._refused) >= REFUSED_MAX:
                self._obstacle = f"ended after {REFUSED_MAX:,} letters were refused"
        await self._end(batch, is_done=False, new_epoch=True)

    async def _end(self, batch: SavedBatch, *, is_done: bool, new_epoch: bool = False) -> None:
        await self._world.ask(EndBatch(self._topic_id, self._number, batch.origin, is_done, new_epoch))


def redriven_batch(batch: SavedBatch, producer_id: int, letters: Sequence[Letter]) -> bytes:
    """The batch that is appended to an origin. The same letters make the same bytes."""
    records = [redriven_record(letter, index, batch.at_ms) for index, letter in enumerate(letters)]
    return bytes(
        encode_batch(
            records,
            codec=letters[0].codec,
            producer_id=ProducerId(producer_id),
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
        )
    )


def runs_of(offsets: Sequence[int]) -> Runs:
    """Ascending offsets as runs."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset - 1:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return tuple(runs)
