"""`drmq cluster features` and `drmq cluster upgrade`: the releases in a cluster, and finalizing an upgrade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.options import (
    ClusterChoice,
    bootstrap_option,
    confirm,
    dry_run_option,
    output_option,
    yes_option,
)
from drmq.server.cli.output import Column, Output

if TYPE_CHECKING:
    from drmq.client import Admin
    from drmq.client.features import NodeFeatures

_ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Picture:
    """The combined reports of all nodes."""

    nodes: Mapping[int, NodeFeatures | None]
    """None for a node that does not answer."""
    finalized: Mapping[str, int]
    newest: Mapping[str, int]
    """The highest level of each feature that any node supports."""

    @property
    def ahead(self) -> dict[str, int]:
        """The levels that can still be finalized."""
        return {name: level for name, level in self.newest.items() if level > self.finalized[name]}


def look(admin: Admin, timeout_s: float) -> Picture:
    """Ask every node."""
    from drmq.catalog.features import FEATURES

    brokers = admin.brokers.all()
    nodes = {broker.node_id: admin.features.of(broker, min(_ANSWER_TIMEOUT_S, timeout_s)) for broker in brokers}
    there = [node for node in nodes.values() if node is not None]
    latest = max(there, key=lambda node: node.finalized_epoch, default=None)
    said = {} if latest is None else latest.finalized
    names = dict.fromkeys([*FEATURES, *said, *(name for node in there for name in node.supported)])
    finalized = {name: said.get(name, _level_before(name)) for name in names}
    newest = {
        name: max([finalized[name], *(node.supported[name][1] for node in there if name in node.supported)])
        for name in names
    }
    return Picture(nodes, finalized, newest)


def obstacle(picture: Picture) -> str | None:
    """Why the remaining levels cannot be finalized now; None if they can."""
    from drmq.catalog.features import check_update
    from drmq.model import ApiError, NodeId

    nodes = {NodeId(node_id): None if node is None else node.supported for node_id, node in picture.nodes.items()}
    for name, level in picture.ahead.items():
        try:
            check_update(name, level, picture.finalized[name], nodes)
        except ApiError as error:
            return error.message
    return None


def _level_before(name: str) -> int:
    from drmq.catalog.features import level_before

    return level_before(name)


def _allows(name: str, level: int) -> str:
    from drmq.catalog.features import FEATURES

    feature = FEATURES.get(name)
    return "" if feature is None else feature.levels.get(level, "")


@click.command()
@bootstrap_option
@output_option
def features(cluster: ClusterChoice, output: Output) -> None:
    """Show which release each node runs, what it supports, and what the cluster has finalized.

    A feature level defines what nodes may write and send. A release supports a range of levels; the cluster
    has finalized one. Until the newest level is finalized, every node can go back to the older release.
    """
    with cluster.admin() as admin:
        picture = look(admin, cluster.timeout_s)
    why_not = obstacle(picture)
    rows = [
        {
            "feature": name,
            "finalized": level,
            "newest": picture.newest[name],
            "allows": _allows(name, picture.newest[name]),
        }
        for name, level in picture.finalized.items()
    ]
    nodes = [_node_row(node_id, node, picture) for node_id, node in picture.nodes.items()]
    if not output.is_human:
        output.data({"features": rows, "nodes": nodes, "to_finalize": picture.ahead, "obstacle": why_not})
        return
    columns = [
        Column("feature", "FEATURE"),
        Column("finalized", "FINALIZED", right=True),
        Column("newest", "NEWEST", right=True),
        Column("allows", "THE NEWEST ALLOWS"),
    ]
    output.rows(columns, rows, "")
    print()
    node_columns = [Column("node", "NODE", right=True), Column("state", "STATE"), Column("release", "RELEASE")]
    node_columns += [Column(name, name.upper(), right=True) for name in picture.finalized]
    output.rows(node_columns, [_flat(row) for row in nodes], "")
    print(f"\n{_summary(picture, why_not)}")


def _node_row(node_id: int, node: NodeFeatures | None, picture: Picture) -> dict[str, Any]:
    supported = None
    if node is not None:
        before = {name: _level_before(name) for name in picture.finalized}
        supported = {name: list(node.supported.get(name, (level, level))) for name, level in before.items()}
    return {
        "node": node_id,
        "state": "not there" if node is None else "up",
        "release": None if node is None else node.release,
        "supported": supported,
    }


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    ranges = {} if row["supported"] is None else {name: _range_text(pair) for name, pair in row["supported"].items()}
    return {**row, **ranges}


def _range_text(pair: Sequence[int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}-{pair[1]}"


def _steps(picture: Picture) -> str:
    return ", ".join(
        f"{name} from {picture.finalized[name]} to {level} ({_allows(name, level) or 'a later release knows'})"
        for name, level in picture.ahead.items()
    )


def _summary(picture: Picture, why_not: str | None) -> str:
    if not picture.ahead:
        return "All levels that the nodes support are finalized."
    text = f"`drmq cluster upgrade --finalize` would change {_steps(picture)}. This cannot be undone."
    return text if why_not is None else f"{text}\nNot possible now: {why_not}."


@click.command()
@click.option(
    "--finalize",
    is_flag=True,
    help="Finalize the levels. Without this flag, only show what would change and what is missing.",
)
@dry_run_option
@yes_option
@bootstrap_option
@output_option
def upgrade(finalize: bool, dry_run: bool, yes: bool, cluster: ClusterChoice, output: Output) -> None:
    """Finalize an upgrade, so that the nodes use what the new release allows.

    Upgrade the nodes first, one at a time: stop the node, install the new release, start it, and wait until
    `drmq cluster health` reports a healthy cluster. Until the levels are finalized here, each node can go
    back to the older release in the same way. Afterwards none can, and nodes of the older release are
    rejected.
    """
    from drmq.client import ClientError

    with cluster.admin() as admin:
        picture = look(admin, cluster.timeout_s)
        levels, why_not = picture.ahead, obstacle(picture)
        done = finalize and bool(levels) and not dry_run
        if done:
            if why_not is not None:
                raise ClientError(f"The upgrade cannot be finalized: {why_not}")
            confirm(f"Change {_steps(picture)}? No node can go back to an older release afterwards.", yes)
            admin.features.finalize(levels)
    facts = {"levels": {**picture.finalized, **levels}, "finalized": done, "obstacle": why_not}
    if not levels:
        text = "There is nothing to finalize: the cluster has the newest levels that its nodes support."
    elif done:
        text = f"Finalized: {', '.join(f'{name} {level}' for name, level in levels.items())}."
    else:
        text = _summary(picture, why_not)
    output.one(facts, text)
