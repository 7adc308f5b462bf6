"""Who votes about the cluster's metadata, changed at a person's wish.

Every node follows the metadata log; those that vote decide what is in it, and one of them is the controller. A node
gets its vote only when it has caught up: until then the change is tried again, for as long as the caller waits. The
last vote cannot be taken away. A controller that loses its own vote hands over to one that has one. The vote of a node
that leaves the cluster goes to another, where one has caught up that has none.
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
    """Give a node that follows the metadata a vote. Raises `ApiError`. Without `wait` the end may be open."""
    broker = metadata.catalog.broker(node_id)
    if "controller" not in broker.roles:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} is no controller: its roles are {', '.join(broker.roles)}; start it with `roles` that "
            "have `controller`",
        )
    if broker.draining:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"node {node_id} is being removed, so it cannot be given a vote")
    if broker.member in _settled_voters(metadata):
        raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {node_id} has a vote already")
    await _change(metadata, broker, timeout_s, votes=True, wait=wait)


async def remove_voter(metadata: Metadata, node_id: NodeId, timeout_s: float) -> None:
    """Take a node's vote away; it goes on following. Raises `ApiError`."""
    voters = _settled_voters(metadata)
    member = next((member for member in voters if node_of(member) == node_id), None)
    if member is None:
        known = ", ".join(map(str, sorted(map(node_of, voters))))
        raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {node_id} has no vote; nodes {known} have")
    if len(voters) == 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} has the only vote about the metadata; give another node one first",
        )
    broker = metadata.catalog.broker(node_id)
    await _change(metadata, broker, timeout_s, votes=False, wait=True)


def check_may_leave(metadata: Metadata, node_id: NodeId) -> None:
    """Raise `ApiError` if nobody could decide about the metadata without this node."""
    voters = _settled_voters(metadata)
    if {node_of(member) for member in voters} <= {node_id}:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} has the only vote about the metadata, so it cannot leave; "
            "give another node a vote first (`drmq cluster add`)",
        )


def _settled_voters(metadata: Metadata) -> frozenset[NodeId]:
    """Who votes, or will when the change under way is through."""
    metadata.check_controller()
    node = metadata.log.partition.replica.node
    assert node is not None
    return node.configuration.voters


async def _change(metadata: Metadata, broker: Broker, timeout_s: float, *, votes: bool, wait: bool) -> None:
    replica = metadata.log.partition.replica
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        metadata.check_controller()
        refusal = try_change(metadata, broker, votes=votes)
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
                ErrorCode.REQUEST_TIMED_OUT, "the change of voters is not through in time; it may still come to be"
            )
        await asyncio.sleep(_RETRY_S)


def has_vote(metadata: Metadata, node_id: NodeId) -> bool:
    """Whether a node votes, in whatever life."""
    return any(node_of(member) == node_id for member in _settled_voters(metadata))


def hand_vote_on(metadata: Metadata, broker: Broker) -> Refusal | None:
    """Begin to take the vote of a node that leaves, and to give it to one that has none, if one is fit for it.

    As many vote as before then, so as many may fail.
    """
    return try_change(metadata, broker, votes=False, heir=_heir(metadata))


def _heir(metadata: Metadata) -> Broker | None:
    node = metadata.log.partition.replica.node
    assert node is not None
    fit = {member for member, peer in node.progress().items() if not peer.votes and peer.caught_up}
    staying = (broker for _, broker in sorted(metadata.catalog.brokers.items()) if broker.takes_replicas)
    return next((broker for broker in staying if "controller" in broker.roles and broker.member in fit), None)


def try_change(metadata: Metadata, broker: Broker, *, votes: bool, heir: Broker | None = None) -> Refusal | None:
    """Begin to give a node a vote, or to take it away; why that cannot begin now, if so."""
    replica = metadata.log.partition.replica
    node = replica.node
    assert node is not None
    voters, learners = node.configuration.voters, node.configuration.learners
    # Also another life of the node, whose disk is gone: it votes no longer, whatever this one gets.
    lives = {member for member in voters if node_of(member) == broker.node_id}
    if votes:
        voters, learners = (voters - lives) | {broker.member}, learners - {broker.member}
    else:
        voters, learners = voters - lives, learners | ({broker.member} & lives)
        if heir is not None:
            voters, learners = voters | {heir.member}, learners - {heir.member}
    try:
        replica.change_members(voters, learners)
    except Refusal as refusal:
        return refusal
    return None


def _is_through(replica: Replica, broker: Broker, *, votes: bool) -> bool:
    node = replica.node
    if node is None or node.change_in_progress:
        return False
    return (broker.member in node.configuration.voters) == votes
