"""Settings as Kafka's tools display them: the value, where it comes from, and the values it would fall back to.

A topic's setting has up to three layers: the value set on the topic, the value in the node's configuration for all
topics, and DRMQ's default. Each layer that has a value is a *synonym*. Synonyms are listed by precedence, and the first
one is in effect. A broker's settings are listed under Kafka's names for them, where Kafka has one, so that tools which
look up a setting by name find it. Few of them can be changed while the node runs: those have two more layers, the value
set on the broker and the value set on all brokers. A group's setting has two layers: the value set on the group, and
the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

from drmq.broker import Broker, BrokerOptions, ListenerOptions
from drmq.broker.release import release
from drmq.catalog import (
    BROKER_DEFINITIONS,
    DEFINITIONS,
    GROUP_DEFINITIONS,
    LEADER_RATE,
    ConfigType,
    Topic,
    TopicDefaults,
    default_group_texts,
    default_texts,
)
from drmq.model.names import CONSUMER_OFFSETS


class ConfigSource(IntEnum):
    """Where a value comes from, with the protocol's numbers."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """One layer of a setting. In the broker's layers the setting may have a different name."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic, a broker or a group."""

    name: str
    type: ConfigType
    doc: str
    read_only: bool
    synonyms: tuple[Synonym, ...]
    """Every layer that has a value, highest precedence first; never empty."""

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


# ---- topics -----------------------------------------------------------------------------------------


def topic_entries(broker: Broker, topic: Topic) -> list[ConfigEntry]:
    """All settings of a topic, sorted by name."""
    configured, built_in = default_texts(broker.topics.defaults), default_texts(TopicDefaults())
    entries = []
    for name, definition in sorted(DEFINITIONS.items()):
        layers = _layers(definition.broker_name or name, configured[name], built_in[name])
        if name in topic.configs:
            layers = (Synonym(name, topic.configs[name], ConfigSource.TOPIC), *layers)
        entries.append(ConfigEntry(name, definition.type, definition.doc, read_only=False, synonyms=layers))
    return entries


def _layers(name: str, configured: str, built_in: str) -> tuple[Synonym, ...]:
    default = Synonym(name, built_in, ConfigSource.DEFAULT)
    if configured == built_in:
        return (default,)
    return (Synonym(name, configured, ConfigSource.STATIC_BROKER), default)


# ---- groups -----------------------------------------------------------------------------------------


def group_entries(broker: Broker, group: str) -> list[ConfigEntry]:
    """All settings of a lease group, sorted by name."""
    catalog = broker.metadata.committed_catalog
    configs, defaults = catalog.group_configs.get(group, {}), default_group_texts(group, catalog.broker_configs)
    entries = []
    for name, definition in sorted(GROUP_DEFINITIONS.items()):
        layers: tuple[Synonym, ...] = (Synonym(definition.broker_name or name, defaults[name], ConfigSource.DEFAULT),)
        if name in configs:
            layers = (Synonym(name, configs[name], ConfigSource.GROUP), *layers)
        entries.append(ConfigEntry(name, definition.type, definition.doc, read_only=False, synonyms=layers))
    return entries


# ---- brokers ----------------------------------------------------------------------------------------


class _KafkaName(NamedTuple):
    """Kafka's name for an option, its type, and how many of the option's units make one of Kafka's units."""

    name: str
    type: ConfigType = ConfigType.INT
    divisor: int = 1


_OPTION_NAMES = {
    "auto_create_topics": _KafkaName("auto.create.topics.enable", ConfigType.BOOLEAN),
    "num_partitions": _KafkaName("num.partitions"),
    "retention_check_interval_ms": _KafkaName("log.retention.check.interval.ms", ConfigType.LONG),
    "offsets_retention_ms": _KafkaName("offsets.retention.minutes", divisor=60_000),
    "group_initial_rebalance_delay_ms": _KafkaName("group.initial.rebalance.delay.ms"),
    "group_session_timeout_min_ms": _KafkaName("group.min.session.timeout.ms"),
    "group_session_timeout_max_ms": _KafkaName("group.max.session.timeout.ms"),
    "group_size_max": _KafkaName("group.max.size"),
    "offset_metadata_bytes_max": _KafkaName("offset.metadata.max.bytes"),
    "offsets_topic_partitions": _KafkaName("offsets.topic.num.partitions"),
    "fetch_bytes_max": _KafkaName("fetch.max.bytes"),
    "fetch_sessions_max": _KafkaName("max.incremental.fetch.session.cache.slots"),
    "producer_expiry_ms": _KafkaName("producer.id.expiration.ms"),
    "request_bytes_max": _KafkaName("socket.request.max.bytes"),
    "connections_max": _KafkaName("max.connections"),
    "idle_timeout_ms": _KafkaName("connections.max.idle.ms", ConfigType.LONG),
}
"""Options of `BrokerOptions` and `ListenerOptions` for which Kafka has a name. The topic defaults are not included."""


