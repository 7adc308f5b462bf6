"""Requests to settle that arrive together: they are decided as one, and each gets its own answer."""

from __future__ import annotations

import pytest

from drmq.broker.coordination.lease_groups import LeaseShardCoordinator
from drmq.leases import (
    Acquire,
    Acquired,
    Advance,
    LeaseResponse,
    Outcome,
    QueueKey,
    Refusal,
    Refused,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
)
from drmq.model import ApiError, TopicId
from drmq.model.names import SHARE_GROUP_STATE
from support.broker_harness import Harness

KEY = QueueKey("billing", TopicId(bytes(range(16))), 0)


class Shard:
    """A shard of a real broker, with a queue of a hundred records."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        harness.run(harness.broker.services.topic_creation.create_internal(SHARE_GROUP_STATE))
        harness.settle()
        leases = harness.broker.leases
        self.coordinator: LeaseShardCoordinator = leases.shards[leases.index_of(KEY)]
        self.ask(StartQueue(KEY, 0))

    def ask(self, *requests: object) -> list[LeaseResponse | ApiError]:
        """Submit requests within one turn of the event loop; their answers in the order of the requests."""
        answers: dict[int, LeaseResponse | ApiError] = {}

        def submit() -> None:
            for number, request in enumerate(requests):
                self.coordinator.submit(request, lambda answer, number=number: answers.update({number: answer}))  # type: ignore[arg-type,misc]

        self._harness.call(submit)
        return [answers[number] for number in range(len(requests))]

    def take(self, count: int, member: str = "m1") -> Acquired:
        [answer] = self.ask(Acquire(KEY, member, count, 0, 100))
        assert isinstance(answer, Acquired), answer
        return answer

    @property
    def record_count(self) -> int:
        return self.coordinator.log.record_count


@pytest.fixture
def shard(harness: Harness) -> Shard:
    return Shard(harness)


def settle(*offsets: int, member: str = "m1", outcome: Outcome = Outcome.ACCEPT, token: int = 0) -> Settle:
    return Settle(KEY, member, tuple(Settlement(offset, offset, outcome, None, token) for offset in offsets))


def test_what_is_settled_one_by_one_is_one_record(shard: Shard) -> None:
    shard.take(50)
    before = shard.record_count
    answers = shard.ask(*(settle(offset) for offset in range(50)))
    assert answers == [SettleResult(())] * 50
    assert shard.record_count == before + 1
    assert not shard.coordinator.machine.queues[KEY].held


def test_each_request_gets_its_own_refusals(shard: Shard) -> None:
    shard.take(2)
    shard.take(2, "m2")
    answers = shard.ask(settle(0), settle(1, 2), settle(3), settle(4, 7), settle(5))
    assert answers == [
        SettleResult(()),
        SettleResult((Refused(2, 2, Refusal.LEASED_TO_ANOTHER),)),
        SettleResult((Refused(3, 3, Refusal.LEASED_TO_ANOTHER),)),
        SettleResult((Refused(4, 4, Refusal.NEVER_LEASED), Refused(7, 7, Refusal.NEVER_LEASED))),
        SettleResult((Refused(5, 5, Refusal.NEVER_LEASED),)),
    ]


def test_tokens_and_outcomes_stay_those_of_their_request(shard: Shard) -> None:
    token = shard.take(4).token
    answers = shard.ask(
        settle(0, token=token), settle(1, token=token + 5), settle(2, outcome=Outcome.GIVE_BACK), settle(3)
    )
    assert answers[1] == SettleResult((Refused(1, 1, Refusal.STALE_TOKEN),))
    queue = shard.coordinator.machine.queues[KEY]
    assert [(each.first, each.last) for each in queue.held] == [(1, 1)]
    assert [(each.first, each.last) for each in queue.returned] == [(2, 2)]


def test_offsets_that_go_back_are_a_request_of_their_own(shard: Shard) -> None:
    shard.take(9)
    answers = shard.ask(settle(5), settle(3), settle(5), settle(4))
    assert answers == [SettleResult(())] * 4, "a repeated settlement succeeds"
    assert [(each.first, each.last) for each in shard.coordinator.machine.queues[KEY].held] == [(0, 2), (6, 8)]


def test_a_malformed_request_does_not_spoil_its_neighbours(shard: Shard) -> None:
    shard.take(9)
    bad = Settle(KEY, "m1", (Settlement(4, 4, Outcome.ACCEPT), Settlement(3, 3, Outcome.ACCEPT)))
    first, wrong, last = shard.ask(settle(0), bad, settle(5))
    assert first == last == SettleResult(())
    assert not isinstance(wrong, SettleResult)


def test_the_order_of_requests_to_a_queue_is_kept(shard: Shard) -> None:
    """A settlement behind an acquisition is decided behind it: it may be about what was just leased."""
    shard.take(1)
    first, taken, second = shard.ask(settle(0), Acquire(KEY, "m1", 1, 0, 100), settle(1))
    assert first == second == SettleResult(())
    assert isinstance(taken, Acquired)
    assert taken.deliveries[0].first == 1


def test_members_are_not_mixed(shard: Shard) -> None:
    shard.take(2)
    shard.take(2, "m2")
    assert shard.ask(settle(0), settle(2, member="m2"), settle(1), settle(3, member="m2")) == [SettleResult(())] * 4


def test_everything_is_refused_with_the_shard(harness: Harness, shard: Shard) -> None:
    shard.take(2)
    with harness.failing(shard.coordinator.log.partition):
        answers = shard.ask(settle(0), settle(1))
    assert all(isinstance(answer, ApiError) for answer in answers)
    assert shard.ask(settle(0), settle(1)) == [SettleResult(())] * 2


def test_all_that_wait_are_served_in_one_batch(harness: Harness, shard: Shard) -> None:
    """Not one member with each sync."""
    shard.take(100)
    answers: list[LeaseResponse | ApiError] = []
    for number in range(20):
        acquire = Acquire(KEY, f"w{number}", 1, 0, 100, 60_000)
        harness.call(lambda acquire=acquire: shard.coordinator.submit(acquire, answers.append))  # type: ignore[misc]
    assert not answers
    before = shard.coordinator.log.batch_count
    shard.ask(Advance(KEY, 0, 120))
    assert sorted(answer.deliveries[0].first for answer in answers if isinstance(answer, Acquired)) == [
        *range(100, 120)
    ]
    assert shard.coordinator.log.batch_count == before + 1
