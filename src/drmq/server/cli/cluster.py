"""`drmq cluster`: the nodes of a cluster, whether all is well with them, and how they come and go."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.moves import COLUMNS, carry_out, confirm_moves, move_row, no_wait_option
from drmq.server.cli.options import (
    ClusterChoice,
    bootstrap_option,
    confirm,
    dry_run_option,
    output_option,
    yes_option,
)
from drmq.server.cli.output import Column, Output, plural
from drmq.server.cli.progress import Progress
from drmq.server.health import NO_CONTROLLER, observe, unreachable, who_answers

if TYPE_CHECKING:
    from drmq.client import Admin, Broker, Quorum, Topic

CODES = {"healthy": 0, "degraded": 1, "down": 2}
_LISTED_MAX = 10
_POLL_S = 0.2

_node_argument = click.argument("node_id", type=click.IntRange(min=0), metavar="NODE")


@click.group()
def cluster() -> None:
    """Show the nodes of a cluster, and add, remove and rebalance them."""


# ---- looking ------------------------------------------------------------------------------------------


@cluster.command()
@bootstrap_option
@output_option
def info(cluster: ClusterChoice, output: Output) -> None:
    """Show the cluster as a whole.

    Its id, who keeps its metadata, which nodes are there, and how much is on them.
    """
    with cluster.admin() as admin:
        cluster_id = admin.describe_cluster().cluster_id
        brokers = admin.brokers.all()
        topics = admin.topics.all()
        answering = who_answers(brokers, cluster.timeout_s)
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
        ("not there", _ids(facts["missing"])),
        ("racks", ", ".join(facts["racks"])),
        ("controller", _controller_text(quorum)),
        ("voters", _ids(facts["voters"] or [])),
        ("without vote", _ids(facts["observers"] or [])),
        ("topics", f"{facts['topics']:,} (and DRMQ's own)"),
        ("partitions", f"{len(partitions):,}, with {plural(facts['replicas'], 'replica')}"),
        ("moving", plural(len(moving), "partition") if moving else ""),
    ]
    print(f"Cluster {cluster_id}")
    for name, value in lines:
        if value:
            print(f"  {name:13} {value}")


def _quorum_if_any(admin: Admin, brokers: Sequence[Broker], answering: Collection[int]) -> Quorum | None:
    """Who votes about the metadata; None where nobody can tell, which is when people look at the nodes."""
    from drmq.client import ClientError

    has_controller = admin.describe_cluster().controller_id in answering
    if not has_controller and len(answering) * 2 <= len(brokers):
        # Most nodes are gone, so nobody is about to be elected: there is nothing to wait for.
        return None
    try:
        return admin.brokers.quorum()
    except ClientError:
        return None


def _controller_text(quorum: Quorum | None) -> str:
    if quorum is None or quorum.leader_id is None:
        return f"none, {NO_CONTROLLER.partition(', ')[2]}"
    return f"{quorum.leader_id}, in term {quorum.leader_epoch}"


@cluster.command()
@bootstrap_option
@output_option
def members(cluster: ClusterChoice, output: Output) -> None:
    """List the nodes with what each one keeps and leads.

    A voter takes part in decisions about the metadata, an observer follows them. LAG is how many entries
    of the metadata a node does not have yet. Where most voters are gone nobody can tell either; the list
    still says which nodes answer.
    """
    with cluster.admin() as admin:
        brokers = admin.brokers.all()
        topics = admin.topics.all()
        answering = who_answers(brokers, cluster.timeout_s)
        quorum = _quorum_if_any(admin, brokers, answering)
    columns = [
        Column("node", "NODE", right=True),
        Column("address", "ADDRESS"),
        Column("rack", "RACK"),
        Column("state", "STATE"),
        Column("metadata", "METADATA"),
        Column("metadata_lag", "LAG", right=True),
        Column("leaders", "LEADS", right=True),
        Column("replicas", "KEEPS", right=True),
        Column("out_of_sync", "BEHIND", right=True),
    ]
    output.rows(columns, member_rows(brokers, topics, quorum, answering), "")
    if output.is_human and quorum is None:
        print(f"\n{NO_CONTROLLER.capitalize()}, and who votes is not known. Start the nodes that are not there.")


def member_rows(
    brokers: Sequence[Broker], topics: Sequence[Topic], quorum: Quorum | None, answering: Collection[int]
) -> list[dict[str, Any]]:
    """A row for each node that is a broker or votes about the metadata, as far as somebody can tell who does."""
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
    # Nodes that vote without being brokers count; an observer that is no broker is one that has just been removed.
    for node_id in sorted(by_id.keys() | voters):
        broker, copy = by_id.get(node_id), copies.get(node_id)
        role = "leader" if node_id == leader else "voter" if node_id in voters else "observer"
        rows.append(
            {
                "node": node_id,
                "address": None if broker is None else str(broker.address),
                "rack": None if broker is None else broker.rack,
                "state": "controller only" if broker is None else "up" if node_id in answering else "not there",
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
    """Say whether all nodes and replicas are there.

    Asks every node, and names what is wrong. Exit code: 0 healthy, 1 degraded (a node is not there, a
    partition has no leader or too few replicas in sync, or waits to move to a node that is not there), 2 down
    (no node answers, or no partition has a leader).
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
            print(f"  {_place(row)} waits to move to {_ids(row['waits_for'])}; cancel that, or start the node")
    return CODES[found["status"]]


