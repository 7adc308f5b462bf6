"""Shows and executes plans of moves, for `drmq cluster rebalance` and `drmq topic alter --replicas`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.options import confirm
from drmq.server.cli.output import Column, plural
from drmq.server.cli.progress import Progress

if TYPE_CHECKING:
    from drmq.client import Admin
    from drmq.server.rebalancing import PlannedMove

_POLL_S = 0.2

COLUMNS = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", right=True),
    Column("from", "FROM"),
    Column("to", "TO"),
    Column("what", "WHAT"),
]

no_wait_option = click.option(
    "--no-wait",
    is_flag=True,
    help="Return as soon as the cluster has accepted the change; do not wait until it is done.",
)


def move_row(move: PlannedMove) -> dict[str, Any]:
    """A move as a row of a plan."""
    steps = [f"copy to {_ids(move.adding)}"] if move.adding else []
    steps += [f"drop from {_ids(move.removing)}"] if move.removing else []
    return {
        "topic": move.place.topic,
        "partition": move.place.partition,
        "from": list(move.present),
        "to": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
        "what": ", ".join(steps) or f"let {move.replicas[0]} lead",
    }


def confirm_moves(moves: Sequence[PlannedMove], yes: bool) -> None:
    """Ask for confirmation of a plan that has been printed."""
    copies = sum(len(move.adding) for move in moves)
    dropped = max(0, sum(len(move.removing) for move in moves) - copies)
    costs = [f"copying {plural(copies, 'replica')}"] if copies or not dropped else []
    costs += [f"dropping {plural(dropped, 'replica')}"] if dropped else []
    confirm(f"Change {plural(len(moves), 'partition')}, {', '.join(costs)}?", yes)


def carry_out(admin: Admin, moves: Sequence[PlannedMove], *, no_wait: bool, may_change_factor: bool = False) -> None:
    """Execute the moves one after the other, then elect the leaders. Raises the first refusal."""
    with Progress("Moving partitions", len(moves)) as progress:
        for move in moves:
            refused = admin.replicas.reassign({move.place: move.replicas}, may_change_factor=may_change_factor)
            for error in refused.values():
                raise error
            moves_replicas = bool(move.adding or move.removing)
            while moves_replicas and not no_wait and move.place in admin.replicas.reassignments([move.place]):
                progress.advance(0)
                time.sleep(_POLL_S)
            progress.advance(1)
    if not no_wait:
        # The first replica is the preferred leader. Where it cannot take over now, the controller does it later.
        admin.replicas.elect([move.place for move in moves])


def _ids(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
