"""`drmq status`: one sentence with the reason, for people and for monitoring.

The exit code is the result: 0 healthy, 1 degraded, 2 down (no broker can be reached), 3 unknown (a broker was reached,
but did not answer the requests).
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.options import ClusterChoice, Seconds, bootstrap_option, output_option
from drmq.server.cli.output import Output, plural, size_text

if TYPE_CHECKING:
    from drmq.client import Admin

CODES = {"healthy": 0, "degraded": 1, "down": 2, "unknown": 3}
_LISTED_MAX = 5


@click.command()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--every", type=Seconds(0.1), default=2.0, metavar="SECONDS", help="Interval for --watch.")
@bootstrap_option
@output_option
def status(watch: bool, every: float, cluster: ClusterChoice, output: Output) -> int:
    """Report in one sentence whether the cluster is healthy.

    Asks every node. The cluster is degraded if a node is unreachable, a partition has no leader or too few replicas in
    sync, or a disk has less than 1 % or 100 MB left. Exit code: 0 healthy, 1 degraded, 2 down (no broker can be
    reached), 3 unknown (a broker was reached, but did not answer).
    """
    while True:
        found = examine(cluster)
        text = f"{found['status'].capitalize()}: {found['reason']}."
        if watch and output.is_human:
            text = f"{time.strftime('%H:%M:%S')}  {text}"
        output.one(found, text)
        if output.is_human and not watch:
            for broker in found["brokers"]:
                role = " (controller)" if broker["controller"] else ""
                click.echo(f"  broker {broker['id']} at {broker['address']}{role}")
        if not watch:
            return CODES[found["status"]]
        # In a pipe, Python would buffer the lines until it has thousands of bytes.
        sys.stdout.flush()
        time.sleep(every)


def examine(cluster: ClusterChoice) -> dict[str, Any]:
    """The state of the cluster as a dictionary. Does not raise if the cluster is in trouble."""
    from drmq.client import ClientError, Unreachable

    counts = ("topics", "partitions", "leaderless_partitions", "under_replicated_partitions", "groups")
    lists: dict[str, Any] = {key: [] for key in ("leaderless", "missing", "disks")}
    empty: dict[str, Any] = {"cluster_id": None, "brokers": [], **dict.fromkeys(counts), **lists}
    try:
        with cluster.admin() as admin:
            return _examine(admin, cluster.timeout_s)
    except Unreachable as error:
        # A broker that received the request and did not answer exists, in whatever state.
        found = "unknown" if error.sent else "down"
        return {"status": found, "reason": str(error).rstrip("."), **empty}
    except ClientError as error:
        return {"status": "unknown", "reason": str(error).rstrip("."), **empty}


def _examine(admin: Admin, timeout_s: float) -> dict[str, Any]:
    from drmq.client.health import NO_CONTROLLER, NO_CONTROLLER_EFFECT, answering_brokers, judged, unreachable_text

    info = admin.describe_cluster()
    brokers = admin.brokers.all()
    topics = admin.topics.all()
    answering = answering_brokers(brokers, timeout_s)
    known = sorted({broker.node_id for broker in brokers} | info.brokers.keys())
    found = judged(known, answering, topics, info.controller_id)
    missing: list[int] = found["missing"]
    # An unreachable node does not report its groups, and the broker that is asked for all groups would wait for it.
    groups = None if missing else _group_count(admin, len(known))
    disks, disk_problems = _disks(admin)
    leaderless = [{"topic": row["topic"], "partition": row["partition"]} for row in found["leaderless"]]
    behind = len(found["under_replicated"])
    visible = [topic for topic in topics if not topic.is_internal]
    facts = {
        "cluster_id": info.cluster_id,
        "brokers": [
            {"id": broker_id, "address": str(address), "controller": broker_id == found["controller"]}
            for broker_id, address in info.brokers.items()
            if broker_id in answering
        ],
        "missing": missing,
        "topics": len(visible),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "leaderless_partitions": len(leaderless),
        "under_replicated_partitions": behind,
        "groups": groups,
        "leaderless": leaderless,
        "disks": disks,
    }
    problems = [unreachable_text(missing)] if missing else []
    if found["controller"] is None:
        problems.append(f"{NO_CONTROLLER}, {NO_CONTROLLER_EFFECT}")
    if leaderless:
        why = "" if missing else " (stopped; the log of the node contains the reason)"
        problems.append(f"{_are(len(leaderless))} without a leader: {_listed(leaderless)}{why}")
    problems += disk_problems
    if behind:
        problems.append(f"{_are(behind)} under-replicated")
    if problems:
        return {"status": "degraded", "reason": ", ".join(problems), **facts}
    counts = [plural(len(known), "broker"), plural(len(visible), "topic")]
    if groups is not None:
        counts.append(plural(groups, "group"))
    reason = ", ".join(counts)
    return {"status": "healthy", "reason": reason, **facts}


def _group_count(admin: Admin, brokers: int) -> int | None:
    """The number of groups; None if one of several brokers does not answer, which the partitions then explain."""
    from drmq.client import ClientError

    try:
        return len(admin.groups.all())
    except ClientError:
        if brokers == 1:
            raise
        return None


def _listed(leaderless: list[dict[str, Any]]) -> str:
    names = [
        f"{row['topic']}-{row['partition']}" if row["partition"] is not None else row["topic"]
        for row in leaderless[:_LISTED_MAX]
    ]
    rest = len(leaderless) - len(names)
    return ", ".join(names) + (f" and {rest:,} more" if rest else "")


def _disks(admin: Admin) -> tuple[list[dict[str, Any]], list[str]]:
    """The disks of the brokers, and their problems. A broker that does not report its disks is not a problem."""
    from drmq.client import Refused
    from drmq.model import ErrorCode

    try:
        found = admin.log_dirs()
    except Refused as error:
        return [], [str(error).rstrip(".")] if error.code is ErrorCode.KAFKA_STORAGE_ERROR else []
    disks = [
        {
            "broker": disk.broker_id,
            "path": disk.path,
            "total_bytes": disk.total_bytes if disk.total_bytes >= 0 else None,
            "usable_bytes": disk.usable_bytes if disk.usable_bytes >= 0 else None,
        }
        for disk in found
    ]
    problems = [
        f"the disk of broker {disk.broker_id} is {'nearly ' if disk.usable_bytes else ''}full: "
        f"{size_text(disk.usable_bytes)} of {size_text(disk.total_bytes)} left in {disk.path}"
        for disk in found
        if disk.is_nearly_full
    ]
    return disks, problems


def _are(count: int) -> str:
    return "1 partition is" if count == 1 else f"{count:,} partitions are"
