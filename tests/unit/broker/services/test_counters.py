"""What a node counts: every counter is described, and each moves when what it counts happens."""

from __future__ import annotations

import logging

import pytest

from drmq.broker.partitions.role_events import LINES_MAX, RoleEvents
from drmq.model import NodeId, Offset
from drmq.model.counters import COUNTERS, Histogram, Kind, quantile, sample_of
from drmq.raft import Cause, Configuration, Leadership, MembersChange, Role, Term
from drmq.wire.messages.describe_counters import DescribeCountersRequest
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness


def values(kafka: KafkaHarness, harness: Harness) -> dict[tuple[str, ...], int]:
    """All counters by their name and the values of their labels."""
    samples = harness.broker.services.counters.read()
    return {(sample.name, *(value for _, value in sample.labels)): sample.value for sample in samples}


@pytest.fixture
def kafka(harness: Harness) -> KafkaHarness:
    return KafkaHarness(harness)


def test_every_counter_is_described_and_every_description_is_true(harness: Harness, kafka: KafkaHarness) -> None:
    samples = harness.broker.services.counters.read()
    # A node without others has no replicas elsewhere that could be behind, nobody has asked for the lag of groups, and
    # no request was slow.
    absent = {name for name in COUNTERS if name.startswith("drmq_group_")}
    absent |= {"drmq_replication_lag_records", "drmq_dead_letters_waiting", "drmq_slow_requests_total"}
    # It has no disk either.
    absent |= {"drmq_disk_total_bytes", "drmq_disk_free_bytes"}
    assert {sample.name for sample in samples} == set(COUNTERS) - absent
    for sample in samples:
        described = COUNTERS[sample.name]
        assert tuple(name for name, _ in sample.labels) == described.labels, sample.name
        assert described.kind is Kind.HISTOGRAM or not sample.buckets, sample.name
        assert sample.name.endswith("_total") == (described.kind is Kind.COUNTER), sample.name
    assert samples == sorted(samples, key=lambda sample: (sample.name, sample.labels))


def test_what_happens_is_counted(harness: Harness, kafka: KafkaHarness) -> None:
    before = values(kafka, harness)
    harness.create_topic("orders")
    harness.produce("orders", values=[b"x"] * 3)
    harness.join("readers")
    after = values(kafka, harness)
    grown = {key: after[key] - before.get(key, 0) for key in after}
    assert grown["drmq_messages_produced_total",] == 3
    assert grown["drmq_produced_bytes_total",] > 3 * 7
    assert grown["drmq_partitions", "leader"] >= 1
    assert grown["drmq_raft_state", "leader"] >= 1
    assert grown["drmq_log_size_bytes", "orders"] == grown["drmq_produced_bytes_total",]
    assert after["drmq_under_replicated_partitions",] == 0
    assert grown["drmq_leaderships_won_total",] >= 1
    assert grown["drmq_elections_total",] >= grown["drmq_leaderships_won_total",]
    assert grown["drmq_writer_cycles_total",] >= 1
    assert grown["drmq_coordinator_batches_total", "__cluster_metadata"] >= 1
    assert grown["drmq_coordinator_records_total", "__consumer_offsets"] >= 1
    assert grown["drmq_process_cpu_us_total",] >= 0


def test_requests_are_counted_and_timed_by_api(harness: Harness, kafka: KafkaHarness) -> None:
    for _ in range(3):
        kafka.ask(DescribeCountersRequest("drmq_requests"), 0)
    answer = kafka.ask(DescribeCountersRequest("drmq_request"), 0)
    assert (answer.error_code, answer.node_id) == (0, harness.broker.node_id)
    found = {(counter.name, counter.labels[0].value): counter for counter in answer.counters}
    assert found["drmq_requests_total", "DESCRIBE_COUNTERS"].value == 4
    # The fourth request is not answered yet when it reads the counters.
    assert sum(found["drmq_request_duration_us", "DESCRIBE_COUNTERS"].buckets) == 3
    assert found["drmq_requests_total", "METADATA"].value == 0


