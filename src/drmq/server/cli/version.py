"""`drmq version`."""

from __future__ import annotations

import platform

import click

from drmq.server.cli.options import output_option
from drmq.server.cli.output import Output


@click.command()
@output_option
def version(output: Output) -> None:
    """Print the version."""
    import drmq

    facts = {"drmq": drmq.__version__, "python": platform.python_version()}
    output.one(facts, f"drmq {facts['drmq']} (Python {facts['python']})")
