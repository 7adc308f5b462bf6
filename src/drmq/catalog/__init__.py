"""The catalog: which topics there are, with which partitions and settings. Pure.

It is the cluster's only central truth, kept as a replicated state machine: operations return
facts, facts go through a log, `replay` makes them true. `topic_configs` says what can be set on a
topic; `records` turns facts into bytes and back.

Not here: where replicas live and who is alive. There is one node so far.
"""

from drmq.catalog.catalog import Catalog, Topic
from drmq.catalog.records import Fact, UnknownFact, decode_fact, encode_fact
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

__all__ = [
    "DEFINITIONS",
    "Catalog",
    "ConfigDefinition",
    "ConfigType",
    "Fact",
    "TimestampType",
    "Topic",
    "TopicConfig",
    "TopicDefaults",
    "UnknownFact",
    "check_config",
    "decode_fact",
    "default_texts",
    "effective",
    "encode_fact",
]
