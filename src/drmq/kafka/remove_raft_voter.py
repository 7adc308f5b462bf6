"""RemoveRaftVoter (81): make a voter of the metadata log an observer, which follows the log without a vote (KIP-853).

The last voter cannot be removed. If the controller itself loses its vote, another node becomes controller.
"""

from __future__ import annotations

from drmq.broker.cluster.metadata_voters import remove_voter
from drmq.kafka.context import Context
from drmq.kafka.voters import check_cluster, check_directory
from drmq.model import ApiError, NodeId
from drmq.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_WAIT_S = 10.0


async def handle(context: Context, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    metadata = context.broker.metadata
    node_id = NodeId(request.voter_id)
    try:
        check_cluster(metadata, request.cluster_id)
        await check_directory(metadata, node_id, request.voter_directory_id)
        await remove_voter(metadata, node_id, _WAIT_S)
    except ApiError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse()
