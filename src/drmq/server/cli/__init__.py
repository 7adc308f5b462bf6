"""The command line: noun, then verb; one module per noun, imported when it is used.

`drmq --help` must answer without a noticeable delay, so this module imports no broker, client, rich or asyncio: a
command imports what it needs in its own module or function. The table below therefore repeats the first line of each
command's help; a test compares the two.

`main` is the only place that turns failures into exit codes: 0 success, 1 failed or refused, 64 wrong usage, 130
Ctrl-C, 143 SIGTERM. (`drmq status` returns 0 healthy, 1 degraded, 2 down, 3 unknown, for monitoring.)
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

import click

from drmq.model import DrmqError
from drmq.server.cli import hints
from drmq.server.cli.endings import Terminated
from drmq.server.cli.nouns import NOUNS, Noun
from drmq.server.cli.options import bootstrap_text, not_utf8
from drmq.server.system_errors import os_error_text

EXIT_FAILED = 1
EXIT_USAGE = 64
EXIT_INTERRUPTED = 130

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "server": ("drmq.server.cli.server", "Run one node in the foreground."),
        "proxy": ("drmq.server.cli.proxy", "Serve HTTP, gRPC and the dashboard for a cluster, without a node."),
        "up": (
            "drmq.server.cli.local",
            "Start a local node or cluster in the background and wait until it is healthy.",
        ),
        "down": ("drmq.server.cli.local", "Stop what `drmq up` started."),
        "node": ("drmq.server.cli.node", "Kill, pause, cut, stop and start single nodes of a local cluster."),
        "status": ("drmq.server.cli.status", "Report in one sentence whether the cluster is healthy."),
        "top": ("drmq.server.cli.top", "Show the cluster live in the terminal."),
        "dashboard": ("drmq.server.cli.dashboard", "Open the dashboard in the browser."),
    },
    "Cluster": {
        "cluster": ("drmq.server.cli.cluster", "Show the nodes of a cluster, and add, remove and rebalance them."),
        "raft": ("drmq.server.cli.raft", "Show the replica groups of partitions, and move their leaders."),
        "debug": ("drmq.server.cli.debug", "Look inside the nodes of a cluster."),
    },
    "Topics and records": {
        "topic": ("drmq.server.cli.topic", "List, create, change and delete topics."),
        "produce": ("drmq.server.cli.produce", "Send records from a file or from standard input."),
        "consume": ("drmq.server.cli.consume", "Print records."),
        "offsets": ("drmq.server.cli.offsets", "Show the first and last offsets of a topic, or those at a time."),
        "shell": ("drmq.server.cli.shell", "Send messages, and work on them by hand."),
    },
    "Consumers": {
        "group": (
            "drmq.server.cli.group",
            "List, inspect, reset, change and delete groups of consumers and of workers.",
        ),
        "dlq": ("drmq.server.cli.dlq", "List, show, redrive and purge dead letters."),
        "worker": ("drmq.server.cli.worker", "Run functions over the messages of a queue."),
    },
    "Spark": {
        "sql": ("drmq.server.cli.sql", "Run a SQL query over topics, with Spark."),
        "spark": ("drmq.server.cli.spark", "Check, open and run Spark with topics as tables."),
    },
    "Files": {
        "log": ("drmq.server.cli.log", "Read and check segment files, without a broker."),
    },
    "Trust": {
        "simulate": (
            "drmq.server.cli.simulate",
            "Run a simulated cluster through crashes, network cuts and full disks.",
        ),
    },
    "Help": {
        "completion": (
            "drmq.server.cli.completion",
            "Print a script that makes a shell complete commands, options, topics and groups.",
        ),
        "version": ("drmq.server.cli.version", "Print the version."),
    },
}
"""Every command: its module, and the first line of its help."""

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class RootGroup(Noun):
    """A group that imports a command when it is used, not when it is listed."""

    synonyms = NOUNS

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry[0]), name)
        assert isinstance(command, click.Command), name
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(context, arguments)
        if command is not None and context.params.get("bootstrap") and not _connects(command, context):
            raise click.UsageError(f"`drmq {name}` does not connect to a cluster, so -b has no effect.", context)
        return name, command, rest

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, first_line) for name, (_, first_line) in commands.items()])

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            # The reader has closed the pipe, as in `drmq consume orders | head`. Python would report the broken pipe
            # again when it flushes standard output at exit, so standard output is redirected to nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None


def _connects(command: click.Command, context: click.Context) -> bool:
    """Whether a command, or any command of a group, takes `-b`."""
    if isinstance(command, click.Group):
        found = [command.get_command(context, name) for name in command.list_commands(context)]
        return any(_connects(each, context) for each in found if each is not None)
    return any("-b" in parameter.opts for parameter in command.params)


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from drmq.server.cli.version import version_text

        click.echo(version_text())
        context.exit()


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    subcommand_metavar="COMMAND ...",
)
@click.option("-b", "--bootstrap", metavar="HOST:PORT", expose_value=True, help=bootstrap_text())
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print the version."
)
def drmq(bootstrap: str | None) -> None:
    """DRMQ, a message queue that any Kafka client can use.

    `drmq up` starts a local node, `drmq up --nodes 3` a cluster; `drmq COMMAND --help` explains a command.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    hints.asked(None)
    _open_closed_streams()
    _allow_any_bytes()
    try:
        result = drmq.main(list(arguments) if arguments is not None else None, prog_name="drmq", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except Terminated as ending:
        return ending.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        # Without any command, people ask what there is. A noun without its verb is a mistake.
        is_root = error.ctx.parent is None
        click.echo(error.format_message(), err=not is_root)
        return 0 if is_root else EXIT_USAGE
    except click.UsageError as error:
        hint = f"\n`{error.ctx.command_path} --help` shows the usage." if error.ctx is not None else ""
        return _fail(f"{error.format_message()}{hint}", EXIT_USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), EXIT_FAILED)
    except DrmqError as error:
        return _fail(hints.with_bootstrap(str(error)), EXIT_FAILED)
    except UnicodeEncodeError as error:
        # An argument is not UTF-8, and has reached the place that sends it. Anything else is a bug.
        if error.encoding != "utf-8" or not any("\udc80" <= character <= "\udcff" for character in error.object):
            raise
        return _fail(not_utf8(error.object), EXIT_USAGE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(os_error_text(error), EXIT_FAILED)


def _open_closed_streams() -> None:
    """Replace the standard streams that the process was started without, as with `>&-`; Python has None for them."""
    for name, flags, mode in (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


def _allow_any_bytes() -> None:
    """Print names of files that are not UTF-8, and read such answers, also where Python would refuse them."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")


def _fail(text: str, code: int) -> int:
    label = "error:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = "\x1b[1;31merror:\x1b[0m"
    print(f"{label} {text}", file=sys.stderr)
    return code