def test_a_histogram_counts_by_powers_of_two() -> None:
    histogram = Histogram()
    for value in (0, 1, 2, 3, 4, 1_000, 1 << 60):
        histogram.add(value)
    found = sample_of("x", histogram)
    assert found.value == 1_010 + (1 << 60)
    assert found.buckets[:4] == (1, 1, 2, 1)
    assert (found.buckets[10], found.buckets[-1], sum(found.buckets)) == (1, 1, 7)
    assert quantile(list(found.buckets), 0.5) == 3
    assert [quantile([0, 0, 0, 0, 100], share) for share in (0.01, 0.5, 1.0)] == [8, 12, 15], "8 to 15 is one bucket"
    assert quantile([], 0.5) == quantile([0, 0], 0.99) == 0


class _Later:
    def __init__(self) -> None:
        self.functions: list[object] = []

    def __call__(self, delay_s: float, function: object) -> None:
        self.functions.append(function)


def test_changes_of_leaders_are_logged_with_their_cause(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.create_topic("orders")
    partition = harness.broker.partitions.by_name("orders", 0)
    events = RoleEvents(_Later())
    term = partition.leader_epoch
    caplog.set_level(logging.INFO, "drmq.broker")
    seven, later = NodeId(7), Term(term + 1)
    for leadership in (
        Leadership(Role.FOLLOWER, later, seven, Cause.LATER_TERM, seven),
        Leadership(Role.FOLLOWER, later, None, Cause.LATER_TERM, seven),
        Leadership(Role.FOLLOWER, later, None, Cause.HANDED_OVER, seven),
        Leadership(Role.FOLLOWER, Term(term), None, Cause.NO_QUORUM),
        Leadership(Role.FOLLOWER, Term(term), None, Cause.NO_VOTE),
    ):
        events.on_role_changing(partition, leadership)
    events.on_truncating(partition, partition.next_offset)
    harness.produce("orders", values=[b"x"] * 2)
    events.on_truncating(partition, Offset(0))
    said = [record.getMessage() for record in caplog.records if record.name == "drmq.broker"]
    assert said[-6:] == [
        f"orders-0: this node is no longer the leader: node 7 was elected, in term {later}",
        f"orders-0: this node is no longer the leader: node 7 is in a later term, {later}",
        f"orders-0: this node is no longer the leader: it handed over to node 7, in term {later}",
        f"orders-0: this node is no longer the leader: it did not hear from a majority, in term {term}",
        f"orders-0: this node is no longer the leader: it is no longer a voter, in term {term}",
        "orders-0: removes 2 records from offset 0 on, which were never committed: the leader has others or none",
    ]
    assert (events.lost, events.truncations) == (5, 1)


def test_thousands_of_changes_are_a_few_lines(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.create_topic("orders")
    partition = harness.broker.partitions.by_name("orders", 0)
    later = _Later()
    events = RoleEvents(later)
    caplog.set_level(logging.INFO, "drmq.broker")
    caplog.clear()
    change = MembersChange(Configuration.of([1, 2]), Configuration.of([1, 2, 3], [4]), Term(9), "a test")
    events.on_members_changed(partition, change)
    assert caplog.records[-1].getMessage() == (
        "orders-0: members are now 1, 2, 3, learner 4 (were 1, 2), in term 9: a test"
    )
    for _ in range(49):
        events.on_members_changed(partition, change)
    for _ in range(LINES_MAX):
        events.on_role_changing(partition, Leadership(Role.FOLLOWER, Term(99), None))
    assert len(caplog.records) == LINES_MAX
    [end_window] = later.functions
    assert callable(end_window)
    end_window()
    assert caplog.records[-1].getMessage().startswith("50 more changes of leaders, members and logs")
    events.on_role_changing(partition, Leadership(Role.FOLLOWER, Term(99), None))
    assert len(caplog.records) == LINES_MAX + 2
    assert events.lost == LINES_MAX + 1
