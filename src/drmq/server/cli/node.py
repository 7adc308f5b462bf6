"""`drmq node`: kills, pauses, stops and starts single nodes of a local cluster, for experiments with failures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.local import directory_option, existing_cluster, show_note, trouble_sentence
from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import INT32_MAX, Seconds, output_option
from drmq.server.cli.output import Column, Output
from drmq.server.cli.progress import StatusLine

if TYPE_CHECKING:
    from drmq.server.local_nodes import LocalNode

_ASK_S = 2.0
_node_argument = click.argument("node_id", type=click.IntRange(0, INT32_MAX), metavar="ID")


@click.group(cls=Noun)
def node() -> None:
    """Kill, pause, cut, stop and start single nodes of a local cluster.

    Works on clusters that `drmq up` created. Watch how the other nodes react with `drmq cluster health` and
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
            "state": _state(found),
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
    """Kill a node with SIGKILL, as in a crash.

    Partitions that it led get new leaders within the election timeout, and nothing acknowledged is lost as long as a
    majority of each partition's replicas is up. `drmq node start ID` starts it again.
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
    type=Seconds(0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)
@output_option
def stop(node_id: int, directory: Path, timeout_s: float, output: Output) -> None:
    """Stop a node cleanly.

    The node hands over its leaderships, flushes and exits, as on SIGTERM.
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
    """Pause a node with SIGSTOP.

    It keeps its connections but answers no requests. For the other nodes this looks like a machine that hangs, or a
    network that is cut. `drmq node resume ID` resumes it.
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
    """Resume a paused node."""
    cluster = existing_cluster(directory)
    with cluster.locked():
        found, changed = cluster.resume(node_id)
    text = f"Node {node_id} (pid {found.pid}) {'was resumed' if changed else 'was not paused'}."
    output.one(_facts(found, "running"), text)


@node.command()
@_node_argument
@directory_option
@output_option
def cut(node_id: int, directory: Path, output: Output) -> None:
    """Cut a node from the other nodes, as if its network cable were pulled.

    Everything between this node and the others is lost. Clients still reach it: it serves what it has, but can commit
    nothing. For clusters of `drmq up --lab`. `drmq node heal ID` ends it, and so does a restart of the node.
    """
    found = _set_cut(node_id, directory, True)
    output.one(_facts(found, "cut"), f"Node {node_id} (pid {found.pid}) is cut from the other nodes.")


@node.command()
@_node_argument
@directory_option
@output_option
def heal(node_id: int, directory: Path, output: Output) -> None:
    """End what `drmq node cut` began."""
    found = _set_cut(node_id, directory, False)
    output.one(_facts(found, "running"), f"Node {node_id} (pid {found.pid}) reaches the other nodes again.")


def _set_cut(node_id: int, directory: Path, is_cut: bool) -> LocalNode:
    from drmq.client.fault_lab import ask_lab
    from drmq.server.local_nodes import LocalError

    cluster = existing_cluster(directory)
    with cluster.locked():
        found = cluster.node(node_id)
        if found.state() != "running":
            raise LocalError(f"Node {node_id} is {found.state()}, so its network cannot be changed.")
        ask_lab(found.kafka, cut=is_cut)
    return found


def _state(found: LocalNode) -> str:
    """`running`, `cut`, `paused` or `stopped`."""
    from drmq.client import ClientError
    from drmq.client.fault_lab import ask_lab

    state = found.state()
    if state != "running" or not found.lab:
        return state
    try:
        return "cut" if ask_lab(found.kafka, timeout_s=_ASK_S) else state
    except ClientError:
        return state


@node.command()
@_node_argument
@directory_option
@output_option
def start(node_id: int, directory: Path, output: Output) -> None:
    """Start a node that was killed or stopped.

    It keeps its data, ports and configuration. Returns when the node serves and the cluster is healthy as far as the
    running nodes can make it so; if that takes too long, prints the reason.
    """
    from drmq.server.local_nodes import LocalError

    cluster = existing_cluster(directory)
    with cluster.locked(), StatusLine() as line:
        found, serves = cluster.node(node_id), True
        state = found.state()
        if state == "paused":
            raise LocalError(f"Node {node_id} (pid {found.pid}) is paused. `drmq node resume {node_id}` resumes it.")
        if state == "stopped":
            found, serves = cluster.start(node_id, line.show)
    show_note(cluster)
    words = "was already running" if state == "running" else "serves" if serves else "runs but waits for other nodes"
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
    """Stop managing a stopped node.

    Use it after `drmq cluster remove`: `drmq up` does not try to start the node any more. Its files stay; if you remove
    them, `drmq up --nodes` can create a new node with that id.
    """
    cluster = existing_cluster(directory)
    with cluster.locked():
        found = cluster.forget(node_id)
    output.one(
        _facts(found, "forgotten") | {"pid": None, "data_dir": str(found.data_dir)},
        f"Node {node_id} was forgotten: `drmq up` no longer starts it. Its files are still in {found.data_dir.parent}.",
    )


def _facts(found: LocalNode, state: str) -> dict[str, Any]:
    return {"id": found.node_id, "pid": found.pid, "kafka": str(found.kafka), "state": state}
