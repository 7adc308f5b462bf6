"""The command line: noun, then verb; one module per noun, loaded when it is asked for.

`drmq --help` must answer before a person notices a wait, so nothing here imports the broker, a
client, rich or asyncio: a command imports what it needs inside its own module or function. The
table below therefore repeats each command's first line; a test compares the two.

`main` is the one place where failures become exit codes: 0 done, 1 failed or refused, 64 wrong
usage, 130 Ctrl-C. (`drmq status` answers monitors with 0 healthy, 1 degraded, 2 down, 3 cannot tell.)
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence

import click

from drmq.model import DrmqError

EXIT_FAILED = 1
EXIT_USAGE = 64
EXIT_INTERRUPTED = 130

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "server": ("drmq.server.cli.server", "Run one node in the foreground."),
        "up": (
            "drmq.server.cli.local",
            "Start a local node or cluster in the background and wait until it is healthy.",
        ),
        "down": ("drmq.server.cli.local", "Stop what `drmq up` started."),
        "node": ("drmq.server.cli.node", "Kill, pause, stop and start single nodes of a local cluster."),
        "status": ("drmq.server.cli.status", "Say in one sentence whether the cluster is healthy."),
    },
    "Cluster": {
        "cluster": ("drmq.server.cli.cluster", "Show the nodes of a cluster, and add, remove and rebalance them."),
        "raft": ("drmq.server.cli.raft", "Show the replica groups of partitions, and move their leaders."),
    },
    "Topics and records": {
        "topic": ("drmq.server.cli.topic", "List, create, change and delete topics."),
        "produce": ("drmq.server.cli.produce", "Send records from a file or from standard input."),
        "consume": ("drmq.server.cli.consume", "Print records."),
        "offsets": ("drmq.server.cli.offsets", "Show the first and last offsets of a topic, or those at a time."),
    },
    "Consumers": {
        "group": ("drmq.server.cli.group", "List, inspect, reset and delete consumer groups."),
    },
    "Spark": {
        "sql": ("drmq.server.cli.sql", "Answer a SQL query over topics, with Spark."),
        "spark": ("drmq.server.cli.spark", "Check, open and run Spark with topics as tables."),
    },
    "Files": {
        "log": ("drmq.server.cli.log", "Read and check segment files, without a broker."),
    },
    "Trust": {
        "simulate": ("drmq.server.cli.simulate", "Run a simulated cluster through crashes, cuts and full disks."),
    },
    "Help": {
        "version": ("drmq.server.cli.version", "Print the version."),
    },
}
"""Every command: where it is, and its first line of help."""

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class RootGroup(click.Group):
    """A group whose commands are imported when they are used, and not to be listed."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry[0]), name)
        assert isinstance(command, click.Command), name
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, first_line) for name, (_, first_line) in commands.items()])

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except BrokenPipeError:
            # Whoever read our output has seen enough: `drmq consume orders | head`. Python would
            # complain once more when it flushes standard output at the end, so that goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None


@click.group(
    cls=RootGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    subcommand_metavar="COMMAND ...",
)
def drmq() -> None:
    """DRMQ, a message queue that any Kafka client can use.

    `drmq up` starts a local node, `drmq up --nodes 3` a cluster; `drmq COMMAND --help` explains a command.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        result = drmq.main(list(arguments) if arguments is not None else None, prog_name="drmq", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        hint = f"\n`{error.ctx.command_path} --help` explains it." if error.ctx is not None else ""
        return _fail(f"{error.format_message()}{hint}", EXIT_USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), EXIT_FAILED)
    except DrmqError as error:
        return _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(_refused_by_the_system(error), EXIT_FAILED)


def _refused_by_the_system(error: OSError) -> str:
    """What the system did not let us do, and what a person can do about it."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"The system refused: {reason}."
    what = f"{os.fsdecode(error.filename)} cannot be used: {reason}."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{what} A part of that path is a file: choose another directory."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{what} Choose another path, or get the rights to it."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what} Make room on its disk, or choose a path on another one."
    return f"{what} Check the path, or choose another one."


def _fail(text: str, code: int) -> int:
    label = "error:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = "\x1b[1;31merror:\x1b[0m"
    print(f"{label} {text}", file=sys.stderr)
    return code
