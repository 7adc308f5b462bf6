"""Ids for idempotent producers: each is given out once in the life of the cluster.

The controller sets a block of ids aside by a record of the metadata log, and a node gives out its block one by one. A
node that restarts leaves the rest of its block unused, so no id is given out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from drmq.broker.cluster.membership import Buffer, Membership, Request
from drmq.broker.cluster.metadata import Metadata
from drmq.catalog import ProducerIdsReserved
from drmq.model import NodeId

IDS_PER_BLOCK = 1_000
"""Producer ids set aside by one record of the metadata log."""
_TIMEOUT_S = 30.0


class ProducerIds:
    """The block of one node, and on the controller the making of blocks."""

    def __init__(self, metadata: Metadata, membership: Membership) -> None:
        self._metadata = metadata
        self._membership = membership
        self._block = range(0)
        self._reserving = asyncio.Lock()

    async def new(self) -> int:
        """An id that no producer of this cluster ever had. Raises `ApiError`."""
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
        """Set a block aside for another node."""
        return ((await self._reserve()).to_bytes(8, "big"),)
