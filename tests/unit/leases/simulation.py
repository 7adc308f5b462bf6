"""Random events in one queue, against a model that keeps one entry per record. A seed is a bug report."""

from __future__ import annotations

from random import Random

from drmq.leases import Acquired, Bury, LeaseOptions, Outcome, ReleaseMember, record_from_bytes, record_to_bytes
from support.lease_harness import KEY, LeaseHarness, offsets_of

MEMBERS = ["m1", "m2", "m3"]
OPTIONS = LeaseOptions(attempts_max=3, leased_max=12, parked_max=15, dying_max=6, backoff_jitter=0)


class Run:
    """One run: what members were given, and what they were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = LeaseHarness(OPTIONS, seed=seed)
        self.harness.start()
        self.out: dict[int, tuple[str, int, int]] = {}
        """By offset: the member that was given it last, the token, and when its lease ends at the earliest."""
        self.attempts: dict[int, int] = {}
        """By offset: the number that its next delivery has at least."""
        self.accepted: set[int] = set()
        self.dead: set[int] = set()
        self.past: list[tuple[int, str, int]] = []
        """Every delivery that was ever made: offset, member and token."""

    def step(self) -> None:
        action = self.random.choice(
            [
                "produce",
                "acquire",
                "acquire",
                "settle",
                "settle",
                "settle",
                "late",
                "time",
                "leader",
                "bury",
                "trim",
                "gone",
            ]
        )
        getattr(self, action)()
        self.check()

    def produce(self) -> None:
        self.harness.end += self.random.randrange(8)

    def acquire(self) -> None:
        member = self.random.choice(MEMBERS)
        acquired = self.harness.acquire(member, self.random.randint(1, 8))
        for offset, attempt in offsets_of(acquired):
            assert offset not in self.accepted | self.dead, f"{offset} is over, and was delivered"
            held = self.out.get(offset)
            assert held is None or held[2] <= self.harness.now_ms, f"{offset} is with two members"
            assert attempt >= self.attempts.get(offset, 1), f"a delivery of {offset} was not counted"
            assert self.harness.log_start <= offset < self.harness.end
            self.attempts[offset] = attempt + 1
            self.past.append((offset, member, acquired.token))
            self.out[offset] = (member, acquired.token, self.harness.now_ms + acquired.duration_ms)

    def settle(self) -> None:
        if not self.out:
            return
        offset = self.random.choice(list(self.out))
        member, token, ends_ms = self.out[offset]
        outcome = self.random.choice(list(Outcome))
        shown = self.random.choice([0, token])
        delay_ms = self.random.choice([None, 0, 500, 40_000])
        refused = self.harness.settle(outcome, offset, member=member, token=shown, delay_ms=delay_ms)
        if refused:
            assert ends_ms <= self.harness.now_ms or offset < self.harness.log_start, f"{offset} is held, and refused"
            return
        if outcome is Outcome.RENEW:
            self.out[offset] = (member, token, self.harness.now_ms + OPTIONS.duration_ms)
            return
        del self.out[offset]
        if outcome is Outcome.GIVE_BACK:
            self.attempts[offset] -= 1
        if outcome is Outcome.ACCEPT:
            self.accepted.add(offset)
            if self.random.random() < 0.3:
                self.leader()
        if outcome is Outcome.ACCEPT and self.random.random() < 0.3:
            assert not self.harness.settle(outcome, offset, member=member), "a repetition was refused"
        elif outcome in (Outcome.RELEASE, Outcome.GIVE_BACK, Outcome.REJECT) and self.random.random() < 0.2:
            assert self.harness.settle(Outcome.ACCEPT, offset, member=member), "an outcome was changed afterwards"

    def late(self) -> None:
        """A member settles what it was given once, and others have by now, if anyone."""
        if not self.past:
            return
        offset, member, token = self.random.choice(self.past)
        held = self.out.get(offset)
        if held is not None and held[0] == member and self.random.random() < 0.5:
            member = self.random.choice(MEMBERS)
        if offset < self.harness.log_start or held is None or held[2] <= self.harness.now_ms:
            return
        if held[:2] != (member, token):
            before = list(self.harness.shard.snapshot())
            assert self.harness.settle(Outcome.ACCEPT, offset, member=member, token=token), "a stale lease was accepted"
            assert list(self.harness.shard.snapshot()) == before

    def time(self) -> None:
        self.harness.pass_time(self.random.choice([1, 100, 5_000, 30_000]))

    def leader(self) -> None:
        self.harness.change_leader()
        # A new leader starts every lease anew, so nothing ends earlier than it would have.

    def bury(self) -> None:
        for each in list(self.harness.shard.dead_records(5)):
            self.dead.update(range(each.first, each.last + 1))
            self.harness.ask(Bury(KEY, ((each.first, each.last),)))

    def trim(self) -> None:
        if self.random.random() < 0.2:
            self.harness.log_start = self.random.randint(self.harness.log_start, self.harness.end)

    def gone(self) -> None:
        if self.random.random() < 0.3:
            member = self.random.choice(MEMBERS)
            self.harness.ask(ReleaseMember(KEY, member))
            for offset in [offset for offset, held in self.out.items() if held[0] == member]:
                self.attempts[offset] -= 1
            self.out = {offset: held for offset, held in self.out.items() if held[0] != member}

    def check(self) -> None:
        queue = self.harness.shard.queues[KEY]
        seen: set[int] = set()
        runs = [(first, last) for ranges in (queue.held, queue.returned, queue.dying) for first, last, _ in ranges]
        runs += [(row.first, row.last) for _, row in queue.parked]
        for first, last in runs:
            offsets = set(range(first, last + 1))
            assert not seen & offsets, "an offset is in two states"
            assert last < queue.end
            seen |= offsets
        assert not seen & self.accepted, "an accepted offset is open"
        assert not seen & self.dead, "a buried offset is open"
        done = set(range(queue.end)) - seen
        lost = {offset for offset in done - self.accepted - self.dead if offset >= self.harness.log_start}
        assert not lost, "an offset is done, and nobody accepted it"
        assert queue.held.count == sum(lease.count for lease in queue.leases.values()) <= OPTIONS.leased_max
        assert queue.parked.count <= OPTIONS.parked_max + OPTIONS.leased_max
        mine = list(self.harness.shard.snapshot())
        assert mine == list(self.harness.follower.snapshot()), "the follower has another state"
        for record in mine:
            assert record_from_bytes(*record_to_bytes(record)) == record

    def drain(self) -> None:
        """Without further faults every record ends: accepted, or dead."""
        for _ in range(1_000):
            acquired: Acquired = self.harness.acquire("m1", 100)
            for offset, _ in offsets_of(acquired):
                assert self.harness.settle(Outcome.ACCEPT, offset) == ()
                self.accepted.add(offset)
            self.bury()
            queue = self.harness.shard.queues[KEY]
            if queue.start >= self.harness.end and not acquired.deliveries:
                break
            self.harness.pass_time(40_000)
        self.check()
        assert set(range(self.harness.log_start, self.harness.end)) <= self.accepted | self.dead


def run_seed(seed: int) -> None:
    """One run, to its end."""
    run = Run(seed)
    for _ in range(150):
        run.step()
    run.drain()
