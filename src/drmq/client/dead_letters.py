"""Dead letters: what waits in a dead-letter topic, moving it back to where it came from, and purging it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drmq.client.cluster import Cluster
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, refusal
from drmq.client.topics import Topics, topic_refusal
from drmq.model import ErrorCode, TopicPartition
from drmq.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from drmq.wire.messages.describe_leases import DescribeLeasesRequest, DescribeLeasesResponse
from drmq.wire.messages.redrive import RedriveAction, RedriveLetter, RedriveRequest, RedriveResponse

STATES: Final = {1: "running", 2: "stopping", 3: "finished", 4: "stopped"}
_ALLOWED: Final = "errors.deadletterqueue.group.enable"
_TOPIC_RESOURCE: Final = 2
_PAGE: Final = 100

Filter = Mapping[str, Any]
"""Which letters are meant: the fields are those of the server's filter, all of which must be true of a letter."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter: its place, its content, and what it says about its record."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str
    reason: str
    attempts: int
    first_failed_ms: int
    last_failed_ms: int
    has_record: bool
    """Whether key and value are those of the record. If not, it was not copied, and cannot be moved back."""
    redrive_count: int


@dataclass(frozen=True, slots=True)
class Redrive:
    """A redrive that runs or ran last. `skipped` do not match its filter, `failed` cannot be moved (`reason`)."""

    number: int
    state: str
    """`running`, `stopping`, `finished` or `stopped`."""
    started_ms: int
    ended_ms: int | None
    filter: str
    count_max: int
    redriven: int
    skipped: int
    failed: int
    reason: str

    @property
    def is_running(self) -> bool:
        return self.state in ("running", "stopping")


@dataclass(frozen=True, slots=True)
class DeadLetterStatus:
    """What waits in a dead-letter topic, and its last redrive."""

    topic: str
    waiting: int
    purged: int
    ends: Mapping[TopicPartition, int]
    """By partition: the offset after its last letter."""
    redrive: Redrive | None
    oldest: DeadLetter | None
    newest: DeadLetter | None


@dataclass(frozen=True, slots=True)
class LetterPage:
    """Some letters, and the partition and offset where the others begin; None if there are no others."""

    letters: tuple[DeadLetter, ...]
    next: tuple[int, int] | None


