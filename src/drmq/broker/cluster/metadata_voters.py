"""Changes the voters of the metadata log, at the request of an operator.

Every node follows the metadata log. The voters decide what is in it, and one of them is the controller. A node becomes
a voter only when it has caught up; until then the change is retried, as long as the caller waits. The last voter cannot
be removed. A controller that loses its own vote hands over to a voter. When a node leaves the cluster, its vote goes to
another node that has caught up, if there is one without a vote.
"""

from __future__ import annotations

import asyncio

from drmq.broker.cluster.metadata import Metadata
from drmq.broker.replication.replica import Replica
from drmq.catalog import Broker
from drmq.model import ApiError, ErrorCode, NodeId, node_of
from drmq.raft import Refusal

_RETRY_S = 0.05


async def add_voter(metadata: Metadata, node_id: NodeId, timeout_s: float, *, wait: bool = True) -> None:
    """Make a node a voter. Raises `ApiError`. Without `wait` it returns when the change has started."""
    broker = metadata.catalog.broker(node_id)
    if "controller" not in broker.roles:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} is not a controller: its roles are {', '.join(broker.roles)}; restart it with `roles` "
            "that include `controller`",
        )
    if broker.draining:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"node {node_id} is being removed, so it cannot be given a vote")
    if broker.member in _settled_voters(metadata):
        raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {node_id} already has a vote")
    await _change(metadata, broker, timeout_s, votes=True, wait=wait)


async def remove_voter(metadata: Metadata, node_id: NodeId, timeout_s: float) -> None:
    """Take a node's vote; it continues to follow the log. Raises `ApiError`."""
    voters = _settled_voters(metadata)
    member = next((member for member in voters if node_of(member) == node_id), None)
    if member is None:
        known = ", ".join(map(str, sorted(map(node_of, voters))))
        raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {node_id} has no vote; the voters are nodes {known}")
    if len(voters) == 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} is the only voter of the metadata log; give another node a vote first",
        )
    broker = metadata.catalog.broker(node_id)
    await _change(metadata, broker, timeout_s, votes=False, wait=True)


def check_may_leave(metadata: Metadata, node_id: NodeId) -> None:
    """Raise `ApiError` if the node is the only voter of the metadata log."""
    voters = _settled_voters(metadata)
    if {node_of(member) for member in voters} <= {node_id}:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} is the only voter of the metadata log, so it cannot be removed; "
            "give another node a vote first (`drmq cluster add`)",
        )


def _settled_voters(metadata: Metadata) -> frozenset[NodeId]:
    """The voters, as of the change in progress if there is one."""
    metadata.check_controller()
    node = metadata.log.partition.replica.node
    assert node is not None
    return node.configuration.voters


async def _change(metadata: Metadata, broker: Broker, timeout_s: float, *, votes: bool, wait: bool) -> None:
    replica = metadata.log.partition.replica
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    reason = f"request to {'give a vote to' if votes else 'take the vote of'} node {broker.node_id}"
    while True:
        metadata.check_controller()
        refusal = try_change(metadata, broker, reason, votes=votes)
        if refusal is None:
            break
        if loop.time() > deadline:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"node {broker.node_id} cannot {'be given a vote' if votes else 'lose its vote'} yet: {refusal}",
            )
        await asyncio.sleep(_RETRY_S)
    while wait and not _is_through(replica, broker, votes=votes):
        metadata.check_controller()
        if loop.time() > deadline:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the change of voters did not complete in time, but may still do so; check with `drmq cluster members`",
            )
        await asyncio.sleep(_RETRY_S)


def has_vote(metadata: Metadata, node_id: NodeId) -> bool:
    """Whether any incarnation of a node is a voter."""
    return any(node_of(member) == node_id for member in _settled_voters(metadata))


def hand_vote_on(metadata: Metadata, broker: Broker) -> Refusal | None:
    """Start to move the vote of a node that leaves to a node without a vote, if one has caught up.

    The number of voters then stays the same, and so does the number of failures that the cluster tolerates.
    """
    reason = f"node {broker.node_id} is being removed from the cluster"
    return try_change(metadata, broker, reason, votes=False, heir=_heir(metadata))


def _heir(metadata: Metadata) -> Broker | None:
    node = metadata.log.partition.replica.node
    assert node is not None
    fit = {member for member, peer in node.progress().items() if not peer.votes and peer.caught_up}
    staying = (broker for _, broker in sorted(metadata.catalog.brokers.items()) if broker.takes_replicas)
    return next((broker for broker in staying if "controller" in broker.roles and broker.member in fit), None)


def try_change(
    metadata: Metadata, broker: Broker, reason: str, *, votes: bool, heir: Broker | None = None
) -> Refusal | None:
    """Start to give a node a vote, or to take it. Returns the reason if the change cannot start now."""
    replica = metadata.log.partition.replica
    node = replica.node
    assert node is not None
    voters, learners = node.configuration.voters, node.configuration.learners
    # Includes earlier incarnations of the node, whose disk is gone: they lose their vote in any case.
    incarnations = {member for member in voters if node_of(member) == broker.node_id}
    if votes:
        voters, learners = (voters - incarnations) | {broker.member}, learners - {broker.member}
    else:
        voters, learners = voters - incarnations, learners | ({broker.member} & incarnations)
        if heir is not None:
            voters, learners = voters | {heir.member}, learners - {heir.member}
    try:
        replica.change_members(voters, learners, reason)
    except Refusal as refusal:
        return refusal
    return None


def _is_through(replica: Replica, broker: Broker, *, votes: bool) -> bool:
    node = replica.node
    if node is None or node.change_in_progress:
        return False
    return (broker.member in node.configuration.voters) == votes
