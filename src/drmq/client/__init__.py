"""A small blocking client for administration, over our own wire code.

The command line must explain failures: which broker, which code, what to do next. It must keep
deadlines, and start at once. So it speaks the protocol itself, one request at a time, through
`connection`; `cluster` finds the broker that a question belongs to and tries again while that can
help; `topics`, `configs`, `groups`, `brokers` and `replicas` turn answers into typed values, and
`admin` puts them in one hand. What can go wrong is drawn in `errors`.

Left out on purpose: producing and consuming (the command line uses confluent-kafka for these),
encryption and authentication (they join with the broker's), and any thread.
"""

from drmq.client.admin import Admin, ClusterInfo, LogDir
from drmq.client.brokers import Broker, Quorum, QuorumReplica
from drmq.client.configs import ConfigEntry
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, DeadlineExceeded, Refused, Unreachable
from drmq.client.groups import Committed, Group, GroupSummary, Member
from drmq.client.replicas import Elections, Reassignment
from drmq.client.topics import EARLIEST, LATEST, MAX_TIMESTAMP, Bounds, NewTopic, OffsetAt, Partition, Topic
from drmq.model.address import Address, parse_bootstrap, split_address

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Address",
    "Admin",
    "Bounds",
    "Broker",
    "ClientError",
    "ClusterInfo",
    "Committed",
    "ConfigEntry",
    "Connection",
    "Deadline",
    "DeadlineExceeded",
    "Elections",
    "Group",
    "GroupSummary",
    "LogDir",
    "Member",
    "NewTopic",
    "OffsetAt",
    "Partition",
    "Quorum",
    "QuorumReplica",
    "Reassignment",
    "Refused",
    "Topic",
    "Unreachable",
    "parse_bootstrap",
    "split_address",
]
