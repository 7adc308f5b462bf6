"""What a node counts: every counter is described, and each moves when what it counts happens."""

from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from drmq.broker.partitions.role_events import LINES_MAX, RoleEvents
from drmq.model import NodeId, Offset
from drmq.model.counters import COUNTERS, Histogram, Kind, quantile, sample_of
from drmq.raft import Cause, Configuration, Leadership, MembersChange, Role, Term
from drmq.storage.journal import PAGE_BYTES
from drmq.testing.files import FakeFiles
from drmq.transport.peers.interface import PeerStatus
from drmq.wire import ApiKey, write_request
from drmq.wire.messages.describe_counters import DescribeCountersRequest
from support.batches import a_batch
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness
from support.other_nodes import Heard


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


def grown(before: dict[tuple[str, ...], int], after: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    return {key: value - before.get(key, 0) for key, value in after.items()}


def test_connections_and_their_bytes_are_counted(harness: Harness, kafka: KafkaHarness) -> None:
    request = bytes(write_request(ApiKey.DESCRIBE_COUNTERS, 0, 1, "test", DescribeCountersRequest("drmq_conn")))

    async def scenario() -> None:
        before = values(kafka, harness)
        host, port = await kafka.server.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(host, port)
        answers = b""
        for _ in range(2):
            writer.write(request)
            size = await reader.readexactly(4)
            answers += size + await reader.readexactly(int.from_bytes(size, "big"))
        more = grown(before, values(kafka, harness))
        assert more["drmq_connections",] == more["drmq_connections_accepted_total",] == 1
        assert more["drmq_received_bytes_total",] == 2 * len(request)
        assert more["drmq_sent_bytes_total",] == len(answers)
        writer.close()
        await kafka.server.close()

    harness.run(scenario())


def test_the_disk_is_counted() -> None:
    files = FakeFiles()
    with Harness(files) as harness:
        kafka = KafkaHarness(harness)
        harness.create_topic("orders")
        harness.settle()
        partition, journal = harness.partition("orders"), harness.broker.writer.journal
        assert journal is not None
        before = values(kafka, harness)
        harness.produce("orders")
        more = grown(before, values(kafka, harness))
        assert more["drmq_journal_records_total",] >= 1
        # A record begins on a page, and ends on one.
        assert more["drmq_journal_bytes_total",] == PAGE_BYTES * more["drmq_journal_records_total",]
        assert more["drmq_write_failures_total",] == 0
        partition.replica._restarting = True  # so that it does not by itself
        files.fail("write", errno.EIO, path_part=partition.log.name)
        harness.call(lambda: partition.append(a_batch(), 0))
        assert grown(before, values(kafka, harness))["drmq_write_failures_total",] == 1


def test_peers_are_counted(harness: Harness, kafka: KafkaHarness) -> None:
    network = harness.broker.network = Heard()
    peers = {number: PeerStatus("host", 1, number > 3, 10, 20, None, None, None, None) for number in range(2, 5)}
    network.peers = {NodeId(number): status for number, status in peers.items()}
    network.down_count, network.refused_count, network.invalid_count = 5, 6, 7
    found = values(kafka, harness)
    assert (found["drmq_peers", "up"], found["drmq_peers", "down"]) == (1, 2)
    assert (found["drmq_peer_down_total",], found["drmq_peer_refused_total",]) == (5, 6)
    assert found["drmq_peer_protocol_errors_total",] == 7
    assert (found["drmq_peer_buffered_bytes",], found["drmq_peer_dropped_messages_total",]) == (30, 60)


def test_changes_of_roles_are_counted(harness: Harness, kafka: KafkaHarness) -> None:
    harness.create_topic("orders")
    harness.produce("orders")
    partition, table = harness.partition("orders"), harness.broker.partitions
    before = values(kafka, harness)
    table.on_role_changing(partition, Leadership(Role.FOLLOWER, Term(partition.leader_epoch + 1), NodeId(7)))
    table.on_truncating(partition, partition.next_offset)
    for _ in range(2):
        table.on_truncating(partition, Offset(0))
    more = grown(before, values(kafka, harness))
    assert (more["drmq_leaderships_lost_total",], more["drmq_truncations_total",]) == (1, 2)


def test_a_delay_of_the_event_loop_is_counted(harness: Harness, kafka: KafkaHarness) -> None:
    """The loop does nothing for a minute, and then all its timers are late by that."""
    before = values(kafka, harness)
    harness.advance(60_000)
    delay_us = grown(before, values(kafka, harness))["drmq_loop_delay_us",]
    assert delay_us >= 59_000_000


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
