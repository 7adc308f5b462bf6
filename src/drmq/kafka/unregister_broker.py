"""UnregisterBroker (64): remove a node from the cluster permanently.

The answer is sent when the removal is decided. From then on the node gets no new replicas. The controller moves its
replicas to other nodes, one partition at a time, then takes its vote and removes it. Clients can work throughout. If
the node is down, the new replicas are copied from the other replicas. The request is refused if a partition would be
left with fewer replicas, if the other nodes would get more than `replicas_max`, or if the node is the only voter of the
metadata log. Repeating the request while the removal is in progress changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.broker.cluster.metadata_voters import check_may_leave
from drmq.catalog import Catalog, Fact, check_drain
from drmq.kafka.context import Context
from drmq.model import ApiError, NodeId
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    metadata = context.broker.metadata
    node_id = NodeId(request.broker_id)

    def drain(catalog: Catalog) -> Sequence[Fact]:
        facts = catalog.drain(node_id)
        if facts:
            check_drain(catalog, node_id, context.broker.topics.replicas_max)
        check_may_leave(metadata, node_id)
        return facts

    try:
        await metadata.decide(drain, f"the removal of node {node_id}")
    except ApiError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()