def broker_entries(broker: Broker, limits: ListenerOptions) -> list[ConfigEntry]:
    """The settings of this node, sorted by name."""
    configured, built_in = default_texts(broker.topics.defaults), default_texts(TopicDefaults())
    entries = [
        ConfigEntry(
            definition.broker_name,
            definition.type,
            definition.doc,
            read_only=True,
            synonyms=_layers(definition.broker_name, configured[name], built_in[name]),
        )
        for name, definition in DEFINITIONS.items()
        if definition.broker_name is not None
    ]
    entries += _option_entries(broker.options, BrokerOptions())
    entries += _option_entries(limits, ListenerOptions())
    entries += _changeable(broker)
    entries += _facts(broker)
    return sorted(entries, key=lambda entry: entry.name)


def _option_entries(
    options: BrokerOptions | ListenerOptions, defaults: BrokerOptions | ListenerOptions
) -> Iterator[ConfigEntry]:
    for field in fields(options):
        named = _OPTION_NAMES.get(field.name)
        if named is not None:
            layers = _layers(
                named.name,
                _text(getattr(options, field.name), named.divisor),
                _text(getattr(defaults, field.name), named.divisor),
            )
            doc = f"The option `{field.name}` of the node's configuration."
            yield ConfigEntry(named.name, named.type, doc, read_only=True, synonyms=layers)


def _changeable(broker: Broker) -> Iterator[ConfigEntry]:
    """The settings that can be changed while the node runs."""
    configs = broker.metadata.committed_catalog.broker_configs
    for name, definition in BROKER_DEFINITIONS.items():
        layers = [
            Synonym(name, configs[node_id][name], source)
            for node_id, source in ((broker.node_id, ConfigSource.BROKER), (None, ConfigSource.ALL_BROKERS))
            if name in configs.get(node_id, {})
        ]
        if name == LEADER_RATE:
            rates = str(broker.options.reassignment_bytes_per_s), str(BrokerOptions().reassignment_bytes_per_s)
            layers += _layers(name, *rates)
        else:
            layers.append(Synonym(name, definition.default, ConfigSource.DEFAULT))
        yield ConfigEntry(name, definition.type, definition.doc, read_only=False, synonyms=tuple(layers))


def all_brokers_entries(broker: Broker) -> list[ConfigEntry]:
    """The settings that were set on all brokers, sorted by name."""
    configs = broker.metadata.committed_catalog.broker_configs.get(None, {})
    return [
        ConfigEntry(
            name,
            BROKER_DEFINITIONS[name].type,
            BROKER_DEFINITIONS[name].doc,
            read_only=False,
            synonyms=(Synonym(name, value, ConfigSource.ALL_BROKERS),),
        )
        for name, value in sorted(configs.items())
        if name in BROKER_DEFINITIONS
    ]


def _facts(broker: Broker) -> Iterator[ConfigEntry]:
    """Properties of the node that are not options in DRMQ, but are settings in Kafka."""
    host, port = broker.advertised
    static, default = ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT
    factor = broker.metadata.committed_catalog.default_replication_factor
    offsets = broker.metadata.committed_catalog.topics.get(CONSUMER_OFFSETS)
    offsets_factor = factor if offsets is None else len(offsets.partitions[0].planned)
    for name, config_type, value, source, doc in (
        (
            "advertised.listeners",
            ConfigType.STRING,
            f"PLAINTEXT://{host}:{port}",
            static,
            "The address that clients connect to.",
        ),
        ("broker.id", ConfigType.INT, str(broker.node_id), static, "This node's id."),
        ("node.id", ConfigType.INT, str(broker.node_id), static, "This node's id."),
        ("process.roles", ConfigType.LIST, ",".join(broker.cluster.roles), static, "What this node does."),
        (
            "broker.rack",
            ConfigType.STRING,
            broker.cluster.rack,
            default if broker.cluster.rack is None else static,
            "The rack of this node: replicas are spread over racks, and clients read from their own.",
        ),
        ("drmq.release", ConfigType.STRING, release(), static, "The release of DRMQ that this node runs."),
        ("log.dirs", ConfigType.STRING, broker.store.location, static, "The data directory."),
        (
            "default.replication.factor",
            ConfigType.INT,
            str(factor),
            default,
            "Replicas of a new topic if its creator gives no number: three, or the number of live brokers if fewer.",
        ),
        (
            "offsets.topic.replication.factor",
            ConfigType.INT,
            str(offsets_factor),
            default,
            "Replicas of `__consumer_offsets`: the current number, or the number it would be created with now.",
        ),
        ("delete.topic.enable", ConfigType.BOOLEAN, "true", default, "Topics can be deleted."),
    ):
        yield ConfigEntry(name, config_type, doc, read_only=True, synonyms=(Synonym(name, value, source),))


def _text(value: object, divisor: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    assert isinstance(value, int), value
    return str(value // divisor)
