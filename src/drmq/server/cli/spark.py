"""`drmq spark`: checks whether Spark can run here, and starts it. The Spark side itself is `drmq.spark`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import ClusterChoice, bootstrap_option, key_values, output_option
from drmq.server.cli.output import Output

if TYPE_CHECKING:
    from drmq.spark.doctor import Finding

_MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}


@click.group(cls=Noun)
def spark() -> None:
    """Check, open and run Spark with topics as tables."""


@spark.command()
@click.option("--no-broker", is_flag=True, help="Do not check whether a broker answers.")
@bootstrap_option
@output_option
def doctor(no_broker: bool, cluster: ClusterChoice, output: Output) -> int:
    """Check which Java, Python and packages Spark would use, what is wrong, and how to fix it.

    Exit code: 0 if Spark can run, 1 if something must be fixed first.
    """
    from drmq.spark.doctor import FAILED, examine

    findings = list(examine(None if no_broker else cluster.bootstrap, cluster.timeout_s, is_named=cluster.is_named))
    if output.is_human:
        for finding in findings:
            click.echo(_line(finding))
    else:
        output.data([_facts(finding) for finding in findings])
    failed = [finding for finding in findings if finding.state == FAILED]
    if output.is_human:
        if failed:
            click.echo(f"\n{len(failed)} of {len(findings)} must be fixed before Spark can run.")
        else:
            click.echo("\nSpark can run: `drmq spark shell` opens a session.")
    return 1 if failed else 0


def _line(finding: Finding) -> str:
    remedy = f"\n{'':24}{finding.remedy}" if finding.remedy else ""
    return f"{_MARKS[finding.state]} {finding.subject:<22}{finding.found}{remedy}"


def _facts(finding: Finding) -> dict[str, Any]:
    return {"subject": finding.subject, "state": finding.state, "found": finding.found, "remedy": finding.remedy}


_conf_option = click.option(
    "--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; may be repeated."
)
_master_option = click.option(
    "--master", metavar="URL", help="Where to run: `local[2]`, `spark://…`, `yarn`, `k8s://…`.  [default: local[*]]"
)


@spark.command()
@_master_option
@_conf_option
@bootstrap_option
def shell(master: str | None, settings: tuple[str, ...], cluster: ClusterChoice) -> None:
    """Open a Python prompt with a Spark session. It defines `spark`, `topic(NAME)` and `stream(NAME)`."""
    from drmq.spark.session import all_brokers
    from drmq.spark.shell import names, start_prompt

    bootstrap = all_brokers(cluster.bootstrap, cluster.timeout_s)
    started = names(bootstrap, master, key_values(settings, "--conf"))
    start_prompt(started, bootstrap)


@spark.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_master_option
@_conf_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@bootstrap_option
def submit(
    master: str | None, settings: tuple[str, ...], file: str, arguments: tuple[str, ...], cluster: ClusterChoice
) -> None:
    """Run a Python file with spark-submit, with Java, Python and the data source configured.

    Options for drmq go before FILE; everything after FILE is passed to it. The file finds the addresses of the brokers
    in DRMQ_BOOTSTRAP.
    """
    from importlib.util import find_spec
    from pathlib import Path

    from drmq.spark.session import all_brokers, environment

    bootstrap = all_brokers(cluster.bootstrap, cluster.timeout_s)
    variables = {**os.environ, **environment(), "DRMQ_BOOTSTRAP": bootstrap}
    found = find_spec("pyspark")
    assert found is not None, "environment() checks that pyspark is installed"
    assert found.origin is not None
    program = Path(found.origin).parent / "bin" / "spark-submit"
    command = [str(program), "--master", master or "local[*]"]
    # Spark's default logs a line for every step of every micro-batch, which buries the output of the file.
    for name, value in {"spark.log.level": "WARN", **key_values(settings, "--conf")}.items():
        command += ["--conf", f"{name}={value}"]
    sys.stdout.flush()
    # Replaces this process: signals, output and exit code are then those of Spark.
    os.execve(str(program), [*command, file, *arguments], variables)
