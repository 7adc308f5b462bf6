"""`drmq top`: the overview live in the terminal. The screen itself is `drmq.server.top`."""

from __future__ import annotations

import sys

import click

from drmq.server.cli.options import ClusterChoice, Seconds, bootstrap_option


@click.command()
@click.option(
    "--every",
    "every_s",
    type=Seconds(0.5),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the nodes are asked.",
)
@bootstrap_option
def top(every_s: float, cluster: ClusterChoice) -> None:
    """Show the cluster live in the terminal.

    Health with its reason, rates, latencies, nodes, groups with their lag, leases, dead letters and the last events.
    Asks the nodes directly, so it needs no gateway. Goes on when the cluster comes back after it was gone. `?` shows
    the keys, `q` quits.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.ClickException("`drmq top` needs a terminal. `drmq status --watch` prints lines.")
    from drmq.server.top.app import Top
    from drmq.server.top.observer import Observer

    Top(Observer(cluster), every_s).run()
