"""AddRaftVoter (80): make a node a voter of the metadata log (KIP-853).

The node must already be part of the cluster. If the request names a data directory, it must be the node's current one;
an id of zeros matches any. The listeners in the request are ignored, because the node's registration has them. The node
becomes a voter once it has caught up, and the request waits for that.
"""

from __future__ import annotations

from drmq.broker.cluster.metadata_voters import add_voter
from drmq.kafka.context import Context
from drmq.kafka.voters import check_cluster, check_directory
from drmq.model import ApiError, NodeId
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

_WAIT_MS, _WAIT_MS_MAX = 10_000, 25_000
"""The maximum is shorter than the time that a node waits for the answer to a request that it has forwarded."""


async def handle(context: Context, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    metadata = context.broker.metadata
    node_id = NodeId(request.voter_id)
    wait_ms = min(request.timeout_ms, _WAIT_MS_MAX) if request.timeout_ms > 0 else _WAIT_MS
    try:
        check_cluster(metadata, request.cluster_id)
        await check_directory(metadata, node_id, request.voter_directory_id)
        await add_voter(metadata, node_id, wait_ms / 1000, wait=request.ack_when_committed)
    except ApiError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    return AddRaftVoterResponse()
