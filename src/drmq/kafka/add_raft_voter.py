"""AddRaftVoter (80): let a node that follows the metadata vote about it (KIP-853).

The node must be part of the cluster already, and in the life of its data directory that the request names; zeros
leave that open. Its listeners are known from its registration, so those in the request are not used. It gets its vote
once it has caught up, which the request waits for.
"""

from __future__ import annotations

from drmq.broker.cluster.metadata_voters import add_voter
from drmq.kafka.context import Context
from drmq.kafka.voters import check_cluster, check_directory
from drmq.model import ApiError, NodeId
from drmq.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

_WAIT_MS, _WAIT_MS_MAX = 10_000, 25_000
"""The longest wait is shorter than that of a node which has passed the request on."""


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
