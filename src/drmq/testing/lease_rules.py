"""What must be true of a lease group, whatever fails: rules over what its members saw.

A rule is a pure function of a `LeaseHistory`, so the simulator and the tests with real processes share them.

- **work-ends**: every acknowledged record is in the end accepted, or is in the dead-letter topic;
- **one-live-lease**: no record is with two members while the first lease lasts, and nobody has given it back;
- **live-leases-hold**: a member that settles in time what it holds is not refused;
- **stale-leases-are-refused**: what a member says about a record that was delivered again, whose lease ran out, or that
  was never delivered to it, is refused;
- **settled-stays-settled**: what was accepted or rejected, and answered, is never delivered again; and an accepted
  record has no dead letter;
- **redelivery-has-a-reason**: a delivery has a higher number only if an earlier one of that very record failed or ran
  out. So where nothing fails and everybody is in time, there is one delivery;
- **delivery-counts-never-fall**: nor are they the same, unless the record was given back;
- **delays-are-kept**: a record that was released for later does not return earlier;
- **letters-are-true**: a dead letter is a copy of its record, names its origin and cause, and was written after as many
  deliveries of that record as the group allows, or after it was rejected;
- **letters-are-single**: it is there twice only if something failed after the record was given up;
- **tokens-never-repeat**: one token belongs to one acquisition;
- **poison-blocks-nobody**: while nothing is disturbed, good records are delivered soon, whatever else fails.

A request that was not answered may have been carried out or not: each rule assumes the harmless case. A leader that
changes starts leases anew, so some rules hold only for what happened undisturbed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from drmq.leases import Outcome
from drmq.testing.lease_history import Cause, Handout, Job, LeaseHistory, Letter, Produced, Said, Settling

_FINAL = (Outcome.ACCEPT, Outcome.REJECT)
_BACK = (Outcome.GIVE_BACK,)
_ALIKE = {Outcome.GIVE_BACK: Outcome.RELEASE}
"""Who released a record may give it back as well: it is available again either way."""


class Broken(NamedTuple):
    """A rule that does not hold, and how."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def violations(history: LeaseHistory, *, is_over: bool = True) -> list[Broken]:
    """Every rule that is broken. Before the end, `is_over` is False: nothing must have ended yet."""
    found: list[Broken] = []
    for story in _stories(history):
        found += story.check()
        if is_over:
            found += story.check_end()
    found += _repeated_tokens(history)
    if is_over:
        found += _blocked(history)
    return found


