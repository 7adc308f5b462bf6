"""The whole picture: who sends records where, and which groups work on them."""

from __future__ import annotations

from drmq.gateway.endpoint import endpoint
from drmq.gateway.gateway import Gateway
from drmq.gateway.group_types import Topology, Transactions


@endpoint("GET", "/topology", "Producers, topics and groups, and how many records flow between them.")
async def topology(gateway: Gateway) -> Topology:
    return await gateway.topology()


@endpoint("GET", "/transactions", "Transactions that are open.")
async def transactions(gateway: Gateway) -> Transactions:
    return await gateway.transactions()
