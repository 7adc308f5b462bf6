"""No request goes around the gate: each API, in each version, passes it once with its caller, and before all else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from drmq.broker.cluster.membership import Request
from drmq.broker.services.caller import ANONYMOUS, Caller, wrap
from drmq.broker.services.gate import Gate, Operation, Permission, on_cluster, on_group, on_topic
from drmq.kafka.permissions import RULES
from drmq.kafka.pipeline import _FORWARDED, Pipeline, Way
from drmq.model import ApiError, ErrorCode, NodeId
from drmq.transport import Pause
from drmq.wire import APIS, ApiKey, read_response, write_request
from drmq.wire.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from support.api_samples import EVERY_VERSION, GROUP, TOPIC, message, prepare, sample
from support.batches import a_batch
from support.broker_harness import Harness
from support.gates import ClosedGate, DenyingGate, NamedGate, RecordingGate, ThrottlingGate
from support.kafka_harness import KafkaHarness

OWN_CALLER = Caller(ANONYMOUS, "test", "127.0.0.1", "KAFKA")
ALICE = Caller("User:alice", "till", "10.0.0.7", "KAFKA")
PEER = NodeId(2)
AUTHORISATION = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
PASSED_ON = [*sorted(_FORWARDED), ApiKey.DESCRIBE_QUORUM]


@pytest.fixture
def line(harness: Harness) -> KafkaHarness:
    prepare(harness)
    return KafkaHarness(harness)


def use(harness: Harness, gate: Gate) -> None:
    harness.broker.services.gate = gate


def error_codes(message: Any) -> Iterator[int]:
    """All error codes in an answer."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        for each in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(each):
                yield from error_codes(each)


def state_of(harness: Harness) -> object:
    """What a request could have changed."""
    broker = harness.broker
    ends = {repr(partition): (partition.next_offset, partition.start_offset) for partition in broker.partitions}
    members = [shard.machine.snapshot() for shard in broker.groups.shards.values()]
    return ends, sorted(broker.catalog.topics), [list(map(repr, each)) for each in members], broker.catalog.brokers


