"""One input to a group shard while it is being handled.

A `Turn` collects the records and answers of one input, together with the time at which it arrived. It ends as a
`Step`, which the driver carries out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from drmq import model
from drmq.groups.messages import GroupResponse
from drmq.groups.records import GroupRecord

Answer: TypeAlias = model.Answer[GroupResponse]
Step: TypeAlias = model.Step[GroupRecord, GroupResponse]


@dataclass(slots=True)
class Turn:
    """One input being handled. `now_ms` is monotonic and drives deadlines, `wall_ms` is only a timestamp."""

    now_ms: int
    wall_ms: int
    records: list[GroupRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def answer(self, ticket: int, response: GroupResponse) -> None:
        self.answers.append(model.Answer(ticket, response))

    def step(self) -> Step:
        return model.Step(tuple(self.records), tuple(self.answers))
