"""A node joins the running cluster, and another one leaves it, while everything else continues.

The invariant is **liveness**: the new node starts to serve, and a node whose removal was accepted leaves, at the latest
when all faults are repaired; after that, no group has it as a member. All other invariants hold as usual.

Whether a node is removed is checked on a node that only knows committed facts: a controller may be ahead of that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from drmq.model import ErrorCode, NodeId
from drmq.testing.simulation.client import Unavailable
from drmq.testing.simulation.node import SimulatedNode
from drmq.testing.simulation.workload import Worker
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest

if TYPE_CHECKING:
    from drmq.testing.simulation.cluster import Cluster

_UNREGISTER = 0


class MembershipChanger(Worker):
    """Starts one more node, and later has any one of the nodes removed."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.world, cluster, cluster.history, "gardener")
        self._cluster = cluster
        self._joining: SimulatedNode | None = None
        self._leaving: SimulatedNode | None = None
        self.has_asked = False
        """Whether a removal was accepted; it is then carried out without another request."""
        self._is_open = False
        """Whether a removal was requested and the result is unknown: it may be carried out all the same."""
        # This worker has no recurring work, so it starts with enough successes.
        self.successes = 3

    @property
    def is_done(self) -> bool:
        return self.is_stopping and (self._leaving is None or self._leaving.is_retired)

    async def work(self) -> None:
        self.successes += 1
        if self._joining is None:
            await asyncio.sleep(self.random.uniform(0.5, 4.0))
            self._joining = self._cluster.add_node()
            self._joining.start()
        elif self._leaving is None:
            if self._joining.is_serving and not self.is_stopping:
                await asyncio.sleep(self.random.uniform(0.5, 6.0))
                self._leaving = self.random.choice(self._cluster.live_nodes)
        elif self._leaving.is_retired:
            return
        elif (self.has_asked or self._is_open) and self._is_removed(self._leaving.node_id):
            self._cluster.retire(self._leaving)
        elif not self.has_asked:
            if self.is_stopping and not self._is_open:
                self._leaving = None
            else:
                await self._ask_for_removal(self._leaving)

    async def _ask_for_removal(self, node: SimulatedNode) -> None:
        self._is_open = True
        answer = await self.client.ask_any(UnregisterBrokerRequest(broker_id=node.node_id), _UNREGISTER, 6.0)
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self.world.say(node.name, "is to be removed from the cluster")
            self.has_asked = True
        elif error in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REPLICATION_FACTOR):
            # Too few nodes would be left for now, or it is the only voter.
            self._leaving, self._is_open = None, False
            raise Unavailable(error.name)
        else:
            raise Unavailable(error.name)

    def _is_removed(self, node_id: NodeId) -> bool:
        return any(
            node_id in node.broker.catalog.former_brokers and node_id not in node.broker.catalog.brokers
            for node in self._cluster.live_nodes
            if node.is_serving and _knows_only_committed(node)
        )


def _knows_only_committed(node: SimulatedNode) -> bool:
    log = node.broker.metadata.log
    return log.state.applied_offset <= log.partition.high_watermark
