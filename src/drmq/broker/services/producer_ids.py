"""Ids for idempotent producers. Each id is assigned once in the lifetime of the cluster.

The controller reserves a block of ids with a record in the metadata log, and a node assigns the ids of its block one by
one. A node that restarts does not use the rest of its block, so no id is assigned twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from drmq.broker.cluster.membership import Buffer, Membership, Request
from drmq.broker.cluster.metadata import Metadata
from drmq.catalog import ProducerIdsReserved
from drmq.model import NodeId

IDS_PER_BLOCK = 1_000
"""Producer ids that one record of the metadata log reserves."""
_TIMEOUT_S = 30.0


class ProducerIds:
    """Assigns ids from this node's block, and reserves blocks if this node is the controller."""

    def __init__(self, metadata: Metadata, membership: Membership) -> None:
        self._metadata = metadata
        self._membership = membership
        self._block = range(0)
        self._reserving = asyncio.Lock()

    async def new(self) -> int:
        """Assign an id that no producer of this cluster has had. Raises `ApiError`."""
        async with self._reserving:
            if not self._block:
                first = await self._reserve_somewhere()
                self._block = range(first, first + IDS_PER_BLOCK)
            producer_id = self._block[0]
            self._block = self._block[1:]
            return producer_id

    async def _reserve_somewhere(self) -> int:
        if self._metadata.is_controller:
            return await self._reserve()
        answer = await self._membership.ask_controller(Request.RESERVE_IDS, (), _TIMEOUT_S)
        return int.from_bytes(answer, "big")

    async def _reserve(self) -> int:
        [reserved] = await self._metadata.decide(
            lambda catalog: catalog.reserve_producer_ids(IDS_PER_BLOCK), "a block of producer ids"
        )
        assert isinstance(reserved, ProducerIdsReserved)
        return reserved.next_id - IDS_PER_BLOCK

    async def serve(self, peer: NodeId, payload: memoryview) -> Sequence[Buffer]:
        """Reserve a block for another node."""
        return ((await self._reserve()).to_bytes(8, "big"),)
