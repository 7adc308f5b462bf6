"""The broker: the one place where the pure cores meet disks, clocks and each other.

`Broker` puts a node together. `PartitionTable` and `Partition` are the way of a record: checked,
stamped, queued for the writer thread, acknowledged when durable, shown to readers. `TopicService`
and `GroupCoordinator` drive the two state machines, catalog and groups, each on a log of its own
(`MachineLog`). `ProducerTable` recognises a producer's retry.

Everything here runs on one event loop and owns what it touches; what blocks runs on the writer
thread or on a small pool. What a request looks like on the wire is `drmq.kafka`'s business.

The names below are imported when they are first used: the command line needs the options of a
broker to explain them, and must not wait for the broker itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drmq.broker.options import BrokerOptions, ListenerOptions

if TYPE_CHECKING:
    from drmq.broker.broker import Broker
    from drmq.broker.clock import Clock, SystemClock
    from drmq.broker.coordinator import GroupCoordinator, ShardDriver
    from drmq.broker.logs import DiskLogs, LogStore, MemoryLogs
    from drmq.broker.machine import StateUnreadable
    from drmq.broker.partition import Appended, Partition
    from drmq.broker.partitions import PartitionTable, StoppedPartition
    from drmq.broker.topics import TopicService

__all__ = [
    "Appended",
    "Broker",
    "BrokerOptions",
    "Clock",
    "DiskLogs",
    "GroupCoordinator",
    "ListenerOptions",
    "LogStore",
    "MemoryLogs",
    "Partition",
    "PartitionTable",
    "ShardDriver",
    "StateUnreadable",
    "StoppedPartition",
    "SystemClock",
    "TopicService",
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
    "ShardDriver": "coordinator",
    "StateUnreadable": "machine",
    "StoppedPartition": "partitions",
    "SystemClock": "clock",
    "TopicService": "topics",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"drmq.broker.{home}"), name)
