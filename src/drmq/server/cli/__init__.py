"""The command line: noun, then verb; one module per noun, imported when it is used.

`drmq --help` must answer without a noticeable delay, so this module imports no broker, client, rich or asyncio: a
command imports what it needs in its own module or function. The table below therefore repeats the first line of each
command's help; a test compares the two.

`main` is the only place that turns failures into exit codes: 0 success, 1 failed or refused, 64 wrong usage, 130
Ctrl-C. (`drmq status` returns 0 healthy, 1 degraded, 2 down, 3 unknown, for monitoring.)
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
        "status": ("drmq.server.cli.status", "Report in one sentence whether the cluster is healthy."),
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
    },
    "Consumers": {
        "group": ("drmq.server.cli.group", "List, inspect, reset and delete consumer groups."),
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
        "version": ("drmq.server.cli.version", "Print the version."),
    },
}
"""Every command: its module, and the first line of its help."""

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class RootGroup(click.Group):
    """A group that imports a command when it is used, not when it is listed."""

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
            # The reader has closed the pipe, as in `drmq consume orders | head`. Python would report the broken pipe
            # again when it flushes standard output at exit, so standard output is redirected to nowhere.
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
        hint = f"\n`{error.ctx.command_path} --help` shows the usage." if error.ctx is not None else ""
        return _fail(f"{error.format_message()}{hint}", EXIT_USAGE)
    except click.ClickException as error:
        return _fail(error.format_message(), EXIT_FAILED)
    except DrmqError as error:
        return _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(_os_error_text(error), EXIT_FAILED)


def _os_error_text(error: OSError) -> str:
    """The failure of a system call in words, and what to do about it."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"A system call failed: {reason}."
    what = f"{os.fsdecode(error.filename)} cannot be used: {reason}."
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{what} Part of the path is a file. Choose another directory."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{what} Choose another path, or change its permissions."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what} Free space on its disk, or choose a path on another disk."
    return f"{what} Check the path, or choose another one."


def _fail(text: str, code: int) -> int:
    label = "error:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        label = "\x1b[1;31merror:\x1b[0m"
    print(f"{label} {text}", file=sys.stderr)
    return code
