"""`drmq raft`: the Raft groups behind partitions: the leader, the term, and the progress of each replica.

Every partition is a group of replicas that agree on its log by Raft. The group `__cluster_metadata` stores what all
nodes must agree on: the brokers, the topics, and the placement of partitions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.completion import topic_names
from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import INT32_MAX, ClusterChoice, bootstrap_option, output_option
from drmq.server.cli.output import Column, Output

if TYPE_CHECKING:
    from drmq.client import Partition, Quorum
    from drmq.model import TopicPartition

_partition_argument = click.argument("partition", type=click.IntRange(0, INT32_MAX), metavar="PARTITION")


@click.group(cls=Noun)
def raft() -> None:
    """Show the replica groups of partitions, and move their leaders."""


@raft.command("ls")
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=topic_names)
@click.option("--internal", is_flag=True, help="Include internal topics.")
@bootstrap_option
@output_option
def list_groups(names: tuple[str, ...], internal: bool, cluster: ClusterChoice, output: Output) -> None:
    """List replica groups with leader, term and lag.

    COMMITTED is the offset up to which a majority has the log. LAG is how far the slowest replica is behind. The group
    of the metadata comes first. Learners receive the log but have no vote: they are replicas that are moving to a new
    node.
    """
    from drmq.client import ClientError
    from drmq.model import TopicPartition
    from drmq.model.names import CLUSTER_METADATA

    with cluster.admin() as admin:
        if names:
            topics = [admin.topics.describe(name) for name in names if name != CLUSTER_METADATA]
        else:
            topics = [topic for topic in admin.topics.all() if internal or not topic.is_internal]
        known = {
            TopicPartition(topic.name, partition.index): partition for topic in topics for partition in topic.partitions
        }
        quorums = admin.replicas.quorums(known)
        rows = []
        if not names or CLUSTER_METADATA in names:
            try:
                rows.append(_row(TopicPartition(CLUSTER_METADATA, 0), admin.brokers.quorum(), None))
            except ClientError:
                rows.append(_row(TopicPartition(CLUSTER_METADATA, 0), None, None))
        rows += [_row(place, quorums.get(place), partition) for place, partition in known.items()]
    columns = [
        Column("topic", "TOPIC"),
        Column("partition", "PARTITION", right=True),
        Column("leader", "LEADER", right=True),
        Column("term", "TERM", right=True),
        Column("high_watermark", "COMMITTED", right=True),
        Column("voters", "VOTERS"),
        Column("learners", "LEARNERS"),
        Column("in_sync", "IN SYNC"),
        Column("lag_max", "LAG", right=True),
    ]
    output.rows(columns, rows, "")


def _row(place: TopicPartition, quorum: Quorum | None, partition: Partition | None) -> dict[str, Any]:
    """One group, as its leader reports it; if no leader answers, as the metadata describes it."""
    row: dict[str, Any] = {"topic": place.topic, "partition": place.partition}
    if quorum is not None:
        lags = [replica.lag for replica in (*quorum.voters, *quorum.observers) if replica.lag is not None]
        row |= {
            "leader": quorum.leader_id,
            "term": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "voters": [replica.node_id for replica in quorum.voters],
            "learners": [replica.node_id for replica in quorum.observers],
            "lag_max": max(lags, default=None),
        }
    else:
        row |= {
            "leader": None if partition is None else partition.leader,
            "term": None if partition is None else partition.leader_epoch,
            "high_watermark": None,
            "voters": None if partition is None else list(partition.replicas),
            "learners": None,
            "lag_max": None,
        }
    row["in_sync"] = None if partition is None else list(partition.in_sync)
    return row


@raft.command()
@click.argument("topic", shell_complete=topic_names)
@_partition_argument
@bootstrap_option
@output_option
def describe(topic: str, partition: int, cluster: ClusterChoice, output: Output) -> None:
    """Show the replicas of one group and the progress of each.

    `drmq raft describe __cluster_metadata 0` shows the group of the metadata.
    """
    from drmq.client.leadership import find_partition
    from drmq.model import TopicPartition
    from drmq.model.names import CLUSTER_METADATA

    place = TopicPartition(topic, partition)
    with cluster.admin() as admin:
        if topic == CLUSTER_METADATA:
            _check_is_metadata(place)
            quorum, in_sync, preferred = admin.brokers.quorum(), None, None
        else:
            found = find_partition(admin, place)
            quorum, in_sync, preferred = admin.replicas.quorum(place), found.in_sync, found.replicas[0]
    voters = {replica.node_id for replica in quorum.voters}
    now_ms = time.time() * 1000
    rows = []
    for replica in sorted((*quorum.voters, *quorum.observers), key=lambda replica: replica.node_id):
        role = "leader" if replica.node_id == quorum.leader_id else "voter" if replica.node_id in voters else "learner"
        rows.append(
            {
                "node": replica.node_id,
                "role": role,
                "log_end_offset": replica.log_end_offset,
                "lag": replica.lag,
                "in_sync": None if in_sync is None else replica.node_id in in_sync,
                "last_fetch_ms": replica.last_fetch_ms,
                "last_caught_up_ms": replica.last_caught_up_ms,
                "heard": _ago(replica.last_fetch_ms, now_ms),
                "caught_up": _ago(replica.last_caught_up_ms, now_ms),
            }
        )
    if not output.is_human:
        for row in rows:
            del row["heard"], row["caught_up"]
        output.data(
            {
                "topic": topic,
                "partition": partition,
                "leader": quorum.leader_id,
                "preferred_leader": preferred,
                "term": quorum.leader_epoch,
                "high_watermark": quorum.high_watermark,
                "replicas": rows,
            }
        )
        return
    leader = "has no leader" if quorum.leader_id is None else f"is led by node {quorum.leader_id}"
    wanted = f" (node {preferred} should lead)" if preferred not in (None, quorum.leader_id) else ""
    print(f"{place} {leader}{wanted} in term {quorum.leader_epoch}; committed up to {quorum.high_watermark:,}\n")
    columns = [
        Column("node", "NODE", right=True),
        Column("role", "ROLE"),
        Column("log_end_offset", "LOG END", right=True),
        Column("lag", "LAG", right=True),
        Column("in_sync", "IN SYNC"),
        Column("heard", "LAST FETCH"),
        Column("caught_up", "CAUGHT UP"),
    ]
    output.rows(columns, rows, "")


def _ago(when_ms: int | None, now_ms: float) -> str | None:
    """A time as its age. The clock of another node may be slightly ahead."""
    if when_ms is None:
        return None
    seconds = max(0.0, (now_ms - when_ms) / 1000)
    return "just now" if seconds < 1 else f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


@raft.command()
@click.argument("topic", shell_complete=topic_names)
@_partition_argument
@click.option(
    "--to",
    "node_id",
    type=click.IntRange(0, INT32_MAX),
    required=True,
    metavar="NODE",
    help="Node that becomes the leader.",
)
@bootstrap_option
@output_option
def transfer(topic: str, partition: int, node_id: int, cluster: ClusterChoice, output: Output) -> None:
    """Move the leadership of a partition to another replica.

    The node also becomes the preferred leader, so that it becomes the leader again after an outage. Leadership moves
    only to a replica that has all records, and clients find the new leader by themselves.

    \b
      drmq raft transfer orders 0 --to 2
    """
    from drmq.client.leadership import check_can_move, find_partition, hand_over
    from drmq.model import TopicPartition

    place = TopicPartition(topic, partition)
    check_can_move(place)
    started_at = time.monotonic()
    with cluster.admin() as admin:
        before = find_partition(admin, place)
        after = hand_over(admin, place, before, node_id, cluster.timeout_s)
    moved = before.leader != node_id
    text = f"Node {node_id} {'now leads' if moved else 'already leads'} {place}, in term {after.leader_epoch}."
    facts = {
        "topic": topic,
        "partition": partition,
        "leader": node_id,
        "term": after.leader_epoch,
        "moved": moved,
        "from": before.leader,
        "took_ms": round((time.monotonic() - started_at) * 1000),
    }
    output.one(facts, text)


def _check_is_metadata(place: TopicPartition) -> None:
    from drmq.client.topics import topic_refusal
    from drmq.model import ErrorCode

    if place.partition != 0:
        advice = "The metadata has one partition: `drmq raft describe __cluster_metadata 0`."
        error = topic_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, place.topic, partition=place.partition)
        error.advice = advice
        raise error
