"""The settings of brokers that can be changed while they run: their names, the allowed values, and their effect.

There are few of them: the rates at which replicas that are being added may be copied, which tools set for the time of a
reassignment, and rules for lease groups that must be the same on all nodes. Everything else about a node is in its
configuration. A setting belongs to one broker, or to all brokers that do not set it themselves. Those in `CLUSTER_WIDE`
belong to all brokers.

As in Kafka, a rate limits only the replicas that are listed in the settings of their topics (`throttled_replicas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from drmq.catalog.config_definitions import (
    INT64_MAX,
    ConfigDefinition,
    ConfigType,
    boolean,
    check_value,
    table_of,
    whole_number,
)
from drmq.catalog.features import BROKER_CONFIGS
from drmq.catalog.records import BrokerConfigsSet, Fact
from drmq.catalog.topic_configs import throttled_replicas
from drmq.catalog.topics import Topic
from drmq.model import ApiError, ErrorCode, NodeId
from drmq.model.names import is_internal, is_topic_name

BrokerConfigs: TypeAlias = Mapping[NodeId | None, Mapping[str, str]]
"""The settings that were set, by broker; None for those of all brokers."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
DEAD_LETTER_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
DEAD_LETTER_CREATES: Final = "errors.deadletterqueue.auto.create.topics.enable"
LOCK_DURATION_MIN: Final = "group.share.min.record.lock.duration.ms"
LOCK_DURATION_MAX: Final = "group.share.max.record.lock.duration.ms"
_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

_PREFIX_LENGTH_MAX = 100


def _prefix_problem(value: str) -> str | None:
    if is_internal(value):
        return "begins with __, which is reserved for internal topics"
    if value and (len(value) > _PREFIX_LENGTH_MAX or not is_topic_name(value + "x")):
        return f"is not up to {_PREFIX_LENGTH_MAX} ASCII letters, digits, '.', '_' and '-'"
    return None


BROKER_DEFINITIONS: dict[str, ConfigDefinition] = table_of(
    ConfigDefinition(
        LEADER_RATE,
        ConfigType.LONG,
        str(INT64_MAX),
        LEADER_RATE,
        "Bytes per second that the broker sends to replicas that are being added, for the replicas listed in "
        f"`{_LEADER_REPLICAS}` of their topics. Others are copied at `reassignment_bytes_per_s`.",
        whole_number(1, INT64_MAX),
    ),
    ConfigDefinition(
        FOLLOWER_RATE,
        ConfigType.LONG,
        str(INT64_MAX),
        FOLLOWER_RATE,
        "Bytes per second that each leader sends to the broker's replicas that are being added, for the replicas "
        f"listed in `{_FOLLOWER_REPLICAS}` of their topics.",
        whole_number(1, INT64_MAX),
    ),
    ConfigDefinition(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        ConfigType.LONG,
        str(INT64_MAX),
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "Bytes per second for moves between data directories. A node has one, so nothing is moved.",
        whole_number(1, INT64_MAX),
    ),
    ConfigDefinition(
        DEAD_LETTER_PREFIX,
        ConfigType.STRING,
        "dlq.",
        DEAD_LETTER_PREFIX,
        "What the names of dead-letter topics begin with. Checked when a group is given a topic.",
        _prefix_problem,
        allowed="a beginning of a topic name, or empty",
    ),
    ConfigDefinition(
        DEAD_LETTER_CREATES,
        ConfigType.BOOLEAN,
        "true",
        DEAD_LETTER_CREATES,
        "Whether a dead-letter topic that does not exist is created. If not, records that are given up stay in their "
        "queues until somebody creates it.",
        boolean,
        allowed="`true`, `false`",
    ),
    ConfigDefinition(
        LOCK_DURATION_MIN,
        ConfigType.INT,
        "15000",
        LOCK_DURATION_MIN,
        "The shortest `share.record.lock.duration.ms` that may be set on a group, in ms.",
        whole_number(1_000, 30_000),
        allowed="1000 to 30000",
    ),
    ConfigDefinition(
        LOCK_DURATION_MAX,
        ConfigType.INT,
        "60000",
        LOCK_DURATION_MAX,
        "The longest `share.record.lock.duration.ms` that may be set on a group, in ms.",
        whole_number(30_000, 3_600_000),
        allowed="30000 to 3600000",
    ),
)

