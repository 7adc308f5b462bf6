"""`/metrics` of a gateway: the counters of its node and its own, within a bounded time.

A node that hangs, or is gone, must not take its monitoring with it. So this has a thread and a client of its own, which
no other request can keep busy, and waits two seconds at most. If the node does not answer, the answer has
`drmq_gateway_node_up 0` and the gateway's own series.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from drmq.client import Admin, ClientError
from drmq.model.counters import Sample
from drmq.model.metrics_text import render

if TYPE_CHECKING:
    from drmq.gateway.gateway import Gateway

TIMEOUT_S: Final = 2.0


class NodeMetrics:
    """Reads the counters of the gateway's node. Used on the event loop."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._executor = ThreadPoolExecutor(1, "metrics")
        self._admin: Admin | None = None
        self._asking: asyncio.Future[list[Sample] | None] | None = None

    async def text(self) -> str:
        """What `/metrics` answers."""
        node = await self._node_samples() if self._gateway.options.node_id is not None else None
        own = sorted(self._own(node is not None), key=lambda sample: (sample.name, sample.labels))
        return render([*(node or ()), *own])

    def _own(self, node_is_up: bool) -> Iterator[Sample]:
        gateway = self._gateway
        if gateway.options.node_id is not None:
            yield Sample("drmq_gateway_node_up", int(node_is_up))
        yield Sample("drmq_gateway_sockets", gateway.socket_count)
        yield Sample("drmq_gateway_waiting_calls", gateway.admins.waiting)
        yield from gateway.http_counters.samples()
        yield from gateway.call_counters.samples()

    async def _node_samples(self) -> list[Sample] | None:
        # Those who ask while another question is under way get the same answer.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(self._executor, self._ask)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(self._asking)
        except TimeoutError:
            return None

    def _ask(self) -> list[Sample] | None:
        node_id = self._gateway.options.node_id
        assert node_id is not None
        try:
            if self._admin is None:
                bootstrap = self._gateway.options.bootstrap
                self._admin = Admin(bootstrap, client_id="drmq-gateway-metrics", timeout_s=TIMEOUT_S)
            return self._admin.counters.of(node_id)
        except ClientError:
            return None

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)
        if self._admin is not None:
            self._admin.close()
