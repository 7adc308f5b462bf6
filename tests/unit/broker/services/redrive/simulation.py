"""A redrive that is ended at every step, on a real shard and real tables of producers. A seed is a bug report.

Origins, the network and the disk are simulated: a batch may be appended and the answer lost, may arrive long after its
sender has ended, or may be refused; origins forget producers and are deleted; retention removes letters. After every
event, no letter is twice in its origin. At the end each letter is there exactly once, or waits and says why.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from drmq.broker.cluster.membership import OutcomeOpen
from drmq.broker.partitions.producer_table import ProducerTable
from drmq.broker.services.redrive.letter_filter import LetterFilter
from drmq.broker.services.redrive.letters import Letter, letter_headers, read_letter
from drmq.broker.services.redrive.run import Page, RedriveRun, ShardLost, Unmovable, redriven_batch
from drmq.broker.services.redrive.run import __name__ as run_module
from drmq.leases import (
    DeadRecord,
    DescribeLetters,
    EndRedrive,
    IntendBatch,
    LeaseRequest,
    LeaseResponse,
    LettersView,
    Origin,
    Purged,
    PurgeLetters,
    QueueKey,
    Reason,
    RedriveBegun,
    RedriveRefused,
    SavedBatch,
    StartRedrive,
    StopRedrive,
    record_from_bytes,
    record_to_bytes,
)
from drmq.leases.letters import Letters
from drmq.leases.queue import Death
from drmq.model import ApiError, ErrorCode, LeaderEpoch, Offset, TopicId
from drmq.records import Codec, Record, decode_batch, read_header, stamp
from support.lease_harness import LeaseHarness

TOPIC = TopicId(b"dead letters 123")
ORIGINS = {
    "a": [Origin(TopicId(b"origin topic a 1"), 0), Origin(TopicId(b"origin topic a 1"), 1)],
    "b": [Origin(TopicId(b"origin topic b 1"), 0)],
}
PARTITIONS = 2
PAGE = 7
TOO_LARGE = b"too large"


class Turn:
    """Where a coroutine may be ended."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass
class OriginLog:
    """One origin: what is in its log, and what it knows about producers."""

    producers: ProducerTable = field(default_factory=ProducerTable)
    end: int = 100
    values: list[bytes] = field(default_factory=list)
    batches: dict[tuple[int, int, int], bytes] = field(default_factory=dict)

    def append(self, data: bytes) -> int:
        if TOO_LARGE in data:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        batch = bytearray(data)
        repeat = self.producers.find_repeat(read_header(batch))
        if repeat is not None:
            return repeat.base_offset
        stamp(batch, Offset(self.end), LeaderEpoch(0))
        header = read_header(batch)
        self.producers.apply(header, 0)
        self.values += [record.value or b"" for record in decode_batch(batch, decompressed_size_max=1 << 20)]
        self.batches[header.producer_id, header.producer_epoch, header.base_sequence] = data
        self.end = header.next_offset
        return header.base_offset


