"""What becomes of a record when its lease ends, and which offsets are refused."""

from __future__ import annotations

from collections.abc import Iterable

from drmq.leases.messages import Outcome, Refusal, Refused, Settlement
from drmq.leases.options import LeaseOptions
from drmq.leases.queue import Hold, Queue
from drmq.leases.records import Fate, Reason, Settled

_FATES = {
    Outcome.ACCEPT: (Fate.DONE,),
    Outcome.RELEASE: (Fate.RETURNED, Fate.PARKED, Fate.DYING),
    Outcome.GIVE_BACK: (Fate.RETURNED,),
    Outcome.REJECT: (Fate.DYING,),
    Outcome.RENEW: (),
}
"""What an outcome makes of a record. Who repeats it is told that it succeeded; who says something else is refused."""
_FATES_WITHOUT_LETTERS: dict[Outcome, tuple[Fate, ...]] = {
    outcome: (Fate.DONE,) if outcome in (Outcome.RELEASE, Outcome.REJECT) else () for outcome in Outcome
}


def is_ascending(settlements: Iterable[Settlement]) -> bool:
    """Whether the runs are in ascending order and do not overlap."""
    end = 0
    for settlement in settlements:
        if settlement.first < end or settlement.last < settlement.first:
            return False
        end = settlement.last + 1
    return True


def given_back(first: int, last: int, hold: Hold) -> Settled:
    """The delivery does not count."""
    return Settled(first, last, Fate.RETURNED, hold.attempt - 1, hold.failed_ms, 0, Reason.NONE)


def given_up(first: int, last: int, hold: Hold, reason: Reason, options: LeaseOptions, wall_ms: int) -> Settled:
    if not options.writes_dead_letters:
        return Settled(first, last, Fate.DONE, 0, 0, 0, Reason.NONE)
    return Settled(first, last, Fate.DYING, hold.attempt, hold.failed_ms or wall_ms, wall_ms, reason)


def expired(first: int, last: int, hold: Hold, options: LeaseOptions, wall_ms: int) -> Settled:
    """The limit is checked when a delivery ends: after it was lowered, what is out is not delivered once more."""
    if hold.attempt >= options.attempts_max:
        return given_up(first, last, hold, Reason.ATTEMPTS, options, wall_ms)
    return Settled(first, last, Fate.RETURNED, hold.attempt, hold.failed_ms or wall_ms, 0, Reason.NONE)


def add_settled(entries: list[Settled], entry: Settled) -> None:
    """Append an entry, or extend the last one if they are neighbours and alike."""
    if entries and entries[-1].last == entry.first - 1 and entries[-1][2:] == entry[2:]:
        entries[-1] = entries[-1]._replace(last=entry.last)
    else:
        entries.append(entry)


def add_refused(refused: list[Refused], first: int, last: int, refusal: Refusal) -> None:
    if first > last:
        return
    if refused and refused[-1].last == first - 1 and refused[-1].refusal is refusal:
        refused[-1] = refused[-1]._replace(last=last)
    else:
        refused.append(Refused(first, last, refusal))


def refuse_missing(
    queue: Queue, member: str, first: int, last: int, outcome: Outcome, options: LeaseOptions, refused: list[Refused]
) -> None:
    """Refuse offsets that nobody holds, except those that this member settled so recently: it repeats a request."""
    if first > last:
        return
    recent = queue.recent.get(member)
    fates = _FATES[outcome] if options.writes_dead_letters else (*_FATES[outcome], *_FATES_WITHOUT_LETTERS[outcome])
    for known in recent.find(first, last) if recent is not None else ():
        if known.value not in fates:
            continue
        _refuse_not_held(queue, first, known.first - 1, refused)
        first = known.last + 1
    _refuse_not_held(queue, first, last, refused)


def _refuse_not_held(queue: Queue, first: int, last: int, refused: list[Refused]) -> None:
    add_refused(refused, first, min(last, queue.end - 1), Refusal.NOT_LEASED)
    add_refused(refused, max(first, queue.end), last, Refusal.NEVER_LEASED)
