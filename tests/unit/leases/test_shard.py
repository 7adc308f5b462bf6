"""Leases, one rule at a time."""

from __future__ import annotations

from random import Random

import pytest

from drmq.leases import (
    WHOLE_TOPIC,
    Acquire,
    Acquired,
    Advance,
    Bury,
    DescribeQueues,
    ExpireMember,
    Failed,
    Failure,
    LeaseOptions,
    LeaseRequest,
    LeaseResponse,
    LeaseShard,
    Outcome,
    QueueBegun,
    QueueKey,
    QueueList,
    QueueView,
    Reason,
    Refusal,
    Refused,
    ReleaseMember,
    RemoveQueues,
    Settle,
    Settlement,
    SettleResult,
    StartQueue,
    Withdraw,
)
from drmq.leases.queue import QUEUE_BYTES
from support.lease_harness import KEY, TOPIC, WALL_MS, LeaseHarness, offsets_of

ACCEPT, RELEASE, REJECT, RENEW, GIVE_BACK = (
    Outcome.ACCEPT,
    Outcome.RELEASE,
    Outcome.REJECT,
    Outcome.RENEW,
    Outcome.GIVE_BACK,
)


@pytest.fixture
def harness() -> LeaseHarness:
    """A queue of ten records."""
    harness = LeaseHarness()
    harness.end = 10
    harness.start()
    return harness


def view(harness: LeaseHarness) -> QueueView:
    answer = harness.ask(DescribeQueues(KEY.group, leases_max=1_000))
    assert isinstance(answer, QueueList)
    return answer.queues[0]


def test_members_share_the_records(harness: LeaseHarness) -> None:
    """No record is with two members."""
    assert offsets_of(harness.acquire("m1", 4)) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert offsets_of(harness.acquire("m2", 4)) == [(4, 1), (5, 1), (6, 1), (7, 1)]
    assert offsets_of(harness.acquire("m1", 4)) == [(8, 1), (9, 1)]
    assert offsets_of(harness.acquire("m2", 4)) == []


def test_an_accepted_record_never_returns(harness: LeaseHarness) -> None:
    harness.acquire(count_max=10)
    assert harness.settle(ACCEPT, 3, 5) == ()
    harness.pass_time(60_000)
    assert [offset for offset, _ in offsets_of(harness.acquire("m2", 100))] == [0, 1, 2, 6, 7, 8, 9]


def test_a_part_of_a_lease_is_settled_and_the_rest_stays(harness: LeaseHarness) -> None:
    harness.acquire(count_max=10)
    harness.settle(ACCEPT, 5)
    harness.settle(RELEASE, 2)
    assert view(harness).held_count == 8
    assert offsets_of(harness.acquire("m2")) == [(2, 2)]


def test_an_expired_lease_makes_its_records_available_and_counts(harness: LeaseHarness) -> None:
    harness.acquire("m1", 3)
    harness.pass_time(29_999)
    assert offsets_of(harness.acquire("m2", 1)) == [(3, 1)]
    harness.pass_time(1)
    assert offsets_of(harness.acquire("m2", 3)) == [(0, 2), (1, 2), (2, 2)]


def test_a_renewed_lease_lasts_for_its_full_duration_again(harness: LeaseHarness) -> None:
    """A renewal covers what it names, and nothing else of the same acquisition."""
    token = harness.acquire("m1", 3).token
    harness.pass_time(20_000)
    assert harness.settle(RENEW, 1, token=token) == ()
    harness.pass_time(10_000)
    assert offsets_of(harness.acquire("m2", 2)) == [(0, 2), (2, 2)]
    assert harness.settle(ACCEPT, 1, token=token) == (), "the token stays valid"


def test_giving_back_does_not_count(harness: LeaseHarness) -> None:
    harness.acquire("m1", 2)
    harness.settle(GIVE_BACK, 0, 1)
    assert offsets_of(harness.acquire("m2", 2)) == [(0, 1), (1, 1)]


