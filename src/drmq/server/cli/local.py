"""`drmq up` and `drmq down`: starts and stops a local node or cluster in the background."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.options import Seconds, output_option
from drmq.server.cli.output import Output
from drmq.server.cli.progress import StatusLine

if TYPE_CHECKING:
    from drmq.server.local import LocalCluster
    from drmq.server.local_nodes import LocalNode

DEFAULT_DIRECTORY = "drmq-local"
DEFAULT_HOST = "127.0.0.1"
_NODES_MAX = 100
_ASK_S = 5.0
_BEGAN = ("started", "joined")
"""Outcomes of nodes that this command started."""


class _DirectoryPath(click.Path):
    """A directory, but not an empty name: `--data-dir "$UNSET"` would mean the current directory."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if value == "":
            self.fail("The name is empty.", parameter, context)
        return super().convert(value, parameter, context)


directory_option = click.option(
    "--data-dir",
    "directory",
    type=_DirectoryPath(path_type=Path, file_okay=False),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    metavar="DIR",
    help="Directory of the local cluster.",
)


def existing_cluster(directory: Path) -> LocalCluster:
    """The local cluster in a directory. Raises `LocalError` if `drmq up` never created one there."""
    from drmq.server.local import LocalCluster
    from drmq.server.local_nodes import LocalError

    cluster = LocalCluster(directory)
    # Checked before the lock is taken, because taking it would create the directory.
    if not cluster.exists:
        raise LocalError(
            f"There is no local cluster in {directory}. `drmq up --data-dir {shlex.quote(str(directory))}` creates one."
        )
    return cluster


def show_note(cluster: LocalCluster) -> None:
    """Print what a user should know about a directory that was moved or copied."""
    if cluster.note is not None:
        click.echo(f"note: {cluster.note}", err=True)


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(1, _NODES_MAX),
    metavar="N",
    help="Start nodes 1 to N.  [default: all existing nodes, or 1]",
)
@directory_option
@click.option("--host", metavar="ADDRESS", help=f"Address that new nodes listen on.  [default: {DEFAULT_HOST}]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the first node; the others get the following ports. 0 picks free ones. Existing nodes keep theirs.  "
    "[default: the previous port, or 9092]",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the first node for HTTP and the dashboard; the others get the following ports. 0 picks free ones.  "
    "[default: the previous ports, or 8080]",
)
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the first node for gRPC; the others get the following ports. 0 picks free ones.  "
    "[default: the previous ports, or 9193]",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the first node for `/metrics`, `/healthz` and `/readyz`, which the node itself answers; the others "
    "get the following ports. 0 picks free ones.  [default: the previous ports, or none]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Configuration file of the nodes, as for `drmq server`.  [default: the previous file]",
)
@click.option(
    "--lab/--no-lab",
    default=None,
    help="Whether the Fault lab of the dashboard may kill, pause and cut these nodes; on a loopback address only.  "
    "[default: as before, or not]",
)
@output_option
def up(
    nodes: int | None,
    directory: Path,
    host: str | None,
    port: int | None,
    http_port: int | None,
    grpc_port: int | None,
    metrics_port: int | None,
    config: Path | None,
    lab: bool | None,
    output: Output,
) -> None:
    """Start a local node or cluster in the background and wait until it is healthy.

    `--nodes 3` starts three processes with the ports P, P+1 and P+2 for clients and ports 1000 higher for
    communication between nodes. In a directory that `drmq up` has used before, it starts the nodes that are not
    running, with their data, and leaves the others alone; a larger number adds nodes that join the cluster.
    DIR/cluster.json contains the addresses of the nodes.

    \b
      drmq up --nodes 3
    """
    from drmq.server.local import LocalCluster
    from drmq.server.local_nodes import FirstPorts

    cluster = LocalCluster(directory)
    with cluster.locked(), StatusLine() as line:
        file = config.absolute() if config else None
        ports = FirstPorts(http_port, grpc_port, metrics_port)
        outcomes = cluster.up(nodes, host or DEFAULT_HOST, port, file, line.show, lab=lab, ports=ports)
    show_note(cluster)
    facts = {
        "nodes": [
            {
                "id": node.node_id,
                "pid": node.pid,
                "kafka": str(node.kafka),
                "peer_port": node.peer_port,
                "http": None if node.http is None else str(node.http),
                "grpc": None if node.grpc is None else str(node.grpc),
                "metrics": None if node.metrics is None else str(node.metrics),
                "lab": node.lab,
                "data_dir": str(node.data_dir),
                "log": str(node.log_path),
                "started": outcome in _BEGAN,
                "state": "paused" if outcome == "paused" else "running",
            }
            for node, outcome in outcomes
        ],
        "trouble": cluster.trouble,
    }
    lines = [_sentence(node, outcome) for node, outcome in outcomes]
    first = outcomes[0][0]
    if (port and port != first.kafka.port) or (host and any(node.kafka.host != host for node, _ in outcomes)):
        lines[-1] += " Existing nodes keep their addresses."
    if config and any(outcome not in _BEGAN for _, outcome in outcomes):
        lines[-1] += " --config applies when a node is started; restart the nodes that were running."
    if any(lab not in (None, node.lab) for node, _ in outcomes):
        lines[-1] += f" --{'lab' if lab else 'no-lab'} applies when a node is started; restart those that were running."
    if cluster.trouble is not None:
        lines.append(trouble_sentence("All serve", cluster.trouble, first))
    if output.is_human and any(outcome in _BEGAN for _, outcome in outcomes):
        lines += _next_steps(outcomes, directory)
    output.one(facts, "\n".join(lines))


