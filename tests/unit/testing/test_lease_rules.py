"""The rules of lease groups flag histories that break them, and no history that comes close."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drmq.leases import Outcome
from drmq.testing.lease_history import (
    Cause,
    Departure,
    Handout,
    Job,
    LeaseHistory,
    Letter,
    OpenTake,
    Produced,
    Said,
    Settling,
)
from drmq.testing.lease_rules import violations

JOB, OTHER = Job("jobs", 0, 7), Job("jobs", 0, 8)
LEASE_MS = 1_000
ACCEPT, RELEASE, REJECT, RENEW, GIVE_BACK = (
    Outcome.ACCEPT,
    Outcome.RELEASE,
    Outcome.REJECT,
    Outcome.RENEW,
    Outcome.GIVE_BACK,
)


class Story:
    """A history, written by hand. Requests take 10 ms."""

    def __init__(self, *, attempts_max: int = 3) -> None:
        self.history = LeaseHistory("crew", attempts_max, slack_ms=100)
        self._token = 0

    def produced(self, job: Job = JOB, at: float = 0, *, is_poison: bool = False) -> Story:
        self.history.produced.append(Produced(job, b"%d" % job.offset, at, is_poison))
        return self

    def given(
        self,
        member: str,
        at: float,
        attempt: int = 1,
        *,
        job: Job = JOB,
        took: float = 10,
        token: int | None = None,
    ) -> Handout:
        self._token += 1
        token = self._token if token is None else token
        return self.history.on_handout(job, member, attempt, token, at, at + took, LEASE_MS, b"%d" % job.offset)

    def said(
        self,
        handout: Handout,
        outcome: Outcome,
        at: float,
        said: Said = Said.OK,
        *,
        by: str = "",
        took: float = 10,
        delay: float | None = None,
    ) -> Settling:
        one = self.history.on_settling(handout, by or handout.member, outcome, at, delay, is_fenced=bool(handout.token))
        one.said = said
        if said is not Said.NOTHING:
            one.answered_ms = at + took
        return one

    def letter(
        self, cause: Cause | None = Cause.ATTEMPTS, attempt: int = 3, *, job: Job = JOB, value: bytes = b"7"
    ) -> Story:
        self.history.letters.append(Letter(job, "crew", attempt, cause, value))
        return self

    def rules(self, *, is_over: bool = True) -> set[str]:
        return {broken.rule for broken in violations(self.history, is_over=is_over)}


def failed_three_times(story: Story) -> Handout:
    """A record whose deliveries all failed; the last one."""
    story.produced()
    for attempt in (1, 2, 3):
        last = story.given("a", 1_000 * attempt, attempt)
        story.said(last, RELEASE, 1_000 * attempt + 100)
    return last


# ---- what must be flagged -------------------------------------------------------------------------


def lost(story: Story) -> None:
    story.produced()
    story.given("a", 10)


def rejected_and_gone(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 10), REJECT, 50)


def with_two_members(story: Story) -> None:
    story.produced()
    story.given("a", 10)
    story.said(story.given("b", 500, 2), ACCEPT, 600)


def with_two_members_though_renewed(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RENEW, 800)
    story.said(story.given("b", 1_700, 2), ACCEPT, 1_800)


def with_two_members_without_tokens(story: Story) -> None:
    story.produced()
    story.given("a", 10, token=0)
    story.said(story.given("b", 12, token=0), ACCEPT, 600)


def refused_in_time(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, ACCEPT, 500, Said.REFUSED)
    story.said(story.given("b", 1_500, 2), ACCEPT, 1_600)


def stale_token(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    second = story.given("b", 1_500, 2)
    story.said(first, RELEASE, 1_600)
    story.said(second, ACCEPT, 1_700)


def stale_renewal(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(story.given("b", 1_500, 2), ACCEPT, 1_700)
    story.said(first, RENEW, 1_800)


def a_stranger_accepts(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, ACCEPT, 100, by="b")
    story.said(first, ACCEPT, 200)


def accepted_after_its_lease(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), ACCEPT, 1_200)


def accepted_and_delivered_again(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), ACCEPT, 100)
    story.said(story.given("b", 5_000, 2), ACCEPT, 5_100)


def accepted_after_a_release(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, RELEASE, 50)
    story.said(first, ACCEPT, 100)
    story.said(story.given("b", 300, 2), ACCEPT, 400)


def accepted_and_dead(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, REJECT, 50, Said.NOTHING)
    story.said(first, ACCEPT, 100)
    story.letter(Cause.REJECTED, 1)


def counted_with_its_neighbour(story: Story) -> None:
    story.produced().produced(OTHER)
    story.said(story.given("a", 0, job=OTHER), RELEASE, 50)
    story.said(story.given("a", 100, 2), ACCEPT, 150)
    story.said(story.given("a", 100, 2, job=OTHER, token=2), ACCEPT, 150)


def given_back_and_counted(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), GIVE_BACK, 50)
    story.said(story.given("b", 100, 2), ACCEPT, 150)


def count_falls(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RELEASE, 50)
    story.said(story.given("b", 100, 1), ACCEPT, 150)


def too_early(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RELEASE, 50, delay=500)
    story.said(story.given("b", 400, 2), ACCEPT, 450)


def letter_too_soon(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RELEASE, 50)
    story.letter(Cause.ATTEMPTS, 1)


def letter_with_deliveries_of_its_neighbour(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RELEASE, 50)
    story.letter(Cause.ATTEMPTS, 3)


def letter_of_what_nobody_rejected(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RELEASE, 50)
    story.letter(Cause.REJECTED, 1)


def letter_without_a_cause(story: Story) -> None:
    failed_three_times(story)
    story.letter(None)


def letter_with_another_value(story: Story) -> None:
    failed_three_times(story)
    story.letter(value=b"8")


def two_letters(story: Story) -> None:
    failed_three_times(story)
    story.history.disturb(500)
    story.letter().letter()


def token_of_another(story: Story) -> None:
    story.produced().produced(OTHER)
    story.said(story.given("a", 0, token=5), ACCEPT, 50)
    story.said(story.given("b", 0, token=5, job=OTHER), ACCEPT, 50)


def blocked_by_poison(story: Story) -> None:
    story.history.patience_ms = 2_000
    story.produced(at=1_000)
    story.said(story.given("a", 4_000), ACCEPT, 4_100)
    story.history.ended_ms = 10_000


@pytest.mark.parametrize(
    ("tell", "rule"),
    [
        (lost, "work-ends"),
        (rejected_and_gone, "work-ends"),
        (with_two_members, "one-live-lease"),
        (with_two_members_though_renewed, "one-live-lease"),
        (with_two_members_without_tokens, "one-live-lease"),
        (refused_in_time, "live-leases-hold"),
        (stale_token, "stale-leases-are-refused"),
        (stale_renewal, "stale-leases-are-refused"),
        (a_stranger_accepts, "stale-leases-are-refused"),
        (accepted_after_its_lease, "stale-leases-are-refused"),
        (accepted_and_delivered_again, "settled-stays-settled"),
        (accepted_after_a_release, "settled-stays-settled"),
        (accepted_and_dead, "settled-stays-settled"),
        (counted_with_its_neighbour, "redelivery-has-a-reason"),
        (given_back_and_counted, "redelivery-has-a-reason"),
        (count_falls, "delivery-counts-never-fall"),
        (too_early, "delays-are-kept"),
        (letter_too_soon, "letters-are-true"),
        (letter_with_deliveries_of_its_neighbour, "letters-are-true"),
        (letter_of_what_nobody_rejected, "letters-are-true"),
        (letter_without_a_cause, "letters-are-true"),
        (letter_with_another_value, "letters-are-true"),
        (two_letters, "letters-are-single"),
        (token_of_another, "tokens-never-repeat"),
        (blocked_by_poison, "poison-blocks-nobody"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_rule_is_named(tell: Callable[[Story], None], rule: str) -> None:
    story = Story()
    tell(story)
    assert story.rules() == {rule}


# ---- what comes close -----------------------------------------------------------------------------


def nothing(story: Story) -> None:
    pass


def accepted(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), ACCEPT, 100)


def accepted_perhaps(story: Story) -> None:
    """The answer was lost, and nothing came after it."""
    story.produced()
    story.said(story.given("a", 0), ACCEPT, 100, Said.NOTHING)


def accepted_perhaps_and_delivered_again(story: Story) -> None:
    """The request was lost on its way."""
    story.produced()
    story.said(story.given("a", 0), ACCEPT, 100, Said.NOTHING)
    story.said(story.given("b", 1_200, 2), ACCEPT, 1_300)


def accepted_twice(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, ACCEPT, 100, Said.NOTHING)
    story.said(first, ACCEPT, 5_000)


def delivered_after_its_lease(story: Story) -> None:
    story.produced()
    story.given("a", 0)
    story.said(story.given("b", 990, 2, took=20), ACCEPT, 1_100)


def answered_late(story: Story) -> None:
    """The first answer was so slow that its lease was over before it came; there are no tokens."""
    story.produced()
    story.given("a", 0, took=1_500, token=0)
    story.said(story.given("b", 1_100, 2, token=0), ACCEPT, 1_600)


def refused_after_its_lease(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, ACCEPT, 995, Said.REFUSED)
    story.said(story.given("b", 1_200, 2), ACCEPT, 1_300)


def late_but_the_leader_changed(story: Story) -> None:
    """A new leader gives every lease its full time."""
    story.produced()
    story.history.disturb(900)
    story.said(story.given("a", 0), ACCEPT, 1_700)


def a_stranger_is_refused(story: Story) -> None:
    story.produced()
    first = story.given("a", 0)
    story.said(first, ACCEPT, 100, Said.REFUSED, by="b")
    story.said(first, ACCEPT, 200)


def released_twice(story: Story) -> None:
    """The repetition comes after the record was delivered to another member and accepted."""
    story.produced()
    first = story.given("a", 0)
    story.said(first, RELEASE, 50)
    story.said(story.given("b", 100, 2), ACCEPT, 150)
    story.said(first, RELEASE, 200)


def given_back(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), GIVE_BACK, 50)
    story.said(story.given("b", 100, 1), ACCEPT, 150)


def left(story: Story) -> None:
    story.produced()
    story.given("a", 0)
    story.history.departures.append(Departure("a", 50))
    story.said(story.given("b", 100, 1), ACCEPT, 150)


def counted_unseen(story: Story) -> None:
    """An answer with the first delivery was lost."""
    story.produced()
    story.history.open_takes.append(OpenTake("jobs", 0, "a", 0))
    story.said(story.given("b", 1_100, 2), ACCEPT, 1_150)


def waited(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), RELEASE, 50, delay=500)
    story.said(story.given("b", 500, 2, took=60), ACCEPT, 600)


def early_after_a_clock_was_set(story: Story) -> None:
    story.history.clocks_set = True
    too_early(story)


def given_up(story: Story) -> None:
    failed_three_times(story)
    story.letter()


def given_up_by_expiry(story: Story) -> None:
    story.produced()
    for attempt in (1, 2, 3):
        story.given("a", 2_000 * attempt, attempt)
    story.letter()


def rejected(story: Story) -> None:
    story.produced()
    story.said(story.given("a", 0), REJECT, 50, Said.NOTHING)
    story.letter(Cause.REJECTED, 1)


def two_letters_after_a_crash(story: Story) -> None:
    failed_three_times(story)
    story.history.disturb(3_200)
    story.letter().letter()


def poison_may_wait(story: Story) -> None:
    story.history.patience_ms = 2_000
    story.produced(at=1_000, is_poison=True)
    story.said(story.given("a", 4_000), ACCEPT, 4_100)
    story.history.ended_ms = 10_000


def disturbed_records_may_wait(story: Story) -> None:
    story.history.disturb(2_000)
    blocked_by_poison(story)


def never_acknowledged(story: Story) -> None:
    """Nobody was promised anything."""
    story.given("a", 0)


@pytest.mark.parametrize(
    "tell",
    [
        nothing,
        accepted,
        accepted_perhaps,
        accepted_perhaps_and_delivered_again,
        accepted_twice,
        delivered_after_its_lease,
        answered_late,
        refused_after_its_lease,
        late_but_the_leader_changed,
        a_stranger_is_refused,
        released_twice,
        given_back,
        left,
        counted_unseen,
        waited,
        early_after_a_clock_was_set,
        given_up,
        given_up_by_expiry,
        rejected,
        two_letters_after_a_crash,
        poison_may_wait,
        disturbed_records_may_wait,
        never_acknowledged,
    ],
    ids=lambda tell: tell.__name__,
)
def test_what_comes_close_is_fine(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert story.rules() == set()


def test_work_may_be_unfinished_before_the_end() -> None:
    story = Story()
    lost(story)
    assert story.rules(is_over=False) == set()
