"""The state of one gateway: its clients of the cluster, what it has sampled, and where other gateways are."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drmq.aio import Producer
from drmq.gateway.admin_pool import WAITING_MAX, AdminPool
from drmq.gateway.cluster_state import cluster_view
from drmq.gateway.fault_lab import FaultLab
from drmq.gateway.fetching import Fetcher
from drmq.gateway.group_survey import GroupsNow, GroupSurvey
from drmq.gateway.group_types import DeadLetterTopic, Topology, Transactions
from drmq.gateway.idempotency import Idempotency
from drmq.gateway.leasing import Leasing
from drmq.gateway.letters import list_topics
from drmq.gateway.node_metrics import NodeMetrics
from drmq.gateway.observed import CallCounters, HttpCounters
from drmq.gateway.sampler import Sampler
from drmq.gateway.shared import Shared
from drmq.gateway.streams import Streams
from drmq.gateway.topic_survey import TopicsNow, TopicSurvey
from drmq.gateway.topology import Active, find_producers, graph, open_transactions
from drmq.gateway.turns import Turns
from drmq.gateway.types import Feature, GatewayAddress, Overview

if TYPE_CHECKING:
    from drmq.gateway.grpc.server import GrpcServer

log = logging.getLogger("drmq.gateway")

FEATURES_KEPT_S = 30.0
OVERVIEW_EVENTS = 30
"""Events in each snapshot of the overview."""
LOOK_S = 2.0
"""How old what is shown about groups, topics and dead letters may be."""
PRODUCERS_LOOK_S = 5.0
BROWSING_MAX, BROWSING_OF_CALLER_MAX = 3, 2
"""Pages of records that are made at the same time, for all clients and for one address. The other threads are for other
calls."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How a gateway runs."""

    bootstrap: str
    """Nodes of the cluster, `host:port,...`."""
    host: str = "127.0.0.1"
    http_port: int = 8080
    """0 picks a free one."""
    node_id: int | None = None
    """The node whose child this is; None for a proxy."""
    listener: int | None = None
    """A socket that listens already, by its descriptor; then host and port are not used for HTTP."""
    grpc_port: int | None = None
    """0 picks a free one; None for no gRPC."""
    timeout_s: float = 15.0
    """For one call to the cluster."""
    lab: Path | None = None
    """The directory of the local cluster that the fault lab works on; None without the lab."""
    http_names: tuple[str, ...] = ()
    """Names by which requests that arrive at a loopback address may call the gateway: see `host_names`."""
    log_level: str = "info"
    log_format: str = "text"
    tracing: bool = False
    """Whether spans are exported over OTLP."""