def reached_handlers(line: KafkaHarness, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on, the handlers that are reached; none of them does anything."""
    reached: list[str] = []
    pipeline = line.server._pipeline

    def handler(context: Any, request: object) -> object:
        reached.append(context.api)
        return APIS[ApiKey[context.api]].response()

    monkeypatch.setattr(pipeline, "_handlers", dict.fromkeys(map(int, APIS), handler))
    for key, way in list(pipeline.ways.items()):
        noting = replace(way, handle=lambda exchange, refused: reached.append(exchange.api) if not refused else None)
        monkeypatch.setitem(pipeline.ways, key, noting if key in (ApiKey.PRODUCE, ApiKey.FETCH) else way)
    return reached


def check_denied(harness: Harness, line: KafkaHarness, api: ApiKey, version: int) -> None:
    """With a gate that denies everything, a request gets an authorisation error, and nothing has changed."""
    use(harness, DenyingGate())
    before = state_of(harness)
    answer = line.ask(sample(harness, api), version)
    codes = set(error_codes(answer)) - {ErrorCode.NONE}
    assert codes, f"{api.name} v{version} was let in"
    assert codes <= AUTHORISATION, [ErrorCode(code).name for code in codes]
    assert state_of(harness) == before
    assert not line.paper.closed


@pytest.mark.parametrize("api", sorted(api.key for api in APIS.values()), ids=lambda api: api.name)
def test_nothing_is_done_that_the_gate_denies(
    harness: Harness, line: KafkaHarness, api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _, version in [each for each in EVERY_VERSION if each[0] == api]:
        check_denied(harness, line, api, version)
    if api not in (ApiKey.PRODUCE, ApiKey.FETCH):
        # These two refuse by partition, after the gate: that they have done nothing is what the state says.
        reached = reached_handlers(line, monkeypatch)
        line.send(sample(harness, api), APIS[api].version_max)
        assert not reached


@pytest.mark.parametrize("api", sorted(api.key for api in APIS.values()), ids=lambda api: api.name)
def test_every_api_is_seen_once_with_its_caller(
    harness: Harness, line: KafkaHarness, api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = reached_handlers(line, monkeypatch)
    gate = RecordingGate()
    use(harness, gate)
    for _, version in [each for each in EVERY_VERSION if each[0] == api]:
        gate.seen.clear()
        reached.clear()
        line.send(sample(harness, api), version)
        assert gate.seen == [(api.name, OWN_CALLER)]
        assert reached == [api.name]


def test_every_api_says_what_it_needs(harness: Harness, line: KafkaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    reached_handlers(line, monkeypatch)
    gate = RecordingGate()
    use(harness, gate)
    assert RULES.keys() == {api.key for api in APIS.values()}
    needed: dict[ApiKey, set[Permission]] = {}
    for api in RULES:
        gate.permissions.clear()
        line.send(sample(harness, api), APIS[api].version_max)
        needed[api] = set(gate.permissions)
    assert {api for api, permissions in needed.items() if not permissions} == {
        # What everyone may ask; a list has only what the caller may see.
        ApiKey.API_VERSIONS,
        ApiKey.LIST_GROUPS,
        # What is refused to everyone.
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
    assert needed[ApiKey.PRODUCE] == {on_topic(Operation.WRITE, TOPIC)}
    assert needed[ApiKey.FETCH] == {on_topic(Operation.READ, TOPIC)}
    assert needed[ApiKey.OFFSET_COMMIT] == {on_group(Operation.READ, GROUP), on_topic(Operation.READ, TOPIC)}
    assert needed[ApiKey.CREATE_TOPICS] == {on_topic(Operation.CREATE, f"new-{TOPIC}")}
    assert needed[ApiKey.ELECT_LEADERS] == {on_cluster(Operation.ALTER)}


@pytest.mark.parametrize("api", [ApiKey.HEARTBEAT, ApiKey.PRODUCE, ApiKey.CREATE_TOPICS, ApiKey.API_VERSIONS])
def test_an_api_that_goes_around_the_gate_is_noticed(
    harness: Harness, line: KafkaHarness, api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: one API is carried out before the gate is asked."""
    admit_and_handle = Pipeline._admit_and_handle

    def go_around(pipeline: Pipeline, way: Way, exchange: Any, cost_bytes: int) -> Any:
        if exchange.header.api_key == api:
            return way.handle(exchange, frozenset())
        return admit_and_handle(pipeline, way, exchange, cost_bytes)

    monkeypatch.setattr(Pipeline, "_admit_and_handle", go_around)
    with pytest.raises(AssertionError):
        check_denied(harness, line, api, APIS[api].version_max)


# ---- what other nodes ask for -----------------------------------------------------------------------


def asked_by_peer(harness: Harness, kind: Request, payload: bytes) -> bytes:
    async def ask() -> bytes:
        # Past `on_request`, which turns away nodes that the cluster does not know.
        answer = await harness.broker.membership.handlers[kind](PEER, memoryview(payload))
        return b"".join(bytes(buffer) for buffer in answer)

    return harness.run(ask())


def frame_of(harness: Harness, api: ApiKey, version: int) -> bytes:
    return bytes(write_request(api, version, 7, "till", sample(harness, api)))[4:]


def joined(*buffers: Any) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


@pytest.mark.parametrize("api", [*PASSED_ON, ApiKey.OFFSET_FETCH], ids=lambda api: api.name)
@pytest.mark.parametrize("has_caller", [True, False], ids=["with its caller", "of an older node"])
def test_what_is_passed_on_passes_the_gate_of_who_does_it(
    harness: Harness, line: KafkaHarness, api: ApiKey, has_caller: bool
) -> None:
    kind = Request.COORDINATE if api == ApiKey.OFFSET_FETCH else Request.FORWARD
    version = APIS[api].version_max
    frame = frame_of(harness, api, version)
    payload = joined(*wrap(ALICE, frame)) if has_caller else frame
    expected = ALICE if has_caller else Caller(ANONYMOUS, "till", "", "")

    use(harness, DenyingGate())
    before = state_of(harness)
    answer = asked_by_peer(harness, kind, payload)
    # The controller says first how far its metadata has come.
    answer = answer[8:] if kind is Request.FORWARD else answer
    _, response = read_response(api, version, answer[4:])
    codes = set(error_codes(response)) - {ErrorCode.NONE}
    assert codes
    assert codes <= AUTHORISATION
    assert state_of(harness) == before

    gate = RecordingGate()
    use(harness, gate)
    asked_by_peer(harness, kind, payload)
    assert gate.seen == [(api.name, expected)]


def test_every_request_between_nodes_is_for_a_client_or_the_node_s_own(harness: Harness, line: KafkaHarness) -> None:
    """A new kind must be put into one of the two: what acts for a client is shown to the gate."""
    for_nodes = {
        Request.REGISTER,
        Request.REGISTER_FOR,
        Request.RESERVE_IDS,  # a block of them, for whichever clients come
        Request.REASSIGNED,
        Request.REPLICA_LOST,
        Request.LEASE,  # from the leader of the data, whose gate has let the member in
        Request.OPEN_RECORDS,  # from a node whose gate has let DescribeLeases in
        Request.ELECT,  # decided by the controller, or by a node whose gate has let ElectLeaders in
    }
    for_clients = set(harness.broker.services.client_requests())
    assert for_clients.isdisjoint(for_nodes)
    assert for_clients | for_nodes == set(Request) == set(harness.broker.membership.handlers)


@pytest.mark.parametrize("kind", [Request.AUTO_CREATE, Request.APPEND, Request.READ], ids=lambda kind: kind.name)
def test_what_nodes_ask_in_words_of_their_own_passes_the_gate(
    harness: Harness, line: KafkaHarness, kind: Request
) -> None:
    topic_id = harness.broker.catalog.topic(TOPIC).topic_id
    body, needed = {
        Request.AUTO_CREATE: (b"fresh", on_topic(Operation.CREATE, "fresh")),
        Request.APPEND: (
            topic_id + (0).to_bytes(4, "big") + (1_000).to_bytes(4, "big") + bytes(a_batch()),
            on_topic(Operation.WRITE, TOPIC),
        ),
        Request.READ: (
            topic_id + (0).to_bytes(4, "big") + (0).to_bytes(8, "big") + (1 << 20).to_bytes(4, "big"),
            on_topic(Operation.READ, TOPIC),
        ),
    }[kind]
    payload = joined(*wrap(ALICE, body))
    use(harness, DenyingGate())
    before = state_of(harness)
    with pytest.raises(ApiError) as caught:
        asked_by_peer(harness, kind, payload)
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert state_of(harness) == before
    gate = RecordingGate()
    use(harness, gate)
    asked_by_peer(harness, kind, payload)
    assert gate.seen == [(kind.name, ALICE)]
    assert gate.permissions == [needed]


# ---- stages -----------------------------------------------------------------------------------------


def test_a_caller_that_is_not_known_is_told_so(harness: Harness, line: KafkaHarness) -> None:
    use(harness, ClosedGate())
    before = state_of(harness)
    for api in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT, ApiKey.CREATE_TOPICS):
        answer = line.ask(sample(harness, api), APIS[api].version_max)
        assert set(error_codes(answer)) - {0} == {ErrorCode.SASL_AUTHENTICATION_FAILED}, api
    assert state_of(harness) == before


