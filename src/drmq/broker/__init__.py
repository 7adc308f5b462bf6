"""The broker: the one place where the pure cores meet disks, clocks and each other.

`Broker` puts a node together. `PartitionTable` and `Partition` are the way of a record: checked,
stamped, queued for the writer thread, acknowledged when durable, shown to readers. `TopicService`
and `GroupCoordinator` drive the two state machines, catalog and groups, each on a log of its own
(`MachineLog`). `ProducerTable` recognises a producer's retry.

Everything here runs on one event loop and owns what it touches; what blocks runs on the writer
thread or on a small pool. What a request looks like on the wire is `drmq.kafka`'s business.
"""

from drmq.broker.broker import Broker
from drmq.broker.clock import Clock, SystemClock
from drmq.broker.coordinator import GroupCoordinator, ShardDriver
from drmq.broker.logs import DiskLogs, LogStore, MemoryLogs
from drmq.broker.machine import StateUnreadable
from drmq.broker.options import BrokerOptions, ListenerOptions
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