class Run:
    """One run. Implements `run.World`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = LeaseHarness(seed=seed)
        self.origins = {origin: OriginLog() for origins in ORIGINS.values() for origin in origins}
        self.deleted: set[str] = set()
        self.logs: list[dict[int, Letter | None]] = [{} for _ in range(PARTITIONS)]
        """By partition and offset; None for what is no letter."""
        self.starts = [0] * PARTITIONS
        self.ends = [0] * PARTITIONS
        self.trimmed: set[bytes] = set()
        """Letters that retention has removed."""
        self.purged: set[bytes] = set()
        self.in_flight: list[tuple[Origin, bytes]] = []
        self.coroutine: Coroutine[Any, Any, None] | None = None
        self.last_producer = 0
        self.limit: tuple[int, set[bytes]] = (0, set())
        """Of the redrive that runs: how many it may move, and what was moved before it."""
        for _ in range(60):
            self.bury()

    # ---- the world of the run -------------------------------------------------------------------

    def letters(self) -> Letters:
        return self.harness.shard.redrives.topics[TOPIC]

    async def ask(self, request: LeaseRequest) -> LeaseResponse:
        await Turn()
        if self.random.random() < 0.05:
            self.harness.ask(request)  # and the answer is lost
        answer = self.harness.ask(request)
        await Turn()
        return answer

    async def read(self, partition: int, offset: int) -> Page:
        await Turn()
        self.fail_sometimes()
        if offset < self.starts[partition]:
            return Page((), self.starts[partition])
        found = {at: self.logs[partition][at] for at in range(offset, min(offset + PAGE, self.ends[partition]))}
        letters = [letter for letter in found.values() if letter is not None]
        return Page(letters, offset + len(found), [at for at, letter in found.items() if letter is None])

    def origin_of(self, letter: Letter) -> Origin:
        if letter.topic in self.deleted:
            raise Unmovable(f"topic {letter.topic} does not exist")
        return ORIGINS[letter.topic][letter.origin_partition]

    def log_of(self, origin: Origin) -> OriginLog:
        if any(origin in ORIGINS[name] for name in self.deleted):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic")
        return self.origins[origin]

    async def end_of(self, origin: Origin) -> int:
        await Turn()
        self.fail_sometimes()
        return self.log_of(origin).end

    async def has_batch(self, batch: SavedBatch, producer_id: int) -> bool:
        await Turn()
        self.fail_sometimes()
        return (producer_id, batch.epoch, batch.sequence) in self.log_of(batch.origin).batches

    async def append(self, batch: SavedBatch, producer_id: int, letters: Sequence[Letter]) -> int:
        data = redriven_batch(batch, producer_id, letters)
        await Turn()
        self.fail_sometimes()
        log = self.log_of(batch.origin)
        chance = self.random.random()
        if chance < 0.15:
            self.in_flight.append((batch.origin, data))
            raise OutcomeOpen(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        base_offset = log.append(data)
        if chance < 0.25:
            raise OutcomeOpen(ErrorCode.REQUEST_TIMED_OUT, "the answer was lost")
        await Turn()
        return base_offset

    async def pause(self, seconds: float) -> None:
        await Turn()

    def fail_sometimes(self) -> None:
        if self.random.random() < 0.05:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")

    # ---- events ---------------------------------------------------------------------------------

    def step(self) -> None:
        events = {
            "work": 60,
            "crash": 3,
            "arrive": 4,
            "forget": 1,
            "bury": 2,
            "trim": 1,
            "start": 3,
            "stop": 0.4,
            "purge": 0.3,
            "delete": 0.1,
            "stray": 1,
        }
        [event] = self.random.choices(list(events), list(events.values()))
        getattr(self, event)()
        self.check()

    def work(self) -> None:
        """The node that leads the shard does its next step."""
        shard = self.harness.shard
        if self.coroutine is None:
            if TOPIC in shard.redrives.running:
                redrive = shard.redrives.topics[TOPIC].running
                assert redrive is not None
                letter_filter = LetterFilter.parse(redrive.started.filter)
                self.coroutine = RedriveRun(self, redrive.started.number, letter_filter).run()
            return
        try:
            self.coroutine.send(None)
        except (StopIteration, ShardLost):
            self.coroutine = None

    def crash(self) -> None:
        if self.coroutine is not None:
            self.coroutine.close()
            self.coroutine = None
        self.harness.change_leader()

    def arrive(self) -> None:
        """A batch arrives whose sender has given up waiting, or has ended."""
        if self.in_flight:
            origin, data = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            try:
                self.log_of(origin).append(data)
            except ApiError:
                return

    def forget(self) -> None:
        """A day has passed without a leader of the shard, so nothing is in flight that was sent before."""
        self.crash()
        self.in_flight.clear()
        for log in self.origins.values():
            log.producers.forget_oldest(0)

    def bury(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        offset = self.ends[partition]
        self.ends[partition] += 1
        if self.random.random() < 0.05:
            self.logs[partition][offset] = None
            return
        topic = self.random.choice("ab")
        index = self.random.randrange(len(ORIGINS[topic]))
        value = f"{partition}/{offset}".encode()
        if self.random.random() < 0.03:
            value = TOO_LARGE + b" " + value
        run = DeadRecord(
            QueueKey("billing", ORIGINS[topic][index].topic_id, index),
            offset,
            offset,
            Death(self.random.randint(1, 5), 1, 2, Reason.ATTEMPTS),
        )
        record = Record(Offset(offset), 0, b"k", value)
        buried = Record(Offset(offset), 0, b"k", value, letter_headers(topic, run, record))
        self.logs[partition][offset] = read_letter(partition, buried, Codec.NONE)

    def trim(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        start = self.random.randint(self.starts[partition], self.ends[partition])
        start = min(start, self.starts[partition] + 3)
        gone = [self.logs[partition][offset] for offset in range(self.starts[partition], start)]
        self.trimmed |= {letter.record.value or b"" for letter in gone if letter is not None}
        self.starts[partition] = start

    def start(self) -> None:
        self.last_producer += 1
        bounds = self.bounds()
        count_max = self.random.choice([0, 0, 5, 20])
        text = self.random.choice(["", "", '{"attempts_min":3}', '{"topic":"a"}'])
        before = self.redriven()
        request = StartRedrive(TOPIC, self.last_producer, count_max, text, "", bounds)
        answer = self.harness.ask(request)
        if isinstance(answer, RedriveBegun):
            self.limit = (count_max, before)
            assert self.harness.ask(request) == answer, "a repetition began another redrive"
        else:
            assert isinstance(answer, RedriveRefused), answer

    def bounds(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.starts, self.ends, strict=True))

    def stop(self) -> None:
        self.harness.ask(StopRedrive(TOPIC))

    def purge(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        start, end = self.starts[partition], self.ends[partition]
        if end <= start:
            return
        first = self.random.randrange(start, end)
        last = min(end - 1, first + 5)
        waiting = self.waiting()
        answer = self.harness.ask(PurgeLetters(TOPIC, partition, ((first, last),), start))
        if isinstance(answer, Purged):
            offsets = {(partition, offset) for offset in range(first, last + 1)}
            assert answer.letter_count == len(offsets & waiting)
            for offset in range(first, last + 1):
                letter = self.logs[partition][offset]
                if letter is not None and (partition, offset) in waiting:
                    self.purged.add(letter.record.value or b"")

    def delete(self) -> None:
        if self.random.random() < 0.3:
            self.deleted.add("b")
            for origin in ORIGINS["b"]:
                self.origins[origin] = OriginLog()

    def stray(self) -> None:
        """A request that the run would not make in this state."""
        redrive = self.letters().running if TOPIC in self.harness.shard.redrives.running else None
        if redrive is None:
            return
        number = redrive.started.number
        if redrive.batches:
            assert isinstance(self.harness.ask(EndRedrive(TOPIC, number, 0, 0, "")), RedriveRefused)
        for partition, runs in self.letters().done_runs():
            for run in runs[:3]:
                intent = IntendBatch(TOPIC, number, partition, ORIGINS["a"][0], 0, (run,))
                assert isinstance(self.harness.ask(intent), RedriveRefused), "letters that are done are moved again"

    # ---- checks ---------------------------------------------------------------------------------

    def waiting(self) -> set[tuple[int, int]]:
        """The letters that wait, by partition and offset."""
        view = self.harness.ask(DescribeLetters(TOPIC))
        assert isinstance(view, LettersView), view
        done = {(p, offset) for p, runs in view.done for first, last in runs for offset in range(first, last + 1)}
        return {(p, offset) for p in range(PARTITIONS) for offset in range(self.starts[p], self.ends[p])} - done

    def redriven(self) -> set[bytes]:
        """Letters in their origins."""
        return {value for log in self.origins.values() for value in log.values}

    def check(self) -> None:
        for log in self.origins.values():
            assert len(log.values) == len(set(log.values)), "a letter is twice in its origin"
            assert not self.purged & set(log.values), "a purged letter was moved"
        count_max, before = self.limit
        # Letters that retention has removed may arrive late.
        moved = self.redriven()
        assert not count_max or len(moved - before - self.trimmed) <= count_max, (
            "more letters were moved than asked for"
        )
        mine = list(self.harness.shard.snapshot())
        assert mine == list(self.harness.follower.snapshot()), "the follower has another state"
        for record in mine:
            assert record_from_bytes(*record_to_bytes(record)) == record
        waiting = self.waiting()
        for partition, letters in enumerate(self.logs):
            for offset, letter in letters.items():
                if letter is None or offset < self.starts[partition] or (partition, offset) in waiting:
                    continue
                value = letter.record.value or b""
                assert value in moved | self.purged or letter.topic in self.deleted, "a letter is done, and not moved"

    def drain(self) -> None:
        """Without further faults, everything that has somewhere to go is moved."""
        while self.in_flight:
            self.arrive()
        self.random = Calm()
        for _ in range(2):
            for _ in range(20_000):
                self.work()
                if self.coroutine is None and TOPIC not in self.harness.shard.redrives.running:
                    break
            assert TOPIC not in self.harness.shard.redrives.running, "the redrive does not end"
            self.last_producer += 1
            bounds = self.bounds()
            self.limit = (0, set())
            self.harness.ask(StartRedrive(TOPIC, self.last_producer, 0, "", "", bounds))
            self.check()
        while TOPIC in self.harness.shard.redrives.running:
            self.work()
        self.check()
        waiting = self.waiting()
        for partition, letters in enumerate(self.logs):
            for offset, letter in letters.items():
                if letter is None or offset < self.starts[partition]:
                    continue
                value = letter.record.value or b""
                is_stuck = letter.topic in self.deleted or TOO_LARGE in value
                is_there = value in self.origins[ORIGINS[letter.topic][letter.origin_partition]].values
                if not is_stuck and value not in self.purged:
                    assert is_there, f"{value!r} was lost"
                    assert (partition, offset) not in waiting, f"{value!r} is moved and waits"
        view = self.harness.ask(DescribeLetters(TOPIC))
        assert isinstance(view, LettersView)
        assert view.redrive is not None
        assert view.redrive.failed == len(waiting), view.redrive.reason


class Calm(Random):
    """No chance is taken."""

    def random(self) -> float:
        return 1.0

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(k)  # otherwise choices would be made with `random`


def run_seed(seed: int) -> None:
    """One run, to its end."""
    vars(sys.modules[run_module])["BATCH_LETTERS_MAX"] = 4
    run = Run(seed)
    for _ in range(600):
        run.step()
    run.drain()