def test_a_member_that_is_gone_gives_back_what_it_holds(harness: LeaseHarness) -> None:
    harness.acquire("m1", 2)
    harness.acquire("m2", 2)
    harness.ask(ReleaseMember(KEY, "m1"))
    assert offsets_of(harness.acquire("m3", 2)) == [(0, 1), (1, 1)]
    assert harness.settle(ACCEPT, 2, 3, member="m2") == ()


def test_a_member_that_is_not_heard_of_loses_its_leases_and_that_counts(harness: LeaseHarness) -> None:
    """Otherwise a record whose work kills its member would be tried for ever."""
    other = KEY._replace(partition=1)
    harness.ask(StartQueue(other, 0))
    for key in (KEY, other):
        harness.acquire("m1", 2, key=key)
        harness.acquire("m2", 2, key=key)
    assert harness.settle(RENEW, 0) == ()
    harness.ask(ExpireMember(KEY.group, "m1"))
    for key in (KEY, other):
        assert offsets_of(harness.acquire("m3", 2, key=key)) == [(0, 2), (1, 2)]
        assert harness.settle(ACCEPT, 2, 3, member="m2", key=key) == ()
    assert harness.settle(ACCEPT, 0) == (Refused(0, 0, Refusal.LEASED_TO_ANOTHER),)


# ---- refusals -----------------------------------------------------------------------------------


def test_what_a_member_does_not_hold_is_refused_for_these_records_only(harness: LeaseHarness) -> None:
    harness.acquire("m1", 2)
    harness.acquire("m2", 2)
    harness.settle(ACCEPT, 2, member="m2")
    refused = harness.settle(ACCEPT, 0, 12, member="m1")
    assert refused == (
        Refused(2, 2, Refusal.NOT_LEASED),
        Refused(3, 3, Refusal.LEASED_TO_ANOTHER),
        Refused(4, 12, Refusal.NEVER_LEASED),
    )
    assert view(harness).held_count == 1, "0 and 1 were settled, 3 was not"


def test_a_settlement_after_the_lease_ran_out_is_refused(harness: LeaseHarness) -> None:
    harness.acquire("m1", 1)
    harness.pass_time(30_000)
    assert harness.settle(ACCEPT, 0) == (Refused(0, 0, Refusal.NOT_LEASED),)
    assert offsets_of(harness.acquire("m2", 1)) == [(0, 2)]


def test_an_old_token_is_refused_even_from_the_same_member(harness: LeaseHarness) -> None:
    old = harness.acquire("m1", 1).token
    harness.pass_time(30_000)
    new = harness.acquire("m1", 1).token
    assert harness.settle(ACCEPT, 0, token=old) == (Refused(0, 0, Refusal.STALE_TOKEN),)
    assert harness.settle(ACCEPT, 0, token=new) == ()


@pytest.mark.parametrize("outcome", [ACCEPT, RELEASE, REJECT, GIVE_BACK])
def test_a_repeated_settlement_succeeds_and_changes_nothing(harness: LeaseHarness, outcome: Outcome) -> None:
    harness.acquire("m1", 3)
    harness.settle(outcome, 0, 2)
    harness.acquire("m2", 3)
    before = list(harness.shard.snapshot())
    if outcome in (ACCEPT, REJECT):
        assert harness.settle(outcome, 0, 2) == ()
    else:
        assert {each.refusal for each in harness.settle(outcome, 0, 2)} == {Refusal.LEASED_TO_ANOTHER}
    assert list(harness.shard.snapshot()) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Outcome.RELEASE, Outcome.ACCEPT),
        (Outcome.GIVE_BACK, Outcome.ACCEPT),
        (Outcome.REJECT, Outcome.ACCEPT),
        (Outcome.ACCEPT, Outcome.REJECT),
        (Outcome.ACCEPT, Outcome.RELEASE),
        (Outcome.RELEASE, Outcome.REJECT),
        (Outcome.RELEASE, Outcome.RENEW),
        (Outcome.ACCEPT, Outcome.RENEW),
    ],
)
def test_who_changes_his_mind_is_refused(harness: LeaseHarness, before: Outcome, after: Outcome) -> None:
    """A member that is told that its record is accepted must not see it delivered again."""
    harness.end = 1
    harness.acquire("m1")
    assert harness.settle(before, 0) == ()
    harness.change_leader()
    assert [refused.refusal for refused in harness.settle(after, 0)] == [Refusal.NOT_LEASED]


