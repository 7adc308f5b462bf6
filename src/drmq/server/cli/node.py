"""`drmq node`: single nodes of a local cluster, for experiments: what happens if this one dies, or hangs?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.local import directory_option, existing_cluster, trouble_sentence
from drmq.server.cli.options import output_option
from drmq.server.cli.output import Column, Output
from drmq.server.cli.progress import StatusLine

if TYPE_CHECKING:
    from drmq.server.local_nodes import LocalNode

_node_argument = click.argument("node_id", type=click.IntRange(min=0), metavar="ID")


@click.group()
def node() -> None:
    """Kill, pause, stop and start single nodes of a local cluster.

    For clusters that `drmq up` made. Watch what becomes of the others with `drmq cluster health` and
    `drmq raft ls`.
    """


@node.command("ls")
@directory_option
@output_option
def list_nodes(directory: Path, output: Output) -> None:
    """List the nodes and the state of their processes."""
    rows = [
        {
            "id": found.node_id,
            "state": found.state(),
            "pid": found.pid if found.is_running() else None,
            "kafka": str(found.kafka),
            "peer_port": found.peer_port,
            "data_dir": str(found.data_dir),
            "log": str(found.log_path),
        }
        for found in existing_cluster(directory).read()
    ]
    columns = [
        Column("id", "NODE", right=True),
        Column("state", "STATE"),
        Column("pid", "PID", right=True),
        Column("kafka", "ADDRESS"),
        Column("peer_port", "PEER PORT", right=True),
        Column("log", "LOG"),
    ]
    output.rows(columns, rows, "")


@node.command()
@_node_argument
@directory_option
@output_option
def kill(node_id: int, directory: Path, output: Output) -> None:
    """End a node with SIGKILL, as a crash would.

    What it led gets new leaders within the election timeout, and nothing acknowledged is lost while
    most of a partition's replicas are up. `drmq node start ID` brings it back.
    """
    cluster = existing_cluster(directory)
    with cluster.locked():
        found = cluster.stop_one(node_id, kill=True)
    output.one(_facts(found, "killed"), f"Node {node_id} (pid {found.pid}) was killed.")


@node.command()
@_node_argument
@directory_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take.",
)
@output_option
def stop(node_id: int, directory: Path, timeout_s: float, output: Output) -> None:
    """Stop a node in order.

    It hands over what it leads, flushes and ends, as with SIGTERM.
    """
    cluster = existing_cluster(directory)
    with cluster.locked():
        found = cluster.stop_one(node_id, timeout_s=timeout_s)
    output.one(_facts(found, "stopped"), f"Node {node_id} (pid {found.pid}) stopped.")


@node.command()
@_node_argument
@directory_option
@output_option
def pause(node_id: int, directory: Path, output: Output) -> None:
    """Let a node stand still, with SIGSTOP.

    It keeps its connections and answers nobody. To the others this looks like a machine that hangs, or a
    network that is cut. `drmq node resume ID` lets it go on.
    """
    cluster = existing_cluster(directory)
    with cluster.locked():
        found, changed = cluster.pause(node_id)
    text = f"Node {node_id} (pid {found.pid}) {'is' if changed else 'was already'} paused."
    output.one(_facts(found, "paused"), text)


@node.command()
@_node_argument
@directory_option
@output_option
def resume(node_id: int, directory: Path, output: Output) -> None:
    """Let a node that was paused go on."""
    cluster = existing_cluster(directory)
    with cluster.locked():
        found, changed = cluster.resume(node_id)
    text = f"Node {node_id} (pid {found.pid}) {'goes on' if changed else 'was not paused'}."
    output.one(_facts(found, "running"), text)


@node.command()
@_node_argument
@directory_option
@output_option
def start(node_id: int, directory: Path, output: Output) -> None:
    """Start a node that was killed or stopped.

    It goes on with its data, its ports and its configuration of before. Returns when it serves and the
    cluster is healthy as far as the nodes that run can make it so; if that takes too long, says why.
    """
    from drmq.server.local_nodes import LocalError

    cluster = existing_cluster(directory)
    with cluster.locked(), StatusLine() as line:
        found, serves = cluster.node(node_id), True
        state = found.state()
        if state == "paused":
            raise LocalError(f"Node {node_id} (pid {found.pid}) is paused. `drmq node resume {node_id}` lets it go on.")
        if state == "stopped":
            found, serves = cluster.start(node_id, line.show)
    words = "was running already" if state == "running" else "serves" if serves else "runs, and waits for other nodes,"
    text = f"Node {node_id} {words} at {found.kafka} (pid {found.pid})."
    if cluster.trouble is not None:
        text += "\n" + trouble_sentence("It serves", cluster.trouble, found)
    facts = {"started": state == "stopped", "serves": serves, "trouble": cluster.trouble}
    output.one(_facts(found, "running") | facts, text)


@node.command()
@_node_argument
@directory_option
@output_option
def forget(node_id: int, directory: Path, output: Output) -> None:
    """Leave a stopped node out from now on.

    For a node that `drmq cluster remove` took out of its cluster: `drmq up` does not try to start it any
    more. Its files stay; remove them, and `drmq up --nodes` can make a new node of that number.
    """
    cluster = existing_cluster(directory)
    with cluster.locked():
        found = cluster.forget(node_id)
    output.one(
        _facts(found, "forgotten") | {"pid": None, "data_dir": str(found.data_dir)},
        f"Node {node_id} is left out from now on. Its files are still in {found.data_dir.parent}.",
    )


def _facts(found: LocalNode, state: str) -> dict[str, Any]:
    return {"id": found.node_id, "pid": found.pid, "kafka": str(found.kafka), "state": state}
