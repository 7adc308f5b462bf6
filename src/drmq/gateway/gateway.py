"""The state of one gateway: its clients of the cluster, what it has sampled, and where other gateways are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from drmq.aio import Producer
from drmq.gateway.admin_pool import AdminPool
from drmq.gateway.cluster_state import cluster_view
from drmq.gateway.sampler import Sampler
from drmq.gateway.types import GatewayAddress, Overview

OVERVIEW_EVENTS = 30
"""Events in each snapshot of the overview."""


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
    """A socket that listens already, by its descriptor; then host and port are not used."""


class Gateway:
    """Everything that requests share. Lives on the event loop of the gateway's process."""

    def __init__(self, options: GatewayOptions) -> None:
        self.options = options
        self.admins = AdminPool(options.bootstrap)
        self.sampler = Sampler(self.admins)
        self.socket_count = 0
        """Web sockets that are open."""
        self._producer: Producer[bytes] | None = None
        self._overview: tuple[int, asyncio.Task[Overview]] | None = None

    def addresses(self) -> list[GatewayAddress]:
        """The gateways that a page can move to."""
        return [GatewayAddress(node_id, http) for node_id, http in sorted(self.sampler.gateways.items())]

    async def overview(self) -> Overview:
        """What the overview shows. All pages that ask within one sample share one answer."""
        sequence = self.sampler.sequence
        if self._overview is None or self._overview[0] != sequence:
            self._overview = sequence, asyncio.ensure_future(self._observe())
        return await asyncio.shield(self._overview[1])

    async def _observe(self) -> Overview:
        cluster = await self.admins.run(lambda admin: cluster_view(admin, self.addresses()))
        series = self.sampler.history[-1].series if self.sampler.history else {}
        brokers = [self.sampler.broker_view(each) for each in self.sampler.brokers]
        return Overview(cluster, brokers, series, self.sampler.last_events(OVERVIEW_EVENTS))

    async def producer(self) -> Producer[bytes]:
        """The producer of this gateway, opened when it is first needed."""
        if self._producer is None:
            producer = Producer(self.options.bootstrap, client_id="drmq-gateway")
            await producer.open()
            self._producer = producer
        return self._producer

    async def start(self) -> None:
        self.sampler.start()

    async def stop(self) -> None:
        await self.sampler.stop()
        if self._producer is not None:
            await self._producer.close()
        await self.admins.close()