def trouble_sentence(what: str, trouble: str, node: LocalNode) -> str:
    """Why the cluster is not healthy although `what`, and the command that shows more."""
    return f"{what}, but {trouble}. `drmq cluster health -b {node.kafka}` shows more."


def _sentence(node: LocalNode, outcome: str) -> str:
    words = dict.fromkeys(_BEGAN, "serves") | {
        "running": "was already running",
        "paused": "is paused and stays paused",
    }
    return f"Node {node.node_id} {words[outcome]} at {node.kafka} (pid {node.pid})."


def _next_steps(outcomes: Sequence[tuple[LocalNode, str]], directory: Path) -> list[str]:
    nodes = [node for node, _ in outcomes]
    bootstrap = f"-b {nodes[0].kafka}"
    steps = [f"  {_first_step(nodes[0])} {bootstrap}"]
    joined = [node.node_id for node, outcome in outcomes if outcome == "joined"]
    if len(nodes) > 1:
        steps.append(f"  drmq cluster members {bootstrap}")
    if joined:
        steps.append(f"  drmq cluster rebalance {bootstrap}      # move partitions to the new nodes")
        steps.append(f"  drmq cluster add {joined[0]} {bootstrap}          # let it vote on the metadata")
    # With all nodes, commands work as long as any of them does.
    steps.append(f"  export DRMQ_BOOTSTRAP={','.join(str(node.kafka) for node in nodes)}")
    steps.append(f"  drmq down --data-dir {shlex.quote(str(directory))}")
    if nodes[0].http is not None:
        steps.append(f"Dashboard: http://{nodes[0].http}")
    if nodes[0].grpc is not None:
        steps.append(f"gRPC: {nodes[0].grpc}")
    if nodes[0].metrics is not None:
        steps.append(f"Metrics: {', '.join(f'http://{node.metrics}/metrics' for node in nodes if node.metrics)}")
    return steps


def _first_step(node: LocalNode) -> str:
    """A command to try next: create a topic, or list those that exist."""
    from drmq.client import Admin, ClientError

    try:
        with Admin(str(node.kafka), timeout_s=_ASK_S) as admin:
            has_topics = any(not topic.is_internal for topic in admin.topics.all())
    except ClientError:
        has_topics = False
    return "drmq topic ls" if has_topics else "drmq topic create orders"


@click.command()
@directory_option
@click.option("--force", is_flag=True, help="Kill the nodes at once, as in a crash.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a node may take to stop before it is killed.",
)
@output_option
def down(directory: Path, force: bool, timeout_s: float, output: Output) -> None:
    """Stop what `drmq up` started.

    All nodes are asked to stop at the same time. Each one hands over its leaderships, flushes and exits. A node that
    has not exited after the timeout is killed: nothing acknowledged is lost, but its next start takes longer.
    """
    from drmq.server.local_nodes import LocalError
    from drmq.server.processes import log_tail

    cluster = existing_cluster(directory)
    with cluster.locked():
        outcomes = cluster.stop(timeout_s=timeout_s, at_once=force)
    output.each(_report(node, outcome) for node, outcome in outcomes)
    stuck = [node for node, outcome in outcomes if outcome == "still running"]
    if stuck:
        raise LocalError(
            f"Node {stuck[0].node_id} (pid {stuck[0].pid}) cannot be killed: its process is blocked in the kernel, "
            f"perhaps waiting for a disk.\n{log_tail(stuck[0].log_path)}"
        )


def _report(node: LocalNode, outcome: str) -> tuple[dict[str, Any], str]:
    shown = f"(pid {node.pid}) " if outcome != "not running" else ""
    words = {"stopped": "stopped", "killed": "was killed", "not running": "was not running"}
    facts = {"id": node.node_id, "pid": node.pid, "outcome": outcome}
    return facts, f"Node {node.node_id} {shown}{words.get(outcome, 'is still running')}."
