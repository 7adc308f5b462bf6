"""Where the broker is, and names that no other test uses."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from conformance.skips import reason_to_skip
from support.clients import CLIENTS, Client, Member
from support.cluster import ClusterProcesses
from support.polling import PATIENCE_S, eventually
from support.processes import BrokerProcess
from support.wire import RawConnection, list_offsets

BOOTSTRAP_VARIABLE = "DRMQ_TEST_BOOTSTRAP"
NODES_VARIABLE = "DRMQ_TEST_NODES"
"""How many nodes the broker of our own has."""
ENVIRONMENT = {"DRMQ_RETENTION_CHECK_INTERVAL_MS": "3600000"}
"""Some tests write records with old timestamps, which must not expire while the test runs."""
NOT_LEADER = 6

EARLIEST = -2
"""The time that means the first offset, in ListOffsets."""

MakeTopic = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what `skips.py` lists, each with its reason."""
    foreign = BOOTSTRAP_VARIABLE in os.environ
    for item in items:
        if "conformance" not in item.path.parts:
            continue
        reason = reason_to_skip(item, foreign_broker=foreign)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker under test: the one named by the environment, else a DRMQ of our own."""
    named = os.environ.get(BOOTSTRAP_VARIABLE)
    if named:
        yield named
        return
    nodes = int(os.environ.get(NODES_VARIABLE) or 1)
    if nodes > 1:
        with ClusterProcesses(tmp_path_factory.mktemp("cluster"), nodes, env=ENVIRONMENT) as cluster:
            yield cluster[1].bootstrap
        return
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", env=ENVIRONMENT) as broker:
        yield broker.bootstrap


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each client in turn."""
    return CLIENTS[request.param](bootstrap)


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """confluent-kafka's administration client."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="session")
def kafka_admin(bootstrap: str) -> Iterator[Any]:
    """kafka-python's administration client."""
    from kafka import KafkaAdminClient

    with contextlib.closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        yield admin


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that only this test uses, and that says which test it was."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return f"{letters[:60]}-{uuid.uuid4().hex[:8]}"


def wait_for_leaders(bootstrap: str, topic: str, partitions: int) -> None:
    """Return once every partition answers for itself: Apache Kafka confirms a new topic before it is served."""
    with RawConnection(bootstrap) as connection:

        def error_codes() -> set[int]:
            answer = connection.ask(list_offsets(topic, partitions, EARLIEST, 1), 1)
            assert answer.int32() == 1
            assert answer.string() == topic
            codes = set()
            for _ in range(answer.int32()):
                answer.int32()
                codes.add(answer.int16())
                answer.take(16)
            return codes

        brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).brokers
        # Where there are others, one of them may lead.
        settled = {0} if len(brokers) == 1 else {0, NOT_LEADER}
        eventually(error_codes, lambda codes: codes <= settled, what=f"{topic} has leaders")


def _replicas(admin: AdminClient, bootstrap: str, partitions: int) -> dict[str, Any]:
    """Three replicas where there are three brokers, led by the one that is asked: some tests speak to it alone."""
    brokers = admin.list_topics(timeout=PATIENCE_S).brokers.values()
    if len(brokers) == 1:
        return {"replication_factor": 1}
    in_order = sorted(brokers, key=lambda broker: f"{broker.host}:{broker.port}" != bootstrap)
    return {"replica_assignment": [[broker.id for broker in in_order[:3]]] * partitions}


@pytest.fixture
def make_topic(admin: AdminClient, bootstrap: str, name: str) -> MakeTopic:
    """Create a topic of this test: `make_topic(partitions=3, suffix="b", config={...})` returns its name."""

    def make(partitions: int = 1, *, suffix: str = "", config: dict[str, str] | None = None) -> str:
        topic = name + suffix
        new = NewTopic(topic, num_partitions=partitions, config=config or {}, **_replicas(admin, bootstrap, partitions))
        admin.create_topics([new], operation_timeout=PATIENCE_S)[topic].result()
        wait_for_leaders(bootstrap, topic, partitions)
        return topic

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A fresh topic with one partition."""
    return make_topic()


@pytest.fixture
def members() -> Iterator[list[Member]]:
    """Group members that leave at the end of the test, if it did not let them leave before."""
    joined: list[Member] = []
    yield joined
    for member in joined:
        member.leave()
