"""The settings of brokers that can be changed while they run: their names, the allowed values, and their effect.

There are few of them: the rates at which replicas that are being added may be copied, which tools set for the time of a
reassignment. Everything else about a node is in its configuration. A setting belongs to one broker, or to all brokers
that do not set it themselves.

As in Kafka, a rate limits only the replicas that are listed in the settings of their topics (`throttled_replicas`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from drmq.catalog.features import BROKER_CONFIGS
from drmq.catalog.records import BrokerConfigsSet, Fact
from drmq.catalog.topic_configs import INT64_MAX, ConfigDefinition, ConfigType, throttled_replicas, whole_number
from drmq.catalog.topics import Topic
from drmq.model import ApiError, ErrorCode, NodeId

BrokerConfigs: TypeAlias = Mapping[NodeId | None, Mapping[str, str]]
"""The settings that were set, by broker; None for those of all brokers."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

BROKER_DEFINITIONS: dict[str, ConfigDefinition] = {
    definition.name: definition
    for definition in (
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
    )
}


def changed_broker_configs(
    present: BrokerConfigs, level: int, node_id: NodeId | None, changes: Mapping[str, str | None], *, replace_all: bool
) -> list[Fact]:
    """The facts that change settings of a broker, at this level of `metadata.version`. Raises `ApiError`.

    A value of None resets a setting, if it is set. With `replace_all`, so do settings that are not in `changes`.
    """
    before = dict(present.get(node_id, {}))
    configs = {} if replace_all else {name: value for name, value in before.items() if name not in changes}
    configs |= {name: _checked(name, value) for name, value in changes.items() if value is not None}
    if configs == before:
        return []
    if level < BROKER_CONFIGS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "settings of brokers cannot be changed at run time before the upgrade of the cluster is finalized; see "
            "`drmq cluster features`, then `drmq cluster upgrade --finalize`",
        )
    return [BrokerConfigsSet(node_id, configs)]


def _checked(name: str, value: str) -> str:
    """The value. Raises `ApiError` unless the setting can be changed at run time and the value is allowed."""
    definition = BROKER_DEFINITIONS.get(name)
    if definition is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name} cannot be changed while a broker runs, only {', '.join(BROKER_DEFINITIONS)}; change the node's "
            "configuration and restart it",
        )
    problem = definition.problem(value)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}={value!r} {problem}")
    return value


def with_broker_configs(present: BrokerConfigs, fact: BrokerConfigsSet) -> BrokerConfigs:
    """The settings after a fact."""
    changed = {broker: configs for broker, configs in present.items() if broker != fact.node_id}
    return changed | {fact.node_id: fact.configs} if fact.configs else changed


def broker_config(configs: BrokerConfigs, node_id: NodeId, name: str) -> str | None:
    """The value of a setting that is in effect for a broker; None if neither it nor all brokers have one."""
    return configs.get(node_id, {}).get(name) or configs.get(None, {}).get(name)


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
