"""Dead letters that wait: looking at them, moving them back, and purging them, through any node.

What is done is known to one lease shard for each dead-letter topic (`leases.redrive`). Any node answers: it asks that
shard, and reads the letters from their leaders. The leader of the shard drives the redrive (`run`), like the
writing of dead letters, and the next leader goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.broker.services.caller import Caller, node_caller, unwrap, wrap
from drmq.broker.services.redrive.letter_filter import LetterFilter
from drmq.broker.services.redrive.letter_pages import PLAIN_BYTES_MAX, READ_TIMEOUT_S
from drmq.broker.services.redrive.letters import Letter
from drmq.broker.services.redrive.run import Page, RedriveRun, ShardLost, runs_of
from drmq.broker.services.redrive.world import BrokerWorld
from drmq.catalog import DEAD_LETTERS_ALLOWED, Topic, takes_dead_letters
from drmq.leases import (
    DescribeLetters,
    LeaseRequest,
    LeaseResponse,
    LettersView,
    Purged,
    PurgeLetters,
    RedriveBegun,
    RedriveRefusal,
    RedriveRefused,
    RedriveView,
    StartRedrive,
    StopRedrive,
    redrive_key,
)
from drmq.leases.ranges import Ranges
from drmq.model import ApiError, ErrorCode, TopicId
from drmq.model.names import check_not_internal

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

_RESTART_S: Final = 30.0
_PAGES_MAX: Final = 16
"""Pages that one request looks at. A client asks again from where the answer ends."""
_REQUEST_BYTES_MAX: Final = _PAGES_MAX * PLAIN_BYTES_MAX
"""Bytes that one request decompresses. It looks at one page at least."""
_ANSWER_BYTES_MAX: Final = 4_194_304

_CODES: Final = {
    RedriveRefusal.RUNNING: ErrorCode.DUPLICATE_RESOURCE,
    RedriveRefusal.NOT_RUNNING: ErrorCode.RESOURCE_NOT_FOUND,
    RedriveRefusal.TOO_SCATTERED: ErrorCode.POLICY_VIOLATION,
}
_ADVICE: Final = {
    RedriveRefusal.RUNNING: "wait until it ends, or stop it first",
    RedriveRefusal.TOO_SCATTERED: "redrive or purge the others as well, or trim the topic",
}


class PartitionLetters(NamedTuple):
    """The letters of one partition of a dead-letter topic."""

    partition: int
    start_offset: int
    end_offset: int
    waiting: int


class LettersStatus(NamedTuple):
    """What a dead-letter topic holds, and how its last redrive went."""

    partitions: Sequence[PartitionLetters]
    purged: int
    redrive: RedriveView | None
    oldest: Letter | None
    """Of those that wait, and of which any was looked for."""
    newest: Letter | None

    @property
    def waiting(self) -> int:
        return sum(each.waiting for each in self.partitions)


class Cursor(NamedTuple):
    """Where to go on looking through a topic."""

    partition: int = 0
    offset: int = 0


class Found(NamedTuple):
    """Letters that match, how many do, and where to go on; None at the end."""

    letters: Sequence[Letter]
    matched: int
    next: Cursor | None


class RedriveService:
    """Calls about dead letters, and the redrives that this node drives. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: dict[tuple[LeaseShardCoordinator, TopicId], asyncio.Task[None]] = {}
        self.redriven_count = 0
        """Letters that this node moved back, since the start."""
        self.purged_count = 0

    # ---- driving --------------------------------------------------------------------------------

    def look_at(self, shard: LeaseShardCoordinator) -> None:
        """Drive the redrives of a shard that this node leads."""
        for topic_id in shard.machine.redrives.running:
            if (shard, topic_id) not in self._tasks and shard.leads:
                task = asyncio.get_running_loop().create_task(self._drive(shard, topic_id))
                self._tasks[shard, topic_id] = task
                task.add_done_callback(partial(self._on_done, shard, topic_id))

    def stop(self) -> None:
        """The node stops. The next leaders go on."""
        for task in self._tasks.values():
            task.cancel()

    async def _drive(self, shard: LeaseShardCoordinator, topic_id: TopicId) -> None:
        letters = shard.machine.redrives.topics.get(topic_id)
        redrive = None if letters is None else letters.running
        if redrive is None:
            return
        caller, _ = unwrap(memoryview(redrive.started.caller))
        world = BrokerWorld(self._broker, shard, topic_id, caller or node_caller(self._broker.node_id))
        run = RedriveRun(world, redrive.started.number, LetterFilter.parse(redrive.started.filter))
        try:
            await run.run()
        except ShardLost:
            return

    def _on_done(self, shard: LeaseShardCoordinator, topic_id: TopicId, task: asyncio.Task[None]) -> None:
        del self._tasks[shard, topic_id]
        if task.cancelled():
            return
        if task.exception() is None:
            self.look_at(shard)  # the next redrive may have begun meanwhile
            return
        log.error("a redrive of %r failed on a bug; trying again", shard.log.partition, exc_info=task.exception())
        asyncio.get_running_loop().call_later(_RESTART_S, self.look_at, shard)

    # ---- requests -------------------------------------------------------------------------------

    async def start(self, caller: Caller, name: str, letter_filter: LetterFilter, count_max: int) -> int:
        """Begin a redrive; returns its number. Raises `ApiError`."""
        topic = self._letter_topic(name)
        if count_max < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{count_max} letters cannot be moved; 0 stands for all")
        bounds = await self._bounds(caller, topic)
        producer_id = await self._broker.services.producer_ids.new()
        text = b"".join(bytes(part) for part in wrap(caller, b"")).hex()
        answer = await self._ask(
            topic, StartRedrive(topic.topic_id, producer_id, count_max, letter_filter.text, text, bounds)
        )
        assert isinstance(answer, RedriveBegun), answer
        return answer.number

    async def stop_redrive(self, name: str) -> None:
        """Take no more letters. Raises `ApiError`."""
        topic = self._topic(name)
        await self._ask(topic, StopRedrive(topic.topic_id))

    async def status(self, caller: Caller, name: str, *, with_letters: bool = False) -> LettersStatus:
        """What waits in a topic, and its last redrive; the oldest and the newest letter if asked for.

        Raises `ApiError`.
        """
        topic = self._letter_topic(name) if with_letters else self._topic(name)
        view = await self._view(topic)
        partitions = []
        oldest: list[Letter] = []
        newest: list[Letter] = []
        for index, (start, end) in enumerate(await self._bounds(caller, topic)):
            waiting = _waiting(view, index, start, end)
            partitions.append(PartitionLetters(index, start, end, waiting.count))
            if with_letters and waiting.count:
                runs = list(waiting)
                oldest += await self._letter_at(caller, topic, index, runs[0].first)
                newest += await self._letter_at(caller, topic, index, runs[-1].last)
        by_time = lambda letter: (letter.last_failed_ms, letter.partition, letter.offset)  # noqa: E731
        return LettersStatus(
            partitions,
            view.purged,
            view.redrive,
            min(oldest, key=by_time, default=None),
            max(newest, key=by_time, default=None),
        )

    async def list(
        self, caller: Caller, name: str, letter_filter: LetterFilter, cursor: Cursor, count_max: int
    ) -> Found:
        """Letters that wait and match, the first ones of each partition first; with `count_max` 0, only their number.

        Looks at some pages only; `Found.next` is where to go on. Raises `ApiError`.
        """
        topic = self._letter_topic(name)
        view = await self._view(topic)
        found: list[Letter] = []
        count, size = 0, 0
        async for page, after in self._pages(caller, topic, cursor):
            for letter in _matching(page, view, letter_filter):
                if count_max and (len(found) >= count_max or size >= _ANSWER_BYTES_MAX):
                    return Found(found, count, Cursor(letter.partition, letter.offset))
                count += 1
                if count_max:
                    found.append(letter)
                    size += len(letter.record.key or b"") + len(letter.record.value or b"")
            cursor = after
        return Found(found, count, cursor if cursor.partition < topic.partition_count else None)

    async def purge(self, caller: Caller, name: str, letter_filter: LetterFilter, cursor: Cursor) -> Found:
        """Mark letters as done: all of them, or those that match. Raises `ApiError`."""
        topic = self._letter_topic(name)
        if not letter_filter.text:
            count = await self._purge_all(caller, topic)
            self.purged_count += count
            return Found((), count, None)
        view = await self._view(topic)
        count = 0
        async for page, after in self._pages(caller, topic, cursor):
            runs = runs_of([letter.offset for letter in _matching(page, view, letter_filter)])
            if runs:
                answer = await self._ask(topic, PurgeLetters(topic.topic_id, cursor.partition, runs))
                assert isinstance(answer, Purged), answer
                count += answer.letter_count
                self.purged_count += answer.letter_count
            cursor = after
        return Found((), count, cursor if cursor.partition < topic.partition_count else None)

    async def _purge_all(self, caller: Caller, topic: Topic) -> int:
        count = 0
        for index, (start, end) in enumerate(await self._bounds(caller, topic)):
            if end > start:
                answer = await self._ask(topic, PurgeLetters(topic.topic_id, index, ((start, end - 1),), start))
                assert isinstance(answer, Purged), answer
                count += answer.letter_count
        return count

    # ---- parts ----------------------------------------------------------------------------------

    def _topic(self, name: str) -> Topic:
        self._broker.services.leases.shards.check_enabled()
        check_not_internal(name)
        return self._broker.metadata.committed_catalog.topic(name)

    def _letter_topic(self, name: str) -> Topic:
        """The topic of this name, if its records are dead letters. Those of another must not be given up as such."""
        topic = self._topic(name)
        if not takes_dead_letters(topic.configs):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"topic {name} takes no dead letters, so its records are left alone; dead-letter topics have "
                f"{DEAD_LETTERS_ALLOWED}=true",
            )
        return topic

    async def _ask(self, topic: Topic, request: LeaseRequest) -> LeaseResponse:
        answer = await self._broker.services.leases.shards.ask(redrive_key(topic.topic_id), request)
        if isinstance(answer, RedriveRefused):
            refusal = answer.refusal
            code = _CODES.get(refusal, ErrorCode.INVALID_REQUEST)
            advice = f"; {_ADVICE[refusal]}" if refusal in _ADVICE else ""
            raise ApiError(code, f"{topic.name}: {refusal.value}{advice}")
        return answer

    async def _view(self, topic: Topic) -> LettersView:
        view = await self._ask(topic, DescribeLetters(topic.topic_id))
        assert isinstance(view, LettersView), view
        return view

    async def _bounds(self, caller: Caller, topic: Topic) -> tuple[tuple[int, int], ...]:
        router = self._broker.services.router
        found = await asyncio.gather(
            *(
                router.bounds(caller, topic.name, index, timeout_s=READ_TIMEOUT_S)
                for index in range(topic.partition_count)
            )
        )
        return tuple((int(start), int(end)) for start, end in found)

    async def _letter_at(self, caller: Caller, topic: Topic, partition: int, offset: int) -> Sequence[Letter]:
        try:
            # It ends after the first letter.
            page = await self._broker.services.letter_pages.read(caller, topic.name, partition, offset, bytes_max=1)
        except ApiError:
            return ()  # it is gone, or cannot be read now: the counts are right nevertheless
        return [letter for letter in page.letters if letter.offset == offset]

    async def _pages(self, caller: Caller, topic: Topic, cursor: Cursor) -> AsyncIterator[tuple[Page, Cursor]]:
        """Some pages from a cursor on, each with the cursor after it."""
        plain_bytes = 0
        for _ in range(_PAGES_MAX):
            if cursor.partition >= topic.partition_count:
                return
            start, end = await self._broker.services.router.bounds(
                caller, topic.name, cursor.partition, timeout_s=READ_TIMEOUT_S
            )
            offset = max(start, cursor.offset)
            if offset >= end:
                cursor = Cursor(cursor.partition + 1)
                yield Page((), 0), cursor
                continue
            page = await self._broker.services.letter_pages.read(caller, topic.name, cursor.partition, offset)
            after = Cursor(cursor.partition, page.next_offset)
            if page.next_offset >= end:
                after = Cursor(cursor.partition + 1)
            yield page, after
            cursor = after
            plain_bytes += page.plain_bytes
            if plain_bytes >= _REQUEST_BYTES_MAX:
                return


def _by_time(letter: Letter) -> tuple[int, int, int]:
    return letter.last_failed_ms, letter.partition, letter.offset


def _waiting(view: LettersView, partition: int, start: int, end: int) -> Ranges[None]:
    """The letters of a partition that are not done."""
    waiting: Ranges[None] = Ranges()
    if start < end:
        waiting.add(start, end - 1, None)
    for first, last in dict(view.done).get(partition, ()):
        waiting.cut(first, last)
    return waiting


def _matching(page: Page, view: LettersView, letter_filter: LetterFilter) -> list[Letter]:
    """The letters of a page that wait and match."""
    if not page.letters:
        return []
    first = page.letters[0]
    waiting = _waiting(view, first.partition, first.offset, page.letters[-1].offset + 1)
    return [
        letter
        for letter in page.letters
        if waiting.find(letter.offset, letter.offset) and letter_filter.matches(letter)
    ]
