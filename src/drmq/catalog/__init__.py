"""The catalog: which brokers and topics there are, with which settings, and who keeps what. Pure.

It is the cluster's only central truth, kept as a replicated state machine: operations return
facts, facts go through the metadata log, `replay` makes them true. `brokers` and `topics` are what it
is made of, `topic_configs` says what can be set on a topic, `records` turns facts into bytes and
back. `placement` finds nodes for new partitions and `balance` evens out what is there.

Not here: who is alive, who leads, who is in sync. The drivers see that; what follows from it reaches
the catalog as facts.
"""

from drmq.catalog.balance import Move, plan_leaders, plan_rebalance
from drmq.catalog.brokers import Broker
from drmq.catalog.catalog import Catalog
from drmq.catalog.placement import Load, place
from drmq.catalog.records import (
    AssignmentRestored,
    BrokerDrainCancelled,
    BrokerDraining,
    BrokerFenced,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    Fact,
    PartitionsAdded,
    ProducerIdsReserved,
    ReassignmentCancelled,
    ReassignmentFinished,
    ReassignmentStarted,
    ReplicaLost,
    TopicConfigsSet,
    TopicCreated,
    TopicDeleted,
    UnknownFact,
    decode_fact,
    encode_fact,
)
from drmq.catalog.topic_configs import (
    DEFINITIONS,
    ConfigDefinition,
    ConfigType,
    TimestampType,
    TopicConfig,
    TopicDefaults,
    check_config,
    default_texts,
    effective,
)
from drmq.catalog.topics import Assignment, Topic

__all__ = [
    "DEFINITIONS",
    "Assignment",
    "AssignmentRestored",
    "Broker",
    "BrokerDrainCancelled",
    "BrokerDraining",
    "BrokerFenced",
    "BrokerRegistered",
    "BrokerRemoved",
    "BrokerUnfenced",
    "Catalog",
    "ClusterCreated",
    "ConfigDefinition",
    "ConfigType",
    "Fact",
    "Load",
    "Move",
    "PartitionsAdded",
    "ProducerIdsReserved",
    "ReassignmentCancelled",
    "ReassignmentFinished",
    "ReassignmentStarted",
    "ReplicaLost",
    "TimestampType",
    "Topic",
    "TopicConfig",
    "TopicConfigsSet",
    "TopicCreated",
    "TopicDefaults",
    "TopicDeleted",
    "UnknownFact",
    "check_config",
    "decode_fact",
    "default_texts",
    "effective",
    "encode_fact",
    "place",
    "plan_leaders",
    "plan_rebalance",
]
