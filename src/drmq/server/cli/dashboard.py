"""`drmq dashboard`: finds the address of the dashboard and opens it."""

from __future__ import annotations

import os
import shlex
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from drmq.server.cli.local import directory_option, existing_cluster
from drmq.server.cli.options import ClusterChoice, bootstrap_option, output_option
from drmq.server.cli.output import Output

if TYPE_CHECKING:
    from drmq.client import Admin

_ANSWER_TIMEOUT_S = 5.0
_MISSING_HEADER = "X-Drmq-Dashboard"
"""Sent with the page that stands in for a dashboard that is not built."""


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Print the address and do not open it.")
@directory_option
@bootstrap_option
@output_option
def dashboard(only_print: bool, directory: Path, cluster: ClusterChoice, output: Output) -> None:
    """Open the dashboard in the browser.

    Any node that runs has it. The cluster is the one that -b or DRMQ_BOOTSTRAP names, otherwise that of `drmq up` in
    DIR, otherwise the one at localhost:9092.
    """
    source = click.get_current_context().get_parameter_source("directory")
    address = _found(directory, cluster, in_directory=source is ParameterSource.COMMANDLINE)
    if _is_missing(address):
        raise click.ClickException(
            f"The gateway at http://{address} answers, but its installation has no dashboard, only the HTTP API. In a "
            "clone, `make dashboard` builds it (with Node); packages contain it."
        )
    url = f"http://{address}/"
    output.one({"url": url}, url)
    if not only_print and output.is_human:
        sys.stdout.flush()
        _open(url)


def _found(directory: Path, cluster: ClusterChoice, *, in_directory: bool) -> str:
    """`host:port` of a gateway that answers. Raises `ClickException` if there is none."""
    known = _local(directory, must_run=in_directory) if in_directory or not cluster.is_named else []
    if not known:
        with cluster.admin() as admin:
            known = _asked(admin)
    if not known:
        raise click.ClickException(
            f"No node of the cluster at {cluster.bootstrap} runs a gateway, so there is no dashboard. "
            f"{_without_gateway(cluster.bootstrap)}"
        )
    for address in known:
        if _answers(address):
            return address
    raise click.ClickException(
        f"No gateway answers at {', '.join(known)}. One that has just been started needs a second; the log of its "
        "node says why one is not there."
    )


def _without_gateway(bootstrap: str) -> str:
    return (
        "Start the nodes without `--no-gateway` (the setting `gateway`), or run "
        f"`drmq proxy -b {bootstrap}`, which serves the dashboard without a node."
    )


def _local(directory: Path, *, must_run: bool) -> list[str]:
    """The gateways of the nodes that run in a directory of `drmq up`."""
    from drmq.server.local import LocalCluster
    from drmq.server.local_nodes import LocalError

    found = existing_cluster(directory) if must_run else LocalCluster(directory)
    running = [node for node in found.read() if node.state() == "running"]
    if not running and must_run:
        start = f"drmq up --data-dir {shlex.quote(str(directory))}"
        raise LocalError(f"No node of the cluster in {directory} runs. `{start}` starts it.")
    if running and all(node.http is None for node in running):
        raise LocalError(
            f"The nodes of the cluster in {directory} run without a gateway, so there is no dashboard. "
            f"{_without_gateway(str(running[0].kafka))}"
        )
    return [str(node.http) for node in running if node.http is not None]


def _asked(admin: Admin) -> list[str]:
    """The gateways that the nodes of a cluster report."""
    from drmq.client import ClientError

    found = []
    for node_id in admin.describe_cluster().brokers:
        try:
            http = admin.events.of(node_id, count_max=1).http
        except ClientError:
            continue  # a node that does not answer must not hide the others
        if http is not None:
            found.append(http)
    return found


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=_ANSWER_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _is_missing(address: str) -> bool:
    """Whether a gateway has no dashboard to serve."""
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=_ANSWER_TIMEOUT_S) as answer:
            return bool(answer.headers.get(_MISSING_HEADER) == "missing")
    except urllib.error.URLError:
        return False


def _open(url: str) -> None:
    import webbrowser

    # Without a display, Python would start a browser for the terminal, or wait for one.
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not has_display or not webbrowser.open(url):
        click.echo("There is no browser to open here; open the address yourself.", err=True)