def examine(cluster: ClusterChoice) -> dict[str, Any]:
    """The health of the cluster as facts; never raises for a cluster in trouble."""
    from drmq.client import ClientError

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
    """Let a node that has joined vote about the metadata.

    A node joins by itself when it is started with `--peers` that name a node of the cluster, and is a
    full broker then. It follows the metadata without a vote until it is added here. An odd number of
    voters is best: three survive the loss of one, five that of two.
    """
    from drmq.client import ClientError

    with cluster.admin() as admin:
        broker = _broker(admin, node_id, "Start it with --peers that name a node of the cluster: it joins by itself.")
        quorum = admin.brokers.quorum()
        was_voter = any(replica.node_id == node_id for replica in quorum.voters)
        if not was_voter:
            if broker.is_fenced:
                raise ClientError(f"Node {node_id} is not there", advice="Start it first.")
            directory_ids = [replica.directory_id for replica in quorum.observers if replica.node_id == node_id]
            admin.brokers.add_voter(broker, directory_ids[0] if directory_ids else None)
            quorum = _wait_for_voter(admin, node_id, cluster.timeout_s)
    voters = [replica.node_id for replica in quorum.voters]
    text = (
        f"Node {node_id} {'votes already' if was_voter else 'votes about the metadata now'}, as one of {_ids(voters)}."
    )
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
                f"Node {node_id} does not vote after {timeout_s:g} s",
                advice="It gets its vote once it has caught up; `drmq cluster members` shows how far it is.",
            )
        time.sleep(_POLL_S)


@cluster.command()
@_node_argument
@click.option("--vote-only", is_flag=True, help="Take away only its vote about the metadata; it stays a broker.")
@no_wait_option
@yes_option
@bootstrap_option
@output_option
def remove(node_id: int, vote_only: bool, no_wait: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Take a node out of the cluster for good.

    Everything it keeps moves to the other nodes first, one partition after the other, while clients go
    on working. The node must not be the one that a partition needs to have as many replicas as it has.
    Also a node that is down, and will not come back, can be removed. Started again with its data it is
    refused; with an empty data directory it joins as a new one. Where `drmq up` started it, `drmq node
    forget NODE --data-dir DIR` leaves it out from now on.
    """
    with cluster.admin() as admin:
        _broker(admin, node_id, "`drmq cluster members` lists those that there are.")
        if vote_only:
            had_vote = _remove_vote(admin, node_id, yes)
            state = "has no vote about the metadata any more" if had_vote else "had no vote about the metadata"
            output.one({"node": node_id, "removed": False, "had_vote": had_vote}, f"Node {node_id} {state}.")
            return
        kept = _kept(admin, node_id)
        confirm(f"Move {plural(kept, 'replica')} away from node {node_id} and remove it?", yes)
        admin.brokers.unregister(node_id)
        if not no_wait:
            _wait_until_removed(admin, node_id, kept)
    text = (
        f"Node {node_id} has left the cluster. Its process ends by itself, and its data is not needed any more. "
        f"Where `drmq up` started it, `drmq node forget {node_id} --data-dir DIR` leaves it out from now on."
    )
    if no_wait:
        text = (
            f"Node {node_id} is being drained, and leaves the cluster then. `drmq cluster members` shows how far it is."
        )
    output.one({"node": node_id, "replicas": kept, "removed": not no_wait}, text)


def _remove_vote(admin: Admin, node_id: int, yes: bool) -> bool:
    """Take a node's vote, in the life in which it has it; whether it had one."""
    directory_ids = [replica.directory_id for replica in admin.brokers.quorum().voters if replica.node_id == node_id]
    if not directory_ids:
        return False
    confirm(f"Take the vote about the metadata from node {node_id}?", yes)
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
    """How many replicas a node has."""
    return sum(node_id in partition.replicas for topic in admin.topics.all() for partition in topic.partitions)


def _broker(admin: Admin, node_id: int, advice: str) -> Broker:
    from drmq.client import ClientError

    brokers = admin.brokers.all()
    for broker in brokers:
        if broker.node_id == node_id:
            return broker
    there = _ids([broker.node_id for broker in brokers])
    raise ClientError(f"There is no node {node_id} in the cluster; there are {there}", advice=advice)


@cluster.command()
@dry_run_option
@no_wait_option
@yes_option
@bootstrap_option
@output_option
def rebalance(dry_run: bool, no_wait: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Give every node its share of replicas and of leaders.

    Shows a plan with as few moves as possible: replicas in different racks, as many on each node, as many
    led by each. Then moves one partition at a time; the new replica catches up before the old one goes, and
    clients notice nothing. Ctrl-C is safe: the move that is under way is finished, and the next call makes
    a new plan. A change of order only moves a leader and copies nothing.
    """
    from drmq.server.rebalancing import plan

    with cluster.admin() as admin:
        moves = plan(admin.brokers.all(), admin.topics.all(), admin.replicas.reassignments())
        rows = [move_row(move) for move in moves]
        if output.is_human:
            output.rows(COLUMNS, rows, "Every node has its share: there is nothing to move.")
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
