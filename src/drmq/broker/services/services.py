"""The set of services that all doors use, built once per node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from drmq.broker.cluster.membership import Request
from drmq.broker.services.appends import Appends
from drmq.broker.services.cluster_view import ClusterView
from drmq.broker.services.counters import Counters
from drmq.broker.services.dead_letters import DeadLetters
from drmq.broker.services.disk_space import DiskSpace
from drmq.broker.services.elections import Elections
from drmq.broker.services.events import Events
from drmq.broker.services.fault_lab import FaultLab
from drmq.broker.services.gate import OPEN, Gate
from drmq.broker.services.group_lag import GroupLag
from drmq.broker.services.groups import GroupService
from drmq.broker.services.lease_queries import LeaseQueries
from drmq.broker.services.lease_sessions import LeaseSessions
from drmq.broker.services.leases import LeaseService
from drmq.broker.services.lookups import Lookups
from drmq.broker.services.producer_ids import ProducerIds
from drmq.broker.services.reads import Reads
from drmq.broker.services.recompression import Recompression
from drmq.broker.services.redrive.letter_pages import LetterPages
from drmq.broker.services.redrive.service import RedriveService
from drmq.broker.services.router import ClientHandler, Router
from drmq.broker.services.share_groups import ShareGroupService
from drmq.broker.services.topic_creation import TopicCreation

if TYPE_CHECKING:
    from drmq.broker.broker import Broker


class Services:
    """The services that doors call, and the gate that requests pass first. Owned by the broker."""

    def __init__(self, broker: Broker) -> None:
        self.gate: Gate = OPEN
        """Checks every request. May be replaced before the first door opens."""
        self.cluster = ClusterView(broker)
        self.topics = broker.topics
        self.groups = GroupService(broker.groups, broker.host, broker.node_id)
        self.decompressing = asyncio.Lock()
        """Held while a batch is decompressed: `decompressed_bytes_max` limits the memory of the whole node."""
        size_max = broker.options.decompressed_bytes_max
        self.recompression = Recompression(broker.codecs, self.decompressing, size_max, broker.clock)
        self.appends = Appends(broker.partitions, broker.writer, broker.clock, broker.options, self.recompression)
        self.reads = Reads(broker)
        self.lookups = Lookups(broker.partitions, broker.blocking, self.decompressing, size_max)
        self.elections = Elections(self.cluster, broker.host, broker.elect)
        self.producer_ids = ProducerIds(broker.metadata, broker.membership)
        self.counters = Counters(broker)
        self.events = Events(broker.clock.wall_ms())
        self.fault_lab = FaultLab(broker)
        self.leases = LeaseService(broker)
        self.share_groups = ShareGroupService(broker, self.leases.shards, self.leases.starts)
        self.dead_letters = DeadLetters(broker)
        self.letter_pages = LetterPages(broker)
        self.redrives = RedriveService(broker)
        self.lease_queries = LeaseQueries(broker, self.leases.shards)
        self.group_lag = GroupLag(broker)
        self.disk_space = DiskSpace(broker)
        self.lease_sessions = LeaseSessions(broker.options.lease_sessions_max)
        self.router = Router(broker, lambda: self.gate, self.appends, self.reads)
        self.topic_creation = TopicCreation(
            broker.node_id,
            broker.metadata,
            broker.topics,
            broker.internal_topics,
            broker.options,
            self.router,
            lambda: self.gate,
            broker.new_topic_id,
        )

    def client_requests(self) -> dict[Request, ClientHandler]:
        """The handlers of requests that other nodes send for their clients. Each request passes the gate."""
        return {**self.router.client_requests(), Request.AUTO_CREATE: self.topic_creation.serve}
