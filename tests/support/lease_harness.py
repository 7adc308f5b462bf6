"""A lease shard with its log: it leads, a follower replays the same bytes, and time is moved by hand."""

from __future__ import annotations

from random import Random

from drmq.leases import (
    Acquire,
    Acquired,
    LeaseOptions,
    LeaseRequest,
    LeaseResponse,
    LeaseShard,
    Outcome,
    QueueKey,
    Refused,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
    record_from_bytes,
    record_to_bytes,
)
from drmq.leases.shard import LeaseStep
from drmq.model import TopicId

TOPIC = TopicId(bytes(range(16)))
KEY = QueueKey("billing", TOPIC, 0)
WALL_MS = 1_700_000_000_000


class LeaseHarness:
    """Carries out the steps of a shard as its driver does, without waiting for a commit."""

    def __init__(self, options: LeaseOptions | None = None, *, seed: int = 0, queues_max: int = 100) -> None:
        self.options = options or LeaseOptions()
        self.queues_max = queues_max
        self.random = Random(seed)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, LeaseResponse] = {}
        self.now_ms = 1_000
        self.wall_ms = WALL_MS
        self.end = 0
        """The high watermark of the data."""
        self.log_start = 0
        self._last_ticket = 0
        self.shard = self.new_shard()
        self.follower = self.new_shard()
        self.shard.become_leader(self.now_ms)

    def new_shard(self) -> LeaseShard:
        return LeaseShard(lambda _: self.options, self.random, queues_max=self.queues_max)

    def carry_out(self, step: LeaseStep) -> None:
        for record in step.records:
            key, value = record_to_bytes(record)
            self.log.append((key, value))
            self.shard.replay(record_from_bytes(key, value))
            self.follower.replay(record_from_bytes(key, value))
        for answer in step.answers:
            assert answer.ticket not in self.answers, "a ticket is answered once"
            self.answers[answer.ticket] = answer.response

    def submit(self, request: LeaseRequest) -> int:
        self._last_ticket += 1
        self.carry_out(self.shard.handle(self._last_ticket, request, self.now_ms, self.wall_ms))
        return self._last_ticket

    def ask(self, request: LeaseRequest) -> LeaseResponse:
        """Submit a request that is answered at once, or in the steps that follow immediately."""
        ticket = self.submit(request)
        self.run_due()
        return self.answers[ticket]

    def run_due(self) -> None:
        """Do everything that is due now."""
        for _ in range(1_000):
            deadline_ms = self.shard.next_deadline()
            if deadline_ms is None or deadline_ms > self.now_ms:
                return
            self.carry_out(self.shard.on_deadline(self.now_ms, self.wall_ms))
        raise AssertionError("the shard is always due")

    def pass_time(self, passed_ms: int) -> None:
        """Move both clocks on, from deadline to deadline."""
        until_ms = self.now_ms + passed_ms
        self.run_due()
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= until_ms:
            self.wall_ms += deadline_ms - self.now_ms
            self.now_ms = deadline_ms
            self.run_due()
        self.wall_ms += until_ms - self.now_ms
        self.now_ms = until_ms

    def change_leader(self) -> None:
        """The leader is gone. The follower leads, and what waited at the old leader is answered by nobody."""
        self.shard, self.follower = self.follower, self.new_shard()
        for record in list(self.shard.snapshot()):
            self.follower.replay(record_from_bytes(*record_to_bytes(record)))
        self.shard.become_leader(self.now_ms)

    # ---- requests -------------------------------------------------------------------------------

    def start(self, offset: int = 0, key: QueueKey = KEY) -> None:
        self.ask(StartQueue(key, offset))

    def acquire(self, member: str = "m1", count_max: int = 10, *, key: QueueKey = KEY) -> Acquired:
        answer = self.ask(Acquire(key, member, count_max, self.log_start, self.end))
        assert isinstance(answer, Acquired), answer
        return answer

    def settle(
        self, outcome: Outcome, first: int, last: int | None = None, *, member: str = "m1", token: int = 0,
        delay_ms: int | None = None, key: QueueKey = KEY,
    ) -> tuple[Refused, ...]:  # fmt: skip
        settlement = Settlement(first, first if last is None else last, outcome, delay_ms, token)
        answer = self.ask(Settle(key, member, (settlement,)))
        assert isinstance(answer, SettleResult), answer
        return answer.refused


def offsets_of(acquired: Acquired) -> list[tuple[int, int]]:
    """Each leased offset with the number of its delivery."""
    return [(offset, d.attempt) for d in acquired.deliveries for offset in range(d.first, d.last + 1)]
