"""The broker: the one place where the pure cores meet disks, clocks, the network and each other.

`Broker` puts a node together. The way of a record is `Partition` (offsets, producers, who waits), `Replica`
(consensus on a log, a ledger and the network) and `EntryLog` (indexes and offsets), with `GroupHost` for what all
replicas of a node share: time, messages, sleep. `PartitionTable` has the node's partitions, `states` what their logs
amount to, `Maintenance` removes what is too old.

State machines live on partitions of their own (`MachineLog`): `Metadata` with the catalog, `GroupCoordinator` with
the groups. `Membership` is the node's place among others, `Controller` what only one node decides, `Assignments`
what the catalog's decisions mean for this node's files and groups, `TopicService` what clients ask of topics.

Everything here runs on one event loop and owns what it touches; what blocks runs on the writer
thread or on small pools, one for each kind of work. What a request looks like on the wire is `drmq.kafka`'s business.

The names below are imported when they are first used: the command line needs the options of a
broker to explain them, and must not wait for the broker itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drmq.broker.options import BrokerOptions, ClusterOptions, ListenerOptions, PeerAddress

if TYPE_CHECKING:
    from drmq.broker.broker import Broker
    from drmq.broker.clock import Clock, SystemClock
    from drmq.broker.coordinator import GroupCoordinator, Shard, ShardDriver
    from drmq.broker.logs import DiskLogs, LogStore, MemoryLogs
    from drmq.broker.partition import Appended, Partition
    from drmq.broker.partitions import PartitionTable, StoppedPartition
    from drmq.broker.pending import durable
    from drmq.broker.states import StateUnreadable
    from drmq.broker.topics import TopicService

__all__ = [
    "Appended",
    "Broker",
    "BrokerOptions",
    "Clock",
    "ClusterOptions",
    "DiskLogs",
    "GroupCoordinator",
    "ListenerOptions",
    "LogStore",
    "MemoryLogs",
    "Partition",
    "PartitionTable",
    "PeerAddress",
    "Shard",
    "ShardDriver",
    "StateUnreadable",
    "StoppedPartition",
    "SystemClock",
    "TopicService",
    "durable",
]

_HOMES = {
    "Appended": "partition",
    "Broker": "broker",
    "Clock": "clock",
    "DiskLogs": "logs",
    "GroupCoordinator": "coordinator",
    "LogStore": "logs",
    "MemoryLogs": "logs",
    "Partition": "partition",
    "PartitionTable": "partitions",
    "Shard": "coordinator",
    "ShardDriver": "coordinator",
    "StateUnreadable": "states",
    "StoppedPartition": "partitions",
    "SystemClock": "clock",
    "TopicService": "topics",
    "durable": "pending",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"drmq.broker.{home}"), name)