class _Story:
    """Everything that is known of one record."""

    def __init__(self, history: LeaseHistory, job: Job) -> None:
        self.history = history
        self.job = job
        self.produced: Produced | None = None
        self.handouts: list[Handout] = []
        self.settlings: dict[int, list[Settling]] = defaultdict(list)
        """By the id of the delivery that they are about."""
        self.letters: list[Letter] = []

    def check(self) -> Iterator[Broken]:
        """What must hold at any time."""
        # By token where there are tokens: they have the order in which the broker decided.
        self.handouts.sort(key=lambda one: (one.token, one.answered_ms))
        if not all(one.token for one in self.handouts):
            self.handouts.sort(key=lambda one: one.answered_ms)
        for handout in self.handouts:
            for settling in self.settlings[id(handout)]:
                yield from self._check_settling(handout, settling)
        for first, second in pairwise(self.handouts):
            yield from self._check_pair(first, second)
        for handout in self.handouts:
            yield from self._check_reason(handout)

    # ---- settlements ----------------------------------------------------------------------------

    def _check_settling(self, handout: Handout, settling: Settling) -> Iterator[Broken]:
        if settling.said is Said.REFUSED:
            if self._must_succeed(handout, settling):
                yield Broken("live-leases-hold", f"{settling} was refused")
            return
        if settling.said is not Said.OK:
            return
        if settling.by != handout.member:
            is_allowed = self._is_repetition(settling) or (not settling.is_fenced and self._may_hold(settling))
            if not is_allowed:
                yield Broken("stale-leases-are-refused", f"{settling} was answered with success")
            return
        later = [other for other in self.handouts if _is_before(handout, other)]
        if not self._is_repetition(settling):
            seen = next((other for other in later if other.answered_ms <= settling.asked_ms), None)
            if seen is not None and (settling.is_fenced or seen.member != settling.by):
                # With what else was said, because an old REJECT may pass for a repetition of another settlement.
                said = "; ".join(str(each) for every in self.settlings.values() for each in every)
                yield Broken("stale-leases-are-refused", f"{settling} was answered with success, after {seen}: {said}")
            elif self._has_surely_expired(handout, settling):
                yield Broken("stale-leases-are-refused", f"{settling} was answered with success, after its lease")
        if settling.outcome in _FINAL:
            # A repetition may be about a later delivery that had the same outcome.
            is_sure = not self._is_repetition(settling)
            for other in later:
                if (is_sure and handout.token and other.token) or other.asked_ms >= settling.answered_ms:
                    yield Broken("settled-stays-settled", f"{settling} was answered with success, but there is {other}")
                    break

    def _must_succeed(self, handout: Handout, settling: Settling) -> bool:
        """Whether the member surely held the record from the request to the answer."""
        if settling.by != handout.member or settling.answered_ms >= self._live_until(handout, settling.asked_ms):
            return False
        if self._left_before(handout, settling.answered_ms):
            return False
        return not any(
            other is not settling and other.said is not Said.REFUSED and other.outcome is not Outcome.RENEW
            for other in self._ends(handout)
            if other.asked_ms <= settling.answered_ms
        )

    def _ends(self, handout: Handout) -> Iterator[Settling]:
        """What may have settled a delivery. Without a token, something old that was under way may have hit it."""
        yield from self.settlings[id(handout)]
        if not handout.token:
            for other in self.handouts:
                if other is not handout:
                    said = self.settlings[id(other)]
                    yield from (one for one in said if one.by == handout.member and one.said is Said.NOTHING)

    def _may_hold(self, settling: Settling) -> bool:
        """Whether the member may have got the record with an answer that was lost, or has got it, meanwhile."""
        return any(
            take.member == settling.by and (take.topic, take.partition) == self.job[:2]
            for take in self.history.open_takes
        ) or any(other.member == settling.by for other in self.handouts)

    def _is_repetition(self, settling: Settling) -> bool:
        """Whether the member may have said the same about this record before with success. Repeating it succeeds.

        What was leased for a request whose connection broke is given back in the name of the member.
        """
        if settling.outcome in (Outcome.RELEASE, Outcome.GIVE_BACK) and any(
            take.member == settling.by
            and (take.topic, take.partition) == self.job[:2]
            and take.asked_ms <= settling.answered_ms
            for take in self.history.open_takes
        ):
            return True
        return settling.outcome is not Outcome.RENEW and any(
            other is not settling
            and other.by == settling.by
            and _ALIKE.get(other.outcome, other.outcome) is _ALIKE.get(settling.outcome, settling.outcome)
            and other.said is not Said.REFUSED
            and other.asked_ms <= settling.asked_ms
            for each in self.settlings.values()
            for other in each
        )

    def _has_surely_expired(self, handout: Handout, settling: Settling) -> bool:
        """Whether the lease had run out before the request, on a broker that was not disturbed since it was taken."""
        history = self.history
        if _is_disturbed(history, handout.asked_ms, settling.answered_ms):
            return False
        granted_ms = handout.answered_ms
        for other in self.settlings[id(handout)]:
            if other.outcome is Outcome.RENEW and other is not settling and other.said is not Said.REFUSED:
                granted_ms = max(granted_ms, other.answered_ms)
        return settling.asked_ms > granted_ms + handout.lease_ms + history.slack_ms

    # ---- deliveries -----------------------------------------------------------------------------

    def _check_pair(self, first: Handout, second: Handout) -> Iterator[Broken]:
        """Two deliveries in a row, as far as they were seen."""
        if _is_before(first, second):
            overlaps = self._is_still_out(first, second.answered_ms)
        else:
            # Which was first is not known: it must have been possible in one way.
            overlaps = self._is_still_out(first, second.answered_ms) and self._is_still_out(second, first.answered_ms)
        if overlaps:
            yield Broken("one-live-lease", f"{second} while there is {first}")
        if not _is_before(first, second):
            return
        least = first.attempt + (0 if self._may_be_back(first) else 1)
        if second.attempt < least:
            yield Broken("delivery-counts-never-fall", f"{second} after {first}")
        if self.history.clocks_set:
            return
        for settling in self.settlings[id(first)]:
            if settling.outcome is Outcome.RELEASE and settling.said is Said.OK and settling.delay_ms:
                due_ms = settling.asked_ms + settling.delay_ms
                if second.answered_ms < due_ms and not self._is_repetition(settling):
                    yield Broken("delays-are-kept", f"{second} before {due_ms:.0f}, after {settling}")

    def _is_still_out(self, handout: Handout, now_ms: float) -> bool:
        if now_ms >= self._live_until(handout, now_ms) or self._left_before(handout, now_ms):
            return False
        return not any(
            settling.outcome is not Outcome.RENEW and settling.said is not Said.REFUSED and settling.asked_ms <= now_ms
            for settling in self._ends(handout)
        )

    def _live_until(self, handout: Handout, now_ms: float) -> float:
        """When the lease of a delivery ends at the earliest."""
        until = handout.asked_ms + handout.lease_ms
        for settling in self.settlings[id(handout)]:
            if settling.outcome is Outcome.RENEW and settling.said is Said.OK and settling.answered_ms <= now_ms:
                until = max(until, settling.asked_ms + handout.lease_ms)
        return until

    def _left_before(self, handout: Handout, now_ms: float) -> bool:
        """Whether the member gave back all that it held since it got this."""
        return any(
            one.member == handout.member and handout.asked_ms <= one.asked_ms <= now_ms
            for one in self.history.departures
        )

    def _may_be_back(self, handout: Handout) -> bool:
        """Whether a delivery may have been given back, and then does not count."""
        return self._left_before(handout, float("inf")) or any(
            settling.outcome in _BACK and settling.said is not Said.REFUSED for settling in self.settlings[id(handout)]
        )

    def _is_surely_back(self, handout: Handout) -> bool:
        return any(
            settling.outcome in _BACK and settling.said is Said.OK and not self._is_repetition(settling)
            for settling in self.settlings[id(handout)]
        )

    def _check_reason(self, handout: Handout) -> Iterator[Broken]:
        """A number above 1 needs deliveries that counted. One that nobody saw is possible only after a disturbance."""
        begun_ms = self.produced.acked_ms if self.produced is not None else self.handouts[0].asked_ms
        if _is_disturbed(self.history, begun_ms - self.history.slack_ms, handout.answered_ms):
            return
        counted = sum(
            one is not handout and not _is_before(handout, one) and not self._is_surely_back(one)
            for one in self.handouts
        )
        unseen = sum(
            (take.topic, take.partition) == self.job[:2] and take.asked_ms <= handout.answered_ms
            for take in self.history.open_takes
        )
        if handout.attempt > 1 + counted + unseen:
            text = f"{handout} has number {handout.attempt}, but {counted} deliveries before it counted"
            yield Broken("redelivery-has-a-reason", text)

    # ---- the end --------------------------------------------------------------------------------

    def check_end(self) -> Iterator[Broken]:
        """What must hold when all work is done."""
        settlings = [one for each in self.settlings.values() for one in each]
        accepted = [one for one in settlings if one.outcome is Outcome.ACCEPT and one.by == one.handout.member]
        if self.produced is not None and not self.letters and all(one.said is Said.REFUSED for one in accepted):
            yield Broken("work-ends", f"{self.job} was neither accepted nor is it in the dead-letter topic")
        if self.letters:
            sure = next((one for one in accepted if one.said is Said.OK), None)
            if sure is not None:
                yield Broken("settled-stays-settled", f"{self.job} has a dead letter, but there is {sure}")
            yield from self._check_letters(settlings)

    def _check_letters(self, settlings: list[Settling]) -> Iterator[Broken]:
        history = self.history
        since_ms = self.handouts[-1].asked_ms if self.handouts else 0.0
        if len(self.letters) > 1 and not _is_disturbed(history, since_ms, float("inf")):
            yield Broken("letters-are-single", f"{self.job} has {len(self.letters)} dead letters, but nothing failed")
        for letter in self.letters:
            if letter.group != history.group or letter.cause is None:
                yield Broken("letters-are-true", f"{letter} names no cause, or another group")
            if self.produced is not None and letter.value != self.produced.value:
                yield Broken("letters-are-true", f"{letter} is no copy of {self.produced.value[:40]!r}")
            if self.handouts and letter.attempt < max(one.attempt for one in self.handouts):
                yield Broken("letters-are-true", f"{letter} counts less than {self.handouts[-1]}")
            if letter.cause is Cause.REJECTED and not any(
                one.outcome is Outcome.REJECT and one.said is not Said.REFUSED for one in settlings
            ):
                yield Broken("letters-are-true", f"{letter} was never rejected")
            if letter.cause is Cause.ATTEMPTS:
                yield from self._check_attempts(letter)

    def _check_attempts(self, letter: Letter) -> Iterator[Broken]:
        history = self.history
        if letter.attempt < history.attempts_max:
            yield Broken("letters-are-true", f"{letter} was given up before delivery {history.attempts_max}")
        begun_ms = self.produced.acked_ms if self.produced is not None else 0.0
        last_ms = self.handouts[-1].answered_ms + self.handouts[-1].lease_ms if self.handouts else float("inf")
        if _is_disturbed(history, begun_ms - history.slack_ms, last_ms):
            return
        counted = sum(not self._is_surely_back(one) for one in self.handouts)
        unseen = sum((take.topic, take.partition) == self.job[:2] for take in history.open_takes)
        if counted + unseen < history.attempts_max:
            yield Broken("letters-are-true", f"{letter} was given up, but {counted} deliveries of it counted")