class DeadLetters:
    """Calls about dead letters. Each raises `ClientError` and returns within the cluster's timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topics(self) -> Sequence[str]:
        """The names of the topics that take dead letters."""

        def ask(deadline: Deadline) -> Sequence[str]:
            names = [topic.name for topic in self._cluster.metadata(deadline, None).topics if topic.name]
            resources = [
                DescribeConfigsRequestResource(_TOPIC_RESOURCE, name, [_ALLOWED])
                for name in names
                if not name.startswith("__")
            ]
            answer = self._cluster.ask_any(DescribeConfigsRequest(resources), DescribeConfigsResponse, deadline)
            return sorted(
                result.resource_name
                for result in answer.results
                if any(config.name == _ALLOWED and config.value == "true" for config in result.configs)
            )

        return self._cluster.retry(ask)

    def topic_of(self, group: str) -> str | None:
        """Where the dead letters of a group go; None if they are dropped."""

        def ask(deadline: Deadline) -> str | None:
            answer = self._cluster.ask_any(DescribeLeasesRequest(group, []), DescribeLeasesResponse, deadline)
            if answer.error_code:
                raise refusal(answer.error_code, f"Group `{group}` cannot be described", answer.error_message)
            return answer.dead_letter_topic

        return self._cluster.retry(ask)

    def status(self, topic: str, *, with_letters: bool = False) -> DeadLetterStatus:
        """What waits in a topic; with the oldest and the newest letter if asked for."""
        request = RedriveRequest(RedriveAction.STATUS, topic, count_max=int(with_letters))
        return _status(topic, self._ask(request))

    def redrive(self, topic: str, letters: Filter | None = None, *, count_max: int = 0) -> DeadLetterStatus:
        """Begin to move letters back to where they came from: those that match, `count_max` at most, or all."""
        request = RedriveRequest(RedriveAction.START, topic, _text(letters), count_max)
        return _status(topic, self._ask(request, repeatable=False))

    def stop(self, topic: str) -> DeadLetterStatus:
        """Stop a redrive. The batches under way are finished first."""
        return _status(topic, self._ask(RedriveRequest(RedriveAction.STOP, topic)))

    def count(self, topic: str, letters: Filter | None = None) -> int:
        """How many letters wait and match."""
        request = RedriveRequest(RedriveAction.LIST, topic, _text(letters))
        return sum(answer.matched_count for answer in self._pages(request))

    def purgeable(self, topic: str, letters: Filter | None = None) -> int:
        """How many letters `purge` would give up."""
        if letters:
            return self.count(topic, letters)
        # Refused for a topic that takes no dead letters, as a purge is.
        self._ask(RedriveRequest(RedriveAction.LIST, topic, None, 1))
        return self.status(topic).waiting

    def find(self, topic: str, letters: Filter | None = None, *, count_max: int = 0) -> Iterator[DeadLetter]:
        """The letters that wait and match, the first ones of each partition first; `count_max` at most, or all."""
        left = count_max
        request = RedriveRequest(RedriveAction.LIST, topic, _text(letters), min(count_max, _PAGE) or _PAGE)
        for answer in self._pages(request):
            for letter in answer.letters:
                yield _letter(letter)
                left -= 1
                if left == 0:
                    return

    def page(
        self, topic: str, letters: Filter | None, count_max: int, start: tuple[int, int], *, within_s: float
    ) -> LetterPage:
        """Up to so many letters that wait and match, from a partition and an offset on.

        Stops looking after `within_s`, also if it has found fewer.
        """
        until_s = time.monotonic() + within_s
        found: list[DeadLetter] = []
        place: tuple[int, int] | None = start
        request = RedriveRequest(RedriveAction.LIST, topic, _text(letters), count_max, *start)
        while place is not None and len(found) < count_max and (place == start or time.monotonic() < until_s):
            request.from_partition, request.from_offset = place
            request.count_max = count_max - len(found)
            answer = self._ask(request)
            found += map(_letter, answer.letters)
            place = (answer.next_partition, answer.next_offset) if answer.next_partition >= 0 else None
        return LetterPage(tuple(found), place)

    def purge(self, topic: str, letters: Filter | None = None) -> int:
        """Letters that match are neither shown nor moved any more; without a filter all are, and are deleted."""
        # The ends from before: a letter that arrives meanwhile is not deleted.
        ends = {} if letters else self.status(topic).ends
        request = RedriveRequest(RedriveAction.PURGE, topic, _text(letters))
        count = sum(answer.matched_count for answer in self._pages(request))
        Topics(self._cluster).trim({place: end for place, end in ends.items() if end > 0})
        return count

    def _pages(self, request: RedriveRequest) -> Iterator[RedriveResponse]:
        while True:
            answer = self._ask(request)
            yield answer
            if answer.next_partition < 0:
                return
            request.from_partition, request.from_offset = answer.next_partition, answer.next_offset

    def _ask(self, request: RedriveRequest, *, repeatable: bool = True) -> RedriveResponse:
        def ask(deadline: Deadline) -> RedriveResponse:
            connection: Connection = self._cluster.any_node(deadline)
            answer = connection.call(request, RedriveResponse, deadline)
            if answer.error_code:
                raise _refusal(request.topic, answer)
            return answer

        return self._cluster.retry(ask, repeatable=repeatable)


def _text(letters: Filter | None) -> str | None:
    return json.dumps(dict(letters)) if letters else None


def _refusal(topic: str, answer: RedriveResponse) -> ClientError:
    said = answer.error_message
    if answer.error_code == ErrorCode.DUPLICATE_RESOURCE:
        advice = f"`drmq dlq status {topic}` shows it, `drmq dlq stop {topic}` stops it."
        return refusal(answer.error_code, f"A redrive of `{topic}` is running", advice=advice)
    if answer.error_code == ErrorCode.RESOURCE_NOT_FOUND:
        return refusal(answer.error_code, f"No redrive of `{topic}` is running")
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return topic_refusal(answer.error_code, topic, said)
    return refusal(answer.error_code, f"The dead letters of `{topic}` cannot be used", said)


def _status(topic: str, answer: RedriveResponse) -> DeadLetterStatus:
    letters = [_letter(letter) for letter in answer.letters]
    redrive = None
    if answer.number:
        redrive = Redrive(
            number=answer.number,
            state=STATES.get(answer.state, "unknown"),
            started_ms=answer.started_ms,
            ended_ms=answer.ended_ms if answer.ended_ms >= 0 else None,
            filter=answer.filter,
            count_max=answer.count_max,
            redriven=answer.redriven_count,
            skipped=answer.skipped_count,
            failed=answer.failed_count,
            reason=answer.reason,
        )
    return DeadLetterStatus(
        topic=topic,
        waiting=sum(partition.waiting_count for partition in answer.partitions),
        purged=answer.purged_count,
        ends={TopicPartition(topic, each.partition_index): each.end_offset for each in answer.partitions},
        redrive=redrive,
        oldest=letters[0] if letters else None,
        newest=letters[-1] if letters else None,
    )


def _letter(found: RedriveLetter) -> DeadLetter:
    return DeadLetter(
        partition=found.partition_index,
        offset=found.offset,
        timestamp_ms=found.timestamp,
        key=found.key,
        value=found.value,
        headers=tuple((header.name, header.value) for header in found.headers),
        origin_topic=found.origin_topic,
        origin_partition=found.origin_partition,
        origin_offset=found.origin_offset,
        group=found.group_id,
        reason=found.reason,
        attempts=found.attempts,
        first_failed_ms=found.first_failed_ms,
        last_failed_ms=found.last_failed_ms,
        has_record=found.has_record,
        redrive_count=found.redrive_count,
    )
