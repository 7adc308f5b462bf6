"""Options that many commands share, so that they have the same name and meaning everywhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drmq.server.cli import hints
from drmq.server.cli.output import FORMATS, Output

if TYPE_CHECKING:
    from drmq.client import Admin

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "localhost:9092"
INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
"""What fits into requests: replicas, and the numbers of partitions, nodes and records."""
SECONDS_MAX = 1_000_000.0
"""Nobody waits longer, and the functions of the system that wait have limits of their own."""
DEFAULT_CLIENT_ID = "drmq-cli"


class Seconds(click.FloatRange):
    """How long to wait."""

    def __init__(self, minimum: float) -> None:
        super().__init__(minimum, SECONDS_MAX)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        seconds = super().convert(value, parameter, context)
        if math.isnan(seconds):  # neither below nor above any limit
            self.fail(f"{value} is not a number of seconds.", parameter, context)
        return float(seconds)


def check_text(text: str) -> str:
    """Raise `click.UsageError` for text that cannot be sent, because it was not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(not_utf8(text)) from None
    return text


def check_names(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """A callback for an option with a name, several or none: the same check."""
    for name in (value,) if isinstance(value, str) else value or ():
        check_text(name)
    return value


def not_utf8(text: str) -> str:
    """The error about an argument whose bytes are not UTF-8."""
    return f"{os.fsencode(text)!r} is not UTF-8 text; names and settings have to be."


def bootstrap_text() -> str:
    """The help of `-b`."""
    return f"First broker to ask, or several with commas.  [DRMQ_BOOTSTRAP; default: {DEFAULT_BOOTSTRAP}]"


def output_option(function: Function) -> Function:
    """`-o`: the parameter `output` is an `Output`."""
    return click.option(
        "-o",
        "output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        callback=lambda _context, _parameter, value: Output(value),
        help="Output format.",
    )(function)


def bootstrap_option(function: Function) -> Function:
    """`-b`, `--timeout` and `-X`: the parameter `cluster` is a `ClusterChoice`."""

    def choose(context: click.Context, _parameter: click.Parameter, value: str | None) -> ClusterChoice:
        timeout_s = context.params.pop("timeout_s")
        properties = key_values(context.params.pop("properties"), "-X")
        bootstrap, is_named = chosen_bootstrap(context, value)
        return ClusterChoice(bootstrap, timeout_s, properties, is_named=is_named)

    function = click.option(
        "-X",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        is_eager=True,
        help="A property of the Kafka client, as librdkafka names it; may be repeated.",
    )(function)
    function = click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(0.1),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        is_eager=True,
        help="How long to wait for a response, or for any progress.",
    )(function)
    return click.option(
        "-b",
        "--bootstrap",
        "cluster",
        metavar="HOST:PORT",
        callback=choose,
        help=bootstrap_text(),
    )(function)


def chosen_bootstrap(context: click.Context, value: str | None) -> tuple[str, bool]:
    """The address to connect to, and whether a user chose it: by `-b` after or before the noun, or by the variable."""
    value = value or context.find_root().params.get("bootstrap")
    hints.asked(value)
    named = value or os.environ.get("DRMQ_BOOTSTRAP")
    return named or DEFAULT_BOOTSTRAP, bool(named)


class ClusterChoice:
    """The cluster that a command connects to, and how long it waits for it."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float,
        properties: Mapping[str, str] = MappingProxyType({}),
        *,
        is_named: bool = True,
    ) -> None:
        from drmq.model.address import parse_bootstrap

        try:
            parse_bootstrap(bootstrap)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--bootstrap") from None
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self.properties: dict[str, str] = {}
        """Properties of the Kafka client that override those of the command."""
        if properties:
            from drmq.server.cli.properties import checked

            for value in properties.values():
                check_text(value)
            self.properties = checked(properties)
        self.is_named = is_named
        """Whether the user chose the address; otherwise it is the default."""

    def admin(self) -> Admin:
        """A new client; the caller closes it."""
        from drmq.client import Admin

        return Admin(
            self.bootstrap, client_id=self.properties.get("client.id", DEFAULT_CLIENT_ID), timeout_s=self.timeout_s
        )


def watch_option(function: Function) -> Function:
    """`--watch` and `--every`: the parameter `watch` is a `Watch`."""

    def choose(context: click.Context, _parameter: click.Parameter, value: bool) -> Watch:
        every_s = context.params.pop("every_s")
        return Watch(every_s if value else None)

    function = click.option(
        "--every",
        "every_s",
        type=Seconds(0.1),
        default=2.0,
        metavar="SECONDS",
        is_eager=True,
        help="Interval for --watch.",
    )(function)
    return click.option("--watch", is_flag=True, callback=choose, help="Repeat until Ctrl-C.")(function)


class Watch:
    """How often a command shows its numbers: once, or with an interval until Ctrl-C."""

    def __init__(self, every_s: float | None) -> None:
        self.every_s = every_s

    def show(self, output: Output, once: Callable[[], None]) -> None:
        """Call `once`, and again after each interval. A terminal is cleared before each table."""
        while True:
            if self.every_s is not None and output.is_human:
                clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
                print(f"{clear}{time.strftime('%H:%M:%S')}")
            once()
            if self.every_s is None:
                return
            # In a pipe, Python would buffer the lines until it has thousands of bytes.
            sys.stdout.flush()
            time.sleep(self.every_s)


def yes_option(function: Function) -> Function:
    """`-y`: the parameter `yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def dry_run_option(function: Function) -> Function:
    """`--dry-run`: the parameter `dry_run`."""
    return click.option("--dry-run", is_flag=True, help="Show what would happen and change nothing.")(function)


def confirm(question: str, yes: bool) -> None:
    """Ask before data is destroyed. Any answer but yes ends the command with an error."""
    if yes:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise click.ClickException("There was no answer, so nothing was changed. `--yes` skips the question.")
    if answer.strip().lower() not in ("y", "yes"):
        raise click.ClickException("Nothing was changed.")


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`NAME=VALUE` pairs as a dictionary."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        check_text(name)
        if not separator or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE.", param_hint=option)
        found[name] = value
    return found
