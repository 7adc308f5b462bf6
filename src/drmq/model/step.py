"""The result of one input to a replicated state machine: records to append, and answers for later.

Every replicated state machine of DRMQ (the catalog, consumer groups, and those that follow) is a pure object. It never
writes a log and never sends a response. It returns a `Step`, and its driver (`drmq.broker.coordination`) carries the
step out: append the records, replay them, and send the answers once the log is committed up to that point.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R")
A = TypeVar("A")


class Answer(NamedTuple, Generic[A]):
    """The response to the request that was submitted under this ticket."""

    ticket: int
    response: A


class Step(NamedTuple, Generic[R, A]):
    """Append and replay `records` at once; send `answers` when the log is committed up to here.

    "Up to here" includes records of earlier steps, also if this step has none: an answer may depend on them. For
    example, a follower's SyncGroup is answered from an assignment that the step before it appended.
    """

    records: tuple[R, ...] = ()
    answers: tuple[Answer[A], ...] = ()
