"""How far groups are behind, as the counters say it: exact, bounded, and what is left out is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drmq.broker.services import group_lag
from drmq.broker.services.group_lag import INTERVAL_MS
from drmq.model import ErrorCode
from drmq.model.counters import COUNTERS
from drmq.wire.messages.describe_counters import DescribeCountersRequest
from drmq.wire.messages.lease_fetch import LeaseSettlement
from drmq.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from support.batches import a_batch
from support.broker_harness import Harness
from support.lease_requests import ACCEPT, GROUP, RELEASE, TOPIC, Leases


def commit(harness: Harness, group: str, topic: str, *offsets: int) -> None:
    partitions = [OffsetCommitRequestPartition(index, offset, 0, "") for index, offset in enumerate(offsets)]
    answer = harness.ask(OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, bytes(16), partitions)]), 8)
    assert [each.error_code for each in answer.topics[0].partitions] == [0] * len(offsets)


def survey(harness: Harness) -> dict[tuple[str, ...], int]:
    """The values of a new survey, by name and labels."""
    harness.advance(INTERVAL_MS * 30)
    harness.call(harness.broker.services.group_lag.refresh)

    async def wait() -> None:
        while harness.broker.services.group_lag._task is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    harness.run(wait())
    samples = list(harness.broker.services.group_lag.samples())
    for sample in samples:
        assert tuple(name for name, _ in sample.labels) == COUNTERS[sample.name].labels, sample
    return {(sample.name, *(value for _, value in sample.labels)): sample.value for sample in samples}


def test_a_group_is_behind_by_what_it_has_not_committed(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 0, [b"x"] * 3)
    harness.produce("orders", 1, [b"x"] * 4)
    harness.create_topic("done")
    harness.produce("done", 0, [b"x"])
    commit(harness, "readers", "orders", 1, 2)
    commit(harness, "readers", "done", 1)
    found = survey(harness)
    assert found["drmq_group_lag_records", "readers", "orders", "classic"] == 2 + 2
    assert found["drmq_group_lag_records", "readers", "done", "classic"] == 0
    assert found["drmq_group_lag_us", "readers", "orders", "classic"] >= INTERVAL_MS * 30 * 1000
    assert found["drmq_group_lag_us", "readers", "done", "classic"] == 0
    assert found["drmq_group_lag_unlisted",] == found["drmq_group_lag_unknown_partitions",] == 0
    commit(harness, "readers", "orders", 3, 4)
    assert survey(harness)["drmq_group_lag_records", "readers", "orders", "classic"] == 0


@pytest.mark.parametrize("offset", [-1, -2, -(2**63), 2**63 - 1])
def test_an_offset_outside_of_the_log_is_no_lag(harness: Harness, offset: int) -> None:
    """A negative offset says that nothing is committed. The counters can be sent whatever was committed."""
    harness.create_topic("orders", 2)
    harness.produce("orders", 0, [b"x"] * 3)
    harness.produce("orders", 1, [b"x"] * 3)
    commit(harness, "readers", "orders", offset, 1)
    assert survey(harness)["drmq_group_lag_records", "readers", "orders", "classic"] == 2
    harness.ask(DescribeCountersRequest("drmq_group_lag"))


@pytest.mark.parametrize("time_ms", [-9_000_000_000_000_000_000, -1, 2**63 - 1])
def test_a_record_of_any_time_leaves_the_counters_readable(harness: Harness, time_ms: int) -> None:
    """Producers choose the time of a record, and by default topics accept every time in the past."""
    harness.create_topic("orders", message_timestamp_after_max_ms=str(2**63 - 1))
    assert harness.append("orders", a_batch([b"x"], timestamp_ms=time_ms))[1] is ErrorCode.NONE
    commit(harness, "readers", "orders", 0)
    assert survey(harness)["drmq_group_lag_us", "readers", "orders", "classic"] == 0
    harness.ask(DescribeCountersRequest("drmq_group_lag"))


def test_a_lease_group_is_behind_by_what_is_not_settled(harness: Harness) -> None:
    leases = Leases(harness, partitions=2)
    harness.produce(TOPIC, 1, [b"x"] * 10)
    leases.take(6, partitions=(1,))
    settled = (LeaseSettlement(0, 0, ACCEPT), LeaseSettlement(1, 1, RELEASE, delay_ms=36_000_000))
    leases.ask(*settled, partitions=(1,))
    # Before the leases run out.
    harness.call(harness.broker.services.group_lag.refresh)
    harness.settle()
    samples = list(harness.broker.services.group_lag.samples())
    found: dict[tuple[str, ...], Any] = {(each.name, *dict(each.labels).values()): each.value for each in samples}
    assert found["drmq_group_lag_records", GROUP, TOPIC, "lease"] == 9
    assert found["drmq_group_held_records", GROUP, TOPIC] == 4
    assert found["drmq_group_parked_records", GROUP, TOPIC] == 1
    later = survey(harness)
    assert later["drmq_group_lag_us", GROUP, TOPIC, "lease"] >= INTERVAL_MS * 30 * 1000
    assert later["drmq_group_held_records", GROUP, TOPIC] == 0, "they have run out"


def test_rows_are_bounded_and_the_others_are_summed_up(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "ROWS_MAX", 2)
    harness.create_topic("orders")
    harness.produce("orders", 0, [b"x"] * 10)
    for number in range(5):
        commit(harness, f"g{number}", "orders", number)
    found = survey(harness)
    rows = {key[1]: value for key, value in found.items() if key[0] == "drmq_group_lag_records"}
    assert rows == {"g0": 10, "g1": 9, "(other)": 8 + 7 + 6}
    assert found["drmq_group_lag_unlisted",] == 3


def test_what_one_survey_looks_at_is_bounded_and_told(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "PLACES_MAX", 3)
    harness.create_topic("orders", 5)
    commit(harness, "readers", "orders", 0, 0, 0, 0, 0)
    assert survey(harness)["drmq_group_lag_unknown_partitions",] == 2


def test_a_partition_without_a_leader_is_counted_and_not_guessed(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    harness.produce("orders", 0, [b"x"] * 3)
    commit(harness, "readers", "orders", 0, 0)
    with harness.failing(harness.partition("orders", 0)):
        found = survey(harness)
    assert found["drmq_group_lag_unknown_partitions",] == 1
    assert found["drmq_group_lag_records", "readers", "orders", "classic"] == 0


def test_a_survey_is_not_repeated_before_it_is_old(harness: Harness) -> None:
    harness.create_topic("orders")
    commit(harness, "readers", "orders", 0)
    survey(harness)
    harness.produce("orders")
    lag = harness.broker.services.group_lag
    harness.call(lag.refresh)
    assert lag._task is None
    ages = [each.value for each in lag.samples() if each.name == "drmq_group_lag_age_us"]
    harness.advance(5_000)
    assert [each.value for each in lag.samples() if each.name == "drmq_group_lag_age_us"] >= [ages[0] + 5_000_000]


def test_dead_letters_that_wait_are_counted(harness: Harness) -> None:
    leases = Leases(harness, partitions=1)
    harness.produce(TOPIC, 0, [b"x"] * 2)
    leases.take(2)
    leases.settle(3, 0)  # reject
    for _ in range(50):
        harness.advance(100)
        if harness.broker.services.dead_letters.written_count:
            break
    assert survey(harness)["drmq_dead_letters_waiting", f"dlq.{GROUP}"] == 1