def test_a_throttled_client_hears_for_how_long_and_is_not_read_meanwhile(harness: Harness, line: KafkaHarness) -> None:
    gate = ThrottlingGate(500)
    use(harness, gate)
    for api in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.HEARTBEAT):
        answer = line.ask(sample(harness, api), APIS[api].version_max)
        assert answer.throttle_time_ms == 500
        assert line.paper.paused == [Pause.THROTTLE]
        harness.advance(500)
        assert line.paper.paused == []
    assert [api for api, cost in gate.costs if cost > 0] == ["METADATA", "PRODUCE", "FETCH", "HEARTBEAT"]


def test_what_is_passed_on_costs_its_client_nothing_more(harness: Harness, line: KafkaHarness) -> None:
    gate = ThrottlingGate(500)
    use(harness, gate)
    frame = frame_of(harness, ApiKey.CREATE_TOPICS, 5)
    asked_by_peer(harness, Request.FORWARD, joined(*wrap(ALICE, frame)))
    assert gate.costs == [("CREATE_TOPICS", 0)]


# ---- refusals by entry ------------------------------------------------------------------------------


@pytest.fixture
def secret(harness: Harness, line: KafkaHarness) -> str:
    """The name of a topic and a group that the client may do nothing with."""
    harness.create_topic("secret")
    harness.produce("secret")
    harness.join("secret")
    use(harness, NamedGate("secret"))
    return "secret"


def both(harness: Harness, api: ApiKey, secret: str, *lists: str) -> Any:
    """A request about what is allowed and what is not."""
    request, refused = sample(harness, api), sample(harness, api, topic=secret, group=secret)
    for name in lists:
        getattr(request, name).extend(getattr(refused, name))
    return request


def by_name(entries: list[Any], name: str, code: str = "error_code") -> dict[str, int]:
    return {getattr(entry, name): getattr(entry, code) for entry in entries}


def test_each_topic_of_a_request_is_refused_by_itself(harness: Harness, line: KafkaHarness, secret: str) -> None:
    no = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = line.ask(both(harness, ApiKey.METADATA, secret, "topics"), 12)
    assert by_name(answer.topics, "name") == {TOPIC: 0, secret: no}
    answer = line.ask(both(harness, ApiKey.LIST_OFFSETS, secret, "topics"), 5)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {TOPIC: 0, secret: no}
    answer = line.ask(both(harness, ApiKey.CREATE_PARTITIONS, secret, "topics"), 3)
    assert by_name(answer.results, "name") == {TOPIC: 0, secret: no}
    answer = line.ask(both(harness, ApiKey.DESCRIBE_CONFIGS, secret, "resources"), 4)
    assert by_name(answer.results, "resource_name") == {TOPIC: 0, secret: no}
    answer = line.ask(both(harness, ApiKey.OFFSET_COMMIT, secret, "topics"), 9)
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics}[secret] == no
    assert harness.broker.catalog.topic(TOPIC).partition_count == 5
    assert harness.broker.catalog.topic(secret).partition_count == 1


