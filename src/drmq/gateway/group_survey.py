"""All groups at one time: members, lag in records and in time, what is leased, and what each group gets done.

The cost must not grow with the pages that are open, and little with groups and partitions. So one look serves all
(`shared`), each coordinator and each leader is asked once, and the time of the record at an offset is kept: it does not
change. What does not answer leaves nulls.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from drmq.client import LATEST, Admin, ClientError, Committed, Group, GroupSummary, LeaseQueue, LeaseState, Topic
from drmq.gateway.group_types import GroupPartition, GroupRow
from drmq.model import TopicPartition

TIMES_PER_LOOK_MAX: Final = 5_000
"""Records whose time is asked for in one look. The others follow with the next ones."""
RATE_S: Final = 15.0
"""Rates are averages over this time: many clients commit only every five seconds."""

Committeds = Mapping[TopicPartition, Committed]
_LettersIn = Callable[[str | None], int | None]
"""How many dead letters wait in a topic."""


@dataclass(slots=True)
class TopicProgress:
    """A group in one topic: records that it has done since ever, and those that it has not."""

    done: int = 0
    lag: int = 0
    rate: float | None = None


@dataclass(slots=True)
class GroupFacts:
    """A group as it was at one time."""

    row: GroupRow
    partitions: list[GroupPartition]
    topics: dict[str, TopicProgress] = field(default_factory=dict)


@dataclass(slots=True)
class GroupsNow:
    """All groups at one time."""

    at_s: float
    groups: dict[str, GroupFacts]

    @property
    def rows(self) -> list[GroupRow]:
        return [facts.row for facts in self.groups.values()]


class GroupSurvey:
    """Looks at groups. Used by one thread at a time."""

    def __init__(self) -> None:
        self._times: dict[tuple[TopicPartition, int], int] = {}
        self._looks: deque[tuple[float, dict[tuple[str, str], int]]] = deque()
        """The last looks, the oldest first: when each was, and what each group had done in each topic."""

    def look(self, admin: Admin) -> GroupsNow:
        """All groups. Raises `ClientError` if the cluster does not list them."""
        listed = admin.groups.all()
        topics = {topic.name: topic for topic in admin.topics.all()}
        described = admin.many_groups.describe(listed)
        committed = admin.many_groups.offsets(each.group_id for each in listed if not each.is_lease)
        ends = _ends(admin, {place for offsets in committed.values() for place in offsets}, topics)
        self._ask_times(admin, committed.values(), ends)
        letters = _Letters(admin, topics)
        found: dict[str, GroupFacts] = {}
        for each in listed:
            group_id = each.group_id
            if each.is_lease:
                found[group_id] = lease_facts(each, described.get(group_id), _lease_state(admin, group_id), letters.of)
            else:
                offsets = committed.get(group_id, {})
                found[group_id] = classic_facts(each, described.get(group_id), offsets, ends, self._times)
        now = GroupsNow(time.monotonic(), found)
        self._add_rates(now)
        return now

    def one(self, admin: Admin, group: Group) -> GroupFacts:
        """One group, as fresh as it can be."""
        summary = GroupSummary(group.group_id, group.state, group.protocol_type, group.kind)
        topics = {topic.name: topic for topic in admin.topics.all()}
        if group.is_lease:
            return lease_facts(summary, group, admin.lease_groups.state(group.group_id), _Letters(admin, topics).of)
        committed = admin.groups.offsets(group.group_id)
        owned = {place for member in group.members for place in member.partitions}
        ends = _ends(admin, owned | committed.keys(), topics)
        wanted = {(place, at.offset) for place, at in committed.items() if ends.get(place, 0) > at.offset}
        return classic_facts(summary, group, committed, ends, _times(admin, wanted))

    def _ask_times(self, admin: Admin, committed: Iterable[Committeds], ends: Mapping[TopicPartition, int]) -> None:
        wanted = {
            (place, at.offset)
            for offsets in committed
            for place, at in offsets.items()
            if ends.get(place, 0) > at.offset
        }
        self._times = {key: at_ms for key, at_ms in self._times.items() if key in wanted}
        missing = [key for key in wanted if key not in self._times]
        self._times |= _times(admin, missing[:TIMES_PER_LOOK_MAX])

    def _add_rates(self, now: GroupsNow) -> None:
        while len(self._looks) > 1 and now.at_s - self._looks[1][0] >= RATE_S:
            self._looks.popleft()
        for group_id, facts in now.groups.items():
            for topic, progress in facts.topics.items():
                key = group_id, topic
                if self._looks and self._looks[-1][1].get(key, 0) > progress.done:  # it was moved back
                    for _, done in self._looks:
                        done.pop(key, None)
                earliest = next(((at_s, done[key]) for at_s, done in self._looks if key in done), None)
                if earliest is not None:
                    progress.rate = round((progress.done - earliest[1]) / max(0.001, now.at_s - earliest[0]), 3)
            rates = [progress.rate for progress in facts.topics.values() if progress.rate is not None]
            facts.row.rate = sum(rates) if rates else None
        self._looks.append((now.at_s, {
            (group_id, topic): progress.done
            for group_id, facts in now.groups.items()
            for topic, progress in facts.topics.items()
        }))  # fmt: skip


class _Letters:
    """How many dead letters wait, by topic. Each topic is asked once."""

    def __init__(self, admin: Admin, topics: Mapping[str, Topic]) -> None:
        self._admin = admin
        self._topics = topics
        self._found: dict[str, int | None] = {}

    def of(self, topic: str | None) -> int | None:
        if topic is None:
            return None
        if topic not in self._topics:
            return 0  # it is created with its first letter
        if topic not in self._found:
            try:
                self._found[topic] = self._admin.dead_letters.status(topic).waiting
            except ClientError:
                self._found[topic] = None
        return self._found[topic]


def classic_facts(
    listed: GroupSummary,
    group: Group | None,
    committed: Committeds,
    ends: Mapping[TopicPartition, int],
    times: Mapping[tuple[TopicPartition, int], int],
) -> GroupFacts:
    """A group that commits offsets."""
    owners = {place: member.member_id for member in (group.members if group else ()) for place in member.partitions}
    rows = []
    topics: dict[str, TopicProgress] = {}
    for place in sorted({*committed, *owners}):
        offset = committed[place].offset if place in committed else None
        end = ends.get(place)
        lag = max(0, end - offset) if end is not None and offset is not None else None
        oldest_ms = times.get((place, offset)) if offset is not None and lag else None
        rows.append(GroupPartition(*place, offset, end, lag, owners.get(place), oldest_ms))
        progress = topics.setdefault(place.topic, TopicProgress())
        progress.done += offset or 0
        progress.lag += lag or 0
    row = GroupRow(listed.group_id, listed.protocol_type or "consumer", listed.state)
    return _summed(row, group, rows, topics)


def lease_facts(
    listed: GroupSummary, group: Group | None, state: LeaseState | None, letters_in: _LettersIn
) -> GroupFacts:
    """A lease group."""
    rows = []
    topics: dict[str, TopicProgress] = {}
    for queue in state.queues if state is not None else ():
        rows.append(queue_view(queue))
        progress = topics.setdefault(queue.place.topic, TopicProgress())
        progress.done += max(0, (queue.high_watermark or 0) - (queue.lag or 0))
        progress.lag += queue.lag or 0
    row = GroupRow(listed.group_id, "share", listed.state)
    if state is not None:
        row.held = sum(queue.held for queue in state.queues)
        row.parked = sum(queue.parked for queue in state.queues)
        row.dead_letter_topic = state.dead_letter_topic
        row.dead_letters = letters_in(state.dead_letter_topic)
        row.is_paused = any(queue.is_paused for queue in state.queues)
    return _summed(row, group, rows, topics)


def queue_view(queue: LeaseQueue) -> GroupPartition:
    """A partition as a lease group works on it."""
    return GroupPartition(
        *queue.place,
        queue.start_offset,
        queue.high_watermark,
        queue.lag,
        None,
        queue.oldest_ms,
        queue.held,
        queue.returned,
        queue.parked,
        queue.dying,
        queue.next_due_ms,
        queue.is_paused,
    )


def _summed(
    row: GroupRow, group: Group | None, partitions: list[GroupPartition], topics: dict[str, TopicProgress]
) -> GroupFacts:
    row.members = None if group is None else len(group.members)
    row.state = row.state or (group.state if group else "")
    row.topics = sorted(topics)
    lags = [each.lag for each in partitions if each.lag is not None]
    if lags:
        row.lag = sum(lags)
        times = [each.oldest_open_ms for each in partitions if each.oldest_open_ms is not None]
        row.oldest_open_ms = min(times, default=None)
        if row.oldest_open_ms is not None:
            # The clock of a producer may be ahead of ours.
            row.lag_ms = max(0, int(time.time() * 1000) - row.oldest_open_ms)
        elif not row.lag:
            row.lag_ms = 0
    return GroupFacts(row, partitions, topics)


def _ends(admin: Admin, places: Iterable[TopicPartition], topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
    """The ends of partitions that exist and have a leader. Others must not hide them."""
    led = {
        TopicPartition(topic.name, each.index)
        for topic in topics.values()
        for each in topic.partitions
        if each.leader is not None
    }
    wanted = led.intersection(places)
    try:
        return {place: at.offset for place, at in admin.topics.offsets(dict.fromkeys(wanted, LATEST)).items()}
    except ClientError:
        return {}  # a leader is lost at this moment


def _times(admin: Admin, wanted: Iterable[tuple[TopicPartition, int]]) -> dict[tuple[TopicPartition, int], int]:
    try:
        return admin.many_groups.record_times(wanted)
    except ClientError:
        return {}  # an older node, or none that answers


def _lease_state(admin: Admin, group_id: str) -> LeaseState | None:
    try:
        return admin.lease_groups.state(group_id)
    except ClientError:
        return None
