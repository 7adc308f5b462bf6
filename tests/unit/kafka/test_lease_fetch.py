"""LeaseFetch: settle and take, with an answer for each partition and each run of offsets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drmq.broker.services.lease_calls import SETTLEMENTS_MAX
from drmq.kafka.lease_fetch import DELAY_MS_MAX, RECORDS_MAX, WAIT_MS_MAX
from drmq.leases import LeaseOptions
from drmq.model import ErrorCode, NodeId
from drmq.transport.peers import LeaderNotice
from drmq.wire import ApiKey, write_request
from drmq.wire.messages.lease_fetch import (
    LeaseFetchRequestPartition,
    LeaseFetchRequestTopic,
    LeaseSettlement,
)
from drmq.wire.messages.share_fetch import ShareFetchRequest, ShareFetchRequestPartition, ShareFetchRequestTopic
from drmq.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.broker_harness import Harness
from support.kafka_harness import KafkaHarness
from support.lease_requests import (
    ACCEPT,
    GIVE_BACK,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    Leases,
    offsets,
    values,
)

NEVER_LEASED, NOT_LEASED, LEASED_TO_ANOTHER, STALE_TOKEN, NO_RENEWAL = 1, 2, 3, 4, 5


@pytest.fixture
def leases(harness: Harness) -> Leases:
    return Leases(harness)


# ---- taking ------------------------------------------------------------------------------------------


def test_records_are_leased_with_a_token_an_attempt_and_a_time(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"a", b"b", b"c"])
    taken = leases.take(2)
    assert (offsets(taken), values(taken)) == ([0, 1], [b"a", b"b"])
    assert [each.attempt for each in taken.deliveries] == [1]
    assert taken.token > 0
    assert taken.lease_ms == LeaseOptions().duration_ms
    assert offsets(leases.take(9, member="m2")) == [2]
    assert offsets(leases.take(9)) == []


def test_a_request_takes_no_more_records_than_it_asks_for(harness: Harness) -> None:
    leases = Leases(harness, partitions=3)
    for index in range(3):
        harness.produce(TOPIC, index, [b"x"] * 50)
    answer = harness.ask(leases.request(count=10, partitions=(0, 1, 2)))
    assert 0 < sum(len(offsets(part)) for part in answer.topics[0].partitions) <= 10


def test_a_request_waits_for_records(harness: Harness, leases: Leases) -> None:
    leases.take(1)
    waiting = harness.send(leases.request(count=5, wait_ms=10_000))
    assert not waiting.done()
    harness.produce(TOPIC, values=[b"a"])
    harness.settle()
    assert values(harness.run(waiting).topics[0].partitions[0]) == [b"a"]


def test_a_request_with_settlements_does_not_wait(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    leases.take(1)
    answered = leases.ask(LeaseSettlement(0, 0, ACCEPT), count=5, wait_ms=60_000)
    assert (answered.settle_error_code, offsets(answered)) == (0, [])


def test_only_partitions_that_take_are_leased_from(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    assert offsets(leases.ask(count=5, takes=0)) == []
    assert offsets(leases.ask(count=0)) == []
    assert offsets(leases.take(5)) == [0]


def test_what_does_not_fit_into_the_answer_is_given_back(harness: Harness, leases: Leases) -> None:
    for _ in range(4):
        harness.produce(TOPIC, values=[bytes(1_000)])
    taken = leases.take(4, max_bytes=1_500)
    assert offsets(taken) == [0, 1]
    assert (leases.queue().held.count, leases.queue().returned.count) == (2, 2)
    assert [each.attempt for each in leases.take(4).deliveries] == [1], "a record that was not sent has not failed"


def test_a_client_that_does_not_read_its_answers_gets_no_records(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    line = KafkaHarness(harness)
    line.paper.unread_bytes = 2_000_000
    assert offsets(line.ask(leases.request(count=5), 0).topics[0].partitions[0]) == []
    line.paper.unread_bytes = 0
    assert offsets(line.ask(leases.request(count=5), 0).topics[0].partitions[0]) == [0]


# ---- settling ----------------------------------------------------------------------------------------


def test_settlements_make_room_for_what_is_taken_next(harness: Harness, leases: Leases) -> None:
    harness.broker.leases.options_of = lambda group: LeaseOptions(leased_max=2)
    harness.produce(TOPIC, values=[b"a", b"b", b"c", b"d"])
    leases.take(4)
    answered = leases.ask(LeaseSettlement(0, 1, ACCEPT), count=4)
    assert offsets(answered) == [2, 3]


def test_each_outcome(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"x"] * 5)
    leases.take(5)
    unordered = [
        LeaseSettlement(4, 4, GIVE_BACK),
        LeaseSettlement(0, 0, ACCEPT),
        LeaseSettlement(3, 3, RENEW),
        LeaseSettlement(1, 1, RELEASE, delay_ms=0),
        LeaseSettlement(2, 2, REJECT),
    ]
    answer = leases.ask(*unordered)
    assert (answer.settle_error_code, answer.refusals) == (0, [])
    again = leases.take(9, member="m2")
    assert [(each.first_offset, each.attempt) for each in again.deliveries] == [(1, 2), (4, 1)]
    assert leases.queue().held.find(3, 3)


def test_a_release_waits_as_long_as_it_says(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    leases.take(1)
    assert leases.settle(RELEASE, 0, delay_ms=5_000) == []
    assert leases.queue().parked.count == 1
    harness.advance(4_000)
    assert offsets(leases.take(1)) == []
    harness.advance(1_200)
    assert offsets(leases.take(1)) == [0]


def test_a_release_without_a_delay_waits_for_the_backoff_of_the_group(harness: Harness, leases: Leases) -> None:
    harness.broker.leases.options_of = lambda group: LeaseOptions(backoff_ms=2_000, backoff_jitter=0)
    harness.produce(TOPIC)
    leases.take(1)
    leases.settle(RELEASE, 0)
    assert leases.queue().parked.count == 1


def test_refusals_name_the_runs_and_the_reasons_and_the_rest_is_settled(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"x"] * 6)
    token = leases.take(2).token
    leases.take(2, member="m2")
    leases.settle(ACCEPT, 2, member="m2")
    assert leases.settle(ACCEPT, 0, 9) == [
        (2, 2, NOT_LEASED),
        (3, 3, LEASED_TO_ANOTHER),
        (4, 9, NEVER_LEASED),
    ]
    leases.take(2)
    assert leases.settle(ACCEPT, 4, 5, token=token) == [(4, 5, STALE_TOKEN)]
    assert leases.queue().held.count == 3


def test_a_group_that_does_not_renew_says_so(harness: Harness, leases: Leases) -> None:
    harness.broker.leases.options_of = lambda group: LeaseOptions(renews=False)
    harness.produce(TOPIC)
    leases.take(1)
    assert leases.settle(RENEW, 0) == [(0, 0, NO_RENEWAL)]


def test_a_settlement_whose_answer_was_lost_is_repeated(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"x"] * 3)
    token = leases.take(3).token
    for _ in range(2):
        assert leases.settle(ACCEPT, 0, 1, token=token) == []
        assert leases.settle(REJECT, 2, token=token) == []
    assert leases.settle(ACCEPT, 0, 1, member="m2") == [(0, 1, NOT_LEASED)]


def test_nothing_was_leased_where_no_queue_has_begun(leases: Leases) -> None:
    assert leases.settle(ACCEPT, 3, 4) == [(3, 4, NEVER_LEASED)]


@pytest.mark.parametrize(
    ("settlement", "text"),
    [
        (LeaseSettlement(-1, 4, ACCEPT), "not a run"),
        (LeaseSettlement(5, 4, ACCEPT), "not a run"),
        (LeaseSettlement(0, 0, 0), "not an outcome"),
        (LeaseSettlement(0, 0, 6), "not an outcome"),
        (LeaseSettlement(0, 0, RELEASE, delay_ms=-2), "delay"),
        (LeaseSettlement(0, 0, RELEASE, delay_ms=DELAY_MS_MAX + 1), "delay"),
        (LeaseSettlement(0, 0, ACCEPT, token=-1), "not a token"),
    ],
)
def test_a_malformed_settlement_concerns_its_partition_alone(
    harness: Harness, settlement: LeaseSettlement, text: str
) -> None:
    leases = Leases(harness, partitions=2)
    for index in range(2):
        harness.produce(TOPIC, index)
    harness.ask(leases.request(count=2, partitions=(0, 1)))
    request = leases.request(LeaseSettlement(0, 0, ACCEPT), partitions=(0, 1))
    request.topics[0].partitions[0].settlements = [settlement]
    wrong, right = harness.ask(request).topics[0].partitions
    assert wrong.settle_error_code == ErrorCode.INVALID_REQUEST
    assert text in wrong.settle_error_message
    assert (right.settle_error_code, right.refusals) == (0, [])
    assert (leases.queue(0).held.count, leases.queue(1).held.count) == (1, 0)


def test_offsets_that_are_settled_twice_are_refused(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"x"] * 3)
    leases.take(3)
    answer = leases.ask(LeaseSettlement(0, 2, ACCEPT), LeaseSettlement(2, 2, REJECT))
    assert answer.settle_error_code == ErrorCode.INVALID_REQUEST
    assert leases.queue().held.count == 3


def test_too_many_settlements_are_refused(harness: Harness, leases: Leases) -> None:
    many = [LeaseSettlement(2 * n, 2 * n, ACCEPT) for n in range(SETTLEMENTS_MAX + 1)]
    assert leases.ask(*many).settle_error_code == ErrorCode.INVALID_REQUEST


# ---- the request as a whole --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"count": -1},
        {"count": RECORDS_MAX + 1},
        {"wait_ms": -1},
        {"wait_ms": WAIT_MS_MAX + 1},
        {"count": 1, "max_bytes": 0},
        {"max_bytes": -1},
        {"member": ""},
        {"member": "m" * 37},
        {"partitions": (0, 0)},
    ],
)
def test_a_malformed_request_is_refused_as_a_whole(harness: Harness, leases: Leases, fields: dict[str, Any]) -> None:
    answer = harness.ask(leases.request(**fields))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message


def test_a_group_must_have_a_name(harness: Harness, leases: Leases) -> None:
    request = leases.request()
    request.group_id = ""
    assert harness.ask(request).error_code == ErrorCode.INVALID_GROUP_ID


def test_unknown_partitions_are_refused_and_the_others_served(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    request = leases.request(LeaseSettlement(0, 0, ACCEPT), count=5, partitions=(0, 7))
    request.topics.append(LeaseFetchRequestTopic(bytes(range(16)), [LeaseFetchRequestPartition(0)]))
    first, second = harness.ask(request).topics
    served, missing = first.partitions
    assert (served.error_code, offsets(served)) == (0, [0])
    assert missing.error_code == missing.settle_error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert second.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_node_that_does_not_lead_names_the_leader(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    partition = harness.partition(TOPIC)
    partition.is_leader = partition.is_serving = False
    cluster = harness.broker.services.cluster
    notice = LeaderNotice(partition.group, 7, NodeId(2), 1, (NodeId(2),))
    harness.broker.host.leaders[partition.group] = notice
    cluster.may_lead = lambda notice: True  # type: ignore[method-assign]
    answer = leases.ask(LeaseSettlement(0, 0, ACCEPT), count=1)
    assert answer.error_code == answer.settle_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 7)


def test_a_shard_that_cannot_begin_a_queue_says_why(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC)
    leases.take(1)
    for shard in harness.broker.leases.shards.values():
        shard.machine._queues_max = 0
    request = leases.request(count=1)
    request.group_id = "another"
    answer = harness.ask(request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_a_shard_that_is_gone_is_no_reason_to_look_for_another_leader_of_the_data(
    harness: Harness, leases: Leases
) -> None:
    harness.produce(TOPIC, values=[b"x"] * 2)
    leases.take(1)
    shards = [shard.log.partition for shard in harness.broker.leases.shards.values()]
    with harness.failing(*shards):
        answer = leases.ask(LeaseSettlement(0, 0, ACCEPT), count=1)
    assert answer.settle_error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert answer.error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert leases.settle(ACCEPT, 0) == []


# ---- the connection ----------------------------------------------------------------------------------


def test_nothing_is_leased_for_a_connection_that_is_closed(harness: Harness, leases: Leases) -> None:
    leases.take(1)
    line = KafkaHarness(harness)
    line.send(leases.request(count=5, wait_ms=60_000), 0)
    harness.call(lambda: line.server.on_close(line.connection))
    harness.produce(TOPIC)
    harness.settle()
    assert leases.queue().held.count == 0
    assert offsets(leases.take(1, member="m2")) == [0]


def test_what_was_leased_when_its_connection_closed_is_given_back(harness: Harness, leases: Leases) -> None:
    """The lease is on its way to the log when the connection closes."""
    leases.take(1)
    harness.produce(TOPIC)
    line = KafkaHarness(harness)

    async def send_and_close() -> None:
        frame = bytes(write_request(ApiKey.LEASE_FETCH, 0, 1, "test", leases.request(count=5)))[4:]
        line.server.on_frame(line.connection, memoryview(bytearray(frame)))
        for _ in range(2):
            await asyncio.sleep(0)
        line.server.on_close(line.connection)

    harness.run(send_and_close())
    for _ in range(3):
        harness.settle()
    assert leases.queue().held.count == 0
    assert [each.attempt for each in leases.take(1).deliveries] == [1]


def test_requests_of_one_connection_are_carried_out_in_their_order(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"x"] * 4)
    line = KafkaHarness(harness)
    line.send(leases.request(count=2), 0)
    line.send(leases.request(LeaseSettlement(0, 0, ACCEPT), count=2), 0)
    assert offsets(line.answer(0).topics[0].partitions[0]) == [0, 1]
    second = line.answer(1).topics[0].partitions[0]
    assert (second.refusals, offsets(second)) == ([], [2, 3])


def test_members_of_both_protocols_share_a_group(harness: Harness, leases: Leases) -> None:
    harness.produce(TOPIC, values=[b"x"] * 4)
    assert offsets(leases.take(2)) == [0, 1]
    topic = ShareFetchRequestTopic(leases.topic_id, [ShareFetchRequestPartition(0)])
    fetched = harness.ask(ShareFetchRequest(GROUP, "k1", 0, 0, 1, max_records=9, topics=[topic])).responses[0]
    [acquired] = fetched.partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset) == (2, 3)


def test_what_a_second_partition_leases_meanwhile_is_given_back(harness: Harness) -> None:
    """A request that waits for several partitions is answered by the first. Others may have been leased by then."""
    leases = Leases(harness, partitions=4)
    for index in range(4):
        leases.take(1, partitions=(index,))
    waiting = harness.send(leases.request(count=8, wait_ms=60_000, partitions=(0, 1, 2, 3)))
    harness.settle()
    for index in range(4):
        harness.produce(TOPIC, index, [b"x"])
    harness.settle()
    answered = {part.partition_index for part in harness.run(waiting).topics[0].partitions if part.deliveries}
    harness.settle()
    for index in range(4):
        assert len(list(leases.queue(index).held)) == (index in answered), index


# ---- what happens to members and queues ----------------------------------------------------------------


def join(harness: Harness, member: str) -> None:
    answer = harness.ask(ShareGroupHeartbeatRequest(GROUP, member, 0, None, [TOPIC]))
    assert answer.error_code == 0, answer.error_message


def test_a_member_whose_session_expires_loses_its_leases(harness: Harness, leases: Leases) -> None:
    """Also if it renewed them, or if leases last longer than sessions."""
    harness.broker.leases.options_of = lambda group: LeaseOptions(duration_ms=600_000)
    harness.produce(TOPIC, values=[b"x"] * 2)
    join(harness, "m1")
    leases.take(1)
    join(harness, "m2")
    leases.take(1, member="m2")
    for _ in range(6):
        harness.advance(10_000)
        answer = harness.ask(ShareGroupHeartbeatRequest(GROUP, "m2", 1))
        assert answer.error_code == 0, answer.error_message
    harness.settle()
    again = leases.take(5, member="m3")
    assert [(each.first_offset, each.last_offset, each.attempt) for each in again.deliveries] == [(0, 0, 2)]


def test_a_member_that_leaves_keeps_its_leases_until_it_gives_them_back(harness: Harness, leases: Leases) -> None:
    """What it gives back on its way out must not count, whichever of the two arrives first."""
    harness.produce(TOPIC)
    join(harness, "m1")
    leases.take(1)
    assert harness.ask(ShareGroupHeartbeatRequest(GROUP, "m1", -1)).error_code == 0
    assert leases.settle(GIVE_BACK, 0) == []
    assert [each.attempt for each in leases.take(1, member="m2").deliveries] == [1]


def test_a_paused_queue_is_an_event(harness: Harness, leases: Leases, caplog: pytest.LogCaptureFixture) -> None:
    harness.broker.leases.options_of = lambda group: LeaseOptions(parked_max=2)
    harness.produce(TOPIC, values=[b"x"] * 5)
    leases.take(3)
    for offset in range(3):
        leases.settle(RELEASE, offset, delay_ms=60_000)
    [line] = [record.getMessage() for record in caplog.records if "gets no new records" in record.getMessage()]
    assert f"group {GROUP} gets no new records of {TOPIC}-0" in line
    assert "share.partition.max.parked.records" in line
    assert "drmq group alter" in line


def test_what_members_do_is_counted(harness: Harness, leases: Leases) -> None:
    def counters() -> dict[tuple[str, ...], int]:
        found = harness.broker.services.counters.read("drmq_")
        return {(sample.name, *(value for _, value in sample.labels)): sample.value for sample in found}

    harness.produce(TOPIC, values=[b"x"] * 6)
    leases.take(6)
    leases.settle(ACCEPT, 0, 1)
    leases.settle(RELEASE, 2, delay_ms=60_000)
    leases.settle(GIVE_BACK, 3)
    leases.settle(REJECT, 4)
    for _ in range(5):
        harness.settle()
    found = counters()
    assert found["drmq_leased_messages_total",] == 6
    assert found["drmq_lease_outcomes_total", "accept"] == 2
    assert found["drmq_lease_outcomes_total", "reject"] == 1
    assert [found["drmq_lease_messages", state] for state in ("held", "returned", "parked")] == [1, 1, 1]
    assert found["drmq_lease_queues",] == 1
    assert found["drmq_lease_paused_queues",] == 0
    assert found["drmq_lease_messages", "dying"] + found["drmq_dead_letters_total",] == 1
