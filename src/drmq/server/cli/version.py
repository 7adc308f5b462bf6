"""`drmq version`."""

from __future__ import annotations

import platform

import click

from drmq.server.cli.options import output_option
from drmq.server.cli.output import Output


def _versions() -> dict[str, str]:
    import drmq

    return {"drmq": drmq.__version__, "python": platform.python_version()}


def version_text() -> str:
    """The version as people read it."""
    facts = _versions()
    return f"drmq {facts['drmq']} (Python {facts['python']})"


@click.command()
@output_option
def version(output: Output) -> None:
    """Print the version."""
    output.one(_versions(), version_text())
