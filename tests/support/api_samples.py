"""A request of every API that is served, about things that exist: to see what becomes of each on its way."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from drmq.wire import APIS, ApiKey
from support.batches import a_batch
from support.broker_harness import Harness

TOPIC, GROUP = "orders", "readers"


def message(api: ApiKey, suffix: str, *args: Any, **fields: Any) -> Any:
    """One of the classes of an API's messages: `message(ApiKey.METADATA, "RequestTopic", name="t")`."""
    module = import_module(f"drmq.wire.messages.{api.name.lower()}")
    camel = "".join(word.capitalize() for word in api.name.split("_"))
    return getattr(module, camel + suffix)(*args, **fields)


def prepare(harness: Harness) -> None:
    """Make what the requests are about."""
    harness.create_topic(TOPIC)
    harness.produce(TOPIC)
    harness.join(GROUP)


def sample(harness: Harness, api: ApiKey, topic: str = TOPIC, group: str = GROUP) -> Any:
    """A request that would be carried out, or would have something to tell, if it were allowed."""

    def make(suffix: str, *args: Any, **fields: Any) -> Any:
        return message(api, suffix, *args, **fields)

    known = harness.broker.catalog.topics.get(topic)
    topic_id = bytes(16) if known is None else known.topic_id
    topics: dict[ApiKey, Callable[[], Any]] = {
        ApiKey.PRODUCE: lambda: make(
            "Request",
            acks=-1,
            timeout_ms=1_000,
            topic_data=[make("RequestTopic", topic, topic_id, [make("RequestPartition", 0, bytes(a_batch()))])],
        ),
        ApiKey.FETCH: lambda: make(
            "Request",
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[make("RequestTopic", topic, topic_id, [make("RequestPartition", 0, partition_max_bytes=1 << 20)])],
        ),
        ApiKey.LIST_OFFSETS: lambda: make(
            "Request", topics=[make("RequestTopic", topic, [make("RequestPartition", 0, timestamp=-1)])]
        ),
        ApiKey.METADATA: lambda: make("Request", [make("RequestTopic", name=topic)]),
        ApiKey.CREATE_TOPICS: lambda: make("Request", [make("RequestTopic", f"new-{topic}", 1, 1)]),
        ApiKey.DELETE_TOPICS: lambda: make("Request", topics=[make("RequestTopic", topic)], topic_names=[topic]),
        ApiKey.DELETE_RECORDS: lambda: make(
            "Request", [make("RequestTopic", topic, [make("RequestPartition", 0, offset=1)])]
        ),
        ApiKey.CREATE_PARTITIONS: lambda: make("Request", [make("RequestTopic", topic, 5)]),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: make(
            "Request", topics=[make("RequestTopic", topic, [make("RequestPartition", 0, -1, 0)])]
        ),
        ApiKey.DESCRIBE_PRODUCERS: lambda: make("Request", [make("RequestTopic", topic, [0])]),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda: make("Request", [make("RequestTopic", topic)], 10),
        ApiKey.DESCRIBE_CONFIGS: lambda: make("Request", [make("RequestResource", 2, topic)]),
        ApiKey.ALTER_CONFIGS: lambda: make(
            "Request", [make("RequestResource", 2, topic, [make("RequestConfig", "retention.ms", "77")])]
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda: make(
            "Request", [make("RequestResource", 2, topic, [make("RequestConfig", "retention.ms", 0, "77")])]
        ),
    }
    groups: dict[ApiKey, Callable[[], Any]] = {
        ApiKey.OFFSET_COMMIT: lambda: make(
            "Request",
            group,
            topics=[make("RequestTopic", topic, topic_id, [make("RequestPartition", 0, committed_offset=1)])],
        ),
        ApiKey.OFFSET_FETCH: lambda: make(
            "Request", group, [make("RequestTopic", topic, [0])], [make("RequestGroup", group, topics=None)]
        ),
        ApiKey.FIND_COORDINATOR: lambda: make("Request", group, coordinator_keys=[group]),
        ApiKey.JOIN_GROUP: lambda: make(
            "Request", group, 10_000, 20_000, protocol_type="consumer", protocols=[make("RequestProtocol", "range")]
        ),
        ApiKey.HEARTBEAT: lambda: make("Request", group),
        ApiKey.SYNC_GROUP: lambda: make("Request", group),
        ApiKey.LEAVE_GROUP: lambda: make("Request", group, members=[make("RequestMember", "m")]),
        ApiKey.DESCRIBE_GROUPS: lambda: make("Request", [group]),
        ApiKey.DELETE_GROUPS: lambda: make("Request", [group]),
        ApiKey.SHARE_GROUP_HEARTBEAT: lambda: make("Request", f"share-{group}", "m", 0, None, [topic]),
        ApiKey.SHARE_GROUP_DESCRIBE: lambda: make("Request", [f"share-{group}"]),
        ApiKey.SHARE_FETCH: lambda: make(
            "Request",
            f"share-{group}",
            "m",
            max_records=1,
            topics=[make("RequestTopic", topic_id, [make("RequestPartition", 0)])],
        ),
        ApiKey.SHARE_ACKNOWLEDGE: lambda: make(
            "Request", f"share-{group}", "m", 1, topics=[make("RequestTopic", topic_id, [make("RequestPartition", 0)])]
        ),
        ApiKey.LEASE_FETCH: lambda: make(
            "Request",
            f"share-{group}",
            "m",
            max_records=1,
            topics=[make("RequestTopic", topic_id, [make("RequestPartition", 0)])],
        ),
        ApiKey.REDRIVE: lambda: make("Request", 0, topic),
        ApiKey.DESCRIBE_LEASES: lambda: make("Request", f"share-{group}", [topic]),
        ApiKey.DESCRIBE_BACKLOG: lambda: make(
            "Request", [make("RequestTopic", topic, [make("RequestPartition", 0, 0)])]
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda: make("Request", [make("RequestGroup", f"share-{group}", None)]),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda: make(
            "Request", f"share-{group}", [make("RequestTopic", topic, [make("RequestPartition", 0, 0)])]
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda: make("Request", f"share-{group}", [make("RequestTopic", topic)]),
        ApiKey.OFFSET_DELETE: lambda: make("Request", group, [make("RequestTopic", topic, [make("RequestPartition")])]),
    }
    others: dict[ApiKey, Callable[[], Any]] = {
        ApiKey.LIST_GROUPS: lambda: make("Request"),
        ApiKey.SASL_HANDSHAKE: lambda: make("Request", "PLAIN"),
        ApiKey.SASL_AUTHENTICATE: lambda: make("Request", b"secret"),
        ApiKey.API_VERSIONS: lambda: make("Request", "test", "1"),
        ApiKey.INIT_PRODUCER_ID: lambda: make("Request", transactional_id=None),
        ApiKey.ALTER_REPLICA_LOG_DIRS: lambda: make(
            "Request", [make("RequestDir", "memory", [make("RequestTopic", topic, [0])])]
        ),
        ApiKey.DESCRIBE_LOG_DIRS: lambda: make("Request", None),
        ApiKey.ELECT_LEADERS: lambda: make("Request", topic_partitions=[make("RequestTopic", topic, [0])]),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda: make(
            "Request", topics=[make("RequestTopic", topic, [make("RequestPartition", 0, [1])])]
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda: make("Request", topics=None),
        ApiKey.DESCRIBE_QUORUM: lambda: make("Request", [make("RequestTopic", "__cluster_metadata")]),
        ApiKey.DESCRIBE_CLUSTER: lambda: make("Request"),
        ApiKey.DESCRIBE_COUNTERS: lambda: make("Request"),
        ApiKey.DESCRIBE_EVENTS: lambda: make("Request"),
        ApiKey.FAULT_LAB: lambda: make("Request"),
        ApiKey.LIST_CONFIG_RESOURCES: lambda: make("Request"),
        ApiKey.UNREGISTER_BROKER: lambda: make("Request", 1),
        ApiKey.ADD_RAFT_VOTER: lambda: make("Request", voter_id=1),
        ApiKey.REMOVE_RAFT_VOTER: lambda: make("Request", voter_id=1),
        ApiKey.UPDATE_FEATURES: lambda: make(
            "Request", feature_updates=[make("RequestFeatureUpdate", "metadata.version", 2)]
        ),
    }
    made = (topics | groups | others).get(api)
    assert made is not None, f"{api.name} has no sample: add one, so that it is seen at the gate"
    return made()


EVERY_VERSION = [(api.key, version) for api in APIS.values() for version in range(api.version_min, api.version_max + 1)]
