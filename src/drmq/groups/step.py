"""What one input to a shard leads to: records to append, and answers to send once they are committed.

A `Turn` is the notebook of one input while it is being handled: the time it happened at, and what has
been decided so far. It ends as a `Step`, which is what the driver gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from drmq.groups.messages import GroupResponse
from drmq.groups.records import GroupRecord


class Answer(NamedTuple):
    """The response to the request that came with this ticket."""

    ticket: int
    response: GroupResponse


@dataclass(frozen=True, slots=True)
class Step:
    """Append and replay `records` at once; send `answers` when the log is committed up to here.

    "Up to here" counts records of earlier steps too, also where this step has none: an answer may
    rest on them. A follower's sync is answered from an assignment that the step before it appended.
    """

    records: tuple[GroupRecord, ...] = ()
    answers: tuple[Answer, ...] = ()


@dataclass(slots=True)
class Turn:
    """One input being handled. `now_ms` is monotonic and drives deadlines, `wall_ms` only stamps."""

    now_ms: int
    wall_ms: int
    records: list[GroupRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def answer(self, ticket: int, response: GroupResponse) -> None:
        self.answers.append(Answer(ticket, response))

    def step(self) -> Step:
        return Step(tuple(self.records), tuple(self.answers))
