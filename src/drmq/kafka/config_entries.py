"""Settings as Kafka's tools want to see them: value, where it comes from, and what it would fall back to.

A topic's setting has up to three layers: what was set on the topic, what the node's configuration
says for all topics, and DRMQ's own default. Each layer that says something is a *synonym*, the
strongest first, and the first one counts. A broker's settings are listed under the names that Kafka
has for them, as far as it has any, so that tools which look one up by name find it; they cannot be
changed while the node runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

from drmq.broker import Broker, BrokerOptions, ListenerOptions
from drmq.broker.release import release
from drmq.catalog import DEFINITIONS, ConfigDefinition, ConfigType, Topic, TopicDefaults, default_texts
from drmq.model.names import CONSUMER_OFFSETS


class ConfigSource(IntEnum):
    """Where a value comes from, with the protocol's numbers."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One layer of a setting; on the broker's layers its name may be another one."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic or a broker."""

    name: str
    type: ConfigType
    doc: str
    read_only: bool
    synonyms: tuple[Synonym, ...]
    """Every layer that has a value, the strongest first; never empty."""

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


# ---- topics -----------------------------------------------------------------------------------------


def topic_entries(broker: Broker, topic: Topic) -> list[ConfigEntry]:
    """All settings of a topic, in the order of their names."""
    configured, built_in = default_texts(broker.topics.defaults), default_texts(TopicDefaults())
    entries = []
    for name, definition in sorted(DEFINITIONS.items()):
        layers = _broker_layers(definition, configured[name], built_in[name])
        if name in topic.configs:
            layers = (Synonym(name, topic.configs[name], ConfigSource.TOPIC), *layers)
        entries.append(ConfigEntry(name, definition.type, definition.doc, read_only=False, synonyms=layers))
    return entries


def _broker_layers(definition: ConfigDefinition, configured: str, built_in: str) -> tuple[Synonym, ...]:
    return _layers(definition.broker_name, configured, built_in)


def _layers(name: str, configured: str, built_in: str) -> tuple[Synonym, ...]:
    default = Synonym(name, built_in, ConfigSource.DEFAULT)
    if configured == built_in:
        return (default,)
    return (Synonym(name, configured, ConfigSource.STATIC_BROKER), default)


# ---- brokers ----------------------------------------------------------------------------------------


class _Named(NamedTuple):
    """Kafka's name for an option, and how many of the option's units make one of Kafka's."""

    name: str
    type: ConfigType = ConfigType.INT
    divisor: int = 1


_OPTION_NAMES = {
    "auto_create_topics": _Named("auto.create.topics.enable", ConfigType.BOOLEAN),
    "num_partitions": _Named("num.partitions"),
    "retention_check_interval_ms": _Named("log.retention.check.interval.ms", ConfigType.LONG),
    "offsets_retention_ms": _Named("offsets.retention.minutes", divisor=60_000),
    "group_initial_rebalance_delay_ms": _Named("group.initial.rebalance.delay.ms"),
    "group_session_timeout_min_ms": _Named("group.min.session.timeout.ms"),
    "group_session_timeout_max_ms": _Named("group.max.session.timeout.ms"),
    "group_size_max": _Named("group.max.size"),
    "offset_metadata_bytes_max": _Named("offset.metadata.max.bytes"),
    "offsets_topic_partitions": _Named("offsets.topic.num.partitions"),
    "fetch_bytes_max": _Named("fetch.max.bytes"),
    "fetch_sessions_max": _Named("max.incremental.fetch.session.cache.slots"),
    "producer_expiry_ms": _Named("producer.id.expiration.ms"),
    "request_bytes_max": _Named("socket.request.max.bytes"),
    "connections_max": _Named("max.connections"),
    "idle_timeout_ms": _Named("connections.max.idle.ms", ConfigType.LONG),
}
"""Options of `BrokerOptions` and `ListenerOptions` that Kafka has a name for, besides the topics' defaults."""


def broker_entries(broker: Broker, limits: ListenerOptions) -> list[ConfigEntry]:
    """The settings of this node, in the order of their names."""
    configured, built_in = default_texts(broker.topics.defaults), default_texts(TopicDefaults())
    entries = [
        ConfigEntry(
            definition.broker_name,
            definition.type,
            definition.doc,
            read_only=True,
            synonyms=_broker_layers(definition, configured[name], built_in[name]),
        )
        for name, definition in DEFINITIONS.items()
    ]
    entries += _option_entries(broker.options, BrokerOptions())
    entries += _option_entries(limits, ListenerOptions())
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


def _facts(broker: Broker) -> Iterator[ConfigEntry]:
    """What is not an option but is asked for as if it were."""
    host, port = broker.advertised
    static, default = ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT
    factor = broker.metadata.committed_catalog.default_replication_factor
    offsets = broker.metadata.committed_catalog.topics.get(CONSUMER_OFFSETS)
    offsets_factor = factor if offsets is None else len(offsets.partitions[0].planned)
    for name, config_type, value, source, doc in (
        ("advertised.listeners", ConfigType.STRING, f"PLAINTEXT://{host}:{port}", static, "Where clients connect."),
        ("broker.id", ConfigType.INT, str(broker.node_id), static, "This node's id."),
        ("node.id", ConfigType.INT, str(broker.node_id), static, "This node's id."),
        ("drmq.release", ConfigType.STRING, release(), static, "The release of DRMQ that this node runs."),
        ("log.dirs", ConfigType.STRING, broker.store.location, static, "The data directory."),
        (
            "default.replication.factor",
            ConfigType.INT,
            str(factor),
            default,
            "Replicas of a new topic that asks for none in particular: three, or as many as there are brokers up.",
        ),
        (
            "offsets.topic.replication.factor",
            ConfigType.INT,
            str(offsets_factor),
            default,
            "Replicas of `__consumer_offsets`, as it is or as it would be made now.",
        ),
        ("delete.topic.enable", ConfigType.BOOLEAN, "true", default, "Topics can be deleted."),
    ):
        yield ConfigEntry(name, config_type, doc, read_only=True, synonyms=(Synonym(name, value, source),))


def _text(value: object, divisor: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    assert isinstance(value, int), value
    return str(value // divisor)