def _stories(history: LeaseHistory) -> Iterable[_Story]:
    stories: dict[Job, _Story] = {}

    def of(job: Job) -> _Story:
        story = stories.get(job)
        if story is None:
            story = stories[job] = _Story(history, job)
        return story

    for produced in history.produced:
        of(produced.job).produced = produced
    for handout in history.handouts:
        of(handout.job).handouts.append(handout)
    for settling in history.settlings:
        of(settling.handout.job).settlings[id(settling.handout)].append(settling)
    for letter in history.letters:
        of(letter.job).letters.append(letter)
    return stories.values()


def _is_before(first: Handout, second: Handout) -> bool:
    """Whether the broker surely decided about one delivery before the other."""
    if first.token and second.token:
        return first.token < second.token
    return first.answered_ms <= second.asked_ms


def _is_disturbed(history: LeaseHistory, from_ms: float, to_ms: float) -> bool:
    if history.is_rough:
        return True
    times = history.disturbed_ms
    at = bisect_left(times, from_ms)
    return at < len(times) and times[at] <= to_ms


def _repeated_tokens(history: LeaseHistory) -> Iterator[Broken]:
    owners: dict[tuple[str, int, int], Handout] = {}
    for handout in history.handouts:
        if handout.token:
            owner = owners.setdefault((*handout.job[:2], handout.token), handout)
            if (owner.member, owner.asked_ms) != (handout.member, handout.asked_ms):
                yield Broken("tokens-never-repeat", f"{handout} has the token of {owner}")


def _blocked(history: LeaseHistory) -> Iterator[Broken]:
    """Good records that were delivered late, though nothing was disturbed."""
    if history.patience_ms is None:
        return
    first: dict[Job, float] = {}
    for handout in history.handouts:
        first[handout.job] = min(handout.answered_ms, first.get(handout.job, float("inf")))
    late: Counter[int] = Counter()
    for produced in history.produced:
        due_ms = produced.acked_ms + history.patience_ms
        if produced.is_poison or due_ms > history.ended_ms:
            continue
        if _is_disturbed(history, produced.acked_ms, due_ms):
            continue
        if first.get(produced.job, float("inf")) > due_ms:
            late[produced.job.partition] += 1
            if late[produced.job.partition] == 1:
                text = f"{produced.job}, acknowledged at {produced.acked_ms:.0f}, was not delivered until {due_ms:.0f}"
                yield Broken("poison-blocks-nobody", text)
