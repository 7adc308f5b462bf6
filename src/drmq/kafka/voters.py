"""Checks that AddRaftVoter and RemoveRaftVoter share: the cluster, and the incarnation of the node."""

from __future__ import annotations

from collections.abc import Sequence

from drmq.broker.cluster.metadata import Metadata
from drmq.catalog import Catalog, Fact
from drmq.model import ApiError, ErrorCode, NodeId

NO_DIRECTORY_ID = bytes(16)


def check_cluster(metadata: Metadata, cluster_id: str | None) -> None:
    """Raise `ApiError` unless this is the controller of the cluster that the request is for."""
    metadata.check_controller()
    if cluster_id is not None and cluster_id != metadata.catalog.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the request is for cluster {cluster_id}, but this is cluster {metadata.catalog.cluster_id}; "
            "check the bootstrap servers",
        )


async def check_directory(metadata: Metadata, node_id: NodeId, directory_id: bytes) -> None:
    """Raise `ApiError` if the request names a different incarnation of the node than the current one."""

    def check(catalog: Catalog) -> Sequence[Fact]:
        known = catalog.broker(node_id)
        if directory_id != NO_DIRECTORY_ID and directory_id != directory_bytes(known.directory_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"node {node_id} no longer has the data directory that the request names ({directory_id.hex()}); "
                "get the current one with DescribeQuorum",
            )
        return ()

    await metadata.decide(check, f"the data directory of node {node_id}")


def directory_bytes(directory_id: str) -> bytes:
    """A data directory's id in the protocol's form; zeros if it does not have sixteen bytes."""
    found = bytes.fromhex(directory_id)
    return found if len(found) == len(NO_DIRECTORY_ID) else NO_DIRECTORY_ID
