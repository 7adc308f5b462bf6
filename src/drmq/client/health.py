"""The health of a cluster: what `drmq cluster health` reports and what `drmq up` waits for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drmq.client import Admin, Broker, ClientError, Partition, Reassignment, Topic
    from drmq.model import TopicPartition

NO_CONTROLLER = "there is no controller"
NO_CONTROLLER_EFFECT = "so nothing can be created or changed"
_ANSWER_TIMEOUT_S = 2.0


def observe(admin: Admin, timeout_s: float) -> dict[str, Any]:
    """The health of a cluster as a dictionary, found by asking every node. Raises `ClientError` if no node answers."""
    controller = admin.describe_cluster().controller_id
    brokers = admin.brokers.all()
    topics = admin.topics.all()
    return observed(admin, controller, brokers, topics, answering_brokers(brokers, timeout_s))


def observed(
    admin: Admin, controller: int | None, brokers: Sequence[Broker], topics: Sequence[Topic], answering: Collection[int]
) -> dict[str, Any]:
    """The health of a cluster, of which the caller knows these things already."""
    absent = {broker.node_id for broker in brokers} - set(answering)
    # Only the controller knows the reassignments. A move can be blocked only while a node is unreachable.
    moving = admin.replicas.reassignments() if absent and controller not in (None, *absent) else {}
    return judged([broker.node_id for broker in brokers], answering, topics, controller, moving)


def unreachable(error: ClientError) -> dict[str, Any]:
    """The health of a cluster in which no node answers."""
    lists: dict[str, Any] = {key: [] for key in ("brokers", "missing", "leaderless", "under_replicated", "waiting")}
    return {"status": "down", "reason": str(error).rstrip("."), "controller": None, **lists}


def answering_brokers(brokers: Sequence[Broker], timeout_s: float) -> set[int]:
    """The brokers that answer. The metadata about a dead broker may be out of date, and stays so as long as there is no
    controller to fence it."""
    return {broker.node_id for broker in brokers if not broker.is_fenced and _answers(broker, timeout_s)}


def unreachable_text(node_ids: Sequence[int]) -> str:
    """A text that says which nodes are unreachable."""
    return f"node {node_ids[0]} is unreachable" if len(node_ids) == 1 else f"nodes {_ids(node_ids)} are unreachable"


def _answers(broker: Broker, timeout_s: float) -> bool:
    """Whether a broker accepts a connection and reports its API versions."""
    from drmq.client import ClientError, Connection, Deadline

    try:
        Connection(broker.address, "drmq-cli", Deadline(min(_ANSWER_TIMEOUT_S, timeout_s))).close()
    except ClientError:
        return False
    return True


def judged(
    brokers: Sequence[int],
    answering: Collection[int],
    topics: Sequence[Topic],
    controller: int | None,
    moving: Mapping[TopicPartition, Reassignment] | None = None,
) -> dict[str, Any]:
    """The health of a cluster with these brokers, of which some answer, and with these reassignments in progress.

    A partition without a majority of its replicas cannot have a leader, whatever its last known leader was. A partition
    that is to move to an unreachable node waits for that node; other partitions move meanwhile.
    """
    rows: list[dict[str, Any]] = []
    for topic in topics:
        rows += [
            {
                "topic": topic.name,
                "partition": partition.index,
                "leader": partition.leader if _can_lead(partition, answering) else None,
                "replicas": list(partition.replicas),
                "in_sync": [node_id for node_id in partition.in_sync if node_id in answering],
            }
            for partition in topic.partitions
        ]
        if topic.error is not None and not topic.partitions:
            # The broker cannot even list the partitions of this topic.
            rows.append({"topic": topic.name, "partition": None, "leader": None, "replicas": [], "in_sync": []})
    leaderless = [row for row in rows if row["leader"] is None]
    behind = [row for row in rows if row["leader"] is not None and len(row["in_sync"]) < len(row["replicas"])]
    missing = [node_id for node_id in brokers if node_id not in answering]
    waiting: list[dict[str, Any]] = [
        {"topic": place.topic, "partition": place.partition, "waits_for": waits_for}
        for place, move in (moving or {}).items()
        if (waits_for := [node_id for node_id in move.adding if node_id not in answering])
    ]
    problems = []
    if missing:
        problems.append(unreachable_text(missing))
    if controller in brokers and controller not in answering:
        controller = None
    if controller is None:
        problems.append(f"{NO_CONTROLLER}, {NO_CONTROLLER_EFFECT}")
    if leaderless:
        problems.append(f"{_have(len(leaderless))} no leader")
    if behind:
        problems.append(
            f"{'1 partition is' if len(behind) == 1 else f'{len(behind):,} partitions are'} under-replicated"
        )
    if waiting:
        absent = sorted({node_id for row in waiting for node_id in row["waits_for"]})
        problems.append(
            f"{'1 partition waits' if len(waiting) == 1 else f'{len(waiting):,} partitions wait'} to move until "
            f"{f'node {absent[0]} is' if len(absent) == 1 else f'nodes {_ids(absent)} are'} back"
        )
    up = len(brokers) - len(missing)
    counts = ", ".join([_counted(up, "node"), _counted(len(rows), "partition")])
    if not problems:
        status, reason = "healthy", f"{counts}, all replicas in sync"
    else:
        status = "down" if not up or (rows and len(leaderless) == len(rows)) else "degraded"
        reason = ", ".join(problems)
    return {
        "status": status,
        "reason": reason,
        "controller": controller,
        "brokers": sorted(answering),
        "missing": missing,
        "leaderless": leaderless,
        "under_replicated": behind,
        "waiting": waiting,
    }


def _can_lead(partition: Partition, answering: Collection[int]) -> bool:
    replicas = sum(node_id in answering for node_id in partition.replicas)
    return partition.leader in answering and replicas * 2 > len(partition.replicas)


def trouble_among(found: Mapping[str, Any], nodes: Collection[int]) -> str | None:
    """The problem that remains although these nodes run; None if the only problem is that other nodes do not run."""
    unseen = [node_id for node_id in nodes if node_id not in found["brokers"]]
    leaderless = [row for row in found["leaderless"] if _most(row["replicas"], nodes)]
    behind = [
        row
        for row in found["under_replicated"]
        if any(node_id in nodes and node_id not in row["in_sync"] for node_id in row["replicas"])
    ]
    if unseen:
        return f"node {unseen[0]} is unreachable"
    if found["controller"] is None:
        return NO_CONTROLLER
    if leaderless:
        return f"{_have(len(leaderless))} no leader"
    return f"{_have(len(behind))} replicas that are catching up" if behind else None


def _most(replicas: Sequence[int], nodes: Collection[int]) -> bool:
    return sum(node_id in nodes for node_id in replicas) * 2 > len(replicas)


def _ids(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _have(count: int) -> str:
    return "1 partition has" if count == 1 else f"{count:,} partitions have"