def test_without_dead_letters_a_repeated_rejection_succeeds() -> None:
    harness = LeaseHarness(LeaseOptions(writes_dead_letters=False))
    harness.start()
    harness.end = 1
    harness.acquire("m1")
    assert harness.settle(Outcome.REJECT, 0) == ()
    assert harness.settle(Outcome.REJECT, 0) == ()


def test_a_repetition_is_known_after_a_change_of_leader(harness: LeaseHarness) -> None:
    """The answer may have been lost with the leader."""
    harness.acquire("m1", 3)
    harness.settle(ACCEPT, 0, 2)
    harness.change_leader()
    assert harness.settle(ACCEPT, 0, 2) == ()
    assert harness.settle(ACCEPT, 0, 2, member="m2") == (Refused(0, 2, Refusal.NOT_LEASED),)


def test_runs_out_of_order_are_refused_as_a_whole(harness: LeaseHarness) -> None:
    harness.acquire("m1", 5)
    for runs in [((3, 4), (1, 2)), ((0, 2), (2, 3)), ((2, 1),), ((-1, 3),)]:
        settlements = tuple(Settlement(first, last, ACCEPT) for first, last in runs)
        assert harness.ask(Settle(KEY, "m1", settlements)) == Failed(Failure.INVALID)
    assert view(harness).held_count == 5


def test_a_queue_that_has_not_begun_says_so() -> None:
    harness = LeaseHarness()
    assert harness.ask(Acquire(KEY, "m", 1, 0, 10)) == Failed(Failure.NOT_STARTED)
    assert harness.ask(Settle(KEY, "m", ())) == Failed(Failure.NOT_STARTED)


# ---- retries and dead letters -------------------------------------------------------------------


