"""The catalog: the brokers and topics of the cluster, their settings, and which broker has which replica. Pure.

The catalog is the cluster's only central state, kept as a replicated state machine: operations return facts, facts are
appended to the metadata log, and `replay` applies them. `brokers` and `topics` define its content, `topic_configs`,
`broker_configs` and `group_configs` the settings, and `records` encodes and decodes facts. `moves` applies
reassignments, and `features` defines what may be written while nodes of two releases run in one cluster. `placement`
chooses nodes for new partitions, and `balance` plans moves of existing ones.

Not here: which nodes are up, which replicas lead and which are in sync. The drivers know that. Only decisions that
follow from it reach the catalog as facts.
"""

from drmq.catalog.balance import Move, plan_leaders, plan_rebalance, plan_rebalance_in_steps
from drmq.catalog.broker_configs import (
    BROKER_DEFINITIONS,
    CLUSTER_WIDE,
    DEAD_LETTER_CREATES,
    LEADER_RATE,
    BrokerConfigs,
    broker_config,
    cluster_config,
    copy_rate,
)
from drmq.catalog.brokers import Broker
from drmq.catalog.capacity import check_capacity, check_drain
from drmq.catalog.catalog import Catalog
from drmq.catalog.config_definitions import ConfigDefinition, ConfigType
from drmq.catalog.features import (
    FEATURES,
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    SUPPORTED,
    TYPED_ENTRIES,
    Feature,
)
from drmq.catalog.group_configs import (
    GROUP_DEFINITIONS,
    GroupConfig,
    GroupConfigs,
    default_group_texts,
    effective_group,
)
from drmq.catalog.placement import Load, place
from drmq.catalog.records import (
    AssignmentRestored,
    BrokerConfigsSet,
    BrokerDrainCancelled,
    BrokerDraining,
    BrokerFenced,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    Fact,
    FeatureLevelSet,
    GroupConfigsSet,
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
    DEAD_LETTERS_ALLOWED,
    DEFINITIONS,
    Compression,
    TimestampType,
    TopicConfig,
    TopicDefaults,
    check_config,
    default_texts,
    effective,
    takes_dead_letters,
    throttled_replicas,
)
from drmq.catalog.topics import Assignment, Topic

__all__ = [
    "BROKER_DEFINITIONS",
    "CLUSTER_WIDE",
    "DEAD_LETTERS_ALLOWED",
    "DEAD_LETTER_CREATES",
    "DEFINITIONS",
    "FEATURES",
    "GROUP_DEFINITIONS",
    "GROUP_VERSION",
    "LEADER_RATE",
    "METADATA_VERSION",
    "SHARE_VERSION",
    "SUPPORTED",
    "TYPED_ENTRIES",
    "Assignment",
    "AssignmentRestored",
    "Broker",
    "BrokerConfigs",
    "BrokerConfigsSet",
    "BrokerDrainCancelled",
    "BrokerDraining",
    "BrokerFenced",
    "BrokerRegistered",
    "BrokerRemoved",
    "BrokerUnfenced",
    "Catalog",
    "ClusterCreated",
    "Compression",
    "ConfigDefinition",
    "ConfigType",
    "Fact",
    "Feature",
    "FeatureLevelSet",
    "GroupConfig",
    "GroupConfigs",
    "GroupConfigsSet",
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
    "broker_config",
    "check_capacity",
    "check_config",
    "check_drain",
    "cluster_config",
    "copy_rate",
    "decode_fact",
    "default_group_texts",
    "default_texts",
    "effective",
    "effective_group",
    "encode_fact",
    "place",
    "plan_leaders",
    "plan_rebalance",
    "plan_rebalance_in_steps",
    "takes_dead_letters",
    "throttled_replicas",
]