def test_each_group_of_a_request_is_refused_by_itself(harness: Harness, line: KafkaHarness, secret: str) -> None:
    no = ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer = line.ask(both(harness, ApiKey.DESCRIBE_GROUPS, secret, "groups"), 5)
    assert by_name(answer.groups, "group_id") == {GROUP: 0, secret: no}
    answer = line.ask(both(harness, ApiKey.DELETE_GROUPS, secret, "groups_names"), 2)
    assert by_name(answer.results, "group_id") == {GROUP: ErrorCode.NON_EMPTY_GROUP, secret: no}
    answer = line.ask(both(harness, ApiKey.OFFSET_FETCH, secret, "groups"), 9)
    assert by_name(answer.groups, "group_id") == {GROUP: 0, secret: no}
    answer = line.ask(sample(harness, ApiKey.OFFSET_COMMIT, group=secret), 9)
    assert answer.topics[0].partitions[0].error_code == no


@pytest.mark.parametrize("version", [9, 13])
def test_batches_for_refused_topics_are_not_appended(
    harness: Harness, line: KafkaHarness, secret: str, version: int
) -> None:
    answer = line.ask(both(harness, ApiKey.PRODUCE, secret, "topic_data"), version)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (harness.partition(TOPIC).next_offset, harness.partition(secret).next_offset) == (2, 1)


def test_acks_0_to_a_refused_topic_closes_the_connection(harness: Harness, line: KafkaHarness, secret: str) -> None:
    request = sample(harness, ApiKey.PRODUCE, topic=secret)
    request.acks = 0
    line.send(request, 9)
    assert "TOPIC_AUTHORIZATION_FAILED" in (line.paper.reason or "")
    assert harness.partition(secret).next_offset == 1


@pytest.mark.parametrize("version", [12, 13])
def test_refused_topics_are_not_read_in_a_session_either(
    harness: Harness, line: KafkaHarness, secret: str, version: int
) -> None:
    def codes(answer: Any) -> list[tuple[int, int]]:
        return [(topic.partitions[0].error_code, len(topic.partitions[0].records or b"")) for topic in answer.responses]

    request = both(harness, ApiKey.FETCH, secret, "topics")
    request.session_epoch = 0
    opened = line.ask(request, version)
    [(allowed, size), refused] = codes(opened)
    assert (allowed, size > 0, refused) == (0, True, (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0))
    again = line.ask(FetchRequest(max_wait_ms=0, session_id=opened.session_id, session_epoch=1), version)
    assert (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0) in codes(again)
    topic_id = harness.broker.catalog.topic(secret).topic_id
    alone = FetchRequestTopic(secret, topic_id, [FetchRequestPartition(0, partition_max_bytes=1 << 20)])
    only = line.ask(FetchRequest(max_wait_ms=60_000, topics=[alone]), version)
    assert codes(only) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)]


def test_lists_leave_out_what_the_client_may_not_see(harness: Harness, line: KafkaHarness, secret: str) -> None:
    answer = line.ask(message(ApiKey.METADATA, "Request", None), 12)
    assert secret not in by_name(answer.topics, "name")
    assert TOPIC in by_name(answer.topics, "name")
    answer = line.ask(message(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "Request", [], 100), 0)
    assert secret not in by_name(answer.topics, "name")
    answer = line.ask(message(ApiKey.LIST_GROUPS, "Request"), 4)
    assert [group.group_id for group in answer.groups] == [GROUP]


def test_a_topic_that_the_client_may_not_create_is_not_created(harness: Harness, line: KafkaHarness) -> None:
    class NoCreation(Gate):
        def authorise(self, caller: Any, api: str, permissions: Any) -> Any:
            return [each for each in permissions if each.operation is Operation.CREATE]

    use(harness, NoCreation())
    answer = line.ask(message(ApiKey.METADATA, "Request", [message(ApiKey.METADATA, "RequestTopic", name="new")]), 12)
    assert by_name(answer.topics, "name") == {"new": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert "new" not in harness.broker.catalog.topics


def test_of_a_long_client_id_the_start_is_kept(harness: Harness, line: KafkaHarness) -> None:
    """It is kept as long as the connection, and there may be many connections."""
    connection = line.connection
    for _ in range(2):
        caller = line.server._pipeline._set_caller(connection, "x" * 30_000)
        assert len(caller.client_id) == len(connection.client_id) == 255
