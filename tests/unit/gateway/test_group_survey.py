"""The lag of groups in records and in time, and what each gets done, from what the cluster says."""

from __future__ import annotations

import time
from typing import Any

from drmq.client import Committed, Group, GroupSummary, LeaseQueue, LeaseState, Member, OffsetAt, Partition, Topic
from drmq.gateway.group_survey import GroupSurvey
from drmq.model import TopicId, TopicPartition

NOW_MS = int(time.time() * 1000)


class FakeCluster:
    """Answers as an `Admin` does, and counts the questions."""

    def __init__(self) -> None:
        self.committed = {"readers": {0: 10, 1: 20}}
        self.ends = {0: 15, 1: 20}
        self.questions: list[str] = []
        self.asked_times: list[tuple[TopicPartition, int]] = []
        self.queues = [_queue(0, 7, 9)]
        self.topics = self.groups = self.many_groups = self.lease_groups = self.dead_letters = self

    def all(self) -> Any:
        self.questions.append("all")
        if self.questions.count("all") % 2:
            return [GroupSummary("crew", "Stable", "share", "lease"), GroupSummary("readers", "Empty", "consumer")]
        partitions = tuple(Partition(index, 1, 0, (1,), (1,)) for index in (0, 1))
        return [Topic("t", TopicId(bytes(16)), False, partitions)]

    def describe(self, listed: Any) -> dict[str, Group]:
        member = Member("m", None, "c", "h", (TopicPartition("t", 0),))
        return {"crew": Group("crew", "Stable", "share", "", (member,), "lease")}

    def offsets(self, wanted: Any) -> Any:
        if isinstance(wanted, dict):
            return {place: OffsetAt(self.ends[place.partition], -1) for place in wanted}
        return {
            group: {TopicPartition("t", index): Committed(at, 0, "") for index, at in self.committed[group].items()}
            for group in wanted
        }

    def record_times(self, wanted: Any) -> dict[tuple[TopicPartition, int], int]:
        self.asked_times += wanted
        return dict.fromkeys(wanted, NOW_MS - 5000)

    def state(self, group: str) -> LeaseState:
        return LeaseState("dlq.crew", tuple(self.queues))


def _queue(index: int, lag: int, high: int) -> LeaseQueue:
    place = TopicPartition("t", index)
    return LeaseQueue(place, high - lag, high, high, lag, NOW_MS - 9_000, 2, 0, 1, 0, None, False, ())


def test_lag_in_records_and_in_time() -> None:
    cluster = FakeCluster()
    now = GroupSurvey().look(cluster)  # type: ignore[arg-type]
    readers, crew = now.groups["readers"].row, now.groups["crew"].row
    assert (readers.lag, readers.members) == (5, None)
    assert readers.lag_ms is not None
    assert readers.lag_ms >= 5_000
    assert cluster.asked_times == [(TopicPartition("t", 0), 10)], "only where something is unread"
    assert (crew.lag, crew.held, crew.parked, crew.members, crew.dead_letters) == (7, 2, 1, 1, 0)
    assert crew.lag_ms is not None
    assert crew.lag_ms >= 9_000


def test_the_time_of_a_record_is_asked_for_once() -> None:
    cluster, survey = FakeCluster(), GroupSurvey()
    survey.look(cluster)  # type: ignore[arg-type]
    survey.look(cluster)  # type: ignore[arg-type]
    assert len(cluster.asked_times) == 1
    cluster.committed["readers"] = {0: 12, 1: 20}
    now = survey.look(cluster)  # type: ignore[arg-type]
    assert cluster.asked_times[1:] == [(TopicPartition("t", 0), 12)]
    rate = now.groups["readers"].row.rate
    assert rate is not None
    assert rate > 0
    cluster.committed["readers"] = {0: 0, 1: 0}
    assert survey.look(cluster).groups["readers"].row.rate is None, "it was moved back"  # type: ignore[arg-type]
    cluster.committed["readers"] = {0: 15, 1: 20}
    row = survey.look(cluster).groups["readers"].row  # type: ignore[arg-type]
    assert (row.lag, row.lag_ms) == (0, 0)
    assert not survey._times, "what nobody needs is forgotten"
