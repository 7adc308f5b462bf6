"""The gRPC door beside a real node: every service, bad input of every kind, and what happens to work that is held."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from drmq.v1 import cluster_pb2, groups_pb2, topics_pb2
from drmq.v1 import leases_pb2 as leases
from drmq.v1 import log_pb2 as log
from drmq.v1.records_pb2 import Header, NewRecord
from support.grpc_client import GATEWAY, GrpcClient, LeaseClient, failure, grpc_address
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.raw_client import RawClient

ACK, NACK, EXTEND = leases.OUTCOME_ACK, leases.OUTCOME_NACK, leases.OUTCOME_EXTEND
GIVE_BACK, REJECT = leases.OUTCOME_GIVE_BACK, leases.OUTCOME_REJECT


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("grpc") / "data", env=GATEWAY) as running:
        eventually(lambda: "serves gRPC" in running.log_text())
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[GrpcClient]:
    with GrpcClient(grpc_address(broker)) as opened:
        yield opened


@pytest.fixture
def topic(client: GrpcClient, request: pytest.FixtureRequest) -> str:
    """A new topic of two partitions, named after the test."""
    name: str = request.node.name.replace("[", "-").replace("]", "")[:200]
    client.ask(client.topics.CreateTopic, topics_pb2.CreateTopicRequest(name=name, partitions=2))
    return name


def refused(client: GrpcClient, method: Any, request: Any) -> tuple[str, str, bool]:
    with pytest.raises(grpc.RpcError) as caught:
        client.ask(method, request)
    return failure(caught.value)


def test_a_topic_from_its_creation_to_its_end(client: GrpcClient) -> None:
    create = topics_pb2.CreateTopicRequest(name="orders", partitions=2, settings={"retention.ms": "1000"})
    assert client.ask(client.topics.CreateTopic, create).topic.partitions == 2
    assert refused(client, client.topics.CreateTopic, create) == ("ALREADY_EXISTS", "TOPIC_ALREADY_EXISTS", False)
    listed = client.ask(client.topics.ListTopics, topics_pb2.ListTopicsRequest()).topics
    assert "orders" in [each.name for each in listed]
    more = topics_pb2.AddPartitionsRequest(name="orders", partitions=3)
    assert client.ask(client.topics.AddPartitions, more).topic.partitions == 3
    found = client.ask(client.topics.DescribeTopic, topics_pb2.DescribeTopicRequest(name="orders"))
    assert [(each.partition, each.leader, each.end_offset) for each in found.partitions] == [
        (index, 1, 0) for index in range(3)
    ]
    change = topics_pb2.ChangeTopicSettingsRequest(
        name="orders", unset=["retention.ms"], set={"segment.bytes": "65536"}
    )
    changed = {each.name: each for each in client.ask(client.topics.ChangeTopicSettings, change).settings}
    assert changed["retention.ms"].is_default
    assert changed["segment.bytes"].value == "65536"
    settings = client.ask(client.topics.ListTopicSettings, topics_pb2.ListTopicSettingsRequest(name="orders")).settings
    assert {each.name for each in settings} == changed.keys()
    client.ask(client.topics.DeleteTopic, topics_pb2.DeleteTopicRequest(name="orders"))
    gone = refused(client, client.topics.DescribeTopic, topics_pb2.DescribeTopicRequest(name="orders"))
    assert gone == ("NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION", False)


def fetch(client: GrpcClient, topic: str, partition: int = 0, **more: Any) -> Any:
    return client.ask(client.log.Fetch, log.FetchRequest(topic=topic, partition=partition, **more))


def test_records_are_appended_and_read_by_offset_and_time(client: GrpcClient, topic: str) -> None:
    records = [
        NewRecord(
            key=b"k",
            value=b"" if number == 3 else b"%d" % number,
            headers=[Header(name="h", value=b"1"), Header(name="none")],
            partition=0,
            timestamp_ms=1_000 + number,
        )
        for number in range(20)
    ]
    records[4].ClearField("value")
    sent = client.ask(client.log.Append, log.AppendRequest(topic=topic, records=records))
    assert [(each.partition, each.offset, each.timestamp_ms) for each in sent.results] == [
        (0, number, 1_000 + number) for number in range(20)
    ]
    found = fetch(client, topic)
    assert [each.offset for each in found.records] == list(range(20))
    assert (found.next_offset, found.end_offset) == (20, 20)
    first = found.records[0]
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"0", 1_000)
    assert [(each.name, each.HasField("value")) for each in first.headers] == [("h", True), ("none", False)]
    assert [found.records[at].HasField("value") for at in (3, 4)] == [True, False]

    def offsets(position: log.Position, **more: Any) -> list[int]:
        return [each.offset for each in fetch(client, topic, position=position, **more).records]

    assert offsets(log.Position(offset=17)) == [17, 18, 19]
    assert offsets(log.Position(offset=5), max_records=2) == [5, 6]
    assert offsets(log.Position(time_ms=1_015)) == [15, 16, 17, 18, 19]
    assert offsets(log.Position(time_ms=9_000)) == []
    assert offsets(log.Position(before_end=1)) == [19]
    assert offsets(log.Position(edge=log.EDGE_END)) == []
    assert offsets(log.Position(offset=0), max_bytes=1) == [0], "at least one record"
    beyond = refused(client, client.log.Fetch, log.FetchRequest(topic=topic, position=log.Position(offset=99)))
    assert beyond == ("OUT_OF_RANGE", "OFFSET_OUT_OF_RANGE", False)


def test_a_fetch_waits_for_a_record(client: GrpcClient, topic: str) -> None:
    waiting = client.log.Fetch.future(
        log.FetchRequest(topic=topic, partition=1, wait_ms=30_000), timeout=PATIENCE_S, wait_for_ready=True
    )
    time.sleep(0.3)
    assert not waiting.done()
    client.append(topic, [b"late"], partition=1)
    assert [each.value for each in waiting.result().records] == [b"late"]


def test_an_append_says_which_records_were_stored(client: GrpcClient, topic: str) -> None:
    records = [NewRecord(value=b"good", partition=0), NewRecord(value=b"bad", partition=77)]
    with pytest.raises(grpc.RpcError) as caught:
        client.ask(client.log.Append, log.AppendRequest(topic=topic, records=records))
    assert failure(caught.value)[:2] == ("NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION")
    [packed] = [value for key, value in caught.value.trailing_metadata() if key == "grpc-status-details-bin"]
    results = log.AppendResponse()
    assert any(each.Unpack(results) for each in Status.FromString(packed).details)
    assert [each.HasField("error") for each in results.results] == [False, True]
    assert [each.value for each in fetch(client, topic).records] == [b"good"]


def test_a_stream_appends_in_order_and_tells_failures(client: GrpcClient, topic: str) -> None:
    def requests() -> Iterator[log.AppendStreamRequest]:
        for number in range(50):
            records = [NewRecord(value=b"%d.%d" % (number, index), partition=0) for index in range(20)]
            yield log.AppendStreamRequest(topic=topic if number == 0 else "", records=records)
        yield log.AppendStreamRequest(records=[NewRecord(value=b"x", partition=77)])
        yield log.AppendStreamRequest(records=[NewRecord(value=b"last", partition=0)])

    answers = list(client.log.AppendStream(requests(), timeout=PATIENCE_S, wait_for_ready=True))
    offsets = [each.offset for answer in answers[:50] for each in answer.results]
    assert offsets == list(range(1_000))
    assert answers[50].results[0].error.code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert answers[51].results[0].offset == 1_000
    values = [each.value for each in fetch(client, topic, max_bytes=8_000_000).records]
    assert values == [b"%d.%d" % (n, index) for n in range(50) for index in range(20)] + [b"last"]


def test_a_stream_with_a_bad_request_still_answers_what_came_before(client: GrpcClient, topic: str) -> None:
    def requests() -> Iterator[log.AppendStreamRequest]:
        yield log.AppendStreamRequest(topic=topic, records=[NewRecord(value=b"good")])
        yield log.AppendStreamRequest()

    answers = client.log.AppendStream(requests(), timeout=PATIENCE_S, wait_for_ready=True)
    assert not next(answers).results[0].HasField("error")
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert failure(caught.value)[0] == "INVALID_ARGUMENT"


def test_a_topic_is_read_as_a_stream(client: GrpcClient, topic: str) -> None:
    for partition in (0, 1):
        client.append(topic, [b"%d" % number for number in range(300)], partition=partition)

    def read(**more: Any) -> list[tuple[int, int]]:
        request = log.FetchStreamRequest(topic=topic, until_end=True, **more)
        answers = list(client.log.FetchStream(request, timeout=PATIENCE_S, wait_for_ready=True))
        for answer in answers:
            [(partition, following)] = answer.next_offsets.items()
            assert (answer.records[-1].partition, answer.records[-1].offset + 1) == (partition, following)
        return sorted((each.partition, each.offset) for answer in answers for each in answer.records)

    everything = [(partition, offset) for partition in (0, 1) for offset in range(300)]
    assert read() == everything
    assert read(max_bytes=1_000) == everything, "in many small responses"
    assert read(partitions=[1], position=log.Position(before_end=2)) == [(1, 298), (1, 299)]
    assert read(position=log.Position(edge=log.EDGE_END), offsets={0: 297}) == [(0, 297), (0, 298), (0, 299)]


def test_a_stream_goes_on_with_what_is_appended_later(client: GrpcClient, topic: str) -> None:
    stream = client.log.FetchStream(log.FetchStreamRequest(topic=topic), timeout=PATIENCE_S, wait_for_ready=True)
    client.append(topic, [b"one"], partition=0)
    assert [each.value for each in next(stream).records] == [b"one"]
    client.append(topic, [b"two"], partition=1)
    assert [each.value for each in next(stream).records] == [b"two"]
    stream.cancel()


def drained(client: GrpcClient, group: str, topic: str) -> None:
    """The group has nothing left to work on."""

    def lag() -> int:
        found: int = client.ask(client.groups.DescribeGroup, groups_pb2.DescribeGroupRequest(group=group)).group.lag
        return found

    eventually(lag, lambda count: count == 0)


def test_work_is_taken_and_settled_in_every_way(client: GrpcClient, topic: str) -> None:
    client.append(topic, [b"%d" % number for number in range(5)], partition=0)
    stream = client.lease("workers", topic)
    messages = stream.deliveries(5)
    assert [(each.record.offset, each.record.value, each.attempt) for each in messages] == [
        (number, b"%d" % number, 1) for number in range(5)
    ]
    done, failed, untried, hopeless, long = messages
    stream.settle(EXTEND, long)
    assert stream.outcomes(long) == [""]
    for outcome, message in ((ACK, done), (GIVE_BACK, untried), (REJECT, hopeless), (ACK, long)):
        stream.settle(outcome, message)
    stream.settle(NACK, failed, delay_ms=0)
    again = sorted(stream.deliveries(2), key=lambda each: each.record.offset)
    assert [(each.record.value, each.attempt) for each in again] == [(b"1", 2), (b"2", 1)]
    assert all(each.lease_token > failed.lease_token for each in again)
    stream.settle(ACK, *again)
    assert stream.outcomes(*messages, *again) == [""] * 7
    stream.settle(ACK, done)
    [late] = stream.outcomes(done)
    assert not late, "it has ended, and that is told without a code"
    stream.end()
    drained(client, "workers", topic)


def test_a_delay_is_kept(client: GrpcClient, topic: str) -> None:
    client.append(topic, [b"later"], partition=0)
    stream = client.lease("delayed", topic)
    [message] = stream.deliveries(1)
    began = time.monotonic()
    stream.settle(NACK, message, delay_ms=1_500)
    [again] = stream.deliveries(1)
    assert time.monotonic() - began >= 1.4
    stream.settle(ACK, again)
    assert stream.outcomes(again) == [""]
    stream.end()


def test_no_more_messages_come_than_there_are_credits(client: GrpcClient, topic: str) -> None:
    client.append(topic, [b"x"] * 50, partition=0)
    stream = client.lease("credits", topic, credits=3)
    first = stream.deliveries(3)
    stream.send(add_credits=leases.AddCredits(count=2))
    more = stream.deliveries(2)
    stream.send(add_credits=leases.AddCredits(count=-4))
    stream.settle(ACK, *first, *more)
    assert stream.outcomes(*first, *more) == [""] * 5, "nothing but the answers came"
    [last] = stream.deliveries(1)
    stream.settle(ACK, last)
    assert stream.outcomes(last) == [""]
    stream.end()


@pytest.mark.parametrize("way", ["cancelled", "ended"])
def test_what_a_stream_holds_is_given_back_when_it_ends(client: GrpcClient, topic: str, way: str) -> None:
    client.append(topic, [b"%d" % number for number in range(10)], partition=0)
    stream = client.lease(f"given-back-{way}", topic)
    held = stream.deliveries(10)
    stream.settle(ACK, *held[:4])
    assert stream.outcomes(*held[:4]) == [""] * 4
    if way == "ended":
        stream.end()
    else:
        stream.call.cancel()
    again = client.lease(f"given-back-{way}", topic)
    messages = again.deliveries(6)
    assert [(each.record.offset, each.attempt) for each in messages] == [(offset, 1) for offset in range(4, 10)]
    again.settle(ACK, *messages)
    assert again.outcomes(*messages) == [""] * 6
    again.end()


def poll(client: GrpcClient, group: str, topic: str, count: int) -> list[Any]:
    """So many messages by single calls."""
    found: list[Any] = []
    request = leases.PollRequest(group=group, topics=[topic], max_messages=count, wait_ms=1_000)

    def more() -> bool:
        found.extend(client.ask(client.leases.Poll, request).messages)
        return len(found) >= count

    eventually(more)
    return found


def test_work_is_taken_and_settled_by_single_calls(client: GrpcClient, topic: str) -> None:
    start = {"share.auto.offset.reset": "earliest"}
    client.ask(client.groups.ChangeGroupSettings, groups_pb2.ChangeGroupSettingsRequest(group="callers", set=start))
    settings = client.ask(
        client.groups.ListGroupSettings, groups_pb2.ListGroupSettingsRequest(group="callers")
    ).settings
    assert ("share.auto.offset.reset", "earliest") in [(each.name, each.value) for each in settings]
    client.append(topic, [b"%d" % number for number in range(5)], partition=0)
    messages = sorted(poll(client, "callers", topic, 5), key=lambda each: each.record.offset)
    assert [each.record.value for each in messages] == [b"%d" % number for number in range(5)]

    def settle(kind: str, *chosen: Any, **more: Any) -> list[str]:
        request = getattr(leases, f"{kind}Request")(group="callers", ack_ids=[each.ack_id for each in chosen], **more)
        return [each.error.code for each in client.ask(getattr(client.leases, kind), request).results]

    done, failed, untried, hopeless, long = messages
    assert settle("Extend", long) == [""]
    assert settle("Ack", done, long) == ["", ""]
    assert settle("Nack", failed, delay_ms=0) == [""]
    assert settle("GiveBack", untried) == [""]
    assert settle("Reject", hopeless) == [""]
    again = sorted(poll(client, "callers", topic, 2), key=lambda each: each.record.offset)
    assert [(each.record.value, each.attempt) for each in again] == [(b"1", 2), (b"2", 1)]
    assert settle("Ack", failed) == ["INVALID_RECORD_STATE"], "an older delivery"
    assert settle("Ack", *again) == ["", ""]
    nonsense = leases.AckRequest(group="callers", ack_ids=["nonsense"])
    assert client.ask(client.leases.Ack, nonsense).results[0].error.code == "INVALID_REQUEST"


def test_a_poll_fits_into_what_a_client_accepts(client: GrpcClient, topic: str) -> None:
    start = {"share.auto.offset.reset": "earliest"}
    client.ask(client.groups.ChangeGroupSettings, groups_pb2.ChangeGroupSettingsRequest(group="large", set=start))
    for _ in range(2):
        client.append(topic, [bytes(50_000)] * 80, partition=0)
    request = leases.PollRequest(group="large", topics=[topic], max_messages=1_000, wait_ms=1_000)
    found: list[Any] = []

    def more() -> bool:
        found.extend(client.ask(client.leases.Poll, request).messages)
        return len(found) >= 160

    eventually(more)
    assert sorted(each.record.offset for each in found) == list(range(160)), "what did not fit came again at once"
    assert {each.attempt for each in found} == {1}


def test_an_offset_is_committed_and_the_group_deleted(client: GrpcClient, topic: str) -> None:
    client.append(topic, [b"x"] * 5, partition=0)
    offsets = [groups_pb2.PartitionOffset(topic=topic, partition=0, offset=3)]
    client.ask(client.groups.Commit, groups_pb2.CommitRequest(group="readers", offsets=offsets))
    found = client.ask(client.groups.ListCommitted, groups_pb2.ListCommittedRequest(group="readers"))
    assert list(found.offsets) == offsets
    described = client.ask(client.groups.DescribeGroup, groups_pb2.DescribeGroupRequest(group="readers"))
    assert [(each.committed, each.end_offset, each.lag) for each in described.partitions] == [(3, 5, 2)]
    listed = client.ask(client.groups.ListGroups, groups_pb2.ListGroupsRequest()).groups
    assert "readers" in [each.group_id for each in listed]
    client.ask(client.groups.DeleteGroup, groups_pb2.DeleteGroupRequest(group="readers"))
    gone = refused(client, client.groups.DescribeGroup, groups_pb2.DescribeGroupRequest(group="readers"))
    assert gone == ("NOT_FOUND", "GROUP_ID_NOT_FOUND", False)


def test_the_cluster_and_its_nodes(broker: BrokerProcess, client: GrpcClient) -> None:
    def gateways() -> list[str]:
        found = client.ask(client.cluster.DescribeCluster, cluster_pb2.DescribeClusterRequest())
        return [each.grpc for each in found.gateways]

    eventually(gateways, lambda found: found == [grpc_address(broker)])
    cluster = client.ask(client.cluster.DescribeCluster, cluster_pb2.DescribeClusterRequest())
    assert (cluster.status, cluster.brokers_up, cluster.controller_id) == ("healthy", 1, 1)
    [node] = client.ask(client.cluster.ListBrokers, cluster_pb2.ListBrokersRequest()).brokers
    assert (node.node_id, node.is_up, node.port) == (1, True, broker.port)
    described = client.ask(client.cluster.DescribeBroker, cluster_pb2.DescribeBrokerRequest(node_id=1))
    assert described.broker.node_id == 1
    assert described.settings
    assert (
        refused(client, client.cluster.DescribeBroker, cluster_pb2.DescribeBrokerRequest(node_id=9))[0] == "NOT_FOUND"
    )


LONG = "x" * 300
BAD_CALLS: list[tuple[str, str, Any]] = [
    ("topics", "CreateTopic", topics_pb2.CreateTopicRequest()),
    ("topics", "CreateTopic", topics_pb2.CreateTopicRequest(name="a b")),
    ("topics", "CreateTopic", topics_pb2.CreateTopicRequest(name="a", partitions=0)),
    ("topics", "CreateTopic", topics_pb2.CreateTopicRequest(name="a", partitions=-5)),
    ("topics", "CreateTopic", topics_pb2.CreateTopicRequest(name="a", settings={"no.such": "1"})),
    ("topics", "DescribeTopic", topics_pb2.DescribeTopicRequest(name=LONG)),
    ("topics", "DeleteTopic", topics_pb2.DeleteTopicRequest()),
    ("topics", "AddPartitions", topics_pb2.AddPartitionsRequest(name="a")),
    ("topics", "ListTopicSettings", topics_pb2.ListTopicSettingsRequest()),
    ("topics", "ChangeTopicSettings", topics_pb2.ChangeTopicSettingsRequest(name="a")),
    ("log", "Append", log.AppendRequest(records=[NewRecord(value=b"x")])),
    ("log", "Append", log.AppendRequest(topic="a")),
    ("log", "Append", log.AppendRequest(topic="a", records=[NewRecord(partition=-1)])),
    ("log", "Append", log.AppendRequest(topic="a", records=[NewRecord(timestamp_ms=-7)])),
    ("log", "Append", log.AppendRequest(topic="a", records=[NewRecord()] * 10_001)),
    ("log", "Append", log.AppendRequest(topic="a", records=[NewRecord(headers=[Header(name="a\0b")])])),
    ("log", "Append", log.AppendRequest(topic="a\0b", records=[NewRecord()])),
    ("log", "Fetch", log.FetchRequest(topic=LONG)),
    ("log", "Fetch", log.FetchRequest(topic="a", partition=-1)),
    ("log", "Fetch", log.FetchRequest(topic="a", wait_ms=10**6)),
    ("log", "Fetch", log.FetchRequest(topic="a", max_records=-1)),
    ("log", "Fetch", log.FetchRequest(topic="a", max_bytes=2**30)),
    ("log", "Fetch", log.FetchRequest(topic="a", position=log.Position(offset=-1))),
    ("log", "Fetch", log.FetchRequest(topic="a", position=log.Position(time_ms=-1))),
    ("leases", "Poll", leases.PollRequest(topics=["t"])),
    ("leases", "Poll", leases.PollRequest(group="g")),
    ("leases", "Poll", leases.PollRequest(group="g", topics=["t"], max_messages=5_000)),
    ("leases", "Poll", leases.PollRequest(group="g", topics=["t"], wait_ms=-1)),
    ("leases", "Ack", leases.AckRequest(group="g")),
    ("leases", "Nack", leases.NackRequest(group="g", ack_ids=["x"], delay_ms=-1)),
    ("leases", "Extend", leases.ExtendRequest(ack_ids=["x"])),
    ("leases", "GiveBack", leases.GiveBackRequest(group="g")),
    ("leases", "Reject", leases.RejectRequest(group="g")),
    ("groups", "DescribeGroup", groups_pb2.DescribeGroupRequest()),
    ("groups", "ListGroupSettings", groups_pb2.ListGroupSettingsRequest()),
    ("groups", "ChangeGroupSettings", groups_pb2.ChangeGroupSettingsRequest(group="g")),
    ("groups", "ChangeGroupSettings", groups_pb2.ChangeGroupSettingsRequest(group="g", set={"no.such": "1"})),
    ("groups", "DeleteGroup", groups_pb2.DeleteGroupRequest(group="g" * 2_000)),
    ("groups", "Commit", groups_pb2.CommitRequest(group="g")),
    (
        "groups",
        "Commit",
        groups_pb2.CommitRequest(group="g", offsets=[groups_pb2.PartitionOffset(topic="a", offset=-1)]),
    ),
    ("groups", "ListCommitted", groups_pb2.ListCommittedRequest()),
    ("cluster", "DescribeBroker", cluster_pb2.DescribeBrokerRequest(node_id=-1)),
]


@pytest.mark.parametrize(("service", "method", "request_"), BAD_CALLS, ids=lambda value: str(value)[:40])
def test_bad_calls_are_refused_with_a_reason(client: GrpcClient, service: str, method: str, request_: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.ask(getattr(getattr(client, service), method), request_)
    assert failure(caught.value)[0] == "INVALID_ARGUMENT", caught.value
    assert caught.value.details()
    assert not failure(caught.value)[2], "to repeat it does not help"


BAD_LEASES: list[list[leases.LeaseRequest]] = [
    [leases.LeaseRequest()],
    [leases.LeaseRequest(add_credits=leases.AddCredits(count=1))],
    [leases.LeaseRequest(subscribe=leases.Subscribe(group="g", credits=1))],
    [leases.LeaseRequest(subscribe=leases.Subscribe(topics=["t"], credits=1))],
    [leases.LeaseRequest(subscribe=leases.Subscribe(group="g", topics=["t"], credits=-1))],
    [leases.LeaseRequest(subscribe=leases.Subscribe(group="g", topics=["t"], credits=10**6))],
    [leases.LeaseRequest(subscribe=leases.Subscribe(group="g", topics=["t"], renew_for_ms=-1))],
    *(
        [leases.LeaseRequest(subscribe=leases.Subscribe(group="g", topics=["t"], credits=1)), second]
        for second in (
            leases.LeaseRequest(),
            leases.LeaseRequest(subscribe=leases.Subscribe(group="g", topics=["t"])),
            leases.LeaseRequest(add_credits=leases.AddCredits(count=10**6)),
            leases.LeaseRequest(settle=leases.Settle(delivery_ids=[7], outcome=ACK)),
            leases.LeaseRequest(settle=leases.Settle(delivery_ids=[7])),
            leases.LeaseRequest(settle=leases.Settle(outcome=ACK, delay_ms=1)),
            leases.LeaseRequest(settle=leases.Settle(outcome=NACK, delay_ms=-1)),
        )
    ),
]


@pytest.mark.parametrize("requests", BAD_LEASES, ids=lambda value: str(value[-1])[:40])
def test_bad_lease_streams_are_refused_with_a_reason(client: GrpcClient, requests: list[leases.LeaseRequest]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(client.leases.Lease(iter(requests), timeout=PATIENCE_S, wait_for_ready=True))
    assert failure(caught.value)[0] == "INVALID_ARGUMENT", caught.value


def test_bad_bytes_and_large_requests_are_refused(broker: BrokerProcess, client: GrpcClient) -> None:
    def call(path: str, data: bytes) -> str:
        send = client.channel.unary_unary(path, lambda value: value, lambda value: value)
        with pytest.raises(grpc.RpcError) as caught:
            send(data, timeout=PATIENCE_S, wait_for_ready=True)
        return failure(caught.value)[0]

    assert call("/drmq.v1.LogService/Append", b"\xff\xff\xff") == "INVALID_ARGUMENT"
    assert call("/drmq.v1.LogService/Append", b"x" * (9 * 1_048_576)) == "RESOURCE_EXHAUSTED"
    assert call("/drmq.v1.LogService/Nothing", b"") == "UNIMPLEMENTED"
    assert call("/drmq.v1.Nothing/Append", b"") == "UNIMPLEMENTED"
    for path in ("AppendStream", "FetchStream"):
        kind = client.channel.stream_stream if path == "AppendStream" else client.channel.unary_stream
        stream = kind(f"/drmq.v1.LogService/{path}", lambda value: value, lambda value: value)
        argument = iter([b"\xff\xff"]) if path == "AppendStream" else b"\xff\xff"
        with pytest.raises(grpc.RpcError) as caught:
            list(stream(argument, timeout=PATIENCE_S, wait_for_ready=True))
        assert failure(caught.value)[0] == "INVALID_ARGUMENT"
    assert "Traceback" not in broker.log_text()


def test_health_and_reflection(client: GrpcClient) -> None:
    check: Any = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "drmq.v1.LogService", "drmq.v1.LeaseService"):
        request = health_pb2.HealthCheckRequest(service=service)
        eventually(
            lambda request=request: client.ask(check.Check, request).status,  # type: ignore[misc]
            lambda status: status == health_pb2.HealthCheckResponse.SERVING,
        )
    mirror: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    present = client.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="drmq.v1.LeaseService"),
    ]
    listed, file = mirror.ServerReflectionInfo(iter(asked), timeout=PATIENCE_S, wait_for_ready=True)
    assert list(present(iter(asked), timeout=PATIENCE_S)) == [listed, file], "both versions answer the same"
    names = {each.name for each in listed.list_services_response.service}
    own = {f"drmq.v1.{name}Service" for name in ("Topic", "Log", "Lease", "Group", "Cluster")}
    assert names >= own | {"grpc.health.v1.Health"}
    described = FileDescriptorProto.FromString(file.file_descriptor_response.file_descriptor_proto[0])
    assert described.name == "drmq/v1/leases.proto"


def test_calls_are_counted_and_have_ids(broker: BrokerProcess, client: GrpcClient, topic: str) -> None:
    metadata = (("x-request-id", "order-17"),)
    request = log.AppendRequest(topic=topic, records=[NewRecord(value=b"a")])
    _, call = client.log.Append.with_call(request, metadata=metadata, timeout=PATIENCE_S)
    assert ("x-request-id", "order-17") in call.trailing_metadata()
    with pytest.raises(grpc.RpcError) as caught:
        client.topics.DescribeTopic(topics_pb2.DescribeTopicRequest(name="none"), metadata=metadata, timeout=PATIENCE_S)
    assert ("x-request-id", "order-17") in caught.value.trailing_metadata(), "an error has it, too"
    stream = client.lease("counted", topic)
    [port] = re.findall(r"serves HTTP at http://127\.0\.0\.1:(\d+)", broker.log_text())

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    found = metrics()
    assert 'drmq_gateway_calls_total{method="LogService/Append",status="OK"}' in found
    assert 'drmq_gateway_calls_total{method="TopicService/DescribeTopic",status="NOT_FOUND"}' in found
    assert 'drmq_gateway_call_duration_seconds_count{method="LogService/Append"}' in found
    assert "drmq_gateway_streams 1" in found
    stream.end()
    eventually(lambda: "drmq_gateway_streams 0" in metrics())
    eventually(lambda: 'drmq_gateway_calls_total{method="LeaseService/Lease",status="OK"}' in metrics())


def test_a_killed_gateway_comes_back_at_the_same_port(broker: BrokerProcess, client: GrpcClient, topic: str) -> None:
    """Its work comes back too, when its leases have run out. Clients of the node notice nothing."""
    short = groups_pb2.ChangeGroupSettingsRequest(group="killed", set={"share.record.lock.duration.ms": "15000"})
    client.ask(client.groups.ChangeGroupSettings, short)
    client.append(topic, [b"%d" % number for number in range(3)], partition=0)
    stream = client.lease("killed", topic)
    assert len(stream.deliveries(3)) == 3
    [child] = psutil.Process(broker.pid).children()
    with RawClient(broker.bootstrap) as raw:
        raw.create_topic("beside", 1)
        raw.produce("beside", [b"before"])
        child.kill()
        assert raw.produce("beside", [b"after"]) == 1, "the same connection"
    with pytest.raises(grpc.RpcError) as caught:
        stream.receive()
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert client.append(topic, [b"3"], partition=0) == [(0, 3)], "at the same address"
    again = client.lease("killed", topic)
    assert sorted(each.record.offset for each in again.deliveries(4)) == [0, 1, 2, 3]
    again.end()


def test_a_stopped_node_ends_streams_with_a_hint(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("stopped") / "data", env=GATEWAY) as running:
        eventually(lambda: "serves gRPC" in running.log_text())
        with GrpcClient(grpc_address(running)) as client:
            client.append("work", [b"x"])
            stream: LeaseClient = client.lease("g", "work")
            assert len(stream.deliveries(1)) == 1
            running.terminate()
            with pytest.raises(grpc.RpcError) as caught:
                stream.receive()
            assert failure(caught.value) == ("UNAVAILABLE", "UNAVAILABLE", True)
            assert "Traceback" not in running.log_text()