CLUSTER_WIDE: Final = (DEAD_LETTER_PREFIX, DEAD_LETTER_CREATES, LOCK_DURATION_MIN, LOCK_DURATION_MAX)
"""Settings that can be set on all brokers only."""


def changed_broker_configs(
    present: BrokerConfigs, level: int, node_id: NodeId | None, changes: Mapping[str, str | None], *, replace_all: bool
) -> list[Fact]:
    """The facts that change settings of a broker, at this level of `metadata.version`. Raises `ApiError`.

    A value of None resets a setting, if it is set. With `replace_all`, so do settings that are not in `changes`.
    """
    before = dict(present.get(node_id, {}))
    configs = {} if replace_all else {name: value for name, value in before.items() if name not in changes}
    configs |= {name: _checked(name, value, node_id) for name, value in changes.items() if value is not None}
    if configs == before:
        return []
    if level < BROKER_CONFIGS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "settings of brokers cannot be changed at run time before the upgrade of the cluster is finalized; see "
            "`drmq cluster features`, then `drmq cluster upgrade --finalize`",
        )
    return [BrokerConfigsSet(node_id, configs)]


def _checked(name: str, value: str, node_id: NodeId | None) -> str:
    """The value. Raises `ApiError` unless the setting can be changed at run time and the value is allowed."""
    definition = BROKER_DEFINITIONS.get(name)
    if definition is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name} cannot be changed while a broker runs, only {', '.join(BROKER_DEFINITIONS)}; change the node's "
            "configuration and restart it",
        )
    if name in CLUSTER_WIDE and node_id is not None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{name} is the same on all brokers; set it on all brokers (an empty broker name), not on {node_id}",
        )
    check_value(BROKER_DEFINITIONS, "broker", name, value)
    return value


def with_broker_configs(present: BrokerConfigs, fact: BrokerConfigsSet) -> BrokerConfigs:
    """The settings after a fact."""
    changed = {broker: configs for broker, configs in present.items() if broker != fact.node_id}
    return changed | {fact.node_id: fact.configs} if fact.configs else changed


def broker_config(configs: BrokerConfigs, node_id: NodeId, name: str) -> str | None:
    """The value of a setting that is in effect for a broker; None if neither it nor all brokers have one."""
    return configs.get(node_id, {}).get(name) or configs.get(None, {}).get(name)


def cluster_config(configs: BrokerConfigs, name: str) -> str:
    """The value of a setting of all brokers, or its default."""
    return configs.get(None, {}).get(name, BROKER_DEFINITIONS[name].default)


def copy_rate(
    configs: BrokerConfigs, topic: Topic, partition: int, leader: NodeId, follower: NodeId, bytes_per_s: int
) -> int:
    """The rate in bytes per second at which a leader copies a partition to a new replica.

    `bytes_per_s` is the rate of replicas that are not throttled.
    """
    rate = bytes_per_s
    if _is_throttled(topic, _LEADER_REPLICAS, partition, leader):
        rate = int(broker_config(configs, leader, LEADER_RATE) or rate)
    if _is_throttled(topic, _FOLLOWER_REPLICAS, partition, follower):
        rate = min(rate, int(broker_config(configs, follower, FOLLOWER_RATE) or rate))
    return rate


def _is_throttled(topic: Topic, setting: str, partition: int, node_id: NodeId) -> bool:
    replicas = throttled_replicas(topic.configs.get(setting, ""))
    return replicas is None or (partition, node_id) in replicas
