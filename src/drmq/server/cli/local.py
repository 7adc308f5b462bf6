"""`drmq up` and `drmq down`: a local node in the background."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.options import output_option
from drmq.server.cli.output import Output

if TYPE_CHECKING:
    from drmq.server.local import LocalNode

DEFAULT_DIRECTORY = "drmq-local"
_ASK_S = 5.0

_directory_option = click.option(
    "--data-dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    metavar="DIR",
    help="Directory of the local cluster.",
)


@click.command()
@click.option("--nodes", type=int, default=1, show_default=True, metavar="N", help="Number of nodes.")
@_directory_option
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the first node; 0 takes a free one.  [the port of last time, or 9092]",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Configuration file of the nodes, as for `drmq server`.",
)
@output_option
def up(nodes: int, directory: Path, host: str, port: int | None, config: Path | None, output: Output) -> None:
    """Start a local node in the background and wait until it serves.

    In a directory that `drmq up` made before, it starts what is not running, with the data of last time.
    DIR/cluster.json tells where the nodes are.
    """
    if nodes != 1:
        raise click.UsageError(
            f"--nodes {nodes} is not possible: clusters come with a later version. Allowed is 1.",
            click.get_current_context(),
        )
    from drmq.server.local import LocalCluster

    cluster = LocalCluster(directory)
    with cluster.locked():
        node, started = cluster.start(host, port, config)
    facts = {
        "nodes": [
            {
                "id": node.node_id,
                "pid": node.pid,
                "kafka": str(node.kafka),
                "data_dir": str(node.data_dir),
                "started": started,
            }
        ]
    }
    text = f"Node {node.node_id} {'serves' if started else 'was running already'} at {node.kafka} (pid {node.pid})."
    if port and port != node.kafka.port:
        text += f" It keeps its port: `drmq down` first, to start it on {port}."
    if started and output.is_human:
        text += f"\n  {_next_step(node)} -b {node.kafka}\n  drmq down --data-dir {directory}"
    output.one(facts, text)


def _next_step(node: LocalNode) -> str:
    """What a person may want to do first: make a topic, or look at those of last time."""
    from drmq.client import Admin, ClientError

    try:
        with Admin(str(node.kafka), timeout_s=_ASK_S) as admin:
            has_topics = any(not topic.is_internal for topic in admin.topics.all())
    except ClientError:
        has_topics = False
    return "drmq topic ls" if has_topics else "drmq topic create orders"


@click.command()
@_directory_option
@click.option("--force", is_flag=True, help="Kill a node that does not stop in time.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a node may take to stop.",
)
@output_option
def down(directory: Path, force: bool, timeout_s: float, output: Output) -> None:
    """Stop what `drmq up` started."""
    from drmq.server.local import LocalCluster, LocalError, log_tail

    cluster = LocalCluster(directory)
    if not cluster.exists:
        raise LocalError(f"There is no local cluster in {directory}. `drmq up --data-dir {directory}` makes one.")
    with cluster.locked():
        outcomes = cluster.stop(force=force, timeout_s=timeout_s)
    output.each(_report(node, outcome) for node, outcome in outcomes)
    stuck = [node for node, outcome in outcomes if outcome == "still running"]
    if stuck:
        raise LocalError(
            f"Node {stuck[0].node_id} did not stop within {timeout_s:g} s; `--force` kills it.\n"
            f"{log_tail(stuck[0].log_path)}"
        )


def _report(node: LocalNode, outcome: str) -> tuple[dict[str, Any], str]:
    shown = f"(pid {node.pid}) " if outcome != "not running" else ""
    words = {"stopped": "stopped", "killed": "was killed", "not running": "was not running"}
    facts = {"id": node.node_id, "pid": node.pid, "outcome": outcome}
    return facts, f"Node {node.node_id} {shown}{words.get(outcome, 'is still running')}."
