"""UnregisterBroker (64): take a node out of the cluster for good.

The answer says that it is decided. From then on the node gets nothing new, the controller moves what it keeps to
others, one partition at a time, takes its vote and removes it; clients go on working. A node that is down is drained
from the other replicas. Where a partition would be left with fewer replicas, or nobody could decide about the
metadata any more, the request is refused. Asked again while it goes on, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from drmq.broker.cluster.metadata_voters import check_may_leave
from drmq.catalog import Catalog, Fact
from drmq.kafka.context import Context
from drmq.model import ApiError, NodeId
from drmq.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(context: Context, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    metadata = context.broker.metadata
    node_id = NodeId(request.broker_id)

    def drain(catalog: Catalog) -> Sequence[Fact]:
        facts = catalog.drain(node_id)
        check_may_leave(metadata, node_id)
        return facts

    try:
        await metadata.decide(drain, f"the removal of node {node_id}")
    except ApiError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()