class Gateway:
    """Everything that requests share. Lives on the event loop of the gateway's process."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.admins = AdminPool(options.bootstrap, options.timeout_s)
        self.browsing = Turns(BROWSING_MAX, BROWSING_OF_CALLER_MAX, WAITING_MAX)
        self.sampler = Sampler(self.admins)
        self.lab = FaultLab(options.lab, options.node_id)
        self.socket_count = 0
        """Web sockets that are open."""
        self.leasing = Leasing(lambda: self.bootstrap)
        self.idempotency = Idempotency()
        self.group_survey, self.topic_survey = GroupSurvey(), TopicSurvey()
        self.groups: Shared[GroupsNow] = Shared(lambda: self.admins.run(self.group_survey.look), LOOK_S)
        self.topics: Shared[TopicsNow] = Shared(lambda: self.admins.run(self.topic_survey.look), LOOK_S)
        self.dead_letters: Shared[list[DeadLetterTopic]] = Shared(lambda: self.admins.run(list_topics), LOOK_S)
        self._producers: Shared[Active] = Shared(self._find_producers, PRODUCERS_LOOK_S)
        self.streams = Streams(self)
        self.http_counters = HttpCounters()
        self.call_counters = CallCounters()
        self.metrics = NodeMetrics(self)
        self._producer: Producer[bytes] | None = None
        self._fetcher: Fetcher | None = None
        self._grpc: GrpcServer | None = None
        self._overview: tuple[int, asyncio.Task[Overview]] | None = None
        self._features: tuple[list[Feature], float] | None = None
        """The features of the cluster, and until when they are not asked again."""

    @property
    def bootstrap(self) -> str:
        """All known nodes, for clients that begin now: those that the gateway was given may be gone."""
        return self.admins.bootstrap

    def addresses(self) -> list[GatewayAddress]:
        """The gateways that a page can move to."""
        known, grpc = self.sampler.gateways, self.sampler.grpc
        return [GatewayAddress(node_id, http, grpc.get(node_id)) for node_id, http in sorted(known.items())]

    async def overview(self) -> Overview:
        """What the overview shows. All pages that ask within one sample share one answer."""
        sequence = self.sampler.sequence
        if self._overview is None or self._overview[0] != sequence:
            self._overview = sequence, asyncio.ensure_future(self._observe())
        return await asyncio.shield(self._overview[1])

    async def _observe(self) -> Overview:
        # Each second: what the sample has shown is not asked again, and features change with an upgrade only.
        answering = set(self.sampler.last)
        features = self._features[0] if self._features is not None and time.monotonic() < self._features[1] else None
        cluster = await self.admins.run(lambda admin: cluster_view(admin, self.addresses(), answering, features))
        if features is None and cluster.features:
            self._features = cluster.features, time.monotonic() + FEATURES_KEPT_S
        series = self.sampler.history[-1].series if self.sampler.history else {}
        brokers = [self.sampler.broker_view(each) for each in self.sampler.brokers]
        return Overview(cluster, brokers, series, self.sampler.last_events(OVERVIEW_EVENTS))

    async def topology(self) -> Topology:
        """Producers, topics and groups, and how many records flow between them."""
        topics, groups = await self.topics.get(), await self.groups.get()
        return graph(topics, groups, await self._producers.get())

    async def transactions(self) -> Transactions:
        return open_transactions(await self._producers.get())

    async def _find_producers(self) -> Active:
        topics = await self.topics.get()
        return await self.admins.run(lambda admin: find_producers(admin, topics.places))

    async def producer(self) -> Producer[bytes]:
        """The producer of this gateway, opened when it is first needed."""
        if self._producer is None:
            producer = Producer(self.bootstrap, client_id="drmq-gateway")
            await producer.open()
            self._producer = producer
        return self._producer

    @property
    def fetcher(self) -> Fetcher:
        """The connections for reading, opened when they are first needed."""
        if self._fetcher is None:
            self._fetcher = Fetcher(self.bootstrap)
        return self._fetcher

    async def start(self) -> None:
        self.sampler.start()
        if self.options.grpc_port is not None:
            await self._start_grpc(self.options.grpc_port)

    async def _start_grpc(self, port: int) -> None:
        """Serve gRPC. If that is not possible, say why, and go on with HTTP alone."""
        try:
            from drmq.gateway.grpc.server import GrpcServer

            server = GrpcServer(self)
            bound = await server.start(self.options.host, port)
        except ImportError as error:
            log.warning("gRPC is off: %s", _missing(error))
        except OSError as error:
            log.warning("gRPC is off: %s", error)
        except Exception:
            # The versions of its packages may not fit. HTTP, and the dashboard that shows this line, go on.
            log.exception("gRPC is off because it cannot be started")
        else:
            self._grpc = server
            log.info("gRPC is served on port %d", bound)

    async def end_waiting(self) -> None:
        """The gateway is about to stop: end streams of gRPC and polls, and leave all lease groups."""
        grpc, self._grpc = self._grpc, None
        await asyncio.gather(self.leasing.leave(), *([] if grpc is None else [grpc.stop()]))

    async def stop(self) -> None:
        await self.end_waiting()
        await self.sampler.stop()
        await self.leasing.close()
        await self.streams.close()
        for shared in (self._producers, self.groups, self.topics, self.dead_letters):
            await shared.close()
        if self._fetcher is not None:
            self._fetcher.close()
        if self._producer is not None:
            await self._producer.close()
        await self.admins.close()
        await self.metrics.close()


def _missing(error: ImportError) -> str:
    """What to do about a module that is not there."""
    if "_pb2" in str(error):
        return (
            "the code of its services is generated when DRMQ is set up, and is not there. In a clone, `make` or "
            f"`python hatch_build.py` makes it ({error})"
        )
    return f"the package {error.name} is not installed. Install drmq again"
