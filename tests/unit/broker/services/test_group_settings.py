"""Settings of lease groups at work: each takes effect on a running broker, without a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from drmq.kafka.config_resources import ResourceType
from drmq.model import ErrorCode
from support.broker_harness import Harness
from support.share_requests import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    records_in,
    set_configs,
    set_group,
    until,
)

ALLOWED = "errors.deadletterqueue.group.enable"
CREATES = "errors.deadletterqueue.auto.create.topics.enable"
LOCK_MIN = "group.share.min.record.lock.duration.ms"


@pytest.fixture
def harness() -> Iterator[Harness]:
    with Harness() as harness:
        yield harness


@pytest.fixture
def member(harness: Harness) -> ShareMember:
    """A member of a group that has begun at offset 0."""
    member = ShareMember(harness, harness.create_topic("orders"))
    assert member.take() == []
    return member


def dead_values(harness: Harness, topic: str = "dlq.billing") -> list[bytes | None]:
    return [record.value for record in records_in(harness, topic)]


def test_a_lease_lasts_as_long_as_is_set(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders")
    set_group(harness, share_record_lock_duration_ms="15000")
    assert member.take() == [(0, 1)]
    harness.advance(14_000)
    assert member.take() == []
    harness.advance(1_500)
    assert member.take() == [(0, 2)]


def test_limits_of_the_cluster_allow_short_leases(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders")
    set_configs(harness, ResourceType.BROKER, "", {LOCK_MIN: "1000"})
    set_group(harness, share_record_lock_duration_ms="1000")
    assert member.take() == [(0, 1)]
    harness.advance(1_100)
    assert member.take() == [(0, 2)]


def test_no_more_is_leased_than_is_set(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders", values=[b"x"] * 300)
    set_group(harness, share_partition_max_record_locks="100")
    assert len(member.take(count=500)) == 100
    assert member.take(count=500) == []
    set_group(harness, share_partition_max_record_locks="150")
    assert len(member.take(count=500)) == 50


def test_after_the_limit_of_deliveries_was_lowered_a_record_has_one_last_delivery(
    harness: Harness, member: ShareMember
) -> None:
    """The limit is checked when a delivery ends. A record that waits is delivered, although it is over the limit."""
    harness.produce("orders", values=[b"a", b"b"])
    assert member.take() == [(0, 1), (1, 1)]
    assert member.take((0, 0, RELEASE)) == [(0, 2)]
    assert member.take((0, 0, RELEASE)) == [(0, 3)]
    assert member.fetch((0, 0, RELEASE), count=1).acquired_records[0].delivery_count == 4
    member.take((0, 0, RELEASE))
    set_group(harness, share_delivery_count_limit="2")
    # 0 is out for the fifth time, 1 for the first.
    assert member.take((0, 0, RELEASE)) == []
    assert member.take((1, 1, RELEASE)) == [(1, 2)]
    until(harness, lambda: dead_values(harness) == [b"a"])
    assert member.take((1, 1, RELEASE)) == []
    until(harness, lambda: dead_values(harness) == [b"a", b"b"])


def test_a_waiting_record_over_a_lowered_limit_is_delivered_once_more(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders")
    for count in (1, 2, 3):
        assert member.take() == [(0, count)]
        member.fetch((0, 0, RELEASE), renews=True)
    set_group(harness, share_delivery_count_limit="2")
    assert member.take() == [(0, 4)]
    assert member.take((0, 0, RELEASE)) == []


def test_failed_records_wait_by_the_curve(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders")
    set_group(harness, share_retry_backoff_ms="1000", share_retry_backoff_factor="3", share_retry_backoff_jitter="0")
    set_group(harness, share_retry_backoff_max_ms="5000")
    member.take()
    for count, wait_ms in ((2, 1_000), (3, 3_000), (4, 5_000)):
        assert member.take((0, 0, RELEASE)) == []
        harness.advance(wait_ms - 200)
        assert member.take() == []
        harness.advance(400)
        assert member.take() == [(0, count)]


def test_past_the_limit_of_parked_records_nothing_new_is_leased(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders", values=[b"x"] * 4)
    set_group(harness, share_retry_backoff_ms="60000", share_partition_max_parked_records="2")
    assert member.take(count=2) == [(0, 1), (1, 1)]
    assert member.take((0, 1, RELEASE)) == []
    set_group(harness, share_partition_max_parked_records="3")
    assert member.take() == [(2, 1), (3, 1)]


def test_a_renewal_is_refused_where_it_is_switched_off(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders")
    set_group(harness, share_renew_acknowledge_enable="false")
    member.take()
    refused = member.fetch((0, 0, RENEW), renews=True)
    assert refused.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert "share.renew.acknowledge.enable" in str(refused.acknowledge_error_message)
    set_group(harness, share_renew_acknowledge_enable="true")
    assert member.fetch((0, 0, RENEW), renews=True).acknowledge_error_code == 0
    set_group(harness, share_renew_acknowledge_enable="false")
    assert member.take((0, 0, ACCEPT)) == [], "the refusal changed nothing"


# ---- dead letters -----------------------------------------------------------------------------------


def reject(harness: Harness, member: ShareMember, value: bytes) -> None:
    offset = harness.produce("orders", values=[value])
    assert member.take() == [(offset, 1)]
    member.fetch((offset, offset, REJECT), renews=True)
    harness.settle()


def test_dead_letters_go_to_the_topic_that_is_set(harness: Harness, member: ShareMember) -> None:
    set_group(harness, errors_deadletterqueue_topic_name="dlq.shop")
    reject(harness, member, b"poison")
    until(harness, lambda: dead_values(harness, "dlq.shop") == [b"poison"])
    assert harness.broker.catalog.topic("dlq.shop").configs[ALLOWED] == "true"
    assert "dlq.billing" not in harness.broker.catalog.topics


def test_a_letter_may_have_only_headers(harness: Harness, member: ShareMember) -> None:
    set_group(harness, errors_deadletterqueue_copy_record_enable="false")
    reject(harness, member, b"secret")
    until(harness, lambda: dead_values(harness) == [None])
    [letter] = records_in(harness, "dlq.billing")
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__dlq.errors.offset"] == b"0"


def test_an_empty_name_switches_dead_letters_off(harness: Harness, member: ShareMember) -> None:
    set_group(harness, errors_deadletterqueue_topic_name="")
    reject(harness, member, b"dropped")
    assert "dlq.billing" not in harness.broker.catalog.topics
    queue = member.queue()
    assert queue is not None
    assert queue.start == 1


def test_a_topic_that_does_not_allow_dead_letters_is_not_written(
    harness: Harness, member: ShareMember, caplog: pytest.LogCaptureFixture
) -> None:
    """The record stays in its queue, the log says why, and it is written when the topic allows it."""
    harness.create_topic("dlq.billing")
    with caplog.at_level(logging.ERROR, "drmq.broker"):
        reject(harness, member, b"poison")
        until(harness, lambda: bool(caplog.records))
    assert f"set {ALLOWED}=true on it" in caplog.text
    queue = member.queue()
    assert queue is not None
    assert (queue.dying.count, dead_values(harness)) == (1, [])
    set_configs(harness, ResourceType.TOPIC, "dlq.billing", {ALLOWED: "true"})
    harness.advance(60_000)
    until(harness, lambda: (queue.dying.count, dead_values(harness)) == (0, [b"poison"]))


def test_a_topic_that_nobody_creates_leaves_the_record_where_it_is(
    harness: Harness, member: ShareMember, caplog: pytest.LogCaptureFixture
) -> None:
    set_configs(harness, ResourceType.BROKER, "", {CREATES: "false"})
    with caplog.at_level(logging.ERROR, "drmq.broker"):
        reject(harness, member, b"poison")
        until(harness, lambda: bool(caplog.records))
    assert f"topic dlq.billing does not exist, and {CREATES} is false" in caplog.text
    queue = member.queue()
    assert queue is not None
    assert queue.dying.count == 1
    # The way out if nobody wants the letter: switch dead letters off.
    with caplog.at_level(logging.WARNING, "drmq.broker"):
        set_group(harness, errors_deadletterqueue_topic_name="")
        harness.advance(60_000)
        until(harness, lambda: queue.dying.count == 0)
    assert "offsets 0 to 0 of partition 0 are dropped" in caplog.text


def test_the_prefix_of_the_cluster_names_the_topic(harness: Harness, member: ShareMember) -> None:
    set_configs(harness, ResourceType.BROKER, "", {"errors.deadletterqueue.topic.name.prefix": "dead-"})
    reject(harness, member, b"poison")
    until(harness, lambda: dead_values(harness, "dead-billing") == [b"poison"])


# ---- where a group begins ---------------------------------------------------------------------------


def test_a_group_begins_at_the_end_by_default(harness: Harness) -> None:
    member = ShareMember(harness, harness.create_topic("orders"))
    harness.produce("orders", values=[b"old"])
    assert member.take() == []
    harness.produce("orders", values=[b"new"])
    assert member.take() == [(1, 1)]


def test_a_group_begins_at_the_start(harness: Harness) -> None:
    member = ShareMember(harness, harness.create_topic("orders"))
    harness.produce("orders", values=[b"a", b"b"])
    set_group(harness, share_auto_offset_reset="earliest")
    assert member.take() == [(0, 1), (1, 1)]


@pytest.mark.parametrize(("duration", "first"), [("PT50M", 2), ("PT1H10M", 1), ("P1D", 0), ("PT1S", 3)])
def test_a_group_begins_at_a_time(harness: Harness, duration: str, first: int) -> None:
    """One record was written two hours ago, one an hour, and one half an hour ago."""
    member = ShareMember(harness, harness.create_topic("orders"))
    for wait_ms in (3_600_000, 1_800_000, 1_800_000):
        harness.produce("orders")
        harness.advance(wait_ms)
    set_group(harness, share_auto_offset_reset=f"by_duration:{duration}")
    assert member.take() == [(offset, 1) for offset in range(first, 3)]
    assert harness.produce("orders") == 3
    assert (3, 1) in member.take()


def test_the_setting_counts_when_the_group_begins_and_not_later(harness: Harness, member: ShareMember) -> None:
    harness.produce("orders")
    assert member.take() == [(0, 1)]
    set_group(harness, share_auto_offset_reset="earliest")
    assert member.take((0, 0, ACCEPT)) == []


@pytest.mark.parametrize("reset", ["latest", "by_duration:PT1S"])
def test_a_partition_that_is_added_later_begins_at_its_start(harness: Harness, reset: str) -> None:
    """Its first records come before any member has asked for them, and all of them are new to the group."""
    set_group(harness, share_auto_offset_reset=reset)
    member = ShareMember(harness, harness.create_topic("orders"))
    harness.produce("orders")
    harness.advance(10_000)
    assert member.take() == []
    harness.run(harness.broker.topics.add_partitions("orders", 3))
    harness.settle()
    harness.produce("orders", 1, [b"a", b"b"])
    harness.advance(10_000)
    assert member.take(partition=1) == [(0, 1), (1, 1)]
    harness.produce("orders", 2)
    assert member.take(partition=2) == [(0, 1)]


def test_partitions_that_were_there_begin_as_is_set_however_late_they_are_asked_for(harness: Harness) -> None:
    """Otherwise a group would be sent the whole past of a partition whose leader was away for a while."""
    member = ShareMember(harness, harness.create_topic("orders", 2))
    assert member.take(partition=0) == []
    harness.produce("orders", 1, [b"old"])
    assert member.take(partition=1) == []
    other = ShareMember(harness, member.topic, group="other")
    harness.run(harness.broker.topics.add_partitions("orders", 3))
    harness.settle()
    harness.produce("orders", 2, [b"old"])
    assert other.take(partition=2) == [], "for a group that begins now, it was there"
