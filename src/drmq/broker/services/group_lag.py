"""How far the groups that this node coordinates are behind: in records, and in time.

A lag needs two things that are on different nodes: where a group is, which its coordinator knows, and how far the
partition goes, which its leader knows. Here the coordinator asks. Its table of committed offsets and its queues of
leases are read in slices between other work, and then each leader is asked once for many partitions, as for the
description of a lease group (`lease_queries`). Nothing is kept up to date: the survey runs when somebody reads the
counters and the last survey is old, and the readers get the last result with its age. The pause after a survey is
twenty times as long as the survey took, so that it never takes more than a small share of the node.

What is reported is bounded, and what is left out is counted: see the limits below.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from drmq.broker.services.caller import node_caller
from drmq.broker.services.lease_queries import UNKNOWN, OpenRecords
from drmq.catalog import takes_dead_letters
from drmq.leases import WHOLE_TOPIC, redrive_key
from drmq.model import ApiError, GroupId, NodeId, TopicId
from drmq.model.counters import Sample

if TYPE_CHECKING:
    from drmq.broker.broker import Broker

log = logging.getLogger("drmq.broker")

ROWS_MAX: Final = 200
"""Rows of group and topic with labels of their own."""
PLACES_MAX: Final = 20_000
"""Partitions of groups that one survey looks at."""
LETTER_TOPICS_MAX: Final = 50
"""Dead-letter topics that one survey looks at."""
OTHER: Final = "(other)"
CLASSIC: Final = "classic"
LEASE: Final = "lease"
INTERVAL_MS: Final = 10_000
_PAUSE_FACTOR = 20
_SLICE = 200
"""Partitions that are looked at before the event loop does something else, and those of one request to a leader."""
_PARKED_SLICE = 1_000
"""To find the first open record of a queue with more parked records than this is a slice of its own."""
_US_PER_MS = 1_000


class Place(NamedTuple):
    """Where a group is in one partition."""

    group: str
    type: str
    topic_id: TopicId
    partition: int
    offset: int
    """The first record that is not done."""
    end: int
    """The first record that the group does not know of: in a classic group the same."""
    held: int = 0
    parked: int = 0
    waiting: int = 0
    """Records below `end` that are not done."""


@dataclass(slots=True)
class Row:
    """The lag of a group in one topic."""

    records: int = 0
    lag_ms: int = 0
    held: int = 0
    parked: int = 0

    def add(self, other: Row) -> None:
        self.records += other.records
        self.lag_ms = max(self.lag_ms, other.lag_ms)
        self.held += other.held
        self.parked += other.parked


@dataclass(slots=True)
class Survey:
    """What was found."""

    at_ms: int = 0
    """On the monotonic clock."""
    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    """By group, topic and type."""
    unlisted: int = 0
    unknown_partitions: int = 0
    letters: dict[str, int] = field(default_factory=dict)

    def shorten(self) -> None:
        """Sum up all but the largest rows."""
        if len(self.rows) <= ROWS_MAX:
            return
        shown = dict(nlargest(ROWS_MAX, self.rows.items(), key=lambda item: (item[1].records, item[0])))
        other = Row()
        for key, row in self.rows.items():
            if key not in shown:
                other.add(row)
                self.unlisted += 1
        self.rows = {**shown, (OTHER, OTHER, OTHER): other}

    def samples(self, now_ms: int) -> Iterator[Sample]:
        for (group, topic, type_), row in self.rows.items():
            labels = (("group", group), ("topic", topic), ("type", type_))
            yield Sample("drmq_group_lag_records", row.records, labels)
            yield Sample("drmq_group_lag_us", row.lag_ms * _US_PER_MS, labels)
            if type_ != CLASSIC:
                yield Sample("drmq_group_held_records", row.held, labels[:2])
                yield Sample("drmq_group_parked_records", row.parked, labels[:2])
        for topic, count in self.letters.items():
            yield Sample("drmq_dead_letters_waiting", count, (("topic", topic),))
        yield Sample("drmq_group_lag_unlisted", self.unlisted)
        yield Sample("drmq_group_lag_unknown_partitions", self.unknown_partitions)
        yield Sample("drmq_group_lag_age_us", (now_ms - self.at_ms) * _US_PER_MS)


class GroupLag:
    """The last survey, and the next one when it is asked for. Used on the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._last: Survey | None = None
        self._not_before_ms = 0
        self._task: asyncio.Task[None] | None = None

    def samples(self) -> Iterable[Sample]:
        """What the last survey found; nothing before the first one."""
        return () if self._last is None else self._last.samples(self._broker.clock.monotonic_ms())

    def refresh(self) -> None:
        """Somebody reads the counters: begin a survey if the last one is old."""
        if self._task is None and self._broker.clock.monotonic_ms() >= self._not_before_ms:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._on_done)

    def stop(self) -> None:
        """The node stops."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        began_ms = self._broker.clock.monotonic_ms()
        found = await self._survey()
        found.at_ms = self._broker.clock.monotonic_ms()
        self._last = found
        self._not_before_ms = found.at_ms + max(INTERVAL_MS, _PAUSE_FACTOR * (found.at_ms - began_ms))

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._not_before_ms = self._broker.clock.monotonic_ms() + INTERVAL_MS
            log.error("the lag of groups cannot be determined because of a bug", exc_info=task.exception())

    async def _survey(self) -> Survey:
        found = Survey()
        by_leader: dict[NodeId, list[Place]] = {}
        count = 0
        async for place in self._places():
            count += 1
            notice = self._broker.host.leaders.get(GroupId(place.topic_id, place.partition))
            if count > PLACES_MAX or notice is None or not self._broker.services.cluster.may_lead(notice):
                found.unknown_partitions += 1
            else:
                by_leader.setdefault(notice.leader, []).append(place)
        await asyncio.gather(*(self._measure(node_id, places, found) for node_id, places in by_leader.items()))
        found.shorten()
        await self._count_letters(found)
        return found

    async def _places(self) -> AsyncIterator[Place]:
        """Where the groups are that this node coordinates, with pauses."""
        count = 0
        for shard in list(self._broker.groups.shards.values()):
            if not shard.leads:
                continue
            offsets = shard.machine.replicated.offsets
            for group in offsets.groups():
                for entry in offsets.of_group(group):
                    topic_id = entry.topic_id or self._topic_id(entry.topic)
                    # A client that commits a negative offset has given up its position: nothing is committed.
                    if topic_id is not None and entry.offset >= 0:
                        yield Place(group, CLASSIC, topic_id, entry.partition, entry.offset, entry.offset)
                    count += 1
                    if not count % _SLICE:
                        await asyncio.sleep(0)
        for leases in list(self._broker.leases.shards.values()):
            if not leases.leads:
                continue
            for queue in list(leases.machine.queues.values()):
                if queue.key.partition == WHOLE_TOPIC:
                    continue
                held, parked = queue.held.count, queue.parked.count
                waiting = held + parked + queue.returned.count + queue.dying.count
                key = queue.key
                start = queue.start if waiting else queue.end
                yield Place(key.group, LEASE, key.topic_id, key.partition, start, queue.end, held, parked, waiting)
                count += 1
                if not count % _SLICE or parked > _PARKED_SLICE:
                    await asyncio.sleep(0)

    def _topic_id(self, name: str) -> TopicId | None:
        topic = self._broker.metadata.committed_catalog.topics.get(name)
        return None if topic is None else topic.topic_id

    async def _measure(self, leader: NodeId, places: list[Place], found: Survey) -> None:
        """Ask one leader about its partitions, some at a time."""
        queries = self._broker.services.lease_queries
        for at in range(0, len(places), _SLICE):
            slice_ = places[at : at + _SLICE]
            wanted = [(place.topic_id, place.partition, place.offset) for place in slice_]
            for place, records in zip(slice_, await queries.ask_node(leader, wanted), strict=True):
                self._note(place, records, found)
            await asyncio.sleep(0)

    def _note(self, place: Place, records: OpenRecords, found: Survey) -> None:
        topic = self._broker.metadata.committed_catalog.topics_by_id.get(place.topic_id)
        if topic is None:
            return  # it was deleted, and its offsets go soon
        if records.high_watermark == UNKNOWN:
            found.unknown_partitions += 1
            return
        lag = place.waiting + max(0, records.high_watermark - place.end)
        lag_ms = 0
        # Producers may set any time. A negative one says that there is none.
        if lag and records.oldest_ms >= 0:
            lag_ms = max(0, self._broker.clock.wall_ms() - records.oldest_ms)
        row = found.rows.setdefault((place.group, topic.name, place.type), Row())
        row.add(Row(lag, lag_ms, place.held, place.parked))

    async def _count_letters(self, found: Survey) -> None:
        """Count the letters of the dead-letter topics whose redrives this node would drive."""
        leases = self._broker.leases
        caller = node_caller(self._broker.node_id)
        topics = [
            topic
            for topic in self._broker.metadata.committed_catalog.topics.values()
            if takes_dead_letters(topic.configs)
        ]
        for topic in topics:
            shard = leases.shards.get(leases.index_of(redrive_key(topic.topic_id)))
            if shard is None or not shard.leads:
                continue
            if len(found.letters) >= LETTER_TOPICS_MAX:
                break
            try:
                status = await self._broker.services.redrives.status(caller, topic.name)
            except ApiError:
                continue  # a partition without a leader: it has no number now
            found.letters[topic.name] = status.waiting
