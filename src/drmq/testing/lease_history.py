"""What members of a lease group asked for, and what they were told: the material of `lease_rules`.

All times are milliseconds of one monotonic clock, that of the observer. A request has two: `asked_ms`, before it left,
and `answered_ms`, after its answer came. What the broker did happened between the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from drmq.broker.services.redrive.letters import ERRORS
from drmq.leases import Outcome


class Job(NamedTuple):
    """A record of a queue, by its place."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} {self.offset}"


@dataclass(slots=True)
class Produced:
    """A record that was acknowledged to its producer."""

    job: Job
    value: bytes
    acked_ms: float
    is_poison: bool = False
    """Whether no member ever accepts it."""


@dataclass(slots=True)
class Handout:
    """A delivery of one record, as a member got it."""

    job: Job
    member: str
    attempt: int
    token: int
    """0 if the protocol of the member has none."""
    asked_ms: float
    answered_ms: float
    lease_ms: float
    value: bytes = b""

    def __str__(self) -> str:
        return (
            f"delivery {self.attempt} of {self.job} to {self.member} (token {self.token}, "
            f"asked {self.asked_ms:.0f}, answered {self.answered_ms:.0f})"
        )


class Said(Enum):
    """What a member was told about a settlement."""

    NOTHING = auto()
    """No answer, or an error that leaves it open."""
    OK = auto()
    REFUSED = auto()
    """It was not carried out, and never will be."""


@dataclass(slots=True)
class Settling:
    """What a member said about one record."""

    handout: Handout
    """The delivery that it is about."""
    by: str
    """The member; a stranger if it is not that of the delivery."""
    outcome: Outcome
    asked_ms: float
    delay_ms: float | None = None
    """RELEASE: the shortest time until it may be delivered again; None if nothing is promised."""
    said: Said = Said.NOTHING
    answered_ms: float = float("inf")
    is_fenced: bool = True
    """Whether it showed the token of the delivery."""

    def __str__(self) -> str:
        answered = f"answered {self.answered_ms:.0f}" if self.said is not Said.NOTHING else "not answered"
        return f"{self.outcome.name} by {self.by} (asked {self.asked_ms:.0f}, {answered}) of {self.handout}"


@dataclass(slots=True)
class OpenTake:
    """A request for records that was not answered, or with an error: it may have leased some that nobody saw."""

    topic: str
    partition: int
    member: str
    asked_ms: float


@dataclass(slots=True)
class Departure:
    """A member asked to give back all that it holds of a topic."""

    member: str
    asked_ms: float


class Cause(Enum):
    """Why a record is in the dead-letter topic."""

    REJECTED = auto()
    ATTEMPTS = auto()


@dataclass(slots=True)
class Letter:
    """A dead letter, as it was read at the end."""

    job: Job
    """Where it came from, as it says itself."""
    group: str
    attempt: int
    cause: Cause | None
    """None: it names no known cause."""
    value: bytes


_CAUSES = {b"it was rejected": Cause.REJECTED, b"it failed as often as the group allows": Cause.ATTEMPTS}


def letter_of(value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> Letter:
    """A dead letter as its headers describe it."""
    own = {name.removeprefix(ERRORS): text or b"" for name, text in headers if name.startswith(ERRORS)}
    job = Job(own["topic"].decode(), int(own["partition"]), int(own["offset"]))
    cause = _CAUSES.get(own["message"])
    return Letter(job, own["group"].decode(), int(own["delivery.count"]), cause, value or b"")


@dataclass(slots=True)
class LeaseHistory:
    """All that was seen of one lease group."""

    group: str
    attempts_max: int
    slack_ms: float = 250.0
    """How long after its time a lease may end, on a broker that is not disturbed."""
    produced: list[Produced] = field(default_factory=list)
    handouts: list[Handout] = field(default_factory=list)
    settlings: list[Settling] = field(default_factory=list)
    open_takes: list[OpenTake] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    disturbed_ms: list[float] = field(default_factory=list)
    """When something went wrong, or was put right, or a leader changed; ascending."""
    is_rough: bool = False
    """Whether it was disturbed all the time, or that is not known."""
    clocks_set: bool = False
    """Whether a wall clock was set during the run."""
    patience_ms: float | None = None
    """How soon a record that is not poison must be delivered while nothing is disturbed; None if that is not known."""
    ended_ms: float = float("inf")
    """When the last event was seen."""

    def disturb(self, now_ms: float) -> None:
        self.disturbed_ms.append(now_ms)

    def on_handout(
        self,
        job: Job,
        member: str,
        attempt: int,
        token: int,
        asked_ms: float,
        answered_ms: float,
        lease_ms: float,
        value: bytes = b"",
    ) -> Handout:
        handout = Handout(job, member, attempt, token, asked_ms, answered_ms, lease_ms, value)
        self.handouts.append(handout)
        return handout

    def on_settling(
        self,
        handout: Handout,
        by: str,
        outcome: Outcome,
        asked_ms: float,
        delay_ms: float | None = None,
        *,
        is_fenced: bool = True,
    ) -> Settling:
        """To be called before the request leaves."""
        settling = Settling(handout, by, outcome, asked_ms, delay_ms, is_fenced=is_fenced)
        self.settlings.append(settling)
        return settling
