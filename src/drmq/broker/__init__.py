"""The broker: the one place where the pure cores meet disks, clocks, the network and each other.

`Broker` builds a node from its parts. They are grouped by concern, and each subpackage opens with its own essay:

- `replication`: one Raft replica per partition, driven on a log, a ledger and the network;
- `partitions`: a partition as clients see it (offsets, producers, waiting requests), and the table of all of them;
- `coordination`: replicated state machines on internal topics, such as consumer groups;
- `cluster`: the catalog, the controller, membership, and what the catalog's decisions mean for this node;
- `services`: the operations that every client-facing protocol uses;
- `maintenance`: retention, snapshots, expiry.

Everything here runs on one event loop, which owns all state. Blocking calls run on the writer thread or on small thread
pools, one for each kind of work. The wire format of requests is in `drmq.kafka`.

The names below are imported when they are first used: the command line needs the options of a broker for its help
texts, and should not have to load the broker itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drmq.broker.options import BrokerOptions, ClusterOptions, ListenerOptions, PeerAddress

if TYPE_CHECKING:
    from drmq.broker.broker import Broker
    from drmq.broker.clock import Clock, SystemClock
    from drmq.broker.coordination.consumer_groups import ConsumerGroups, GroupShardCoordinator, Shard
    from drmq.broker.durability import durable
    from drmq.broker.partitions.derived_state import StateUnreadable
    from drmq.broker.partitions.log_store import DiskLogs, LogStore, MemoryLogs
    from drmq.broker.partitions.partition import Appended, Partition
    from drmq.broker.partitions.partition_table import PartitionTable, StoppedPartition
    from drmq.broker.services.topics import TopicService

__all__ = [
    "Appended",
    "Broker",
    "BrokerOptions",
    "Clock",
    "ClusterOptions",
    "ConsumerGroups",
    "DiskLogs",
    "GroupShardCoordinator",
    "ListenerOptions",
    "LogStore",
    "MemoryLogs",
    "Partition",
    "PartitionTable",
    "PeerAddress",
    "Shard",
    "StateUnreadable",
    "StoppedPartition",
    "SystemClock",
    "TopicService",
    "durable",
]

_HOMES = {
    "Appended": "partitions.partition",
    "Broker": "broker",
    "Clock": "clock",
    "DiskLogs": "partitions.log_store",
    "ConsumerGroups": "coordination.consumer_groups",
    "LogStore": "partitions.log_store",
    "MemoryLogs": "partitions.log_store",
    "Partition": "partitions.partition",
    "PartitionTable": "partitions.partition_table",
    "Shard": "coordination.consumer_groups",
    "GroupShardCoordinator": "coordination.consumer_groups",
    "StateUnreadable": "partitions.derived_state",
    "StoppedPartition": "partitions.partition_table",
    "SystemClock": "clock",
    "TopicService": "services.topics",
    "durable": "durability",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"drmq.broker.{home}"), name)
