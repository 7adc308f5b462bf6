"""Requests about dead letters and redrives, and the responses of the shard that knows about them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from drmq.leases.redrive_records import Origin, RedriveState, Runs
from drmq.model import TopicId


class StartRedrive(NamedTuple):
    """Begin to move the letters of a topic back. Refused while another redrive of it runs."""

    topic_id: TopicId
    producer_id: int
    """An id that no other producer has. A repeated request has the same."""
    count_max: int
    """0 for all."""
    filter: str
    caller: str
    """The client for which it is done, in hexadecimal."""
    bounds: tuple[tuple[int, int], ...]
    """By partition: the log start and the high watermark."""


class IntendBatch(NamedTuple):
    """These letters are to be appended to their origin as one batch."""

    topic_id: TopicId
    number: int
    partition: int
    origin: Origin
    from_offset: int
    runs: Runs


class EndBatch(NamedTuple):
    """What became of the batch that is under way to an origin."""

    topic_id: TopicId
    number: int
    origin: Origin
    is_done: bool
    new_epoch: bool = False


class NoteProgress(NamedTuple):
    """What the redrive has left aside so far, for those who ask. It is not stored."""

    topic_id: TopicId
    number: int
    skipped: int
    failed: int
    reason: str


class EndRedrive(NamedTuple):
    """Nothing is left that the redrive can move, or it was asked to stop."""

    topic_id: TopicId
    number: int
    skipped: int
    failed: int
    reason: str


class StopRedrive(NamedTuple):
    """Take no more letters. What is under way is finished."""

    topic_id: TopicId


class PurgeLetters(NamedTuple):
    """These letters are not wanted any more. Refused while a redrive of the topic runs."""

    topic_id: TopicId
    partition: int
    runs: Runs
    log_start: int = 0
    """What is known about offsets below it is forgotten."""


class DescribeLetters(NamedTuple):
    """Which letters of a topic are done, and how its last redrive went."""

    topic_id: TopicId


RedriveRequest: TypeAlias = (
    StartRedrive | IntendBatch | EndBatch | NoteProgress | EndRedrive | StopRedrive | PurgeLetters | DescribeLetters
)


class RedriveRefusal(Enum):
    """Why a request about dead letters was refused."""

    RUNNING = "a redrive of this topic is running"
    NOT_RUNNING = "no redrive of this topic is running"
    STOPPING = "the redrive is being stopped"
    NOT_WAITING = "some of these letters are done already, or under way"
    BUSY = "another batch is under way to this origin"
    ENOUGH = "the redrive has moved as many letters as it was asked to"
    TOO_SCATTERED = "the letters that are done are scattered over too many places"
    INVALID = "the offsets are not in ascending order, or not valid"


class RedriveRefused(NamedTuple):
    """The request was refused. Nothing has changed."""

    refusal: RedriveRefusal


class RedriveBegun(NamedTuple):
    """The redrive runs."""

    number: int


class BatchAllowed(NamedTuple):
    """The intent is committed. The batch must have exactly these numbers, and this time."""

    producer_id: int
    epoch: int
    sequence: int
    at_ms: int


class Purged(NamedTuple):
    """So many letters that were waiting are done now."""

    letter_count: int


class RedriveDone(NamedTuple):
    """The request was carried out."""


class RedriveView(NamedTuple):
    """A redrive as it is now."""

    number: int
    state: RedriveState
    started_ms: int
    ended_ms: int
    """0 while it runs."""
    count_max: int
    filter: str
    redriven: int
    skipped: int
    failed: int
    reason: str
    """Why letters were left, with an example; empty if none were."""
    open_runs: tuple[tuple[int, Runs], ...]
    """Letters that are under way, by partition."""


class LettersView(NamedTuple):
    """Which letters of a topic are done, and its last redrive; None if there was none."""

    done: tuple[tuple[int, Runs], ...]
    """By partition."""
    purged: int
    redrive: RedriveView | None


RedriveResponse: TypeAlias = RedriveRefused | RedriveBegun | BatchAllowed | Purged | RedriveDone | LettersView