def test_a_released_record_waits_as_long_as_it_is_told(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    harness.settle(RELEASE, 4, delay_ms=5_000)
    assert view(harness).parked_count == 1
    harness.pass_time(4_999)
    assert offsets_of(harness.acquire("m2")) == []
    harness.pass_time(101)
    assert offsets_of(harness.acquire("m2")) == [(4, 2)]


def test_a_group_with_a_backoff_waits_longer_after_each_failure() -> None:
    harness = LeaseHarness(LeaseOptions(backoff_ms=1_000, backoff_factor=3, backoff_jitter=0, backoff_max_ms=4_000))
    harness.end = 1
    harness.start()
    for wait_ms in (1_000, 3_000, 4_000):
        harness.acquire()
        harness.settle(RELEASE, 0)
        harness.pass_time(wait_ms - 1)
        assert view(harness).parked_count == 1
        harness.pass_time(101)
        assert view(harness).parked_count == 0


def test_jitter_makes_the_wait_shorter_and_never_longer() -> None:
    harness = LeaseHarness(LeaseOptions(backoff_ms=100_000, backoff_jitter=0.5))
    harness.end = 50
    harness.start()
    harness.acquire(count_max=50)
    for offset in range(50):
        harness.settle(RELEASE, offset)
    due = harness.shard.queues[KEY].parked.due_times()
    assert len(due) > 10
    assert all(50_000 <= each - harness.wall_ms <= 100_100 for each in due)


def test_a_clock_that_is_set_back_delays_no_retry(harness: LeaseHarness) -> None:
    harness.acquire("m1", 1)
    harness.settle(RELEASE, 0, delay_ms=1_000)
    harness.wall_ms -= 3_600_000
    harness.pass_time(1_100)
    assert offsets_of(harness.acquire("m2", 1)) == [(0, 2)]


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_leader_with_a_wrong_clock_parks_nothing_for_a_month(harness: LeaseHarness, with_snapshot: bool) -> None:
    month_ms = 30 * 86_400_000
    harness.wall_ms += month_ms
    harness.change_leader()
    harness.acquire("m1", 1)
    harness.settle(RELEASE, 0, delay_ms=1_000)
    harness.wall_ms -= month_ms
    harness.change_leader()
    if with_snapshot:
        harness.change_leader()
    harness.pass_time(1_200)
    assert offsets_of(harness.acquire("m2", 1)) == [(0, 2)]


def test_a_parked_record_returns_after_a_change_of_leader(harness: LeaseHarness) -> None:
    harness.acquire("m1", 1)
    harness.settle(RELEASE, 0, delay_ms=10_000)
    harness.pass_time(6_000)
    harness.change_leader()
    harness.pass_time(4_100)
    assert offsets_of(harness.acquire("m2", 1)) == [(0, 2)]


@pytest.mark.parametrize("by_expiry", [True, False])
def test_after_the_last_attempt_a_record_is_given_up(harness: LeaseHarness, by_expiry: bool) -> None:
    for attempt in range(1, 6):
        assert offsets_of(harness.acquire("m1", 1)) == [(0, attempt)]
        if by_expiry:
            harness.pass_time(30_000)
        else:
            harness.settle(RELEASE, 0)
    assert offsets_of(harness.acquire("m1", 1)) == [(1, 1)]
    [dead] = harness.shard.dead_records(10)
    assert (dead.first, dead.last, dead.death.attempt, dead.death.reason) == (0, 0, 5, Reason.ATTEMPTS)


def test_a_rejected_record_is_given_up_at_once_and_stays_until_it_is_buried(harness: LeaseHarness) -> None:
    harness.acquire("m1", 3)
    harness.settle(REJECT, 1)
    [dead] = harness.shard.dead_records(10)
    assert (dead.first, dead.death.attempt, dead.death.reason) == (1, 1, Reason.REJECTED)
    assert dead.death.failed_ms == dead.death.ended_ms == harness.wall_ms
    harness.change_leader()
    assert len(list(harness.shard.dead_records(10))) == 1
    harness.ask(Bury(KEY, ((1, 1),)))
    assert list(harness.shard.dead_records(10)) == []
    assert view(harness).dying_count == 0


def test_without_dead_letters_a_rejected_record_is_done() -> None:
    harness = LeaseHarness(LeaseOptions(writes_dead_letters=False))
    harness.end = 1
    harness.start()
    harness.acquire()
    harness.settle(REJECT, 0)
    assert (view(harness).start, view(harness).dying_count) == (1, 0)


def test_failures_do_not_block_their_neighbours(harness: LeaseHarness) -> None:
    """However many records wait or die, others are leased, until a limit with a name is reached."""
    harness.options = LeaseOptions(leased_max=10, parked_max=100, dying_max=50)
    harness.end = 1_000
    for _ in range(10):
        for offset, _ in offsets_of(harness.acquire("m1", 10)):
            harness.settle(RELEASE, offset, delay_ms=600_000)
    assert view(harness).parked_count == 100
    assert view(harness).is_paused
    assert offsets_of(harness.acquire("m1", 10)) == []
    harness.pass_time(600_100)
    assert [offset for offset, _ in offsets_of(harness.acquire("m1", 10))] == list(range(10))
    harness.settle(ACCEPT, 0, 9)
    assert not view(harness).is_paused


# ---- waiting ------------------------------------------------------------------------------------


def test_a_request_waits_until_there_is_a_record(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    first = harness.submit(Acquire(KEY, "m2", 5, 0, 10, wait_ms=1_000))
    second = harness.submit(Acquire(KEY, "m3", 5, 0, 10, wait_ms=1_000))
    harness.run_due()
    assert not {first, second} & harness.answers.keys()
    harness.ask(Advance(KEY, 0, 11))
    assert harness.answers[first] == Acquired(2, 30_000, ((10, 10, 1),))  # type: ignore[arg-type]
    harness.settle(RELEASE, 3, member="m1")
    answer = harness.answers[second]
    assert isinstance(answer, Acquired)
    assert offsets_of(answer) == [(3, 2)]


def test_a_request_that_waited_long_enough_gets_nothing(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    ticket = harness.submit(Acquire(KEY, "m2", 5, 0, 10, wait_ms=1_000))
    harness.pass_time(999)
    assert ticket not in harness.answers
    harness.pass_time(1)
    assert harness.answers[ticket] == Acquired(0, 0, ())


def test_a_request_waits_for_the_limit_of_leases_too(harness: LeaseHarness) -> None:
    """A lease that is accepted makes room for a record that was never leased."""
    harness.options = LeaseOptions(leased_max=2)
    harness.acquire("m1", 10)
    ticket = harness.submit(Acquire(KEY, "m2", 5, 0, 10, wait_ms=1_000))
    harness.run_due()
    assert ticket not in harness.answers
    harness.settle(ACCEPT, 0)
    answer = harness.answers[ticket]
    assert isinstance(answer, Acquired)
    assert offsets_of(answer) == [(2, 1)]


def test_a_request_whose_caller_is_gone_leases_nothing(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    ticket = harness.submit(Acquire(KEY, "m2", 5, 0, 10, wait_ms=1_000))
    harness.carry_out(harness.shard.on_disconnect([ticket], harness.now_ms, harness.wall_ms))
    harness.ask(Advance(KEY, 0, 20))
    assert harness.answers[ticket] == Acquired(0, 0, ())
    harness.end = 20
    assert [offset for offset, _ in offsets_of(harness.acquire("m3", 1))] == [10]


def test_a_leader_that_resigns_answers_what_waits(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    ticket = harness.submit(Acquire(KEY, "m2", 5, 0, 10, wait_ms=1_000))
    harness.carry_out(harness.shard.resign())
    assert harness.answers[ticket] == Acquired(0, 0, ())


# ---- leaders, logs and queues -------------------------------------------------------------------


def test_a_new_leader_knows_what_is_out(harness: LeaseHarness) -> None:
    """A lease lasts for its full duration from the change of leader on, and its holder can settle it."""
    token = harness.acquire("m1", 3).token
    harness.pass_time(20_000)
    harness.change_leader()
    assert [offset for offset, _ in offsets_of(harness.acquire("m2", 100))] == [3, 4, 5, 6, 7, 8, 9]
    assert harness.settle(ACCEPT, 0, token=token) == ()
    harness.pass_time(29_999)
    assert offsets_of(harness.acquire("m2")) == []
    harness.pass_time(1)
    assert (1, 2) in offsets_of(harness.acquire("m3", 2))


def test_records_that_are_gone_from_the_log_are_forgotten(harness: LeaseHarness) -> None:
    harness.acquire("m1", 4)
    harness.settle(RELEASE, 0, 1)
    harness.settle(RELEASE, 2, delay_ms=1_000)
    harness.log_start = 6
    assert [offset for offset, _ in offsets_of(harness.acquire("m2", 2))] == [6, 7]
    assert (view(harness).start, view(harness).parked_count, view(harness).held_count) == (6, 0, 2)
    harness.ask(Advance(KEY, 8, 10))
    assert view(harness).held_count == 0


def test_a_queue_that_begins_again_forgets_everything_but_its_tokens(harness: LeaseHarness) -> None:
    token = harness.acquire("m1", 4).token
    assert harness.ask(StartQueue(KEY, 9)) != harness.ask(StartQueue(KEY, 2, restart=True))
    assert harness.settle(ACCEPT, 0) == (Refused(0, 0, Refusal.NOT_LEASED),)
    again = harness.acquire("m1", 2)
    assert offsets_of(again) == [(2, 1), (3, 1)]
    assert again.token > token


def test_the_number_of_queues_is_limited() -> None:
    harness = LeaseHarness(queues_max=1)
    harness.start()
    other = QueueKey("other", TOPIC, 0)
    assert harness.ask(StartQueue(other, 0)) == Failed(Failure.TOO_MANY_QUEUES)
    harness.ask(RemoveQueues(KEY.group))
    assert not isinstance(harness.ask(StartQueue(other, 0)), Failed)


def test_a_caller_that_may_add_nothing_begins_no_queue_and_goes_on_with_those_there_are() -> None:
    asked: list[tuple[str, int, int]] = []

    def admits(caller: str, size_bytes: int, now_ms: int) -> bool:
        asked.append((caller, size_bytes, now_ms))
        return caller == "a"

    freed: list[tuple[str, int]] = []
    shard = LeaseShard(lambda group: LeaseOptions(), Random(1), admits, lambda *what: freed.append(what))
    shard.become_leader(0)
    other = KEY._replace(group="other")

    def ask(request: LeaseRequest) -> LeaseResponse:
        step = shard.handle(1, request, 5, WALL_MS)
        for record in step.records:
            shard.replay(record)
        ((_, answer),) = step.answers
        return answer

    assert ask(StartQueue(KEY, 0, caller="a")) == QueueBegun(0)
    size_bytes = shard.size_bytes
    assert ask(StartQueue(other, 0, caller="b")) == Failed(Failure.TOO_MANY_QUEUES)
    assert asked == [("a", size_bytes, 5), ("b", QUEUE_BYTES + len("other"), 5)]
    # What exists needs no more room.
    assert ask(StartQueue(KEY, 7, caller="b")) == QueueBegun(0)
    assert ask(StartQueue(KEY, 7, restart=True, caller="b")) == QueueBegun(7)
    assert len(asked) == 2
    assert shard.size_bytes == size_bytes == QUEUE_BYTES + len(KEY.group)
    copy = LeaseShard(lambda group: LeaseOptions(), Random(1))
    for record in shard.snapshot():
        copy.replay(record)
    assert copy.size_bytes == size_bytes
    assert not freed
    ask(RemoveQueues(KEY.group))
    ask(RemoveQueues(KEY.group))
    assert shard.size_bytes == 0
    assert freed == [("a", size_bytes)], "its caller may begin others"


def test_removed_queues_send_waiting_requests_away(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    ticket = harness.submit(Acquire(KEY, "m2", 5, 0, 10, wait_ms=1_000))
    harness.carry_out(harness.shard.forget_topics([TOPIC], harness.now_ms, harness.wall_ms))
    assert harness.answers[ticket] == Failed(Failure.NOT_STARTED)
    assert not harness.shard.queues
    harness.pass_time(60_000)


def test_every_group_sees_everything(harness: LeaseHarness) -> None:
    other = QueueKey("audit", TOPIC, 0)
    harness.start(key=other)
    assert offsets_of(harness.acquire("m1", 3)) == offsets_of(harness.acquire("m1", 3, key=other))


def test_a_view_names_what_is_out_and_until_when(harness: LeaseHarness) -> None:
    harness.acquire("m1", 2)
    harness.pass_time(10_000)
    [lease] = view(harness).leases
    assert (lease.first, lease.last, lease.member, lease.attempt, lease.left_ms) == (0, 1, "m1", 1, 20_000)


def test_a_settled_answer_names_no_refusal(harness: LeaseHarness) -> None:
    assert harness.ask(Settle(KEY, "m1", ())) == SettleResult(())


def test_the_entry_about_a_topic_is_begun_once_removed_with_its_queues_and_not_described() -> None:
    """A group remembers with it how many partitions a topic had when it began there."""
    harness = LeaseHarness()
    entry = KEY._replace(partition=WHOLE_TOPIC)
    harness.start()
    assert harness.ask(StartQueue(entry, 3)) == QueueBegun(3)
    harness.change_leader()
    assert harness.ask(StartQueue(entry, 7)) == QueueBegun(3)
    described = harness.ask(DescribeQueues(KEY.group))
    assert isinstance(described, QueueList)
    assert [view.key for view in described.queues] == [KEY]
    harness.ask(RemoveQueues(KEY.group, KEY.topic_id))
    assert harness.ask(StartQueue(entry, 7)) == QueueBegun(7)


def test_a_renewal_that_is_switched_off_is_refused_for_its_records_only() -> None:
    harness = LeaseHarness(LeaseOptions(renews=False))
    harness.start()
    harness.end = 4
    harness.acquire()
    settlements = (Settlement(0, 1, Outcome.RENEW), Settlement(2, 3, Outcome.ACCEPT))
    answer = harness.ask(Settle(KEY, "m1", settlements))
    assert answer == SettleResult((Refused(0, 1, Refusal.NO_RENEWAL),))
    assert harness.shard.queues[KEY].held.count == 2


# ---- what is counted and reported --------------------------------------------------------------


def test_a_shard_counts_what_it_decides(harness: LeaseHarness) -> None:
    harness.acquire("m1", 8)
    harness.settle(ACCEPT, 0, 2)
    harness.settle(RELEASE, 3)
    harness.settle(REJECT, 4)
    harness.settle(GIVE_BACK, 5)
    harness.settle(RENEW, 6, 7)
    harness.settle(ACCEPT, 0, 9, member="m2")
    harness.pass_time(30_000)
    counts = harness.shard.counts
    assert (counts.leased, counts.expired) == (8, 2)
    assert counts.settled == {ACCEPT: 3, RELEASE: 1, REJECT: 1, GIVE_BACK: 1, RENEW: 2}
    assert harness.follower.counts.leased == 0


@pytest.mark.parametrize("options", [LeaseOptions(parked_max=2), LeaseOptions(dying_max=2)], ids=["parked", "dying"])
def test_a_queue_that_pauses_is_reported_once(options: LeaseOptions) -> None:
    harness = LeaseHarness(options)
    harness.end = 10
    harness.start()
    harness.acquire("m1", 4)

    def fail(offset: int) -> None:
        if options.parked_max == 2:
            harness.settle(RELEASE, offset, delay_ms=1_000)
        else:
            harness.settle(REJECT, offset)

    fail(0)
    assert harness.shard.take_pauses() == []
    fail(1)
    assert (harness.shard.take_pauses(), list(harness.shard.paused)) == ([KEY], [KEY])
    fail(2)
    assert harness.shard.take_pauses() == []
    harness.ask(Bury(KEY, ((0, 2),)))
    harness.pass_time(1_200)
    assert (harness.shard.take_pauses(), list(harness.shard.paused)) == ([], [])
    for offset, _ in offsets_of(harness.acquire("m1", 2)):
        fail(offset)
    assert harness.shard.take_pauses() == [KEY], "it pauses again"
    assert harness.follower.take_pauses() == []


def test_a_new_leader_knows_what_is_paused() -> None:
    harness = LeaseHarness(LeaseOptions(parked_max=1))
    harness.end = 10
    harness.start()
    harness.acquire("m1", 1)
    harness.settle(RELEASE, 0, delay_ms=60_000)
    harness.change_leader()
    assert harness.shard.take_pauses() == [KEY]


# ---- requests that wait, from other nodes ------------------------------------------------------


def test_a_request_that_is_withdrawn_leases_nothing(harness: LeaseHarness) -> None:
    harness.acquire("m1", 10)
    first = harness.submit(Acquire(KEY, "m2", 1, 0, 10, 60_000, number=7))
    second = harness.submit(Acquire(KEY, "m2", 1, 0, 10, 60_000, number=8))
    harness.ask(Withdraw(KEY, "m3", 7))
    assert first not in harness.answers, "it is that of another member"
    harness.ask(Withdraw(KEY, "m2", 7))
    assert harness.answers[first] == Acquired(0, 0, ())
    harness.ask(Withdraw(KEY, "m2", 7))
    harness.ask(Advance(KEY, 0, 11))
    assert offsets_of(harness.answers[second]) == [(10, 1)]  # type: ignore[arg-type]


def test_a_request_that_knows_less_does_not_hold_up_those_behind_it(harness: LeaseHarness) -> None:
    """Nobody tells it of new records: its client is gone, or its node does not lead the data any more."""
    harness.acquire("m1", 10)
    old = harness.submit(Acquire(KEY, "m2", 1, 0, 10, 60_000))
    new = harness.submit(Acquire(KEY, "m3", 1, 0, 12, 60_000))
    harness.run_due()
    assert offsets_of(harness.answers[old]) == [(10, 1)]  # type: ignore[arg-type]
    assert offsets_of(harness.answers[new]) == [(11, 1)]  # type: ignore[arg-type]
