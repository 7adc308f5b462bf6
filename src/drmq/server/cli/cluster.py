"""`drmq cluster`: shows the nodes of a cluster and its health, and adds, removes and rebalances nodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.features import features, upgrade
from drmq.server.cli.moves import COLUMNS, carry_out, confirm_moves, move_row, no_wait_option
from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import (
    INT32_MAX,
    ClusterChoice,
    bootstrap_option,
    confirm,
    dry_run_option,
    output_option,
    yes_option,
)
from drmq.server.cli.output import Column, Output, plural
from drmq.server.cli.progress import Progress

if TYPE_CHECKING:
    from drmq.client import Admin, Broker, Quorum, Topic

CODES = {"healthy": 0, "degraded": 1, "down": 2}
_LISTED_MAX = 10
_POLL_S = 0.2

_node_argument = click.argument("node_id", type=click.IntRange(0, INT32_MAX), metavar="NODE")


@click.group(cls=Noun)
def cluster() -> None:
    """Show the nodes of a cluster, and add, remove and rebalance them."""


cluster.add_command(features)
cluster.add_command(upgrade)


# ---- looking ------------------------------------------------------------------------------------------


@cluster.command()
@bootstrap_option
@output_option
def info(cluster: ClusterChoice, output: Output) -> None:
    """Show the cluster as a whole.

    Its id, the voters of its metadata, the nodes that answer, and the number of topics and partitions.
    """
    from drmq.client.health import answering_brokers

    with cluster.admin() as admin:
        cluster_id = admin.describe_cluster().cluster_id
        brokers = admin.brokers.all()
        topics = admin.topics.all()
        answering = answering_brokers(brokers, cluster.timeout_s)
        quorum = _quorum_if_any(admin, brokers, answering)
        moving = {} if quorum is None else admin.replicas.reassignments()
    partitions = [partition for topic in topics for partition in topic.partitions]
    facts: dict[str, Any] = {
        "cluster_id": cluster_id,
        "controller": None if quorum is None else quorum.leader_id,
        "metadata_epoch": None if quorum is None else quorum.leader_epoch,
        "metadata_high_watermark": None if quorum is None else quorum.high_watermark,
        "voters": None if quorum is None else [replica.node_id for replica in quorum.voters],
        "observers": None if quorum is None else [replica.node_id for replica in quorum.observers],
        "brokers": sorted(answering),
        "fenced_brokers": [broker.node_id for broker in brokers if broker.is_fenced],
        "missing": [broker.node_id for broker in brokers if broker.node_id not in answering],
        "racks": sorted({broker.rack for broker in brokers if broker.rack is not None}),
        "topics": sum(not topic.is_internal for topic in topics),
        "partitions": len(partitions),
        "replicas": sum(len(partition.replicas) for partition in partitions),
        "reassignments": None if quorum is None else len(moving),
    }
    if not output.is_human:
        output.data(facts)
        return
    lines = [
        ("brokers", _ids(facts["brokers"])),
        ("unreachable", _ids(facts["missing"])),
        ("racks", ", ".join(facts["racks"])),
        ("controller", _controller_text(quorum)),
        ("voters", _ids(facts["voters"] or [])),
        ("observers", _ids(facts["observers"] or [])),
        ("topics", f"{facts['topics']:,} (and DRMQ's own)"),
        ("partitions", f"{len(partitions):,}, with {plural(facts['replicas'], 'replica')}"),
        ("moving", plural(len(moving), "partition") if moving else ""),
    ]
    print(f"Cluster {cluster_id}")
    for name, value in lines:
        if value:
            print(f"  {name:13} {value}")


def _quorum_if_any(admin: Admin, brokers: Sequence[Broker], answering: Collection[int]) -> Quorum | None:
    """The quorum of the metadata; None if no node can report it, which is exactly when users inspect the nodes."""
    from drmq.client import ClientError

    has_controller = admin.describe_cluster().controller_id in answering
    if not has_controller and len(answering) * 2 <= len(brokers):
        # A majority of the nodes is unreachable, so no election is about to succeed: there is nothing to wait for.
        return None
    try:
        return admin.brokers.quorum()
    except ClientError:
        return None


def _controller_text(quorum: Quorum | None) -> str:
    from drmq.client.health import NO_CONTROLLER_EFFECT

    if quorum is None or quorum.leader_id is None:
        return f"none, {NO_CONTROLLER_EFFECT}"
    return f"{quorum.leader_id}, in term {quorum.leader_epoch}"


@cluster.command()
@bootstrap_option
@output_option
def members(cluster: ClusterChoice, output: Output) -> None:
    """List the nodes with the replicas and leaderships of each.

    A voter takes part in decisions about the metadata, an observer only receives them. LAG is how many entries of the
    metadata a node does not have yet. If a majority of the voters is down, METADATA and LAG are unknown; STATE still
    shows which nodes answer.
    """
    from drmq.client.health import NO_CONTROLLER, NO_CONTROLLER_EFFECT, answering_brokers

    with cluster.admin() as admin:
        brokers = admin.brokers.all()
        topics = admin.topics.all()
        answering = answering_brokers(brokers, cluster.timeout_s)
        quorum = _quorum_if_any(admin, brokers, answering)
    columns = [
        Column("node", "NODE", right=True),
        Column("address", "ADDRESS"),
        Column("rack", "RACK"),
        Column("state", "STATE"),
        Column("metadata", "METADATA"),
        Column("metadata_lag", "LAG", right=True),
        Column("leaders", "LEADS", right=True),
        Column("replicas", "REPLICAS", right=True),
        Column("out_of_sync", "OUT OF SYNC", right=True),
    ]
    output.rows(columns, member_rows(brokers, topics, quorum, answering), "")
    if output.is_human and quorum is None:
        print(
            f"\n{NO_CONTROLLER.capitalize()}, {NO_CONTROLLER_EFFECT}, and the voters are unknown. "
            "Start the unreachable nodes."
        )


def member_rows(
    brokers: Sequence[Broker], topics: Sequence[Topic], quorum: Quorum | None, answering: Collection[int]
) -> list[dict[str, Any]]:
    """A row for each node that is a broker or, if the quorum is known, votes on the metadata."""
    leads: Counter[int | None] = Counter()
    keeps: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in topics:
        for partition in topic.partitions:
            leads[partition.leader] += 1
            keeps.update(partition.replicas)
            behind.update(set(partition.replicas) - set(partition.in_sync))
    copies = {} if quorum is None else {copy.node_id: copy for copy in (*quorum.voters, *quorum.observers)}
    voters = set() if quorum is None else {replica.node_id for replica in quorum.voters}
    leader = None if quorum is None else quorum.leader_id
    by_id = {broker.node_id: broker for broker in brokers}
    rows = []
    # Voters that are not brokers are listed; an observer that is not a broker has just been removed.
    for node_id in sorted(by_id.keys() | voters):
        broker, copy = by_id.get(node_id), copies.get(node_id)
        role = "leader" if node_id == leader else "voter" if node_id in voters else "observer"
        rows.append(
            {
                "node": node_id,
                "address": None if broker is None else str(broker.address),
                "rack": None if broker is None else broker.rack,
                "state": "controller only" if broker is None else "up" if node_id in answering else "unreachable",
                "metadata": role if copy is not None else None,
                "metadata_lag": None if copy is None else copy.lag,
                "leaders": leads[node_id],
                "replicas": keeps[node_id],
                "out_of_sync": behind[node_id],
            }
        )
    return rows


@cluster.command()
@bootstrap_option
@output_option
def health(cluster: ClusterChoice, output: Output) -> int:
    """Report whether all nodes and replicas are available.

    Asks every node, and names what is wrong. Exit code: 0 healthy, 1 degraded (a node is unreachable, a partition has
    no leader or too few replicas in sync, or waits to move to an unreachable node), 2 down (no node answers, or no
    partition has a leader).
    """
    found = examine(cluster)
    output.one(found, f"{found['status'].capitalize()}: {found['reason']}.")
    if output.is_human:
        for heading, key in (("without a leader", "leaderless"), ("under-replicated", "under_replicated")):
            for row in found[key][:_LISTED_MAX]:
                print(f"  {_place(row)} {heading}: in sync {_ids(row['in_sync']) or 'none'} of {_ids(row['replicas'])}")
            if len(found[key]) > _LISTED_MAX:
                print(f"  and {len(found[key]) - _LISTED_MAX:,} more {heading}")
        for row in found["waiting"][:_LISTED_MAX]:
            print(f"  {_place(row)} waits to move to {_ids(row['waits_for'])}; start that node, or cancel the move")
    return CODES[found["status"]]


def examine(cluster: ClusterChoice) -> dict[str, Any]:
    """The health of the cluster as a dictionary. Does not raise if the cluster is in trouble."""
    from drmq.client import ClientError
    from drmq.client.health import observe, unreachable

    try:
        with cluster.admin() as admin:
            return observe(admin, cluster.timeout_s)
    except ClientError as error:
        return unreachable(error)


# ---- changing -----------------------------------------------------------------------------------------


@cluster.command()
@_node_argument
@bootstrap_option
@output_option
def add(node_id: int, cluster: ClusterChoice, output: Output) -> None:
    """Let a node that has joined vote on the metadata.

    A node joins by itself when it is started with `--peers` that name a node of the cluster, and is then a full broker.
    It receives the metadata without a vote until it is added here. Use an odd number of voters: three tolerate the loss
    of one, five the loss of two.
    """
    from drmq.client import ClientError

    with cluster.admin() as admin:
        broker = _broker(admin, node_id, "Start it with --peers that name a node of the cluster: it joins by itself.")
        quorum = admin.brokers.quorum()
        was_voter = any(replica.node_id == node_id for replica in quorum.voters)
        if not was_voter:
            if broker.is_fenced:
                raise ClientError(f"Node {node_id} is unreachable", advice="Start it first.")
            directory_ids = [replica.directory_id for replica in quorum.observers if replica.node_id == node_id]
            admin.brokers.add_voter(broker, directory_ids[0] if directory_ids else None)
            quorum = _wait_for_voter(admin, node_id, cluster.timeout_s)
    voters = [replica.node_id for replica in quorum.voters]
    text = f"Node {node_id} {'already votes' if was_voter else 'now votes'} on the metadata; voters are {_ids(voters)}."
    output.one({"node": node_id, "added": not was_voter, "voters": voters}, text)


def _wait_for_voter(admin: Admin, node_id: int, timeout_s: float) -> Quorum:
    from drmq.client import ClientError

    deadline = time.monotonic() + timeout_s
    while True:
        quorum = admin.brokers.quorum()
        if any(replica.node_id == node_id for replica in quorum.voters):
            return quorum
        if time.monotonic() > deadline:
            raise ClientError(
                f"Node {node_id} has not become a voter within {timeout_s:g} s",
                advice="It becomes a voter when it has caught up; `drmq cluster members` shows its lag.",
            )
        time.sleep(_POLL_S)


@cluster.command()
@_node_argument
@click.option("--vote-only", is_flag=True, help="Remove only its vote on the metadata; it stays a broker.")
@dry_run_option
@no_wait_option
@yes_option
@bootstrap_option
@output_option
def remove(
    node_id: int, vote_only: bool, dry_run: bool, no_wait: bool, yes: bool, cluster: ClusterChoice, output: Output
) -> None:
    """Remove a node from the cluster permanently.

    First, all its replicas move to the other nodes, one partition after the other, while clients keep working. Every
    partition must be able to keep its number of replicas without this node. A node that is down and will not come back
    can be removed too. If it is started again with its data, the cluster refuses it; with an empty data directory it
    joins as a new node. If `drmq up` started the node, `drmq node forget NODE --data-dir DIR` stops managing it.
    """
    with cluster.admin() as admin:
        _broker(admin, node_id, "`drmq cluster members` lists the nodes.")
        if vote_only:
            had_vote = _remove_vote(admin, node_id, yes, dry_run=dry_run)
            state = "no longer votes on the metadata" if had_vote else "had no vote on the metadata"
            if had_vote and dry_run:
                state = "would no longer vote on the metadata"
            output.one({"node": node_id, "removed": False, "had_vote": had_vote}, f"Node {node_id} {state}.")
            return
        kept = _kept(admin, node_id)
        if dry_run:
            _check_can_leave(admin, node_id)
            text = f"{plural(kept, 'replica')} would move away from node {node_id}, which would then leave the cluster."
            output.one({"node": node_id, "replicas": kept, "removed": False}, text)
            return
        confirm(f"Move {plural(kept, 'replica')} away from node {node_id} and remove it?", yes)
        admin.brokers.unregister(node_id)
        if not no_wait:
            _wait_until_removed(admin, node_id, kept)
    text = (
        f"Node {node_id} has left the cluster. Its process exits by itself, and its data is no longer needed. "
        f"If `drmq up` started it, run `drmq node forget {node_id} --data-dir DIR` so that it is not started again."
    )
    if no_wait:
        text = f"Node {node_id} is being drained and then leaves the cluster. `drmq cluster members` shows it."
    output.one({"node": node_id, "replicas": kept, "removed": not no_wait}, text)


def _check_can_leave(admin: Admin, node_id: int) -> None:
    """Raise if the other nodes are too few for the replicas of a partition, as the controller would."""
    from drmq.client import ClientError

    others = [broker.node_id for broker in admin.brokers.all() if broker.node_id != node_id and not broker.is_fenced]
    for topic in admin.topics.all():
        for partition in topic.partitions:
            if node_id in partition.replicas and len(partition.replicas) > len(others):
                raise ClientError(
                    f"Node {node_id} cannot be removed: {topic.name}-{partition.index} has "
                    f"{plural(len(partition.replicas), 'replica')}, and only {plural(len(others), 'other node')} can "
                    "keep them",
                    advice=f"Add a node, or reduce the replicas with `drmq topic alter {topic.name} --replicas N`.",
                )


def _remove_vote(admin: Admin, node_id: int, yes: bool, *, dry_run: bool) -> bool:
    """Remove the vote that a node has with its current directory id. Returns whether it had one."""
    directory_ids = [replica.directory_id for replica in admin.brokers.quorum().voters if replica.node_id == node_id]
    if not directory_ids or dry_run:
        return bool(directory_ids)
    confirm(f"Remove the vote of node {node_id} on the metadata?", yes)
    admin.brokers.remove_voter(node_id, directory_ids[0])
    return True


def _wait_until_removed(admin: Admin, node_id: int, kept: int) -> None:
    with Progress(f"Draining node {node_id}", kept) as progress:
        done = 0
        while any(broker.node_id == node_id for broker in admin.brokers.all()):
            now = kept - _kept(admin, node_id)
            progress.advance(max(0, now - done))
            done = max(done, now)
            time.sleep(_POLL_S)
        progress.advance(kept - done)


def _kept(admin: Admin, node_id: int) -> int:
    """The number of replicas on a node."""
    return sum(node_id in partition.replicas for topic in admin.topics.all() for partition in topic.partitions)


def _broker(admin: Admin, node_id: int, advice: str) -> Broker:
    from drmq.client import ClientError

    brokers = admin.brokers.all()
    for broker in brokers:
        if broker.node_id == node_id:
            return broker
    there = _ids([broker.node_id for broker in brokers])
    raise ClientError(f"There is no node {node_id} in the cluster. Existing nodes: {there}", advice=advice)


@cluster.command()
@dry_run_option
@no_wait_option
@yes_option
@bootstrap_option
@output_option
def rebalance(dry_run: bool, no_wait: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Balance replicas and leaders over all nodes.

    Prints a plan with as few moves as possible: replicas in different racks, the same number of replicas and leaders on
    each node. Then moves one partition at a time. The new replica catches up before the old one is removed, and clients
    are not interrupted. Ctrl-C is safe: the current move is finished, and the next call makes a new plan. A change of
    the order of replicas only moves the leader and copies nothing.
    """
    from drmq.server.rebalancing import plan

    with cluster.admin() as admin:
        moves = plan(admin.brokers.all(), admin.topics.all(), admin.replicas.reassignments())
        rows = [move_row(move) for move in moves]
        if output.is_human:
            output.rows(COLUMNS, rows, "The cluster is balanced: there is nothing to move.")
        if moves and not dry_run:
            confirm_moves(moves, yes)
            carry_out(admin, moves, no_wait=no_wait)
            if output.is_human:
                done = "is being rebalanced; `drmq cluster info` shows what is moving" if no_wait else "is rebalanced"
                print(f"The cluster {done}.")
    if not output.is_human:
        output.data({"moves": rows, "done": bool(moves) and not dry_run and not no_wait})


def _ids(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _place(row: dict[str, Any]) -> str:
    return row["topic"] if row["partition"] is None else f"{row['topic']}-{row['partition']}"
