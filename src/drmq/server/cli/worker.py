"""`drmq worker`: runs a function of the user over the messages of a queue."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from drmq.server.cli.nouns import Noun
from drmq.server.cli.options import ClusterChoice, bootstrap_option, check_names

if TYPE_CHECKING:
    from drmq.client.worker import Worker


@click.group(cls=Noun)
def worker() -> None:
    """Run functions over the messages of a queue."""


@worker.command()
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option("-c", "--concurrency", type=click.IntRange(min=1), metavar="N", help="Messages to work on at a time.")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    callback=check_names,
    help="For a function that is not a worker yet: a topic to take from; may be repeated.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    callback=check_names,
    help="For a function that is not a worker yet: its group.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print warnings and errors only.")
@bootstrap_option
def run(
    target: str,
    concurrency: int | None,
    topics: tuple[str, ...],
    group: str | None,
    quiet: bool,
    cluster: ClusterChoice,
) -> None:
    """Work until SIGTERM or Ctrl-C.

    FUNCTION is decorated with `@drmq.worker(...)`, or any function that takes a message, with -t and -g. MODULE is
    found as `python -m` finds it, in the current directory first. After the signal, the worker takes no more messages,
    finishes those that it works on, and gives back what is not done after the grace period.
    """
    level = logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    found = load_worker(target, topics, group)
    # If the user has chosen none, the worker may have its own.
    servers = cluster.bootstrap if cluster.is_named else None
    found.run(servers, concurrency=concurrency, timeout=cluster.timeout_s)


def load_worker(target: str, topics: tuple[str, ...], group: str | None) -> Worker[Any, Any]:
    """The worker that `MODULE:FUNCTION` names, or one that is made of the function."""
    from drmq.client.worker import Worker
    from drmq.client.worker import worker as make_worker

    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise click.BadParameter(f"{target!r} is not MODULE:FUNCTION", param_hint="MODULE:FUNCTION")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # An import inside the module failed: its traceback says where.
        raise click.ClickException(
            f"There is no module {module_name!r}: not in {os.getcwd()}, and not where Python has its packages."
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise click.ClickException(f"Module {module_name!r} has no {name!r}.")
        found = getattr(found, part)
    if isinstance(found, Worker):
        if topics or group:
            raise click.UsageError(f"{target} has its topics and its group already, so -t and -g have no effect.")
        return found
    if not callable(found):
        raise click.ClickException(f"{target} is not a function but {type(found).__name__}.")
    if not topics or group is None:
        raise click.UsageError(
            f"{target} is not decorated with `@drmq.worker(...)`: name its topics (-t) and group (-g)."
        )
    return make_worker(*topics, group=group)(found)
