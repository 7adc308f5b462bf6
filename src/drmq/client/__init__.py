"""Clients: of the command line, for administration, and of applications, for messages. All on our own wire code.

**Administration.** The command line must explain failures: which broker, which error code, what to do next. It must
respect deadlines, and start without delay. It therefore speaks the protocol itself, one request at a time, through
`connection`. `cluster` finds the broker that is responsible for a request, and retries while that can help. `topics`,
`configs`, `groups`, `brokers`, `features` and `replicas` turn responses into typed values, and `admin` combines them.
`errors` lists the exceptions.

**Messages.** `leases` is the asyncio core of consumers that take work by lease. `blocking` and `aio` are the classes
that applications use, as `drmq.Consumer` and `drmq.aio.Consumer`; `worker` runs functions over a queue. Producing
(`sender`) and reading by offset (`reader`) use confluent-kafka. They are not imported here: the command line must start
fast.

Not here: encryption and authentication (the broker does not have them yet).
"""

from drmq.client.admin import Admin, ClusterInfo, LogDir
from drmq.client.brokers import Broker, Quorum, QuorumReplica
from drmq.client.configs import ConfigEntry
from drmq.client.connection import Connection, Deadline
from drmq.client.errors import ClientError, DeadlineExceeded, Refused, Unreachable
from drmq.client.groups import Committed, Group, GroupSummary, Member
from drmq.client.lease_groups import Lease, LeaseQueue, LeaseState
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
    "Lease",
    "LeaseQueue",
    "LeaseState",
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
